/* run.c: what a pass needs beside the parameters: a cuBLAS handle, and memory that is allocated and
 * freed in the order of its stream.
 *
 * With CUBLAS_DEFAULT_MATH a product of floats is computed in float. TF32, the tensor cores' format
 * with 10 bits behind the point, has to be asked for (cuBLAS documentation, cublasMath_t).
 */
#include <cublas_v2.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

// Reads the environment's TF32: unset, empty or 0 is full precision, 1 is TF32.
static Status read_math_mode(cublasMath_t *mode)
{
    const char *text = getenv("TF32");
    bool wanted = text != NULL && strcmp(text, "1") == 0;
    if (text != NULL && *text != '\0' && strcmp(text, "0") != 0 && !wanted)
        return fail(ERR_ARGUMENT, "TF32 is \"%s\" in the environment; it takes 0 or 1", text);
    *mode = wanted ? CUBLAS_TF32_TENSOR_OP_MATH : CUBLAS_DEFAULT_MATH;
    return OK;
}

static Status set_up_blas(cublasHandle_t blas, cudaStream_t stream, cublasMath_t mode)
{
    CUBLAS_TRY(cublasSetStream(blas, stream));
    CUBLAS_TRY(cublasSetMathMode(blas, mode));
    return OK;
}

Status nn_run_create(NnRun *run, cudaStream_t stream)
{
    cublasMath_t mode = CUBLAS_DEFAULT_MATH;
    memset(run, 0, sizeof *run);
    TRY(read_math_mode(&mode));
    CUBLAS_TRY(cublasCreate(&run->blas));
    run->stream = stream;
    Status done = set_up_blas(run->blas, stream, mode);
    if (done != OK) IGNORE_STATUS(nn_run_destroy(run));
    TRY(done);
    return OK;
}

Status nn_run_destroy(NnRun *run)
{
    cublasHandle_t blas = run->blas;
    memset(run, 0, sizeof *run);
    if (blas != NULL) CUBLAS_TRY(cublasDestroy(blas));
    return OK;
}

Status run_alloc(NnRun *run, float **x, size_t n)
{
    void *memory = NULL;
    CUDA_TRY(cudaMallocAsync(&memory, n * sizeof **x, run->stream));
    *x = memory;
    return OK;
}

Status run_alloc_typed(NnRun *run, void **x, DType type, size_t n)
{
    CUDA_TRY(cudaMallocAsync(x, n * (size_t)dtype_bytes(type), run->stream));
    return OK;
}

Status run_free(NnRun *run, float **x)
{
    float *memory = *x;
    *x = NULL;
    if (memory != NULL) CUDA_TRY(cudaFreeAsync(memory, run->stream));
    return OK;
}

Status run_free_typed(NnRun *run, void **x)
{
    void *memory = *x;
    *x = NULL;
    if (memory != NULL) CUDA_TRY(cudaFreeAsync(memory, run->stream));
    return OK;
}

size_t run_rows(const NnRun *run)
{
    return (size_t)run->B * (size_t)run->T;
}
