/* Data parallel training in its smallest form: every process has its own rows of a linear problem,
 * computes the gradient with cuBLAS, averages it with NCCL and takes the same step. All end with
 * the weights that made the data. The id is in a file, as many programs without MPI have it.
 *
 *   regression RANKS FILE
 */
#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <math.h>
#include <nccl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ok.h"

enum { ROWS = 16, COLS = 8, STEPS = 400 };

static void share_id(int rank, const char *path, ncclUniqueId *id)
{
    char part[4096];
    FILE *file;
    if (rank == 0) {
        snprintf(part, sizeof part, "%s.part", path);
        OK(ncclGetUniqueId(id));
        MUST((file = fopen(part, "wb")) && fwrite(id, sizeof *id, 1, file) == 1);
        MUST(fclose(file) == 0 && rename(part, path) == 0);
        return;
    }
    while (!(file = fopen(path, "rb"))) usleep(1000);
    MUST(fread(id, sizeof *id, 1, file) == 1);
    fclose(file);
}

static float truth(int col)
{
    return (float)(col - 3) / 2;
}

// Each rank's rows (ROWS, COLS), columns first, and what they give.
static void make_data(int rank, float *a, float *b)
{
    for (int i = 0; i < ROWS; i++) b[i] = 0;
    for (int j = 0; j < COLS; j++)
        for (int i = 0; i < ROWS; i++) {
            int bits = (i + 1) * (j + 3) * 7919 + rank * 104729 + j * j * 31;
            a[j * ROWS + i] = (float)((bits >> 3) % 17 - 8) / 8;
            b[i] += a[j * ROWS + i] * truth(j);
        }
}

static void train(int rank, int ranks, const char *path)
{
    float host_a[ROWS * COLS], host_b[ROWS], w[COLS], *a, *b, *r, *g, *weights;
    const float one = 1, minus = -1, zero = 0, step = -0.1f / ROWS;
    ncclUniqueId id;
    ncclComm_t comm;
    cudaStream_t stream;
    cublasHandle_t blas;
    OK(cudaSetDevice(rank));
    share_id(rank, path, &id);
    OK(ncclCommInitRank(&comm, ranks, id, rank));
    OK(cudaStreamCreate(&stream));
    OK(cublasCreate(&blas));
    OK(cublasSetStream(blas, stream));
    OK(cudaMalloc((void **)&a, sizeof host_a));
    OK(cudaMalloc((void **)&b, sizeof host_b));
    OK(cudaMalloc((void **)&r, sizeof host_b));
    OK(cudaMalloc((void **)&g, sizeof w));
    OK(cudaMalloc((void **)&weights, sizeof w));
    make_data(rank, host_a, host_b);
    OK(cublasSetMatrix(ROWS, COLS, sizeof *a, host_a, ROWS, a, ROWS));
    OK(cublasSetVector(ROWS, sizeof *b, host_b, 1, b, 1));
    OK(cudaMemsetAsync(weights, 0, sizeof w, stream));
    for (int i = 0; i < STEPS; i++) {
        // r = A·w - b, g = Aᵀ·r
        OK(cublasSgemv(blas, CUBLAS_OP_N, ROWS, COLS, &one, a, ROWS, weights, 1, &zero, r, 1));
        OK(cublasSaxpy(blas, ROWS, &minus, b, 1, r, 1));
        OK(cublasSgemv(blas, CUBLAS_OP_T, ROWS, COLS, &one, a, ROWS, r, 1, &zero, g, 1));
        OK(ncclAllReduce(g, g, COLS, ncclFloat, ncclAvg, comm, stream));
        OK(cublasSaxpy(blas, COLS, &step, g, 1, weights, 1));
    }
    OK(cudaMemcpyAsync(w, weights, sizeof w, cudaMemcpyDeviceToHost, stream));
    OK(cudaStreamSynchronize(stream));
    for (int j = 0; j < COLS; j++) MUST(fabsf(w[j] - truth(j)) < 0.25f);
    // All ranks have bitwise equal weights.
    OK(ncclAllReduce(weights, weights, COLS, ncclFloat, ncclMax, comm, stream));
    OK(cudaMemcpyAsync(host_b, weights, sizeof w, cudaMemcpyDeviceToHost, stream));
    OK(cudaStreamSynchronize(stream));
    for (int j = 0; j < COLS; j++) MUST(w[j] == host_b[j]);
    OK(cudaFree(a));
    OK(cudaFree(b));
    OK(cudaFree(r));
    OK(cudaFree(g));
    OK(cudaFree(weights));
    OK(cublasDestroy(blas));
    OK(cudaStreamDestroy(stream));
    OK(ncclCommDestroy(comm));
}

int main(int argc, char **argv)
{
    int ranks = argc > 1 ? atoi(argv[1]) : 4, wrong = 0, status;
    MUST(argc > 2);
    unlink(argv[2]);
    for (int rank = 0; rank < ranks; rank++) {
        if (fork() > 0) continue;
        train(rank, ranks, argv[2]);
        exit(0);
    }
    while (wait(&status) > 0) wrong += status != 0;
    unlink(argv[2]);
    printf("%d ranks, %d wrong\n", ranks, wrong);
    return wrong != 0;
}
