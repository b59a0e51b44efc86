/* half.h: a part of cublas_api.h, which includes it: products of halves and bfloat16, for C++.
 *
 * Source: cuBLAS 13 headers (names and types).
 */
cublasStatus_t CUBLASWINAPI cublasHSHgemvBatched(cublasHandle_t handle, cublasOperation_t trans,
                                                 int m, int n, const float *alpha,
                                                 const __half *const Aarray[], int lda,
                                                 const __half *const xarray[], int incx,
                                                 const float *beta, __half *const yarray[],
                                                 int incy, int batchCount);
cublasStatus_t CUBLASWINAPI cublasHSSgemvBatched(cublasHandle_t handle, cublasOperation_t trans,
                                                 int m, int n, const float *alpha,
                                                 const __half *const Aarray[], int lda,
                                                 const __half *const xarray[], int incx,
                                                 const float *beta, float *const yarray[], int incy,
                                                 int batchCount);
cublasStatus_t CUBLASWINAPI cublasTSTgemvBatched(cublasHandle_t handle, cublasOperation_t trans,
                                                 int m, int n, const float *alpha,
                                                 const __nv_bfloat16 *const Aarray[], int lda,
                                                 const __nv_bfloat16 *const xarray[], int incx,
                                                 const float *beta, __nv_bfloat16 *const yarray[],
                                                 int incy, int batchCount);
cublasStatus_t CUBLASWINAPI cublasTSSgemvBatched(cublasHandle_t handle, cublasOperation_t trans,
                                                 int m, int n, const float *alpha,
                                                 const __nv_bfloat16 *const Aarray[], int lda,
                                                 const __nv_bfloat16 *const xarray[], int incx,
                                                 const float *beta, float *const yarray[], int incy,
                                                 int batchCount);
cublasStatus_t CUBLASWINAPI
cublasHSHgemvStridedBatched(cublasHandle_t handle, cublasOperation_t trans, int m, int n,
                            const float *alpha, const __half *A, int lda, long long int strideA,
                            const __half *x, int incx, long long int stridex, const float *beta,
                            __half *y, int incy, long long int stridey, int batchCount);
cublasStatus_t CUBLASWINAPI
cublasHSSgemvStridedBatched(cublasHandle_t handle, cublasOperation_t trans, int m, int n,
                            const float *alpha, const __half *A, int lda, long long int strideA,
                            const __half *x, int incx, long long int stridex, const float *beta,
                            float *y, int incy, long long int stridey, int batchCount);
cublasStatus_t CUBLASWINAPI cublasTSTgemvStridedBatched(
    cublasHandle_t handle, cublasOperation_t trans, int m, int n, const float *alpha,
    const __nv_bfloat16 *A, int lda, long long int strideA, const __nv_bfloat16 *x, int incx,
    long long int stridex, const float *beta, __nv_bfloat16 *y, int incy, long long int stridey,
    int batchCount);
cublasStatus_t CUBLASWINAPI cublasTSSgemvStridedBatched(
    cublasHandle_t handle, cublasOperation_t trans, int m, int n, const float *alpha,
    const __nv_bfloat16 *A, int lda, long long int strideA, const __nv_bfloat16 *x, int incx,
    long long int stridex, const float *beta, float *y, int incy, long long int stridey,
    int batchCount);
cublasStatus_t CUBLASWINAPI cublasHgemm(cublasHandle_t handle, cublasOperation_t transa,
                                        cublasOperation_t transb, int m, int n, int k,
                                        const __half *alpha, const __half *A, int lda,
                                        const __half *B, int ldb, const __half *beta, __half *C,
                                        int ldc);
cublasStatus_t CUBLASWINAPI cublasHgemmBatched(cublasHandle_t handle, cublasOperation_t transa,
                                               cublasOperation_t transb, int m, int n, int k,
                                               const __half *alpha, const __half *const Aarray[],
                                               int lda, const __half *const Barray[], int ldb,
                                               const __half *beta, __half *const Carray[], int ldc,
                                               int batchCount);
cublasStatus_t CUBLASWINAPI cublasHgemmStridedBatched(
    cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k,
    const __half *alpha, const __half *A, int lda, long long int strideA, const __half *B, int ldb,
    long long int strideB, const __half *beta, __half *C, int ldc, long long int strideC,
    int batchCount);
