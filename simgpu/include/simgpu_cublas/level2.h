/* level2.h: a part of cublas_api.h, which includes it: a matrix and vectors.
 *
 * Source: cuBLAS 13 headers (names and types).
 */
cublasStatus_t CUBLASWINAPI cublasSgemv_v2(cublasHandle_t handle, cublasOperation_t trans, int m,
                                           int n, const float *alpha, const float *A, int lda,
                                           const float *x, int incx, const float *beta, float *y,
                                           int incy);
cublasStatus_t CUBLASWINAPI cublasDgemv_v2(cublasHandle_t handle, cublasOperation_t trans, int m,
                                           int n, const double *alpha, const double *A, int lda,
                                           const double *x, int incx, const double *beta, double *y,
                                           int incy);
cublasStatus_t CUBLASWINAPI cublasCgemv_v2(cublasHandle_t handle, cublasOperation_t trans, int m,
                                           int n, const cuComplex *alpha, const cuComplex *A,
                                           int lda, const cuComplex *x, int incx,
                                           const cuComplex *beta, cuComplex *y, int incy);
cublasStatus_t CUBLASWINAPI cublasZgemv_v2(cublasHandle_t handle, cublasOperation_t trans, int m,
                                           int n, const cuDoubleComplex *alpha,
                                           const cuDoubleComplex *A, int lda,
                                           const cuDoubleComplex *x, int incx,
                                           const cuDoubleComplex *beta, cuDoubleComplex *y,
                                           int incy);
cublasStatus_t CUBLASWINAPI cublasSgbmv_v2(cublasHandle_t handle, cublasOperation_t trans, int m,
                                           int n, int kl, int ku, const float *alpha,
                                           const float *A, int lda, const float *x, int incx,
                                           const float *beta, float *y, int incy);
cublasStatus_t CUBLASWINAPI cublasDgbmv_v2(cublasHandle_t handle, cublasOperation_t trans, int m,
                                           int n, int kl, int ku, const double *alpha,
                                           const double *A, int lda, const double *x, int incx,
                                           const double *beta, double *y, int incy);
cublasStatus_t CUBLASWINAPI cublasCgbmv_v2(cublasHandle_t handle, cublasOperation_t trans, int m,
                                           int n, int kl, int ku, const cuComplex *alpha,
                                           const cuComplex *A, int lda, const cuComplex *x,
                                           int incx, const cuComplex *beta, cuComplex *y, int incy);
cublasStatus_t CUBLASWINAPI cublasZgbmv_v2(cublasHandle_t handle, cublasOperation_t trans, int m,
                                           int n, int kl, int ku, const cuDoubleComplex *alpha,
                                           const cuDoubleComplex *A, int lda,
                                           const cuDoubleComplex *x, int incx,
                                           const cuDoubleComplex *beta, cuDoubleComplex *y,
                                           int incy);
cublasStatus_t CUBLASWINAPI cublasStrmv_v2(cublasHandle_t handle, cublasFillMode_t uplo,
                                           cublasOperation_t trans, cublasDiagType_t diag, int n,
                                           const float *A, int lda, float *x, int incx);
cublasStatus_t CUBLASWINAPI cublasDtrmv_v2(cublasHandle_t handle, cublasFillMode_t uplo,
                                           cublasOperation_t trans, cublasDiagType_t diag, int n,
                                           const double *A, int lda, double *x, int incx);
cublasStatus_t CUBLASWINAPI cublasCtrmv_v2(cublasHandle_t handle, cublasFillMode_t uplo,
                                           cublasOperation_t trans, cublasDiagType_t diag, int n,
                                           const cuComplex *A, int lda, cuComplex *x, int incx);
cublasStatus_t CUBLASWINAPI cublasZtrmv_v2(cublasHandle_t handle, cublasFillMode_t uplo,
                                           cublasOperation_t trans, cublasDiagType_t diag, int n,
                                           const cuDoubleComplex *A, int lda, cuDoubleComplex *x,
                                           int incx);
cublasStatus_t CUBLASWINAPI cublasStbmv_v2(cublasHandle_t handle, cublasFillMode_t uplo,
                                           cublasOperation_t trans, cublasDiagType_t diag, int n,
                                           int k, const float *A, int lda, float *x, int incx);
cublasStatus_t CUBLASWINAPI cublasDtbmv_v2(cublasHandle_t handle, cublasFillMode_t uplo,
                                           cublasOperation_t trans, cublasDiagType_t diag, int n,
                                           int k, const double *A, int lda, double *x, int incx);
cublasStatus_t CUBLASWINAPI cublasCtbmv_v2(cublasHandle_t handle, cublasFillMode_t uplo,
                                           cublasOperation_t trans, cublasDiagType_t diag, int n,
                                           int k, const cuComplex *A, int lda, cuComplex *x,
                                           int incx);
cublasStatus_t CUBLASWINAPI cublasZtbmv_v2(cublasHandle_t handle, cublasFillMode_t uplo,
                                           cublasOperation_t trans, cublasDiagType_t diag, int n,
                                           int k, const cuDoubleComplex *A, int lda,
                                           cuDoubleComplex *x, int incx);
cublasStatus_t CUBLASWINAPI cublasStpmv_v2(cublasHandle_t handle, cublasFillMode_t uplo,
                                           cublasOperation_t trans, cublasDiagType_t diag, int n,
                                           const float *AP, float *x, int incx);
cublasStatus_t CUBLASWINAPI cublasDtpmv_v2(cublasHandle_t handle, cublasFillMode_t uplo,
                                           cublasOperation_t trans, cublasDiagType_t diag, int n,
                                           const double *AP, double *x, int incx);
cublasStatus_t CUBLASWINAPI cublasCtpmv_v2(cublasHandle_t handle, cublasFillMode_t uplo,
                                           cublasOperation_t trans, cublasDiagType_t diag, int n,
                                           const cuComplex *AP, cuComplex *x, int incx);
cublasStatus_t CUBLASWINAPI cublasZtpmv_v2(cublasHandle_t handle, cublasFillMode_t uplo,
                                           cublasOperation_t trans, cublasDiagType_t diag, int n,
                                           const cuDoubleComplex *AP, cuDoubleComplex *x, int incx);
cublasStatus_t CUBLASWINAPI cublasStrsv_v2(cublasHandle_t handle, cublasFillMode_t uplo,
                                           cublasOperation_t trans, cublasDiagType_t diag, int n,
                                           const float *A, int lda, float *x, int incx);
cublasStatus_t CUBLASWINAPI cublasDtrsv_v2(cublasHandle_t handle, cublasFillMode_t uplo,
                                           cublasOperation_t trans, cublasDiagType_t diag, int n,
                                           const double *A, int lda, double *x, int incx);
cublasStatus_t CUBLASWINAPI cublasCtrsv_v2(cublasHandle_t handle, cublasFillMode_t uplo,
                                           cublasOperation_t trans, cublasDiagType_t diag, int n,
                                           const cuComplex *A, int lda, cuComplex *x, int incx);
cublasStatus_t CUBLASWINAPI cublasZtrsv_v2(cublasHandle_t handle, cublasFillMode_t uplo,
                                           cublasOperation_t trans, cublasDiagType_t diag, int n,
                                           const cuDoubleComplex *A, int lda, cuDoubleComplex *x,
                                           int incx);
cublasStatus_t CUBLASWINAPI cublasStpsv_v2(cublasHandle_t handle, cublasFillMode_t uplo,
                                           cublasOperation_t trans, cublasDiagType_t diag, int n,
                                           const float *AP, float *x, int incx);
cublasStatus_t CUBLASWINAPI cublasDtpsv_v2(cublasHandle_t handle, cublasFillMode_t uplo,
                                           cublasOperation_t trans, cublasDiagType_t diag, int n,
                                           const double *AP, double *x, int incx);
cublasStatus_t CUBLASWINAPI cublasCtpsv_v2(cublasHandle_t handle, cublasFillMode_t uplo,
                                           cublasOperation_t trans, cublasDiagType_t diag, int n,
                                           const cuComplex *AP, cuComplex *x, int incx);
cublasStatus_t CUBLASWINAPI cublasZtpsv_v2(cublasHandle_t handle, cublasFillMode_t uplo,
                                           cublasOperation_t trans, cublasDiagType_t diag, int n,
                                           const cuDoubleComplex *AP, cuDoubleComplex *x, int incx);
cublasStatus_t CUBLASWINAPI cublasStbsv_v2(cublasHandle_t handle, cublasFillMode_t uplo,
                                           cublasOperation_t trans, cublasDiagType_t diag, int n,
                                           int k, const float *A, int lda, float *x, int incx);
cublasStatus_t CUBLASWINAPI cublasDtbsv_v2(cublasHandle_t handle, cublasFillMode_t uplo,
                                           cublasOperation_t trans, cublasDiagType_t diag, int n,
                                           int k, const double *A, int lda, double *x, int incx);
cublasStatus_t CUBLASWINAPI cublasCtbsv_v2(cublasHandle_t handle, cublasFillMode_t uplo,
                                           cublasOperation_t trans, cublasDiagType_t diag, int n,
                                           int k, const cuComplex *A, int lda, cuComplex *x,
                                           int incx);
cublasStatus_t CUBLASWINAPI cublasZtbsv_v2(cublasHandle_t handle, cublasFillMode_t uplo,
                                           cublasOperation_t trans, cublasDiagType_t diag, int n,
                                           int k, const cuDoubleComplex *A, int lda,
                                           cuDoubleComplex *x, int incx);
cublasStatus_t CUBLASWINAPI cublasSsymv_v2(cublasHandle_t handle, cublasFillMode_t uplo, int n,
                                           const float *alpha, const float *A, int lda,
                                           const float *x, int incx, const float *beta, float *y,
                                           int incy);
cublasStatus_t CUBLASWINAPI cublasDsymv_v2(cublasHandle_t handle, cublasFillMode_t uplo, int n,
                                           const double *alpha, const double *A, int lda,
                                           const double *x, int incx, const double *beta, double *y,
                                           int incy);
cublasStatus_t CUBLASWINAPI cublasCsymv_v2(cublasHandle_t handle, cublasFillMode_t uplo, int n,
                                           const cuComplex *alpha, const cuComplex *A, int lda,
                                           const cuComplex *x, int incx, const cuComplex *beta,
                                           cuComplex *y, int incy);
cublasStatus_t CUBLASWINAPI cublasZsymv_v2(cublasHandle_t handle, cublasFillMode_t uplo, int n,
                                           const cuDoubleComplex *alpha, const cuDoubleComplex *A,
                                           int lda, const cuDoubleComplex *x, int incx,
                                           const cuDoubleComplex *beta, cuDoubleComplex *y,
                                           int incy);
cublasStatus_t CUBLASWINAPI cublasChemv_v2(cublasHandle_t handle, cublasFillMode_t uplo, int n,
                                           const cuComplex *alpha, const cuComplex *A, int lda,
                                           const cuComplex *x, int incx, const cuComplex *beta,
                                           cuComplex *y, int incy);
cublasStatus_t CUBLASWINAPI cublasZhemv_v2(cublasHandle_t handle, cublasFillMode_t uplo, int n,
                                           const cuDoubleComplex *alpha, const cuDoubleComplex *A,
                                           int lda, const cuDoubleComplex *x, int incx,
                                           const cuDoubleComplex *beta, cuDoubleComplex *y,
                                           int incy);
cublasStatus_t CUBLASWINAPI cublasSsbmv_v2(cublasHandle_t handle, cublasFillMode_t uplo, int n,
                                           int k, const float *alpha, const float *A, int lda,
                                           const float *x, int incx, const float *beta, float *y,
                                           int incy);
cublasStatus_t CUBLASWINAPI cublasDsbmv_v2(cublasHandle_t handle, cublasFillMode_t uplo, int n,
                                           int k, const double *alpha, const double *A, int lda,
                                           const double *x, int incx, const double *beta, double *y,
                                           int incy);
cublasStatus_t CUBLASWINAPI cublasChbmv_v2(cublasHandle_t handle, cublasFillMode_t uplo, int n,
                                           int k, const cuComplex *alpha, const cuComplex *A,
                                           int lda, const cuComplex *x, int incx,
                                           const cuComplex *beta, cuComplex *y, int incy);
cublasStatus_t CUBLASWINAPI cublasZhbmv_v2(cublasHandle_t handle, cublasFillMode_t uplo, int n,
                                           int k, const cuDoubleComplex *alpha,
                                           const cuDoubleComplex *A, int lda,
                                           const cuDoubleComplex *x, int incx,
                                           const cuDoubleComplex *beta, cuDoubleComplex *y,
                                           int incy);
cublasStatus_t CUBLASWINAPI cublasSspmv_v2(cublasHandle_t handle, cublasFillMode_t uplo, int n,
                                           const float *alpha, const float *AP, const float *x,
                                           int incx, const float *beta, float *y, int incy);
cublasStatus_t CUBLASWINAPI cublasDspmv_v2(cublasHandle_t handle, cublasFillMode_t uplo, int n,
                                           const double *alpha, const double *AP, const double *x,
                                           int incx, const double *beta, double *y, int incy);
cublasStatus_t CUBLASWINAPI cublasChpmv_v2(cublasHandle_t handle, cublasFillMode_t uplo, int n,
                                           const cuComplex *alpha, const cuComplex *AP,
                                           const cuComplex *x, int incx, const cuComplex *beta,
                                           cuComplex *y, int incy);
cublasStatus_t CUBLASWINAPI cublasZhpmv_v2(cublasHandle_t handle, cublasFillMode_t uplo, int n,
                                           const cuDoubleComplex *alpha, const cuDoubleComplex *AP,
                                           const cuDoubleComplex *x, int incx,
                                           const cuDoubleComplex *beta, cuDoubleComplex *y,
                                           int incy);
cublasStatus_t CUBLASWINAPI cublasSger_v2(cublasHandle_t handle, int m, int n, const float *alpha,
                                          const float *x, int incx, const float *y, int incy,
                                          float *A, int lda);
cublasStatus_t CUBLASWINAPI cublasDger_v2(cublasHandle_t handle, int m, int n, const double *alpha,
                                          const double *x, int incx, const double *y, int incy,
                                          double *A, int lda);
cublasStatus_t CUBLASWINAPI cublasCgeru_v2(cublasHandle_t handle, int m, int n,
                                           const cuComplex *alpha, const cuComplex *x, int incx,
                                           const cuComplex *y, int incy, cuComplex *A, int lda);
cublasStatus_t CUBLASWINAPI cublasCgerc_v2(cublasHandle_t handle, int m, int n,
                                           const cuComplex *alpha, const cuComplex *x, int incx,
                                           const cuComplex *y, int incy, cuComplex *A, int lda);
cublasStatus_t CUBLASWINAPI cublasZgeru_v2(cublasHandle_t handle, int m, int n,
                                           const cuDoubleComplex *alpha, const cuDoubleComplex *x,
                                           int incx, const cuDoubleComplex *y, int incy,
                                           cuDoubleComplex *A, int lda);
cublasStatus_t CUBLASWINAPI cublasZgerc_v2(cublasHandle_t handle, int m, int n,
                                           const cuDoubleComplex *alpha, const cuDoubleComplex *x,
                                           int incx, const cuDoubleComplex *y, int incy,
                                           cuDoubleComplex *A, int lda);
cublasStatus_t CUBLASWINAPI cublasSsyr_v2(cublasHandle_t handle, cublasFillMode_t uplo, int n,
                                          const float *alpha, const float *x, int incx, float *A,
                                          int lda);
cublasStatus_t CUBLASWINAPI cublasDsyr_v2(cublasHandle_t handle, cublasFillMode_t uplo, int n,
                                          const double *alpha, const double *x, int incx, double *A,
                                          int lda);
cublasStatus_t CUBLASWINAPI cublasCsyr_v2(cublasHandle_t handle, cublasFillMode_t uplo, int n,
                                          const cuComplex *alpha, const cuComplex *x, int incx,
                                          cuComplex *A, int lda);
cublasStatus_t CUBLASWINAPI cublasZsyr_v2(cublasHandle_t handle, cublasFillMode_t uplo, int n,
                                          const cuDoubleComplex *alpha, const cuDoubleComplex *x,
                                          int incx, cuDoubleComplex *A, int lda);
cublasStatus_t CUBLASWINAPI cublasCher_v2(cublasHandle_t handle, cublasFillMode_t uplo, int n,
                                          const float *alpha, const cuComplex *x, int incx,
                                          cuComplex *A, int lda);
cublasStatus_t CUBLASWINAPI cublasZher_v2(cublasHandle_t handle, cublasFillMode_t uplo, int n,
                                          const double *alpha, const cuDoubleComplex *x, int incx,
                                          cuDoubleComplex *A, int lda);
cublasStatus_t CUBLASWINAPI cublasSspr_v2(cublasHandle_t handle, cublasFillMode_t uplo, int n,
                                          const float *alpha, const float *x, int incx, float *AP);
cublasStatus_t CUBLASWINAPI cublasDspr_v2(cublasHandle_t handle, cublasFillMode_t uplo, int n,
                                          const double *alpha, const double *x, int incx,
                                          double *AP);
cublasStatus_t CUBLASWINAPI cublasChpr_v2(cublasHandle_t handle, cublasFillMode_t uplo, int n,
                                          const float *alpha, const cuComplex *x, int incx,
                                          cuComplex *AP);
cublasStatus_t CUBLASWINAPI cublasZhpr_v2(cublasHandle_t handle, cublasFillMode_t uplo, int n,
                                          const double *alpha, const cuDoubleComplex *x, int incx,
                                          cuDoubleComplex *AP);
cublasStatus_t CUBLASWINAPI cublasSsyr2_v2(cublasHandle_t handle, cublasFillMode_t uplo, int n,
                                           const float *alpha, const float *x, int incx,
                                           const float *y, int incy, float *A, int lda);
cublasStatus_t CUBLASWINAPI cublasDsyr2_v2(cublasHandle_t handle, cublasFillMode_t uplo, int n,
                                           const double *alpha, const double *x, int incx,
                                           const double *y, int incy, double *A, int lda);
cublasStatus_t CUBLASWINAPI cublasCsyr2_v2(cublasHandle_t handle, cublasFillMode_t uplo, int n,
                                           const cuComplex *alpha, const cuComplex *x, int incx,
                                           const cuComplex *y, int incy, cuComplex *A, int lda);
cublasStatus_t CUBLASWINAPI cublasZsyr2_v2(cublasHandle_t handle, cublasFillMode_t uplo, int n,
                                           const cuDoubleComplex *alpha, const cuDoubleComplex *x,
                                           int incx, const cuDoubleComplex *y, int incy,
                                           cuDoubleComplex *A, int lda);
cublasStatus_t CUBLASWINAPI cublasCher2_v2(cublasHandle_t handle, cublasFillMode_t uplo, int n,
                                           const cuComplex *alpha, const cuComplex *x, int incx,
                                           const cuComplex *y, int incy, cuComplex *A, int lda);
cublasStatus_t CUBLASWINAPI cublasZher2_v2(cublasHandle_t handle, cublasFillMode_t uplo, int n,
                                           const cuDoubleComplex *alpha, const cuDoubleComplex *x,
                                           int incx, const cuDoubleComplex *y, int incy,
                                           cuDoubleComplex *A, int lda);
cublasStatus_t CUBLASWINAPI cublasSspr2_v2(cublasHandle_t handle, cublasFillMode_t uplo, int n,
                                           const float *alpha, const float *x, int incx,
                                           const float *y, int incy, float *AP);
cublasStatus_t CUBLASWINAPI cublasDspr2_v2(cublasHandle_t handle, cublasFillMode_t uplo, int n,
                                           const double *alpha, const double *x, int incx,
                                           const double *y, int incy, double *AP);
cublasStatus_t CUBLASWINAPI cublasChpr2_v2(cublasHandle_t handle, cublasFillMode_t uplo, int n,
                                           const cuComplex *alpha, const cuComplex *x, int incx,
                                           const cuComplex *y, int incy, cuComplex *AP);
cublasStatus_t CUBLASWINAPI cublasZhpr2_v2(cublasHandle_t handle, cublasFillMode_t uplo, int n,
                                           const cuDoubleComplex *alpha, const cuDoubleComplex *x,
                                           int incx, const cuDoubleComplex *y, int incy,
                                           cuDoubleComplex *AP);
cublasStatus_t CUBLASWINAPI cublasSgemvBatched(cublasHandle_t handle, cublasOperation_t trans,
                                               int m, int n, const float *alpha,
                                               const float *const Aarray[], int lda,
                                               const float *const xarray[], int incx,
                                               const float *beta, float *const yarray[], int incy,
                                               int batchCount);
cublasStatus_t CUBLASWINAPI cublasDgemvBatched(cublasHandle_t handle, cublasOperation_t trans,
                                               int m, int n, const double *alpha,
                                               const double *const Aarray[], int lda,
                                               const double *const xarray[], int incx,
                                               const double *beta, double *const yarray[], int incy,
                                               int batchCount);
cublasStatus_t CUBLASWINAPI cublasCgemvBatched(cublasHandle_t handle, cublasOperation_t trans,
                                               int m, int n, const cuComplex *alpha,
                                               const cuComplex *const Aarray[], int lda,
                                               const cuComplex *const xarray[], int incx,
                                               const cuComplex *beta, cuComplex *const yarray[],
                                               int incy, int batchCount);
cublasStatus_t CUBLASWINAPI cublasZgemvBatched(
    cublasHandle_t handle, cublasOperation_t trans, int m, int n, const cuDoubleComplex *alpha,
    const cuDoubleComplex *const Aarray[], int lda, const cuDoubleComplex *const xarray[], int incx,
    const cuDoubleComplex *beta, cuDoubleComplex *const yarray[], int incy, int batchCount);
cublasStatus_t CUBLASWINAPI cublasSgemvStridedBatched(
    cublasHandle_t handle, cublasOperation_t trans, int m, int n, const float *alpha,
    const float *A, int lda, long long int strideA, const float *x, int incx, long long int stridex,
    const float *beta, float *y, int incy, long long int stridey, int batchCount);
cublasStatus_t CUBLASWINAPI cublasDgemvStridedBatched(cublasHandle_t handle,
                                                      cublasOperation_t trans, int m, int n,
                                                      const double *alpha, const double *A, int lda,
                                                      long long int strideA, const double *x,
                                                      int incx, long long int stridex,
                                                      const double *beta, double *y, int incy,
                                                      long long int stridey, int batchCount);
cublasStatus_t CUBLASWINAPI cublasCgemvStridedBatched(
    cublasHandle_t handle, cublasOperation_t trans, int m, int n, const cuComplex *alpha,
    const cuComplex *A, int lda, long long int strideA, const cuComplex *x, int incx,
    long long int stridex, const cuComplex *beta, cuComplex *y, int incy, long long int stridey,
    int batchCount);
cublasStatus_t CUBLASWINAPI cublasZgemvStridedBatched(
    cublasHandle_t handle, cublasOperation_t trans, int m, int n, const cuDoubleComplex *alpha,
    const cuDoubleComplex *A, int lda, long long int strideA, const cuDoubleComplex *x, int incx,
    long long int stridex, const cuDoubleComplex *beta, cuDoubleComplex *y, int incy,
    long long int stridey, int batchCount);
