/* factor.h: a part of cublas_api.h, which includes it: batches of matrices in factors.
 *
 * Source: cuBLAS 13 headers (names and types).
 */
cublasStatus_t CUBLASWINAPI cublasSgetrfBatched(cublasHandle_t handle, int n, float *const A[],
                                                int lda, int *P, int *info, int batchSize);
cublasStatus_t CUBLASWINAPI cublasDgetrfBatched(cublasHandle_t handle, int n, double *const A[],
                                                int lda, int *P, int *info, int batchSize);
cublasStatus_t CUBLASWINAPI cublasCgetrfBatched(cublasHandle_t handle, int n, cuComplex *const A[],
                                                int lda, int *P, int *info, int batchSize);
cublasStatus_t CUBLASWINAPI cublasZgetrfBatched(cublasHandle_t handle, int n,
                                                cuDoubleComplex *const A[], int lda, int *P,
                                                int *info, int batchSize);
cublasStatus_t CUBLASWINAPI cublasSgetrsBatched(cublasHandle_t handle, cublasOperation_t trans,
                                                int n, int nrhs, const float *const Aarray[],
                                                int lda, const int *devIpiv, float *const Barray[],
                                                int ldb, int *info, int batchSize);
cublasStatus_t CUBLASWINAPI cublasDgetrsBatched(cublasHandle_t handle, cublasOperation_t trans,
                                                int n, int nrhs, const double *const Aarray[],
                                                int lda, const int *devIpiv, double *const Barray[],
                                                int ldb, int *info, int batchSize);
cublasStatus_t CUBLASWINAPI cublasCgetrsBatched(cublasHandle_t handle, cublasOperation_t trans,
                                                int n, int nrhs, const cuComplex *const Aarray[],
                                                int lda, const int *devIpiv,
                                                cuComplex *const Barray[], int ldb, int *info,
                                                int batchSize);
cublasStatus_t CUBLASWINAPI cublasZgetrsBatched(cublasHandle_t handle, cublasOperation_t trans,
                                                int n, int nrhs,
                                                const cuDoubleComplex *const Aarray[], int lda,
                                                const int *devIpiv, cuDoubleComplex *const Barray[],
                                                int ldb, int *info, int batchSize);
cublasStatus_t CUBLASWINAPI cublasSgetriBatched(cublasHandle_t handle, int n,
                                                const float *const A[], int lda, const int *P,
                                                float *const C[], int ldc, int *info,
                                                int batchSize);
cublasStatus_t CUBLASWINAPI cublasDgetriBatched(cublasHandle_t handle, int n,
                                                const double *const A[], int lda, const int *P,
                                                double *const C[], int ldc, int *info,
                                                int batchSize);
cublasStatus_t CUBLASWINAPI cublasCgetriBatched(cublasHandle_t handle, int n,
                                                const cuComplex *const A[], int lda, const int *P,
                                                cuComplex *const C[], int ldc, int *info,
                                                int batchSize);
cublasStatus_t CUBLASWINAPI cublasZgetriBatched(cublasHandle_t handle, int n,
                                                const cuDoubleComplex *const A[], int lda,
                                                const int *P, cuDoubleComplex *const C[], int ldc,
                                                int *info, int batchSize);
cublasStatus_t CUBLASWINAPI cublasSmatinvBatched(cublasHandle_t handle, int n,
                                                 const float *const A[], int lda,
                                                 float *const Ainv[], int lda_inv, int *info,
                                                 int batchSize);
cublasStatus_t CUBLASWINAPI cublasDmatinvBatched(cublasHandle_t handle, int n,
                                                 const double *const A[], int lda,
                                                 double *const Ainv[], int lda_inv, int *info,
                                                 int batchSize);
cublasStatus_t CUBLASWINAPI cublasCmatinvBatched(cublasHandle_t handle, int n,
                                                 const cuComplex *const A[], int lda,
                                                 cuComplex *const Ainv[], int lda_inv, int *info,
                                                 int batchSize);
cublasStatus_t CUBLASWINAPI cublasZmatinvBatched(cublasHandle_t handle, int n,
                                                 const cuDoubleComplex *const A[], int lda,
                                                 cuDoubleComplex *const Ainv[], int lda_inv,
                                                 int *info, int batchSize);
cublasStatus_t CUBLASWINAPI cublasSgeqrfBatched(cublasHandle_t handle, int m, int n,
                                                float *const Aarray[], int lda,
                                                float *const TauArray[], int *info, int batchSize);
cublasStatus_t CUBLASWINAPI cublasDgeqrfBatched(cublasHandle_t handle, int m, int n,
                                                double *const Aarray[], int lda,
                                                double *const TauArray[], int *info, int batchSize);
cublasStatus_t CUBLASWINAPI cublasCgeqrfBatched(cublasHandle_t handle, int m, int n,
                                                cuComplex *const Aarray[], int lda,
                                                cuComplex *const TauArray[], int *info,
                                                int batchSize);
cublasStatus_t CUBLASWINAPI cublasZgeqrfBatched(cublasHandle_t handle, int m, int n,
                                                cuDoubleComplex *const Aarray[], int lda,
                                                cuDoubleComplex *const TauArray[], int *info,
                                                int batchSize);
cublasStatus_t CUBLASWINAPI cublasSgelsBatched(cublasHandle_t handle, cublasOperation_t trans,
                                               int m, int n, int nrhs, float *const Aarray[],
                                               int lda, float *const Carray[], int ldc, int *info,
                                               int *devInfoArray, int batchSize);
cublasStatus_t CUBLASWINAPI cublasDgelsBatched(cublasHandle_t handle, cublasOperation_t trans,
                                               int m, int n, int nrhs, double *const Aarray[],
                                               int lda, double *const Carray[], int ldc, int *info,
                                               int *devInfoArray, int batchSize);
cublasStatus_t CUBLASWINAPI cublasCgelsBatched(cublasHandle_t handle, cublasOperation_t trans,
                                               int m, int n, int nrhs, cuComplex *const Aarray[],
                                               int lda, cuComplex *const Carray[], int ldc,
                                               int *info, int *devInfoArray, int batchSize);
cublasStatus_t CUBLASWINAPI cublasZgelsBatched(cublasHandle_t handle, cublasOperation_t trans,
                                               int m, int n, int nrhs,
                                               cuDoubleComplex *const Aarray[], int lda,
                                               cuDoubleComplex *const Carray[], int ldc, int *info,
                                               int *devInfoArray, int batchSize);
