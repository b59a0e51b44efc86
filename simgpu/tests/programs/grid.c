/* Ranks in a grid: one communicator for each row and one for each column, split from that of all,
 * and one that some ranks are not in. A process for each rank; how many is the first argument.
 *
 * Sums over the rows of sums over the columns are sums over all.
 */
#include <cuda_runtime.h>
#include <nccl.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ok.h"

enum { COUNT = 1001 };

static double first_of(const double *device, cudaStream_t stream)
{
    double value;
    OK(cudaMemcpyAsync(&value, device, sizeof value, cudaMemcpyDeviceToHost, stream));
    OK(cudaStreamSynchronize(stream));
    return value;
}

static void grid(int rank, int ranks, int width, ncclComm_t all, cudaStream_t stream)
{
    static double host[COUNT];
    double *x;
    int rows, columns, place;
    ncclComm_t row, column, few;
    for (int i = 0; i < COUNT; i++) host[i] = rank + 1;
    OK(cudaMalloc((void **)&x, sizeof host));
    OK(cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice));
    OK(ncclCommSplit(all, rank / width, rank, &row, NULL));
    OK(ncclCommSplit(all, rank % width, rank, &column, NULL));
    OK(ncclCommCount(row, &columns));
    OK(ncclCommCount(column, &rows));
    OK(ncclCommUserRank(row, &place));
    MUST(columns * rows == ranks && place == rank % width);
    OK(ncclAllReduce(x, x, COUNT, ncclDouble, ncclSum, row, stream));
    OK(ncclAllReduce(x, x, COUNT, ncclDouble, ncclSum, column, stream));
    MUST(first_of(x, stream) == ranks * (ranks + 1) / 2);

    // Every rank but the last, in reverse order.
    int color = rank == ranks - 1 && ranks > 1 ? NCCL_SPLIT_NOCOLOR : 0;
    OK(ncclCommSplit(all, color, -rank, &few, NULL));
    MUST((few == NULL) == (color == NCCL_SPLIT_NOCOLOR));
    if (few) {
        OK(ncclCommUserRank(few, &place));
        MUST(place == (ranks > 1 ? ranks - 2 : 0) - rank);
        OK(ncclBroadcast(x, x, 1, ncclDouble, 0, few, stream));
        OK(ncclCommDestroy(few));
    }
    OK(cudaStreamSynchronize(stream));
    OK(ncclCommDestroy(column));
    OK(ncclCommDestroy(row));
    OK(cudaFree(x));
}

static void run(int rank, int ranks, const int *ends)
{
    ncclUniqueId id;
    ncclComm_t all;
    cudaStream_t stream;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    config.commName = "all";
    OK(cudaSetDevice(rank));
    if (rank == 0) OK(ncclGetUniqueId(&id));
    for (int i = 1; i < ranks && rank == 0; i++) MUST(write(ends[1], &id, sizeof id) > 0);
    if (rank > 0) MUST(read(ends[0], &id, sizeof id) == sizeof id);
    OK(ncclCommInitRankConfig(&all, ranks, id, rank, &config));
    OK(cudaStreamCreate(&stream));
    for (int width = 1; width <= ranks; width++)
        if (ranks % width == 0) grid(rank, ranks, width, all, stream);
    OK(cudaStreamDestroy(stream));
    OK(ncclCommFinalize(all));
    OK(ncclCommDestroy(all));
}

int main(int argc, char **argv)
{
    int ranks = argc > 1 ? atoi(argv[1]) : 4, wrong = 0, status, ends[2];
    MUST(pipe(ends) == 0);
    for (int rank = 0; rank < ranks; rank++) {
        if (fork() > 0) continue;
        run(rank, ranks, ends);
        exit(0);
    }
    while (wait(&status) > 0) wrong += status != 0;
    printf("%d ranks, %d wrong\n", ranks, wrong);
    return wrong != 0;
}
