/* A thread for each device: every thread makes its own rank of the communicator and then works
 * alone, without groups.
 *
 * Each device sends one chunk to every other by a reduce-scatter of products, and the largest of a
 * value that only one of them has is found by an all-reduce.
 */
#include <cuda_runtime.h>
#include <nccl.h>
#include <pthread.h>

#include "ok.h"

enum { CHUNK = 321, MOST = 64 };

typedef struct Worker {
    pthread_t thread;
    int device, devices, wrong;
    ncclUniqueId id;
} Worker;

static void *work(void *arg)
{
    Worker *w = arg;
    size_t n = (size_t)w->devices * CHUNK;
    double *host = malloc(n * sizeof *host), *all, *chunk, largest = w->device == 1 ? 7.5 : -1;
    ncclComm_t comm;
    cudaStream_t stream;

    MUST(host != NULL);
    OK(cudaSetDevice(w->device));
    OK(cudaStreamCreate(&stream));
    OK(ncclCommInitRank(&comm, w->devices, w->id, w->device));
    OK(cudaMallocAsync((void **)&all, n * sizeof *all, stream));
    OK(cudaMallocAsync((void **)&chunk, CHUNK * sizeof *chunk, stream));
    // The product over all devices: one of them gives the value, the others 1.
    for (size_t i = 0; i < n; i++)
        host[i] = (int)(i % (size_t)w->devices) == w->device ? (double)i : 1;
    OK(cudaMemcpyAsync(all, host, n * sizeof *all, cudaMemcpyHostToDevice, stream));
    OK(ncclReduceScatter(all, chunk, CHUNK, ncclDouble, ncclProd, comm, stream));
    OK(cudaMemcpyAsync(host, chunk, CHUNK * sizeof *host, cudaMemcpyDeviceToHost, stream));
    OK(cudaStreamSynchronize(stream));
    for (size_t i = 0; i < CHUNK; i++)
        w->wrong += host[i] != (double)((size_t)w->device * CHUNK + i);

    OK(cudaMemcpyAsync(chunk, &largest, sizeof largest, cudaMemcpyHostToDevice, stream));
    OK(ncclAllReduce(chunk, chunk, 1, ncclDouble, ncclMax, comm, stream));
    OK(cudaMemcpyAsync(&largest, chunk, sizeof largest, cudaMemcpyDeviceToHost, stream));
    OK(cudaFreeAsync(all, stream));
    OK(cudaFreeAsync(chunk, stream));
    OK(cudaStreamSynchronize(stream));
    w->wrong += largest != (w->devices > 1 ? 7.5 : -1);
    OK(cudaStreamDestroy(stream));
    OK(ncclCommDestroy(comm));
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
        worker[d] = (Worker){.device = d, .devices = devices, .id = id};
        MUST(pthread_create(&worker[d].thread, NULL, work, &worker[d]) == 0);
    }
    for (int d = 0; d < devices; d++) {
        pthread_join(worker[d].thread, NULL);
        wrong += worker[d].wrong;
    }
    printf("%d threads, %d wrong\n", devices, wrong);
    return wrong != 0;
}
