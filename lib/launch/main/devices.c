/* devices: prints one line that says which GPUs a program built like this one finds.
 *
 *   devices        "simgpu: 8 simulated devices", "CUDA 13.0, NCCL 2.28.9: 1 device, NVIDIA H200"
 *   devices -n     the number of devices alone
 *
 * Exit status 2, with the reason on standard error: no GPU can be used.
 */
#include <stdio.h>
#include <string.h>

#include <cuda_runtime_api.h>
#include <nccl.h>

#if defined(EMULATED_CUDA)
#define BACKEND "emulated CUDA on simgpu"
#elif defined(BACKEND_CUDA)
#define BACKEND "CUDA"
#else
#define BACKEND "simgpu"
#endif

static int give_up(const char *what, const char *words)
{
    fprintf(stderr, "%s: %s: %s\n", BACKEND, what, words);
    return 2;
}

int main(int argc, char **argv)
{
    struct cudaDeviceProp properties;
    int devices = 0, nccl = 0, runtime = 0;
    cudaError_t error = cudaGetDeviceCount(&devices);

    if (error != cudaSuccess) return give_up("no GPU can be used", cudaGetErrorString(error));
    if (argc > 1 && strcmp(argv[1], "-n") == 0) {
        printf("%d\n", devices);
        return 0;
    }
    error = cudaGetDeviceProperties(&properties, 0);
    if (error != cudaSuccess) return give_up("device 0", cudaGetErrorString(error));
    if (ncclGetVersion(&nccl) != ncclSuccess) return give_up("NCCL", "it reports no version");
    cudaRuntimeGetVersion(&runtime);
    const char *plural = devices == 1 ? "" : "s";
    if (strcmp(BACKEND, "CUDA") == 0)
        printf("CUDA %d.%d, NCCL %d.%d.%d: %d device%s, %s\n", runtime / 1000, runtime % 1000 / 10,
               nccl / 10000, nccl % 10000 / 100, nccl % 100, devices, plural, properties.name);
    else
        printf("%s: %d simulated device%s\n", BACKEND, devices, plural);
    return 0;
}
