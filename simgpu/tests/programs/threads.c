/* A thread for each device: every thread makes its own rank of the communicator and then works
 * alone, without groups.
 *
 * Each device sends one chunk to every other by a reduce-scatter of products, and the largest of a
 * value that only one of them has is found by an all-reduce.
 */
#include <cuda_runtime.h>
#include <nccl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(ok)                                                                                  \
    do {                                                                                           \
        if (!(ok)) {                                                                               \
            fprintf(stderr, "line %d: %s\n", __LINE__, #ok);                                       \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)
#define CUDA(call) CHECK((call) == cudaSuccess)
#define NCCL(call) CHECK((call) == ncclSuccess)

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

    CHECK(host != NULL);
    CUDA(cudaSetDevice(w->device));
    CUDA(cudaStreamCreate(&stream));
    NCCL(ncclCommInitRank(&comm, w->devices, w->id, w->device));
    CUDA(cudaMallocAsync((void **)&all, n * sizeof *all, stream));
    CUDA(cudaMallocAsync((void **)&chunk, CHUNK * sizeof *chunk, stream));
    // The product over all devices: one of them gives the value, the others 1.
    for (size_t i = 0; i < n; i++)
        host[i] = (int)(i % (size_t)w->devices) == w->device ? (double)i : 1;
    CUDA(cudaMemcpyAsync(all, host, n * sizeof *all, cudaMemcpyHostToDevice, stream));
    NCCL(ncclReduceScatter(all, chunk, CHUNK, ncclDouble, ncclProd, comm, stream));
    CUDA(cudaMemcpyAsync(host, chunk, CHUNK * sizeof *host, cudaMemcpyDeviceToHost, stream));
    CUDA(cudaStreamSynchronize(stream));
    for (size_t i = 0; i < CHUNK; i++)
        w->wrong += host[i] != (double)((size_t)w->device * CHUNK + i);

    CUDA(cudaMemcpyAsync(chunk, &largest, sizeof largest, cudaMemcpyHostToDevice, stream));
    NCCL(ncclAllReduce(chunk, chunk, 1, ncclDouble, ncclMax, comm, stream));
    CUDA(cudaMemcpyAsync(&largest, chunk, sizeof largest, cudaMemcpyDeviceToHost, stream));
    CUDA(cudaFreeAsync(all, stream));
    CUDA(cudaFreeAsync(chunk, stream));
    CUDA(cudaStreamSynchronize(stream));
    w->wrong += largest != (w->devices > 1 ? 7.5 : -1);
    CUDA(cudaStreamDestroy(stream));
    NCCL(ncclCommDestroy(comm));
    free(host);
    return NULL;
}

int main(void)
{
    static Worker worker[MOST];
    ncclUniqueId id;
    int devices, wrong = 0;

    CUDA(cudaGetDeviceCount(&devices));
    NCCL(ncclGetUniqueId(&id));
    for (int d = 0; d < devices; d++) {
        worker[d] = (Worker){.device = d, .devices = devices, .id = id};
        CHECK(pthread_create(&worker[d].thread, NULL, work, &worker[d]) == 0);
    }
    for (int d = 0; d < devices; d++) {
        pthread_join(worker[d].thread, NULL);
        wrong += worker[d].wrong;
    }
    printf("%d threads, %d wrong\n", devices, wrong);
    return wrong != 0;
}
