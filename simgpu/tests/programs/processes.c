/* A process for each device, started by fork; the id goes from the first one to the others through
 * a pipe. CUDA is first used behind the fork, as it must be.
 *
 * The processes pass a growing list around in a ring, and gather everybody's own number.
 */
#include <cuda_runtime.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(ok)                                                                                  \
    do {                                                                                           \
        if (!(ok)) {                                                                               \
            fprintf(stderr, "rank %d, line %d: %s\n", rank, __LINE__, #ok);                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)
#define CUDA(call) CHECK((call) == cudaSuccess)
#define NCCL(call) CHECK((call) == ncclSuccess)

enum { RANKS = 5 };

// Rank 0 sends 1 element; each one adds its own rank and sends all on; rank 0 ends with RANKS.
static void pass_around(int rank, int *list, ncclComm_t comm, cudaStream_t stream)
{
    int last = (rank + RANKS - 1) % RANKS, host[RANKS];
    CUDA(cudaMemcpyAsync(list, &rank, sizeof rank, cudaMemcpyHostToDevice, stream));
    if (rank > 0) {
        NCCL(ncclRecv(list, (size_t)rank, ncclInt32, last, comm, stream));
        CUDA(cudaMemcpyAsync(list + rank, &rank, sizeof rank, cudaMemcpyHostToDevice, stream));
    }
    NCCL(ncclSend(list, (size_t)rank + 1, ncclInt32, (rank + 1) % RANKS, comm, stream));
    if (rank > 0) return;
    NCCL(ncclRecv(list, RANKS, ncclInt32, last, comm, stream));
    CUDA(cudaStreamSynchronize(stream));
    CUDA(cudaMemcpy(host, list, sizeof host, cudaMemcpyDeviceToHost));
    for (int i = 0; i < RANKS; i++) CHECK(host[i] == i);
}

static void gather(int rank, int *list, ncclComm_t comm, cudaStream_t stream)
{
    int own = 100 + rank, *pinned;
    CUDA(cudaMallocHost((void **)&pinned, RANKS * sizeof *pinned));
    CUDA(cudaMemcpyAsync(list + rank, &own, sizeof own, cudaMemcpyHostToDevice, stream));
    NCCL(ncclAllGather(list + rank, list, 1, ncclInt32, comm, stream)); // in place
    CUDA(cudaMemcpyAsync(pinned, list, RANKS * sizeof *list, cudaMemcpyDeviceToHost, stream));
    CUDA(cudaStreamSynchronize(stream));
    for (int i = 0; i < RANKS; i++) CHECK(pinned[i] == 100 + i);
    CUDA(cudaFreeHost(pinned));
}

static void run(int rank, const int *ends)
{
    ncclUniqueId id;
    ncclComm_t comm;
    cudaStream_t stream;
    int *list;

    CUDA(cudaSetDevice(rank));
    if (rank == 0) {
        NCCL(ncclGetUniqueId(&id));
        for (int i = 1; i < RANKS; i++) CHECK(write(ends[1], &id, sizeof id) == sizeof id);
    } else {
        CHECK(read(ends[0], &id, sizeof id) == sizeof id);
    }
    NCCL(ncclCommInitRank(&comm, RANKS, id, rank));
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CUDA(cudaMalloc((void **)&list, RANKS * sizeof *list));
    pass_around(rank, list, comm, stream);
    gather(rank, list, comm, stream);
    CUDA(cudaFree(list));
    CUDA(cudaStreamDestroy(stream));
    NCCL(ncclCommDestroy(comm));
}

int main(void)
{
    int ends[2], rank = -1, wrong = 0, status;
    CHECK(pipe(ends) == 0);
    for (int r = 0; r < RANKS; r++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            run(r, ends);
            exit(0);
        }
    }
    while (wait(&status) > 0) wrong += status != 0;
    printf("%d processes, %d wrong\n", RANKS, wrong);
    return wrong != 0;
}
