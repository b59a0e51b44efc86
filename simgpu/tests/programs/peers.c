/* Copies between devices without NCCL: who can reach whom, peer access, a buffer that goes around
 * all devices by cudaMemcpyPeer and by cudaMemcpyDefault, and a kernel's (cuBLAS's) look into its
 * neighbour's memory.
 */
#include <cublas_v2.h>
#include <cuda_runtime.h>

#include "ok.h"

enum { MOST = 64, COUNT = 5001 };

int main(void)
{
    int devices, wrong = 0, reachable;
    static float host[COUNT];
    float *x[MOST], sum;
    OK(cudaGetDeviceCount(&devices));
    for (int d = 0; d < devices; d++) {
        OK(cudaSetDevice(d));
        OK(cudaMalloc((void **)&x[d], sizeof host));
        for (int peer = 0; peer < devices; peer++) {
            OK(cudaDeviceCanAccessPeer(&reachable, d, peer));
            MUST(reachable == (d != peer));
            if (!reachable) continue;
            OK(cudaDeviceEnablePeerAccess(peer, 0));
            MUST(cudaDeviceEnablePeerAccess(peer, 0) == cudaErrorPeerAccessAlreadyEnabled);
            MUST(cudaGetLastError() == cudaErrorPeerAccessAlreadyEnabled);
        }
    }
    for (int i = 0; i < COUNT; i++) host[i] = (float)(i % 7);
    OK(cudaSetDevice(0));
    OK(cudaMemcpy(x[0], host, sizeof host, cudaMemcpyHostToDevice));
    for (int d = 1; d < devices; d++) {
        if (d % 2)
            OK(cudaMemcpyPeer(x[d], d, x[d - 1], d - 1, sizeof host));
        else
            OK(cudaMemcpy(x[d], x[d - 1], sizeof host, cudaMemcpyDefault));
        OK(cudaDeviceSynchronize());
    }
    OK(cudaMemcpy(host, x[devices - 1], sizeof host, cudaMemcpyDefault));
    for (int i = 0; i < COUNT; i++) wrong += host[i] != (float)(i % 7);

    for (int d = 0; d < devices; d++) {
        cublasHandle_t blas;
        OK(cudaSetDevice(d));
        OK(cublasCreate(&blas));
        OK(cublasSasum(blas, 7, x[(d + 1) % devices], 1, &sum));
        wrong += sum != 21;
        OK(cublasDestroy(blas));
    }
    for (int d = 0; d < devices; d++) {
        OK(cudaSetDevice(d));
        for (int peer = 0; peer < devices; peer++)
            if (peer != d) OK(cudaDeviceDisablePeerAccess(peer));
        OK(cudaFree(x[d]));
        OK(cudaDeviceReset());
    }
    printf("%d devices, %d wrong\n", devices, wrong);
    return wrong != 0;
}
