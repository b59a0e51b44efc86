/* overloads.h: a part of cublas_api.h, for C++: the strategy of emulation by CUDA's name for it,
 * and products whose compute type is named by a number format, as programs for cuBLAS 10 do.
 */
static inline cublasStatus_t cublasSetEmulationStrategy(cublasHandle_t handle,
                                                        cudaEmulationStrategy strategy)
{
    return cublasSetEmulationStrategy(handle, (cublasEmulationStrategy_t)strategy);
}

static inline cublasStatus_t cublasGetEmulationStrategy(cublasHandle_t handle,
                                                        cudaEmulationStrategy *strategy)
{
    return cublasGetEmulationStrategy(handle, (cublasEmulationStrategy_t *)strategy);
}

// The compute type for a number format; pedantic if the handle's math mode is.
static inline cublasStatus_t cublasMigrateComputeType(cublasHandle_t handle,
                                                      cudaDataType_t dataType,
                                                      cublasComputeType_t *computeType)
{
    cublasMath_t mode = CUBLAS_DEFAULT_MATH;
    cublasStatus_t status = cublasGetMathMode(handle, &mode);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    bool pedantic = (mode & 0xf) == CUBLAS_PEDANTIC_MATH;
    switch (dataType) {
    case CUDA_R_32F:
    case CUDA_C_32F:
        *computeType = pedantic ? CUBLAS_COMPUTE_32F_PEDANTIC : CUBLAS_COMPUTE_32F;
        return CUBLAS_STATUS_SUCCESS;
    case CUDA_R_64F:
    case CUDA_C_64F:
        *computeType = pedantic ? CUBLAS_COMPUTE_64F_PEDANTIC : CUBLAS_COMPUTE_64F;
        return CUBLAS_STATUS_SUCCESS;
    case CUDA_R_16F:
        *computeType = pedantic ? CUBLAS_COMPUTE_16F_PEDANTIC : CUBLAS_COMPUTE_16F;
        return CUBLAS_STATUS_SUCCESS;
    case CUDA_R_32I:
        *computeType = pedantic ? CUBLAS_COMPUTE_32I_PEDANTIC : CUBLAS_COMPUTE_32I;
        return CUBLAS_STATUS_SUCCESS;
    default: return CUBLAS_STATUS_NOT_SUPPORTED;
    }
}

// Inlined and artificial: the call site is the program's line, not the one here.
#define SIMGPU_OVERLOAD __attribute__((always_inline, artificial)) static inline cublasStatus_t

SIMGPU_OVERLOAD cublasGemmEx(cublasHandle_t handle, cublasOperation_t transa,
                             cublasOperation_t transb, int m, int n, int k, const void *alpha,
                             const void *A, cudaDataType Atype, int lda, const void *B,
                             cudaDataType Btype, int ldb, const void *beta, void *C,
                             cudaDataType Ctype, int ldc, cudaDataType computeType,
                             cublasGemmAlgo_t algo)
{
    cublasComputeType_t compute;
    cublasStatus_t status = cublasMigrateComputeType(handle, computeType, &compute);
    return status != CUBLAS_STATUS_SUCCESS
               ? status
               : cublasGemmEx(handle, transa, transb, m, n, k, alpha, A, Atype, lda, B, Btype, ldb,
                              beta, C, Ctype, ldc, compute, algo);
}
SIMGPU_OVERLOAD cublasGemmBatchedEx(cublasHandle_t handle, cublasOperation_t transa,
                                    cublasOperation_t transb, int m, int n, int k,
                                    const void *alpha, const void *const Aarray[],
                                    cudaDataType Atype, int lda, const void *const Barray[],
                                    cudaDataType Btype, int ldb, const void *beta,
                                    void *const Carray[], cudaDataType Ctype, int ldc,
                                    int batchCount, cudaDataType computeType, cublasGemmAlgo_t algo)
{
    cublasComputeType_t compute;
    cublasStatus_t status = cublasMigrateComputeType(handle, computeType, &compute);
    return status != CUBLAS_STATUS_SUCCESS
               ? status
               : cublasGemmBatchedEx(handle, transa, transb, m, n, k, alpha, Aarray, Atype, lda,
                                     Barray, Btype, ldb, beta, Carray, Ctype, ldc, batchCount,
                                     compute, algo);
}
SIMGPU_OVERLOAD cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t transa,
                                           cublasOperation_t transb, int m, int n, int k,
                                           const void *alpha, const void *A, cudaDataType Atype,
                                           int lda, long long int strideA, const void *B,
                                           cudaDataType Btype, int ldb, long long int strideB,
                                           const void *beta, void *C, cudaDataType Ctype, int ldc,
                                           long long int strideC, int batchCount,
                                           cudaDataType computeType, cublasGemmAlgo_t algo)
{
    cublasComputeType_t compute;
    cublasStatus_t status = cublasMigrateComputeType(handle, computeType, &compute);
    return status != CUBLAS_STATUS_SUCCESS
               ? status
               : cublasGemmStridedBatchedEx(handle, transa, transb, m, n, k, alpha, A, Atype, lda,
                                            strideA, B, Btype, ldb, strideB, beta, C, Ctype, ldc,
                                            strideC, batchCount, compute, algo);
}

#undef SIMGPU_OVERLOAD
