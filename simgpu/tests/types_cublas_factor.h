/* types_cublas_factor.h: a part of types_cublas.h: the functions of simgpu_cublas/factor.h. */
CHECK_ONE(cublasSgetrfBatched, cublasStatus_t (*)(cublasHandle_t, int, float *const *, int, int *,
      int *, int))
CHECK_ONE(cublasDgetrfBatched, cublasStatus_t (*)(cublasHandle_t, int, double *const *, int, int *,
      int *, int))
CHECK_ONE(cublasCgetrfBatched, cublasStatus_t (*)(cublasHandle_t, int, cuComplex *const *, int, int
      *, int *, int))
CHECK_ONE(cublasZgetrfBatched, cublasStatus_t (*)(cublasHandle_t, int, cuDoubleComplex *const *,
      int, int *, int *, int))
CHECK_ONE(cublasSgetrsBatched, cublasStatus_t (*)(cublasHandle_t, cublasOperation_t, int, int, const
      float *const *, int, const int *, float *const *, int, int *, int))
CHECK_ONE(cublasDgetrsBatched, cublasStatus_t (*)(cublasHandle_t, cublasOperation_t, int, int, const
      double *const *, int, const int *, double *const *, int, int *, int))
CHECK_ONE(cublasCgetrsBatched, cublasStatus_t (*)(cublasHandle_t, cublasOperation_t, int, int, const
      cuComplex *const *, int, const int *, cuComplex *const *, int, int *, int))
CHECK_ONE(cublasZgetrsBatched, cublasStatus_t (*)(cublasHandle_t, cublasOperation_t, int, int, const
      cuDoubleComplex *const *, int, const int *, cuDoubleComplex *const *, int, int *, int))
CHECK_ONE(cublasSgetriBatched, cublasStatus_t (*)(cublasHandle_t, int, const float *const *, int,
      const int *, float *const *, int, int *, int))
CHECK_ONE(cublasDgetriBatched, cublasStatus_t (*)(cublasHandle_t, int, const double *const *, int,
      const int *, double *const *, int, int *, int))
CHECK_ONE(cublasCgetriBatched, cublasStatus_t (*)(cublasHandle_t, int, const cuComplex *const *,
      int, const int *, cuComplex *const *, int, int *, int))
CHECK_ONE(cublasZgetriBatched, cublasStatus_t (*)(cublasHandle_t, int, const cuDoubleComplex *const
      *, int, const int *, cuDoubleComplex *const *, int, int *, int))
CHECK_ONE(cublasSmatinvBatched, cublasStatus_t (*)(cublasHandle_t, int, const float *const *, int,
      float *const *, int, int *, int))
CHECK_ONE(cublasDmatinvBatched, cublasStatus_t (*)(cublasHandle_t, int, const double *const *, int,
      double *const *, int, int *, int))
CHECK_ONE(cublasCmatinvBatched, cublasStatus_t (*)(cublasHandle_t, int, const cuComplex *const *,
      int, cuComplex *const *, int, int *, int))
CHECK_ONE(cublasZmatinvBatched, cublasStatus_t (*)(cublasHandle_t, int, const cuDoubleComplex *const
      *, int, cuDoubleComplex *const *, int, int *, int))
CHECK_ONE(cublasSgeqrfBatched, cublasStatus_t (*)(cublasHandle_t, int, int, float *const *, int,
      float *const *, int *, int))
CHECK_ONE(cublasDgeqrfBatched, cublasStatus_t (*)(cublasHandle_t, int, int, double *const *, int,
      double *const *, int *, int))
CHECK_ONE(cublasCgeqrfBatched, cublasStatus_t (*)(cublasHandle_t, int, int, cuComplex *const *, int,
      cuComplex *const *, int *, int))
CHECK_ONE(cublasZgeqrfBatched, cublasStatus_t (*)(cublasHandle_t, int, int, cuDoubleComplex *const
      *, int, cuDoubleComplex *const *, int *, int))
CHECK_ONE(cublasSgelsBatched, cublasStatus_t (*)(cublasHandle_t, cublasOperation_t, int, int, int,
      float *const *, int, float *const *, int, int *, int *, int))
CHECK_ONE(cublasDgelsBatched, cublasStatus_t (*)(cublasHandle_t, cublasOperation_t, int, int, int,
      double *const *, int, double *const *, int, int *, int *, int))
CHECK_ONE(cublasCgelsBatched, cublasStatus_t (*)(cublasHandle_t, cublasOperation_t, int, int, int,
      cuComplex *const *, int, cuComplex *const *, int, int *, int *, int))
CHECK_ONE(cublasZgelsBatched, cublasStatus_t (*)(cublasHandle_t, cublasOperation_t, int, int, int,
      cuDoubleComplex *const *, int, cuDoubleComplex *const *, int, int *, int *, int))
