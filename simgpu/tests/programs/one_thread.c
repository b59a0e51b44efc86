/* One process, one thread, all devices: NCCL's simplest shape. Every call for several devices
 * stands in a group, or the first one would wait for the others forever.
 *
 * The root broadcasts a vector; every device scales its copy (on the host, to stay without kernels)
 * and the copies are summed.
 */
#include <cuda_runtime.h>
#include <nccl.h>

#include "ok.h"

enum { COUNT = 10007, MOST = 64 };

int main(void)
{
    int devices, wrong = 0;
    static float host[COUNT];
    float *send[MOST], *recv[MOST];
    cudaStream_t stream[MOST];
    ncclComm_t comm[MOST];

    OK(cudaGetDeviceCount(&devices));
    for (int d = 0; d < devices; d++) {
        OK(cudaSetDevice(d));
        OK(cudaMalloc((void **)&send[d], sizeof host));
        OK(cudaMalloc((void **)&recv[d], sizeof host));
        OK(cudaStreamCreate(&stream[d]));
    }
    OK(ncclCommInitAll(comm, devices, NULL));

    for (int i = 0; i < COUNT; i++) host[i] = (float)(i % 101);
    OK(cudaSetDevice(0));
    OK(cudaMemcpy(send[0], host, sizeof host, cudaMemcpyHostToDevice));
    OK(ncclGroupStart());
    for (int d = 0; d < devices; d++)
        OK(ncclBroadcast(send[d], recv[d], COUNT, ncclFloat, 0, comm[d], stream[d]));
    OK(ncclGroupEnd());

    for (int d = 0; d < devices; d++) {
        OK(cudaSetDevice(d));
        OK(cudaStreamSynchronize(stream[d]));
        OK(cudaMemcpy(host, recv[d], sizeof host, cudaMemcpyDeviceToHost));
        for (int i = 0; i < COUNT; i++) host[i] *= (float)(d + 1);
        OK(cudaMemcpy(send[d], host, sizeof host, cudaMemcpyHostToDevice));
    }
    OK(ncclGroupStart());
    for (int d = 0; d < devices; d++)
        OK(ncclAllReduce(send[d], recv[d], COUNT, ncclFloat, ncclSum, comm[d], stream[d]));
    OK(ncclGroupEnd());

    for (int d = 0; d < devices; d++) {
        OK(cudaSetDevice(d));
        OK(cudaStreamSynchronize(stream[d]));
        OK(cudaMemcpy(host, recv[d], sizeof host, cudaMemcpyDeviceToHost));
        for (int i = 0; i < COUNT; i++)
            wrong += host[i] != (float)(i % 101 * (devices * (devices + 1) / 2));
        OK(cudaFree(send[d]));
        OK(cudaFree(recv[d]));
        OK(cudaStreamDestroy(stream[d]));
        OK(ncclCommDestroy(comm[d]));
    }
    printf("%d devices, %d wrong\n", devices, wrong);
    return wrong != 0;
}
