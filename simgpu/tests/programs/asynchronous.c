/* Communicators that do not block: the call comes back at once, and the program asks until it is
 * made, as NCCL's documentation shows. A thread for each device.
 */
#include <cuda_runtime.h>
#include <nccl.h>
#include <pthread.h>

#include "ok.h"

enum { MOST = 64, COUNT = 4099 };

typedef struct Worker {
    pthread_t thread;
    int rank, ranks, wrong;
    ncclUniqueId id;
} Worker;

static void settle(ncclResult_t result, ncclComm_t comm)
{
    while (result == ncclInProgress) OK(ncclCommGetAsyncError(comm, &result));
    OK(result);
}

static void *work(void *arg)
{
    Worker *w = arg;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm;
    cudaStream_t stream;
    int *x, *host = malloc(COUNT * sizeof *host);
    MUST(host);
    config.blocking = 0;
    OK(cudaSetDevice(w->rank));
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    ncclResult_t result = ncclCommInitRankConfig(&comm, w->ranks, w->id, w->rank, &config);
    settle(result, comm);
    OK(cudaMallocAsync((void **)&x, COUNT * sizeof *x, stream));
    for (int i = 0; i < COUNT; i++) host[i] = i * (w->rank + 1);
    OK(cudaMemcpyAsync(x, host, COUNT * sizeof *x, cudaMemcpyHostToDevice, stream));
    settle(ncclGroupStart(), comm);
    result = ncclAllReduce(x, x, COUNT, ncclInt, ncclMax, comm, stream);
    MUST(result == ncclSuccess || result == ncclInProgress);
    settle(ncclGroupEnd(), comm);
    OK(cudaMemcpyAsync(host, x, COUNT * sizeof *x, cudaMemcpyDeviceToHost, stream));
    OK(cudaStreamSynchronize(stream));
    for (int i = 0; i < COUNT; i++) w->wrong += host[i] != i * w->ranks;
    OK(cudaFreeAsync(x, stream));
    OK(cudaStreamSynchronize(stream));
    settle(ncclCommFinalize(comm), comm);
    OK(ncclCommDestroy(comm));
    OK(cudaStreamDestroy(stream));
    free(host);
    return NULL;
}

int main(void)
{
    static Worker worker[MOST];
    ncclUniqueId id;
    int devices, wrong = 0;
    OK(cudaGetDeviceCount(&devices));
    OK(ncclGetUniqueId(&id));
    for (int d = 0; d < devices; d++) {
        worker[d] = (Worker){.rank = d, .ranks = devices, .id = id};
        MUST(pthread_create(&worker[d].thread, NULL, work, &worker[d]) == 0);
    }
    for (int d = 0; d < devices; d++) {
        pthread_join(worker[d].thread, NULL);
        wrong += worker[d].wrong;
    }
    printf("%d devices, %d wrong\n", devices, wrong);
    return wrong != 0;
}
