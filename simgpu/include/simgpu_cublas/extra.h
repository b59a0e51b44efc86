/* extra.h: a part of cublas_api.h, which includes it: what cuBLAS has beyond BLAS.
 *
 * Source: cuBLAS 13 headers (names and types).
 */
cublasStatus_t CUBLASWINAPI cublasSgeam(cublasHandle_t handle, cublasOperation_t transa,
                                        cublasOperation_t transb, int m, int n, const float *alpha,
                                        const float *A, int lda, const float *beta, const float *B,
                                        int ldb, float *C, int ldc);
cublasStatus_t CUBLASWINAPI cublasDgeam(cublasHandle_t handle, cublasOperation_t transa,
                                        cublasOperation_t transb, int m, int n, const double *alpha,
                                        const double *A, int lda, const double *beta,
                                        const double *B, int ldb, double *C, int ldc);
cublasStatus_t CUBLASWINAPI cublasCgeam(cublasHandle_t handle, cublasOperation_t transa,
                                        cublasOperation_t transb, int m, int n,
                                        const cuComplex *alpha, const cuComplex *A, int lda,
                                        const cuComplex *beta, const cuComplex *B, int ldb,
                                        cuComplex *C, int ldc);
cublasStatus_t CUBLASWINAPI cublasZgeam(cublasHandle_t handle, cublasOperation_t transa,
                                        cublasOperation_t transb, int m, int n,
                                        const cuDoubleComplex *alpha, const cuDoubleComplex *A,
                                        int lda, const cuDoubleComplex *beta,
                                        const cuDoubleComplex *B, int ldb, cuDoubleComplex *C,
                                        int ldc);
cublasStatus_t CUBLASWINAPI cublasSdgmm(cublasHandle_t handle, cublasSideMode_t mode, int m, int n,
                                        const float *A, int lda, const float *x, int incx, float *C,
                                        int ldc);
cublasStatus_t CUBLASWINAPI cublasDdgmm(cublasHandle_t handle, cublasSideMode_t mode, int m, int n,
                                        const double *A, int lda, const double *x, int incx,
                                        double *C, int ldc);
cublasStatus_t CUBLASWINAPI cublasCdgmm(cublasHandle_t handle, cublasSideMode_t mode, int m, int n,
                                        const cuComplex *A, int lda, const cuComplex *x, int incx,
                                        cuComplex *C, int ldc);
cublasStatus_t CUBLASWINAPI cublasZdgmm(cublasHandle_t handle, cublasSideMode_t mode, int m, int n,
                                        const cuDoubleComplex *A, int lda, const cuDoubleComplex *x,
                                        int incx, cuDoubleComplex *C, int ldc);
cublasStatus_t CUBLASWINAPI cublasStpttr(cublasHandle_t handle, cublasFillMode_t uplo, int n,
                                         const float *AP, float *A, int lda);
cublasStatus_t CUBLASWINAPI cublasDtpttr(cublasHandle_t handle, cublasFillMode_t uplo, int n,
                                         const double *AP, double *A, int lda);
cublasStatus_t CUBLASWINAPI cublasCtpttr(cublasHandle_t handle, cublasFillMode_t uplo, int n,
                                         const cuComplex *AP, cuComplex *A, int lda);
cublasStatus_t CUBLASWINAPI cublasZtpttr(cublasHandle_t handle, cublasFillMode_t uplo, int n,
                                         const cuDoubleComplex *AP, cuDoubleComplex *A, int lda);
cublasStatus_t CUBLASWINAPI cublasStrttp(cublasHandle_t handle, cublasFillMode_t uplo, int n,
                                         const float *A, int lda, float *AP);
cublasStatus_t CUBLASWINAPI cublasDtrttp(cublasHandle_t handle, cublasFillMode_t uplo, int n,
                                         const double *A, int lda, double *AP);
cublasStatus_t CUBLASWINAPI cublasCtrttp(cublasHandle_t handle, cublasFillMode_t uplo, int n,
                                         const cuComplex *A, int lda, cuComplex *AP);
cublasStatus_t CUBLASWINAPI cublasZtrttp(cublasHandle_t handle, cublasFillMode_t uplo, int n,
                                         const cuDoubleComplex *A, int lda, cuDoubleComplex *AP);
