/* wrong.cuh: kernels with a mistake each (wrong.cu), for the test that the emulator finds it.
 *
 * Interface: wrong_kernel, and the names of the mistakes.
 */
#ifndef WRONG_CUH
#define WRONG_CUH

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum Wrong {
    RIGHT,         // none: x (64) is turned round, through shared memory
    NO_BARRIER,    // the same without the barrier
    NEVER_WRITTEN, // uninitialised shared memory goes to x
    LEFT_EARLY,    // half of the threads leave before a barrier
    TWO_BARRIERS,  // each warp waits at a barrier of its own
    HALF_A_WARP,   // a shuffle that half of the lanes do not reach
    TWO_SHUFFLES,  // the lanes of a warp are at two shuffles
    SHORT_MASK,    // a shuffle of 16 lanes
    ODD_BLOCK,     // 33 threads
    HUGE_BLOCK,    // 2048 threads
    NOT_DECLARED,  // writes to `other`, which was not declared
    TOO_LONG,      // declares 1 byte more than x has
    TRAP,          // __trap()
    AFTER_A_TRAP,  // a second grid, which must not start
} Wrong;

// Runs the kernel with this mistake on x (64) and other (64).
cudaError_t wrong_kernel(Wrong wrong, float *x, float *other, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
