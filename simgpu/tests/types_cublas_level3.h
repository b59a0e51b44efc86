/* types_cublas_level3.h: a part of types_cublas.h: the functions of simgpu_cublas/level3.h. */
CHECK(cublasSgemm_v2, cublasStatus_t (*)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int,
      int, int, const float *, const float *, int, const float *, int, const float *, float *,
      int))
CHECK(cublasDgemm_v2, cublasStatus_t (*)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int,
      int, int, const double *, const double *, int, const double *, int, const double *, double *,
      int))
CHECK(cublasCgemm_v2, cublasStatus_t (*)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int,
      int, int, const cuComplex *, const cuComplex *, int, const cuComplex *, int, const cuComplex
      *, cuComplex *, int))
CHECK(cublasCgemm3m, cublasStatus_t (*)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int,
      int, int, const cuComplex *, const cuComplex *, int, const cuComplex *, int, const cuComplex
      *, cuComplex *, int))
CHECK(cublasCgemm3mEx, cublasStatus_t (*)(cublasHandle_t, cublasOperation_t, cublasOperation_t,
      int, int, int, const cuComplex *, const void *, cudaDataType, int, const void *,
      cudaDataType, int, const cuComplex *, void *, cudaDataType, int))
CHECK(cublasZgemm_v2, cublasStatus_t (*)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int,
      int, int, const cuDoubleComplex *, const cuDoubleComplex *, int, const cuDoubleComplex *,
      int, const cuDoubleComplex *, cuDoubleComplex *, int))
CHECK(cublasZgemm3m, cublasStatus_t (*)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int,
      int, int, const cuDoubleComplex *, const cuDoubleComplex *, int, const cuDoubleComplex *,
      int, const cuDoubleComplex *, cuDoubleComplex *, int))
CHECK(cublasSgemmEx, cublasStatus_t (*)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int,
      int, int, const float *, const void *, cudaDataType, int, const void *, cudaDataType, int,
      const float *, void *, cudaDataType, int))
CHECK(cublasGemmEx, cublasStatus_t (*)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int,
      int, int, const void *, const void *, cudaDataType, int, const void *, cudaDataType, int,
      const void *, void *, cudaDataType, int, cublasComputeType_t, cublasGemmAlgo_t))
CHECK(cublasCgemmEx, cublasStatus_t (*)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int,
      int, int, const cuComplex *, const void *, cudaDataType, int, const void *, cudaDataType,
      int, const cuComplex *, void *, cudaDataType, int))
CHECK(cublasSsyrk_v2, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, cublasOperation_t, int,
      int, const float *, const float *, int, const float *, float *, int))
CHECK(cublasDsyrk_v2, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, cublasOperation_t, int,
      int, const double *, const double *, int, const double *, double *, int))
CHECK(cublasCsyrk_v2, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, cublasOperation_t, int,
      int, const cuComplex *, const cuComplex *, int, const cuComplex *, cuComplex *, int))
CHECK(cublasZsyrk_v2, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, cublasOperation_t, int,
      int, const cuDoubleComplex *, const cuDoubleComplex *, int, const cuDoubleComplex *,
      cuDoubleComplex *, int))
CHECK(cublasCsyrkEx, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, cublasOperation_t, int,
      int, const cuComplex *, const void *, cudaDataType, int, const cuComplex *, void *,
      cudaDataType, int))
CHECK(cublasCsyrk3mEx, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, cublasOperation_t, int,
      int, const cuComplex *, const void *, cudaDataType, int, const cuComplex *, void *,
      cudaDataType, int))
CHECK(cublasCherk_v2, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, cublasOperation_t, int,
      int, const float *, const cuComplex *, int, const float *, cuComplex *, int))
CHECK(cublasZherk_v2, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, cublasOperation_t, int,
      int, const double *, const cuDoubleComplex *, int, const double *, cuDoubleComplex *, int))
CHECK(cublasCherkEx, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, cublasOperation_t, int,
      int, const float *, const void *, cudaDataType, int, const float *, void *, cudaDataType,
      int))
CHECK(cublasCherk3mEx, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, cublasOperation_t, int,
      int, const float *, const void *, cudaDataType, int, const float *, void *, cudaDataType,
      int))
CHECK(cublasSsyr2k_v2, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, cublasOperation_t, int,
      int, const float *, const float *, int, const float *, int, const float *, float *, int))
CHECK(cublasDsyr2k_v2, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, cublasOperation_t, int,
      int, const double *, const double *, int, const double *, int, const double *, double *,
      int))
CHECK(cublasCsyr2k_v2, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, cublasOperation_t, int,
      int, const cuComplex *, const cuComplex *, int, const cuComplex *, int, const cuComplex *,
      cuComplex *, int))
CHECK(cublasZsyr2k_v2, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, cublasOperation_t, int,
      int, const cuDoubleComplex *, const cuDoubleComplex *, int, const cuDoubleComplex *, int,
      const cuDoubleComplex *, cuDoubleComplex *, int))
CHECK(cublasCher2k_v2, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, cublasOperation_t, int,
      int, const cuComplex *, const cuComplex *, int, const cuComplex *, int, const float *,
      cuComplex *, int))
CHECK(cublasZher2k_v2, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, cublasOperation_t, int,
      int, const cuDoubleComplex *, const cuDoubleComplex *, int, const cuDoubleComplex *, int,
      const double *, cuDoubleComplex *, int))
CHECK(cublasSsyrkx, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, cublasOperation_t, int,
      int, const float *, const float *, int, const float *, int, const float *, float *, int))
CHECK(cublasDsyrkx, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, cublasOperation_t, int,
      int, const double *, const double *, int, const double *, int, const double *, double *,
      int))
CHECK(cublasCsyrkx, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, cublasOperation_t, int,
      int, const cuComplex *, const cuComplex *, int, const cuComplex *, int, const cuComplex *,
      cuComplex *, int))
CHECK(cublasZsyrkx, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, cublasOperation_t, int,
      int, const cuDoubleComplex *, const cuDoubleComplex *, int, const cuDoubleComplex *, int,
      const cuDoubleComplex *, cuDoubleComplex *, int))
CHECK(cublasCherkx, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, cublasOperation_t, int,
      int, const cuComplex *, const cuComplex *, int, const cuComplex *, int, const float *,
      cuComplex *, int))
CHECK(cublasZherkx, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, cublasOperation_t, int,
      int, const cuDoubleComplex *, const cuDoubleComplex *, int, const cuDoubleComplex *, int,
      const double *, cuDoubleComplex *, int))
CHECK(cublasSsymm_v2, cublasStatus_t (*)(cublasHandle_t, cublasSideMode_t, cublasFillMode_t, int,
      int, const float *, const float *, int, const float *, int, const float *, float *, int))
CHECK(cublasDsymm_v2, cublasStatus_t (*)(cublasHandle_t, cublasSideMode_t, cublasFillMode_t, int,
      int, const double *, const double *, int, const double *, int, const double *, double *,
      int))
CHECK(cublasCsymm_v2, cublasStatus_t (*)(cublasHandle_t, cublasSideMode_t, cublasFillMode_t, int,
      int, const cuComplex *, const cuComplex *, int, const cuComplex *, int, const cuComplex *,
      cuComplex *, int))
CHECK(cublasZsymm_v2, cublasStatus_t (*)(cublasHandle_t, cublasSideMode_t, cublasFillMode_t, int,
      int, const cuDoubleComplex *, const cuDoubleComplex *, int, const cuDoubleComplex *, int,
      const cuDoubleComplex *, cuDoubleComplex *, int))
CHECK(cublasChemm_v2, cublasStatus_t (*)(cublasHandle_t, cublasSideMode_t, cublasFillMode_t, int,
      int, const cuComplex *, const cuComplex *, int, const cuComplex *, int, const cuComplex *,
      cuComplex *, int))
CHECK(cublasZhemm_v2, cublasStatus_t (*)(cublasHandle_t, cublasSideMode_t, cublasFillMode_t, int,
      int, const cuDoubleComplex *, const cuDoubleComplex *, int, const cuDoubleComplex *, int,
      const cuDoubleComplex *, cuDoubleComplex *, int))
CHECK(cublasStrsm_v2, cublasStatus_t (*)(cublasHandle_t, cublasSideMode_t, cublasFillMode_t,
      cublasOperation_t, cublasDiagType_t, int, int, const float *, const float *, int, float *,
      int))
CHECK(cublasDtrsm_v2, cublasStatus_t (*)(cublasHandle_t, cublasSideMode_t, cublasFillMode_t,
      cublasOperation_t, cublasDiagType_t, int, int, const double *, const double *, int, double *,
      int))
CHECK(cublasCtrsm_v2, cublasStatus_t (*)(cublasHandle_t, cublasSideMode_t, cublasFillMode_t,
      cublasOperation_t, cublasDiagType_t, int, int, const cuComplex *, const cuComplex *, int,
      cuComplex *, int))
CHECK(cublasZtrsm_v2, cublasStatus_t (*)(cublasHandle_t, cublasSideMode_t, cublasFillMode_t,
      cublasOperation_t, cublasDiagType_t, int, int, const cuDoubleComplex *, const cuDoubleComplex
      *, int, cuDoubleComplex *, int))
CHECK(cublasStrmm_v2, cublasStatus_t (*)(cublasHandle_t, cublasSideMode_t, cublasFillMode_t,
      cublasOperation_t, cublasDiagType_t, int, int, const float *, const float *, int, const float
      *, int, float *, int))
CHECK(cublasDtrmm_v2, cublasStatus_t (*)(cublasHandle_t, cublasSideMode_t, cublasFillMode_t,
      cublasOperation_t, cublasDiagType_t, int, int, const double *, const double *, int, const
      double *, int, double *, int))
CHECK(cublasCtrmm_v2, cublasStatus_t (*)(cublasHandle_t, cublasSideMode_t, cublasFillMode_t,
      cublasOperation_t, cublasDiagType_t, int, int, const cuComplex *, const cuComplex *, int,
      const cuComplex *, int, cuComplex *, int))
CHECK(cublasZtrmm_v2, cublasStatus_t (*)(cublasHandle_t, cublasSideMode_t, cublasFillMode_t,
      cublasOperation_t, cublasDiagType_t, int, int, const cuDoubleComplex *, const cuDoubleComplex
      *, int, const cuDoubleComplex *, int, cuDoubleComplex *, int))
CHECK(cublasSgemmBatched, cublasStatus_t (*)(cublasHandle_t, cublasOperation_t, cublasOperation_t,
      int, int, int, const float *, const float *const *, int, const float *const *, int, const
      float *, float *const *, int, int))
CHECK(cublasDgemmBatched, cublasStatus_t (*)(cublasHandle_t, cublasOperation_t, cublasOperation_t,
      int, int, int, const double *, const double *const *, int, const double *const *, int, const
      double *, double *const *, int, int))
CHECK(cublasCgemmBatched, cublasStatus_t (*)(cublasHandle_t, cublasOperation_t, cublasOperation_t,
      int, int, int, const cuComplex *, const cuComplex *const *, int, const cuComplex *const *,
      int, const cuComplex *, cuComplex *const *, int, int))
CHECK(cublasCgemm3mBatched, cublasStatus_t (*)(cublasHandle_t, cublasOperation_t,
      cublasOperation_t, int, int, int, const cuComplex *, const cuComplex *const *, int, const
      cuComplex *const *, int, const cuComplex *, cuComplex *const *, int, int))
CHECK(cublasZgemmBatched, cublasStatus_t (*)(cublasHandle_t, cublasOperation_t, cublasOperation_t,
      int, int, int, const cuDoubleComplex *, const cuDoubleComplex *const *, int, const
      cuDoubleComplex *const *, int, const cuDoubleComplex *, cuDoubleComplex *const *, int, int))
CHECK(cublasSgemmStridedBatched, cublasStatus_t (*)(cublasHandle_t, cublasOperation_t,
      cublasOperation_t, int, int, int, const float *, const float *, int, long long, const
      float *, int, long long, const float *, float *, int, long long, int))
CHECK(cublasDgemmStridedBatched, cublasStatus_t (*)(cublasHandle_t, cublasOperation_t,
      cublasOperation_t, int, int, int, const double *, const double *, int, long long, const
      double *, int, long long, const double *, double *, int, long long, int))
CHECK(cublasCgemmStridedBatched, cublasStatus_t (*)(cublasHandle_t, cublasOperation_t,
      cublasOperation_t, int, int, int, const cuComplex *, const cuComplex *, int, long long,
      const cuComplex *, int, long long, const cuComplex *, cuComplex *, int, long long,
      int))
CHECK(cublasCgemm3mStridedBatched, cublasStatus_t (*)(cublasHandle_t, cublasOperation_t,
      cublasOperation_t, int, int, int, const cuComplex *, const cuComplex *, int, long long,
      const cuComplex *, int, long long, const cuComplex *, cuComplex *, int, long long,
      int))
CHECK(cublasZgemmStridedBatched, cublasStatus_t (*)(cublasHandle_t, cublasOperation_t,
      cublasOperation_t, int, int, int, const cuDoubleComplex *, const cuDoubleComplex *, int, long
      long, const cuDoubleComplex *, int, long long, const cuDoubleComplex *, cuDoubleComplex *,
      int, long long, int))
CHECK(cublasGemmBatchedEx, cublasStatus_t (*)(cublasHandle_t, cublasOperation_t, cublasOperation_t,
      int, int, int, const void *, const void *const *, cudaDataType, int, const void *const *,
      cudaDataType, int, const void *, void *const *, cudaDataType, int, int, cublasComputeType_t,
      cublasGemmAlgo_t))
CHECK(cublasGemmStridedBatchedEx, cublasStatus_t (*)(cublasHandle_t, cublasOperation_t,
      cublasOperation_t, int, int, int, const void *, const void *, cudaDataType, int, long long,
      const void *, cudaDataType, int, long long, const void *, void *, cudaDataType, int, long
      long, int, cublasComputeType_t, cublasGemmAlgo_t))
CHECK(cublasSgemmGroupedBatched, cublasStatus_t (*)(cublasHandle_t, const cublasOperation_t *,
      const cublasOperation_t *, const int *, const int *, const int *, const float *, const float
      *const *, const int *, const float *const *, const int *, const float *, float *const *,
      const int *, int, const int *))
CHECK(cublasDgemmGroupedBatched, cublasStatus_t (*)(cublasHandle_t, const cublasOperation_t *,
      const cublasOperation_t *, const int *, const int *, const int *, const double *, const
      double *const *, const int *, const double *const *, const int *, const double *, double
      *const *, const int *, int, const int *))
CHECK(cublasGemmGroupedBatchedEx, cublasStatus_t (*)(cublasHandle_t, const cublasOperation_t *,
      const cublasOperation_t *, const int *, const int *, const int *, const void *, const void
      *const *, cudaDataType_t, const int *, const void *const *, cudaDataType_t, const int *,
      const void *, void *const *, cudaDataType_t, const int *, int, const int *,
      cublasComputeType_t))
CHECK(cublasStrsmBatched, cublasStatus_t (*)(cublasHandle_t, cublasSideMode_t, cublasFillMode_t,
      cublasOperation_t, cublasDiagType_t, int, int, const float *, const float *const *, int,
      float *const *, int, int))
CHECK(cublasDtrsmBatched, cublasStatus_t (*)(cublasHandle_t, cublasSideMode_t, cublasFillMode_t,
      cublasOperation_t, cublasDiagType_t, int, int, const double *, const double *const *, int,
      double *const *, int, int))
CHECK(cublasCtrsmBatched, cublasStatus_t (*)(cublasHandle_t, cublasSideMode_t, cublasFillMode_t,
      cublasOperation_t, cublasDiagType_t, int, int, const cuComplex *, const cuComplex *const *,
      int, cuComplex *const *, int, int))
CHECK(cublasZtrsmBatched, cublasStatus_t (*)(cublasHandle_t, cublasSideMode_t, cublasFillMode_t,
      cublasOperation_t, cublasDiagType_t, int, int, const cuDoubleComplex *, const cuDoubleComplex
      *const *, int, cuDoubleComplex *const *, int, int))
