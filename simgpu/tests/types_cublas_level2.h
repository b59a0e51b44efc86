/* types_cublas_level2.h: a part of types_cublas.h: the functions of simgpu_cublas/level2.h. */
CHECK(cublasSgemv_v2, cublasStatus_t (*)(cublasHandle_t, cublasOperation_t, int, int, const float
      *, const float *, int, const float *, int, const float *, float *, int))
CHECK(cublasDgemv_v2, cublasStatus_t (*)(cublasHandle_t, cublasOperation_t, int, int, const double
      *, const double *, int, const double *, int, const double *, double *, int))
CHECK(cublasCgemv_v2, cublasStatus_t (*)(cublasHandle_t, cublasOperation_t, int, int, const
      cuComplex *, const cuComplex *, int, const cuComplex *, int, const cuComplex *, cuComplex *,
      int))
CHECK(cublasZgemv_v2, cublasStatus_t (*)(cublasHandle_t, cublasOperation_t, int, int, const
      cuDoubleComplex *, const cuDoubleComplex *, int, const cuDoubleComplex *, int, const
      cuDoubleComplex *, cuDoubleComplex *, int))
CHECK(cublasSgbmv_v2, cublasStatus_t (*)(cublasHandle_t, cublasOperation_t, int, int, int, int,
      const float *, const float *, int, const float *, int, const float *, float *, int))
CHECK(cublasDgbmv_v2, cublasStatus_t (*)(cublasHandle_t, cublasOperation_t, int, int, int, int,
      const double *, const double *, int, const double *, int, const double *, double *, int))
CHECK(cublasCgbmv_v2, cublasStatus_t (*)(cublasHandle_t, cublasOperation_t, int, int, int, int,
      const cuComplex *, const cuComplex *, int, const cuComplex *, int, const cuComplex *,
      cuComplex *, int))
CHECK(cublasZgbmv_v2, cublasStatus_t (*)(cublasHandle_t, cublasOperation_t, int, int, int, int,
      const cuDoubleComplex *, const cuDoubleComplex *, int, const cuDoubleComplex *, int, const
      cuDoubleComplex *, cuDoubleComplex *, int))
CHECK(cublasStrmv_v2, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, cublasOperation_t,
      cublasDiagType_t, int, const float *, int, float *, int))
CHECK(cublasDtrmv_v2, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, cublasOperation_t,
      cublasDiagType_t, int, const double *, int, double *, int))
CHECK(cublasCtrmv_v2, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, cublasOperation_t,
      cublasDiagType_t, int, const cuComplex *, int, cuComplex *, int))
CHECK(cublasZtrmv_v2, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, cublasOperation_t,
      cublasDiagType_t, int, const cuDoubleComplex *, int, cuDoubleComplex *, int))
CHECK(cublasStbmv_v2, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, cublasOperation_t,
      cublasDiagType_t, int, int, const float *, int, float *, int))
CHECK(cublasDtbmv_v2, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, cublasOperation_t,
      cublasDiagType_t, int, int, const double *, int, double *, int))
CHECK(cublasCtbmv_v2, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, cublasOperation_t,
      cublasDiagType_t, int, int, const cuComplex *, int, cuComplex *, int))
CHECK(cublasZtbmv_v2, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, cublasOperation_t,
      cublasDiagType_t, int, int, const cuDoubleComplex *, int, cuDoubleComplex *, int))
CHECK(cublasStpmv_v2, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, cublasOperation_t,
      cublasDiagType_t, int, const float *, float *, int))
CHECK(cublasDtpmv_v2, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, cublasOperation_t,
      cublasDiagType_t, int, const double *, double *, int))
CHECK(cublasCtpmv_v2, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, cublasOperation_t,
      cublasDiagType_t, int, const cuComplex *, cuComplex *, int))
CHECK(cublasZtpmv_v2, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, cublasOperation_t,
      cublasDiagType_t, int, const cuDoubleComplex *, cuDoubleComplex *, int))
CHECK(cublasStrsv_v2, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, cublasOperation_t,
      cublasDiagType_t, int, const float *, int, float *, int))
CHECK(cublasDtrsv_v2, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, cublasOperation_t,
      cublasDiagType_t, int, const double *, int, double *, int))
CHECK(cublasCtrsv_v2, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, cublasOperation_t,
      cublasDiagType_t, int, const cuComplex *, int, cuComplex *, int))
CHECK(cublasZtrsv_v2, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, cublasOperation_t,
      cublasDiagType_t, int, const cuDoubleComplex *, int, cuDoubleComplex *, int))
CHECK(cublasStpsv_v2, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, cublasOperation_t,
      cublasDiagType_t, int, const float *, float *, int))
CHECK(cublasDtpsv_v2, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, cublasOperation_t,
      cublasDiagType_t, int, const double *, double *, int))
CHECK(cublasCtpsv_v2, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, cublasOperation_t,
      cublasDiagType_t, int, const cuComplex *, cuComplex *, int))
CHECK(cublasZtpsv_v2, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, cublasOperation_t,
      cublasDiagType_t, int, const cuDoubleComplex *, cuDoubleComplex *, int))
CHECK(cublasStbsv_v2, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, cublasOperation_t,
      cublasDiagType_t, int, int, const float *, int, float *, int))
CHECK(cublasDtbsv_v2, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, cublasOperation_t,
      cublasDiagType_t, int, int, const double *, int, double *, int))
CHECK(cublasCtbsv_v2, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, cublasOperation_t,
      cublasDiagType_t, int, int, const cuComplex *, int, cuComplex *, int))
CHECK(cublasZtbsv_v2, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, cublasOperation_t,
      cublasDiagType_t, int, int, const cuDoubleComplex *, int, cuDoubleComplex *, int))
CHECK(cublasSsymv_v2, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, int, const float *,
      const float *, int, const float *, int, const float *, float *, int))
CHECK(cublasDsymv_v2, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, int, const double *,
      const double *, int, const double *, int, const double *, double *, int))
CHECK(cublasCsymv_v2, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, int, const cuComplex *,
      const cuComplex *, int, const cuComplex *, int, const cuComplex *, cuComplex *, int))
CHECK(cublasZsymv_v2, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, int, const
      cuDoubleComplex *, const cuDoubleComplex *, int, const cuDoubleComplex *, int, const
      cuDoubleComplex *, cuDoubleComplex *, int))
CHECK(cublasChemv_v2, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, int, const cuComplex *,
      const cuComplex *, int, const cuComplex *, int, const cuComplex *, cuComplex *, int))
CHECK(cublasZhemv_v2, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, int, const
      cuDoubleComplex *, const cuDoubleComplex *, int, const cuDoubleComplex *, int, const
      cuDoubleComplex *, cuDoubleComplex *, int))
CHECK(cublasSsbmv_v2, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, int, int, const float *,
      const float *, int, const float *, int, const float *, float *, int))
CHECK(cublasDsbmv_v2, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, int, int, const double
      *, const double *, int, const double *, int, const double *, double *, int))
CHECK(cublasChbmv_v2, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, int, int, const
      cuComplex *, const cuComplex *, int, const cuComplex *, int, const cuComplex *, cuComplex *,
      int))
CHECK(cublasZhbmv_v2, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, int, int, const
      cuDoubleComplex *, const cuDoubleComplex *, int, const cuDoubleComplex *, int, const
      cuDoubleComplex *, cuDoubleComplex *, int))
CHECK(cublasSspmv_v2, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, int, const float *,
      const float *, const float *, int, const float *, float *, int))
CHECK(cublasDspmv_v2, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, int, const double *,
      const double *, const double *, int, const double *, double *, int))
CHECK(cublasChpmv_v2, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, int, const cuComplex *,
      const cuComplex *, const cuComplex *, int, const cuComplex *, cuComplex *, int))
CHECK(cublasZhpmv_v2, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, int, const
      cuDoubleComplex *, const cuDoubleComplex *, const cuDoubleComplex *, int, const
      cuDoubleComplex *, cuDoubleComplex *, int))
CHECK(cublasSger_v2, cublasStatus_t (*)(cublasHandle_t, int, int, const float *, const float *,
      int, const float *, int, float *, int))
CHECK(cublasDger_v2, cublasStatus_t (*)(cublasHandle_t, int, int, const double *, const double *,
      int, const double *, int, double *, int))
CHECK(cublasCgeru_v2, cublasStatus_t (*)(cublasHandle_t, int, int, const cuComplex *, const
      cuComplex *, int, const cuComplex *, int, cuComplex *, int))
CHECK(cublasCgerc_v2, cublasStatus_t (*)(cublasHandle_t, int, int, const cuComplex *, const
      cuComplex *, int, const cuComplex *, int, cuComplex *, int))
CHECK(cublasZgeru_v2, cublasStatus_t (*)(cublasHandle_t, int, int, const cuDoubleComplex *, const
      cuDoubleComplex *, int, const cuDoubleComplex *, int, cuDoubleComplex *, int))
CHECK(cublasZgerc_v2, cublasStatus_t (*)(cublasHandle_t, int, int, const cuDoubleComplex *, const
      cuDoubleComplex *, int, const cuDoubleComplex *, int, cuDoubleComplex *, int))
CHECK(cublasSsyr_v2, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, int, const float *, const
      float *, int, float *, int))
CHECK(cublasDsyr_v2, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, int, const double *,
      const double *, int, double *, int))
CHECK(cublasCsyr_v2, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, int, const cuComplex *,
      const cuComplex *, int, cuComplex *, int))
CHECK(cublasZsyr_v2, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, int, const
      cuDoubleComplex *, const cuDoubleComplex *, int, cuDoubleComplex *, int))
CHECK(cublasCher_v2, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, int, const float *, const
      cuComplex *, int, cuComplex *, int))
CHECK(cublasZher_v2, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, int, const double *,
      const cuDoubleComplex *, int, cuDoubleComplex *, int))
CHECK(cublasSspr_v2, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, int, const float *, const
      float *, int, float *))
CHECK(cublasDspr_v2, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, int, const double *,
      const double *, int, double *))
CHECK(cublasChpr_v2, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, int, const float *, const
      cuComplex *, int, cuComplex *))
CHECK(cublasZhpr_v2, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, int, const double *,
      const cuDoubleComplex *, int, cuDoubleComplex *))
CHECK(cublasSsyr2_v2, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, int, const float *,
      const float *, int, const float *, int, float *, int))
CHECK(cublasDsyr2_v2, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, int, const double *,
      const double *, int, const double *, int, double *, int))
CHECK(cublasCsyr2_v2, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, int, const cuComplex *,
      const cuComplex *, int, const cuComplex *, int, cuComplex *, int))
CHECK(cublasZsyr2_v2, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, int, const
      cuDoubleComplex *, const cuDoubleComplex *, int, const cuDoubleComplex *, int,
      cuDoubleComplex *, int))
CHECK(cublasCher2_v2, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, int, const cuComplex *,
      const cuComplex *, int, const cuComplex *, int, cuComplex *, int))
CHECK(cublasZher2_v2, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, int, const
      cuDoubleComplex *, const cuDoubleComplex *, int, const cuDoubleComplex *, int,
      cuDoubleComplex *, int))
CHECK(cublasSspr2_v2, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, int, const float *,
      const float *, int, const float *, int, float *))
CHECK(cublasDspr2_v2, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, int, const double *,
      const double *, int, const double *, int, double *))
CHECK(cublasChpr2_v2, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, int, const cuComplex *,
      const cuComplex *, int, const cuComplex *, int, cuComplex *))
CHECK(cublasZhpr2_v2, cublasStatus_t (*)(cublasHandle_t, cublasFillMode_t, int, const
      cuDoubleComplex *, const cuDoubleComplex *, int, const cuDoubleComplex *, int,
      cuDoubleComplex *))
CHECK(cublasSgemvBatched, cublasStatus_t (*)(cublasHandle_t, cublasOperation_t, int, int, const
      float *, const float *const *, int, const float *const *, int, const float *, float *const *,
      int, int))
CHECK(cublasDgemvBatched, cublasStatus_t (*)(cublasHandle_t, cublasOperation_t, int, int, const
      double *, const double *const *, int, const double *const *, int, const double *, double
      *const *, int, int))
CHECK(cublasCgemvBatched, cublasStatus_t (*)(cublasHandle_t, cublasOperation_t, int, int, const
      cuComplex *, const cuComplex *const *, int, const cuComplex *const *, int, const cuComplex *,
      cuComplex *const *, int, int))
CHECK(cublasZgemvBatched, cublasStatus_t (*)(cublasHandle_t, cublasOperation_t, int, int, const
      cuDoubleComplex *, const cuDoubleComplex *const *, int, const cuDoubleComplex *const *, int,
      const cuDoubleComplex *, cuDoubleComplex *const *, int, int))
CHECK(cublasSgemvStridedBatched, cublasStatus_t (*)(cublasHandle_t, cublasOperation_t, int, int,
      const float *, const float *, int, long long, const float *, int, long long, const
      float *, float *, int, long long, int))
CHECK(cublasDgemvStridedBatched, cublasStatus_t (*)(cublasHandle_t, cublasOperation_t, int, int,
      const double *, const double *, int, long long, const double *, int, long long, const
      double *, double *, int, long long, int))
CHECK(cublasCgemvStridedBatched, cublasStatus_t (*)(cublasHandle_t, cublasOperation_t, int, int,
      const cuComplex *, const cuComplex *, int, long long, const cuComplex *, int, long long, const
      cuComplex *, cuComplex *, int, long long, int))
CHECK(cublasZgemvStridedBatched, cublasStatus_t (*)(cublasHandle_t, cublasOperation_t, int, int,
      const cuDoubleComplex *, const cuDoubleComplex *, int, long long, const cuDoubleComplex
      *, int, long long, const cuDoubleComplex *, cuDoubleComplex *, int, long long, int))
