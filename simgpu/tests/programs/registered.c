/* Buffers that NCCL knows beforehand: made by ncclMemAlloc, registered with the communicator or as
 * a window. One thread, all devices; the gather is in place.
 */
#include <cuda_runtime.h>
#include <nccl.h>

#include "ok.h"

enum { MOST = 64, COUNT = 513 };

int main(void)
{
    int devices, wrong = 0;
    ncclComm_t comm[MOST];
    cudaStream_t stream[MOST];
    unsigned char *all[MOST], host[COUNT * MOST];
    void *handle[MOST];
    ncclWindow_t window[MOST];
    OK(cudaGetDeviceCount(&devices));
    OK(ncclCommInitAll(comm, devices, NULL));
    size_t bytes = (size_t)devices * COUNT;
    for (int d = 0; d < devices; d++) {
        OK(cudaSetDevice(d));
        OK(cudaStreamCreate(&stream[d]));
        OK(ncclMemAlloc((void **)&all[d], bytes));
        OK(ncclCommRegister(comm[d], all[d], bytes, &handle[d]));
        OK(cudaMemsetAsync(all[d] + d * COUNT, d + 1, COUNT, stream[d]));
    }
    OK(ncclGroupStart());
    for (int d = 0; d < devices; d++)
        OK(ncclCommWindowRegister(comm[d], all[d], bytes, &window[d], NCCL_WIN_COLL_SYMMETRIC));
    OK(ncclGroupEnd());
    OK(ncclGroupStart());
    for (int d = 0; d < devices; d++)
        OK(ncclAllGather(all[d] + d * COUNT, all[d], COUNT, ncclUint8, comm[d], stream[d]));
    OK(ncclGroupEnd());
    for (int d = 0; d < devices; d++) {
        OK(cudaSetDevice(d));
        OK(cudaStreamSynchronize(stream[d]));
        OK(cudaMemcpy(host, all[d], bytes, cudaMemcpyDeviceToHost));
        for (size_t i = 0; i < bytes; i++) wrong += host[i] != i / COUNT + 1;
        OK(ncclCommWindowDeregister(comm[d], window[d]));
        OK(ncclCommDeregister(comm[d], handle[d]));
        OK(ncclMemFree(all[d]));
        OK(cudaStreamDestroy(stream[d]));
    }
    for (int d = 0; d < devices; d++) OK(ncclCommDestroy(comm[d]));
    printf("%d devices, %d wrong\n", devices, wrong);
    return wrong != 0;
}
