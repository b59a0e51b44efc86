/* A rank as launchers start it: chosen RANK takes the device of that number and sums four numbers
 * on it. It looks at every error. With a CUDA_VISIBLE_DEVICES that names a device twice, or one
 * that is not there, the device that it wants is none of those it sees.
 */
#include <cuda_runtime.h>

#include "ok.h"

int main(int argc, char **argv)
{
    int rank = argc > 1 ? atoi(argv[1]) : 0;
    unsigned char x[4] = {0};
    void *device;
    cudaError_t error = cudaSetDevice(rank);
    if (error != cudaSuccess) {
        printf("rank %d: %s\n", rank, cudaGetErrorString(error));
        return 1;
    }
    OK(cudaMalloc(&device, sizeof x));
    OK(cudaMemset(device, rank + 1, sizeof x));
    OK(cudaMemcpy(x, device, sizeof x, cudaMemcpyDeviceToHost));
    OK(cudaFree(device));
    printf("rank %d: %d\n", rank, x[0] + x[1] + x[2] + x[3]);
    return 0;
}
