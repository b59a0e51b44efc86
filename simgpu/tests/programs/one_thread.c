/* One process, one thread, all devices: NCCL's simplest shape. Every call for several devices
 * stands in a group, or the first one would wait for the others forever.
 *
 * The root broadcasts a vector; every device scales its copy (on the host, to stay without kernels)
 * and the copies are summed.
 */
#include <cuda_runtime.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>

#define CUDA(call)                                                                                 \
    do {                                                                                           \
        cudaError_t e_ = (call);                                                                   \
        if (e_ != cudaSuccess) {                                                                   \
            fprintf(stderr, "line %d: %s\n", __LINE__, cudaGetErrorString(e_));                    \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)
#define NCCL(call)                                                                                 \
    do {                                                                                           \
        ncclResult_t e_ = (call);                                                                  \
        if (e_ != ncclSuccess) {                                                                   \
            fprintf(stderr, "line %d: %s\n", __LINE__, ncclGetErrorString(e_));                    \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

enum { COUNT = 10007, MOST = 64 };

int main(void)
{
    int devices, wrong = 0;
    static float host[COUNT];
    float *send[MOST], *recv[MOST];
    cudaStream_t stream[MOST];
    ncclComm_t comm[MOST];

    CUDA(cudaGetDeviceCount(&devices));
    for (int d = 0; d < devices; d++) {
        CUDA(cudaSetDevice(d));
        CUDA(cudaMalloc((void **)&send[d], sizeof host));
        CUDA(cudaMalloc((void **)&recv[d], sizeof host));
        CUDA(cudaStreamCreate(&stream[d]));
    }
    NCCL(ncclCommInitAll(comm, devices, NULL));

    for (int i = 0; i < COUNT; i++) host[i] = (float)(i % 101);
    CUDA(cudaSetDevice(0));
    CUDA(cudaMemcpy(send[0], host, sizeof host, cudaMemcpyHostToDevice));
    NCCL(ncclGroupStart());
    for (int d = 0; d < devices; d++)
        NCCL(ncclBroadcast(send[d], recv[d], COUNT, ncclFloat, 0, comm[d], stream[d]));
    NCCL(ncclGroupEnd());

    for (int d = 0; d < devices; d++) {
        CUDA(cudaSetDevice(d));
        CUDA(cudaStreamSynchronize(stream[d]));
        CUDA(cudaMemcpy(host, recv[d], sizeof host, cudaMemcpyDeviceToHost));
        for (int i = 0; i < COUNT; i++) host[i] *= (float)(d + 1);
        CUDA(cudaMemcpy(send[d], host, sizeof host, cudaMemcpyHostToDevice));
    }
    NCCL(ncclGroupStart());
    for (int d = 0; d < devices; d++)
        NCCL(ncclAllReduce(send[d], recv[d], COUNT, ncclFloat, ncclSum, comm[d], stream[d]));
    NCCL(ncclGroupEnd());

    for (int d = 0; d < devices; d++) {
        CUDA(cudaSetDevice(d));
        CUDA(cudaStreamSynchronize(stream[d]));
        CUDA(cudaMemcpy(host, recv[d], sizeof host, cudaMemcpyDeviceToHost));
        for (int i = 0; i < COUNT; i++)
            wrong += host[i] != (float)(i % 101 * (devices * (devices + 1) / 2));
        CUDA(cudaFree(send[d]));
        CUDA(cudaFree(recv[d]));
        CUDA(cudaStreamDestroy(stream[d]));
        NCCL(ncclCommDestroy(comm[d]));
    }
    printf("%d devices, %d wrong\n", devices, wrong);
    return wrong != 0;
}
