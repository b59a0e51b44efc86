/* Which devices a program sees, and in which order: how many, and the PCI bus of each. On every one
 * of them memory is written and read back.
 */
#include <cuda_runtime.h>

#include "ok.h"

int main(void)
{
    int devices = -1, wrong = 0, found;
    cudaError_t error = cudaGetDeviceCount(&devices);
    if (error == cudaErrorNoDevice) {
        void *x = NULL;
        MUST(devices == 0 && cudaMalloc(&x, 4) == cudaErrorNoDevice && !x);
        MUST(cudaSetDevice(0) == cudaErrorNoDevice && cudaDeviceSynchronize() == error);
        printf("none: %s\n", cudaGetErrorString(error));
        return 0;
    }
    OK(error);
    printf("%d:", devices);
    for (int d = 0; d < devices; d++) {
        struct cudaDeviceProp p;
        char bus[32];
        int *x, host = 0;
        OK(cudaGetDeviceProperties(&p, d));
        OK(cudaDeviceGetPCIBusId(bus, sizeof bus, d));
        OK(cudaDeviceGetByPCIBusId(&found, bus));
        wrong += found != d;
        OK(cudaSetDevice(d));
        OK(cudaMalloc((void **)&x, sizeof *x));
        OK(cudaMemset(x, 1, sizeof *x));
        OK(cudaMemcpy(&host, x, sizeof *x, cudaMemcpyDeviceToHost));
        wrong += host != 0x01010101;
        OK(cudaFree(x));
        printf(" %d", p.pciBusID);
    }
    printf(", %d wrong\n", wrong);
    return wrong != 0;
}
