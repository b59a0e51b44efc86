/* device_memory_bomb: fills the memory of a simulated GPU, which is the machine's too. It copies,
 * because a cudaMemset takes memory only where its bytes are read.
 *
 * Ends: error
 * Says: used more than .* GiB of memory
 */
#include <cuda_runtime_api.h>

static void attack(void)
{
    static char page[16 << 20];
    for (int i = 0; i < 200; i++) {
        void *block = NULL;
        if (cudaMalloc(&block, sizeof page) == cudaSuccess)
            cudaMemcpy(block, page, sizeof page, cudaMemcpyHostToDevice);
    }
    cudaDeviceSynchronize();
    for (volatile int forever = 1; forever;) continue;
}
