/* types_cublas_extra.h: a part of types_cublas.h: the functions of simgpu_cublas/extra.h. */
CHECK(cublasSgeam, cublasStatus_t (*)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int,
      int, const float *, const float *, int, const float *, const float *, int, float *, int))
CHECK(cublasDgeam, cublasStatus_t (*)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int,
      int, const double *, const double *, int, const double *, const double *, int, double *,
      int))
CHECK(cublasCgeam, cublasStatus_t (*)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int,
      int, const cuComplex *, const cuComplex *, int, const cuComplex *, const cuComplex *, int,
      cuComplex *, int))
CHECK(cublasZgeam, cublasStatus_t (*)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int,
      int, const cuDoubleComplex *, const cuDoubleComplex *, int, const cuDoubleComplex *, const
      cuDoubleComplex *, int, cuDoubleComplex *, int))
CHECK(cublasSdgmm, cublasStatus_t (*)(cublasHandle_t, cublasSideMode_t, int, int, const float *,
      int, const float *, int, float *, int))
CHECK(cublasDdgmm, cublasStatus_t (*)(cublasHandle_t, cublasSideMode_t, int, int, const double *,
      int, const double *, int, double *, int))
CHECK(cublasCdgmm, cublasStatus_t (*)(cublasHandle_t, cublasSideMode_t, int, int, const cuComplex
      *, int, const cuComplex *, int, cuComplex *, int))
CHECK(cublasZdgmm, cublasStatus_t (*)(cublasHandle_t, cublasSideMode_t, int, int, const
      cuDoubleComplex *, int, const cuDoubleComplex *, int, cuDoubleComplex *, int))
CHECK_ONE(cublasStpttr, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, int, const float *,
      float *, int))
CHECK_ONE(cublasDtpttr, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, int, const double *,
      double *, int))
CHECK_ONE(cublasCtpttr, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, int, const cuComplex *,
      cuComplex *, int))
CHECK_ONE(cublasZtpttr, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, int, const
      cuDoubleComplex *, cuDoubleComplex *, int))
CHECK_ONE(cublasStrttp, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, int, const float *,
      int, float *))
CHECK_ONE(cublasDtrttp, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, int, const double *,
      int, double *))
CHECK_ONE(cublasCtrttp, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, int, const cuComplex *,
      int, cuComplex *))
CHECK_ONE(cublasZtrttp, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, int, const
      cuDoubleComplex *, int, cuDoubleComplex *))
