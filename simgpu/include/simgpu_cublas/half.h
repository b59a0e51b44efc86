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

// The same with sizes of 64 bits.
#define SIMGPU_64(name, T, TY)                                                                     \
    cublasStatus_t CUBLASWINAPI cublas##name##gemvBatched_64(                                      \
        cublasHandle_t handle, cublasOperation_t trans, int64_t m, int64_t n, const float *alpha,  \
        const T *const Aarray[], int64_t lda, const T *const xarray[], int64_t incx,               \
        const float *beta, TY *const yarray[], int64_t incy, int64_t batchCount);                  \
    cublasStatus_t CUBLASWINAPI cublas##name##gemvStridedBatched_64(                               \
        cublasHandle_t handle, cublasOperation_t trans, int64_t m, int64_t n, const float *alpha,  \
        const T *A, int64_t lda, long long int strideA, const T *x, int64_t incx,                  \
        long long int stridex, const float *beta, TY *y, int64_t incy, long long int stridey,      \
        int64_t batchCount);
SIMGPU_64(HSH, __half, __half)
SIMGPU_64(HSS, __half, float)
SIMGPU_64(TST, __nv_bfloat16, __nv_bfloat16)
SIMGPU_64(TSS, __nv_bfloat16, float)
#undef SIMGPU_64
cublasStatus_t CUBLASWINAPI cublasHgemm_64(cublasHandle_t handle, cublasOperation_t transa,
                                           cublasOperation_t transb, int64_t m, int64_t n,
                                           int64_t k, const __half *alpha, const __half *A,
                                           int64_t lda, const __half *B, int64_t ldb,
                                           const __half *beta, __half *C, int64_t ldc);
cublasStatus_t CUBLASWINAPI cublasHgemmBatched_64(
    cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int64_t m, int64_t n,
    int64_t k, const __half *alpha, const __half *const Aarray[], int64_t lda,
    const __half *const Barray[], int64_t ldb, const __half *beta, __half *const Carray[],
    int64_t ldc, int64_t batchCount);
cublasStatus_t CUBLASWINAPI cublasHgemmStridedBatched_64(
    cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int64_t m, int64_t n,
    int64_t k, const __half *alpha, const __half *A, int64_t lda, long long int strideA,
    const __half *B, int64_t ldb, long long int strideB, const __half *beta, __half *C,
    int64_t ldc, long long int strideC, int64_t batchCount);
