/* types.c: which formats cuBLAS multiplies with each other. */
#include "blas.h"

// cuBLAS's table for cublasGemmEx: for each compute type the formats of A and B, of C, and of the
// scalars.
typedef struct Combination {
    cudaDataType a, c, scale;
    cublasComputeType_t compute;
} Combination;
static const Combination combinations[] = {
    {CUDA_R_16F, CUDA_R_16F, CUDA_R_16F, CUBLAS_COMPUTE_16F},
    {CUDA_R_8I, CUDA_R_32I, CUDA_R_32I, CUBLAS_COMPUTE_32I},
    {CUDA_R_16BF, CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F},
    {CUDA_R_16BF, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F},
    {CUDA_R_16F, CUDA_R_16F, CUDA_R_32F, CUBLAS_COMPUTE_32F},
    {CUDA_R_16F, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F},
    {CUDA_R_8I, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F},
    {CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F},
    {CUDA_C_8I, CUDA_C_32F, CUDA_C_32F, CUBLAS_COMPUTE_32F},
    {CUDA_C_32F, CUDA_C_32F, CUDA_C_32F, CUBLAS_COMPUTE_32F},
    {CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32},
    {CUDA_C_32F, CUDA_C_32F, CUDA_C_32F, CUBLAS_COMPUTE_32F_FAST_TF32},
    {CUDA_R_64F, CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F},
    {CUDA_C_64F, CUDA_C_64F, CUDA_C_64F, CUBLAS_COMPUTE_64F},
};

// Types of the same precision count as one: simgpu always computes with all bits.
static cublasComputeType_t family(cublasComputeType_t compute)
{
    switch (compute) {
    case CUBLAS_COMPUTE_16F_PEDANTIC: return CUBLAS_COMPUTE_16F;
    case CUBLAS_COMPUTE_32I_PEDANTIC: return CUBLAS_COMPUTE_32I;
    case CUBLAS_COMPUTE_32F_PEDANTIC: return CUBLAS_COMPUTE_32F;
    case CUBLAS_COMPUTE_32F_FAST_16F:
    case CUBLAS_COMPUTE_32F_FAST_16BF:
    case CUBLAS_COMPUTE_32F_EMULATED_16BFX9: return CUBLAS_COMPUTE_32F_FAST_TF32;
    case CUBLAS_COMPUTE_64F_PEDANTIC:
    case CUBLAS_COMPUTE_64F_EMULATED_FIXEDPOINT: return CUBLAS_COMPUTE_64F;
    default: return compute;
    }
}

// Floating point of 8 bits.
static bool is_fp8(cudaDataType type)
{
    return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2;
}

static const char *type_name(cudaDataType type)
{
    const Format *format = simblas_format(type);
    if (format != NULL) return format->name;
    if (!is_fp8(type)) return "an unknown type";
    return type == CUDA_R_8F_E4M3 ? "CUDA_R_8F_E4M3" : "CUDA_R_8F_E5M2";
}

cublasStatus_t simblas_gemm_types(Call call, cudaDataType a, cudaDataType b, cudaDataType c,
                                  cublasComputeType_t compute, Gemm *p)
{
    for (size_t i = 0; i < sizeof combinations / sizeof *combinations; i++) {
        const Combination *known = &combinations[i];
        if (known->a != a || a != b || known->c != c || known->compute != family(compute)) continue;
        p->a = simblas_format(a);
        p->b = simblas_format(b);
        p->c = simblas_format(c);
        p->scale = simblas_format(known->scale);
        p->single = !p->a->complex && known->compute != CUBLAS_COMPUTE_64F &&
                    known->compute != CUBLAS_COMPUTE_32I;
        return CUBLAS_STATUS_SUCCESS;
    }
    return simblas_refuse(
        call, CUBLAS_STATUS_NOT_SUPPORTED,
        "A of %s (%d), B of %s (%d), C of %s (%d), computed as type %d:\n"
        "cuBLAS has no such product. %s",
        type_name(a), (int)a, type_name(b), (int)b, type_name(c), (int)c, (int)compute,
        is_fp8(a) || is_fp8(b) || is_fp8(c)
            ? "Products of floating point of 8 bits are only in cublasLtMatmul (cuBLASLt,\n"
              "which simgpu does not have): convert to CUDA_R_16BF or CUDA_R_16F first."
            : "CUBLAS_COMPUTE_32F, for instance, goes with CUDA_R_32F,\n"
              "CUDA_R_16F or CUDA_R_16BF in A and B, and the same or CUDA_R_32F in C.");
}
