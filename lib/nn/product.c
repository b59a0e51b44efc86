/* product.c: products of matrices of any type: cublasSgemm for floats; for bf16 and fp16
 * cublasGemmEx with sums in float (CUBLAS_COMPUTE_32F), which rounds each result once.
 */
#include "product.h"

static const float ZERO = 0.0f, ONE = 1.0f;

static cudaDataType type_of(DType type)
{
    return type == DTYPE_BF16 ? CUDA_R_16BF : type == DTYPE_F16 ? CUDA_R_16F : CUDA_R_32F;
}

Status multiply_typed(NnRun *run, DType type, int m, int n, int k, Factor A, Factor B, float beta,
                      void *C, int ldc)
{
    cudaDataType t = type_of(type);
    if (type == DTYPE_F32)
        CUBLAS_TRY(cublasSgemm(run->blas, A.turn, B.turn, m, n, k, &ONE, A.at, A.ld, B.at, B.ld,
                               &beta, C, ldc));
    else
        CUBLAS_TRY(cublasGemmEx(run->blas, A.turn, B.turn, m, n, k, &ONE, A.at, t, A.ld, B.at, t,
                                B.ld, &beta, C, t, ldc, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
    return OK;
}

Status multiply_batch(NnRun *run, DType type, int m, int n, int k, Factor A, Factor B, void *C,
                      int ldc, long long stride, int count)
{
    cudaDataType t = type_of(type);
    if (type == DTYPE_F32)
        CUBLAS_TRY(cublasSgemmStridedBatched(run->blas, A.turn, B.turn, m, n, k, &ONE, A.at, A.ld,
                                             A.stride, B.at, B.ld, B.stride, &ZERO, C, ldc, stride,
                                             count));
    else
        CUBLAS_TRY(cublasGemmStridedBatchedEx(
            run->blas, A.turn, B.turn, m, n, k, &ONE, A.at, t, A.ld, A.stride, B.at, t, B.ld,
            B.stride, &ZERO, C, t, ldc, stride, count, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
    return OK;
}

void *element_at(const void *array, DType type, size_t at)
{
    return (char *)(uintptr_t)array + at * (size_t)dtype_bytes(type);
}
