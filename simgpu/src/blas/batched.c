/* batched.c: many products in one call, of matrices whose addresses are in device memory. */
#include "blas.h"

static cublasStatus_t multiply(SimgpuOp *op, const Gemm *p, const void *const *A,
                               const void *const *B, const void *const *C, int count)
{
    bool turn_a = p->turn_a != CUBLAS_OP_N, turn_b = p->turn_b != CUBLAS_OP_N;
    cublasStatus_t done = CUBLAS_STATUS_SUCCESS;
    bool adds = !is_zero(p->alpha) && p->k > 0;
    if (!C || (adds && (!A || !B))) return done; // a dry run may not know them
    for (int i = 0; i < count && done == CUBLAS_STATUS_SUCCESS && !op->error; i++) {
        Matrix a = {0}, b = {0};
        if (adds) {
            a = simblas_matrix(p->a, A[i], turn_a ? p->k : p->m, turn_a ? p->m : p->k, p->lda);
            b = simblas_matrix(p->b, B[i], turn_b ? p->n : p->k, turn_b ? p->k : p->n, p->ldb);
            simblas_touch_matrix(op, &a, GPU_READ);
            simblas_touch_matrix(op, &b, GPU_READ);
        }
        Matrix c = simblas_matrix(p->c, C[i], p->m, p->n, p->ldc);
        simblas_touch_matrix(op, &c, is_zero(p->beta) ? GPU_WRITE : GPU_UPDATE);
        if (simgpu_ready(op)) done = simblas_compute_gemm(p, a.at, b.at, c.at);
    }
    return done;
}

static cublasStatus_t run_list(Call call, cublasHandle_t handle, Gemm *p, const void *alpha,
                               const void *A, const void *B, const void *beta, const void *C,
                               int count)
{
    CHECK(simblas_check_gemm(call, handle, p, alpha, beta));
    CHECK(simblas_check_size(call, "batchCount", count));
    if (p->m == 0 || p->n == 0 || count == 0) return CUBLAS_STATUS_SUCCESS;
    SimgpuOp op = simblas_begin(call, handle);
    simblas_note_product(&op, handle, p, count);
    p->alpha = simblas_scalar(&op, handle, alpha, p->scale);
    p->beta = simblas_scalar(&op, handle, beta, p->scale);
    bool adds = !is_zero(p->alpha) && p->k > 0;
    const void *const *a = adds ? simblas_pointers(&op, A, count) : NULL;
    const void *const *b = adds ? simblas_pointers(&op, B, count) : NULL;
    const void *const *c = simblas_pointers(&op, C, count);
    Matrix form = simblas_matrix(p->c, NULL, p->m, p->n, p->ldc);
    simblas_check_pointers(&op, &form, c, count);
    return simblas_finish(call, &op, multiply(&op, p, a, b, c, count));
}

static cublasStatus_t run_batched(Call call, cublasHandle_t handle, cublasOperation_t transa,
                                  cublasOperation_t transb, int m, int n, int k, const void *alpha,
                                  const void *A, int lda, const void *B, int ldb, const void *beta,
                                  const void *C, int ldc, int count)
{
    Gemm p = simblas_gemm(call, transa, transb, m, n, k, lda, ldb, ldc);
    return run_list(call, handle, &p, alpha, A, B, beta, C, count);
}

static cublasStatus_t run_batched_ex(Call call, cublasHandle_t handle, cublasOperation_t transa,
                                     cublasOperation_t transb, int m, int n, int k,
                                     const void *alpha, const void *A, cudaDataType a, int lda,
                                     const void *B, cudaDataType b, int ldb, const void *beta,
                                     const void *C, cudaDataType c, int ldc, int count,
                                     cublasComputeType_t compute, cublasGemmAlgo_t algo)
{
    Gemm p = simblas_gemm(call, transa, transb, m, n, k, lda, ldb, ldc);
    CHECK(simblas_check_handle(call, handle));
    CHECK(simblas_gemm_types(call, a, b, c, compute, &p));
    return run_list(call, handle, &p, alpha, A, B, beta, C, count);
}

SIMGPU_CUBLAS_BATCHES(SIMBLAS_DEFINE)
SIMGPU_CUBLAS_HALF_BATCHES(SIMBLAS_DEFINE)
