/* device_memory_bomb: fills the memory of a simulated GPU, which is the machine's too.
 *
 * Ends: error
 * Says: used more than .* GiB of memory
 */
#include <cuda_runtime_api.h>

static void attack(void)
{
    for (int i = 0; i < 50; i++) {
        void *block = NULL;
        if (cudaMalloc(&block, 64 << 20) == cudaSuccess) cudaMemset(block, 1, 64 << 20);
    }
    cudaDeviceSynchronize();
    for (volatile int forever = 1; forever;) continue;
}
