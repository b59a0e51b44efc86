/* run.c: what a pass needs beside the parameters: a cuBLAS handle, and memory in its stream's
 * order.
 *
 * Interface: nn_run_create, nn_run_destroy; run_alloc, run_free, run_rows for the layers.
 */
#include <string.h>

#include "internal.h"

Status nn_run_create(NnRun *run, cudaStream_t stream)
{
    memset(run, 0, sizeof *run);
    CUBLAS_TRY(cublasCreate(&run->blas));
    run->stream = stream;
    cublasStatus_t bound = cublasSetStream(run->blas, stream);
    if (bound != CUBLAS_STATUS_SUCCESS) nn_run_destroy(run);
    CUBLAS_TRY(bound);
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

Status run_free(NnRun *run, float **x)
{
    float *memory = *x;
    *x = NULL;
    if (memory != NULL) CUDA_TRY(cudaFreeAsync(memory, run->stream));
    return OK;
}

size_t run_rows(const NnRun *run)
{
    return (size_t)run->B * (size_t)run->T;
}
