/* emulator.h: what the emulated language and the kernels' launcher need of emulator.cpp.
 *
 * Interface: emulator_begin, emulator_end: around the grids of one kernel_X; emulator_pointer,
 * emulator_run: for cudaLaunchKernelEx; emulator_lane, emulator_meet_block, emulator_meet_warp,
 * emulator_trap: for the thread that runs now.
 */
#ifndef EMULATOR_H
#define EMULATOR_H

#include <stdint.h>

#include "gpulog.h"

struct dim3;

// Declares the ranges to simgpu, which checks them, and keeps their usable addresses for the grids
// until emulator_end, which returns the first error of any. Each host thread has its own.
void emulator_begin(const char *name, cudaStream_t stream, const void *site, int n_ranges,
                    const GpuRange *ranges);
cudaError_t emulator_end(void);

// The address to use for a pointer that a kernel is given; it must lie in a declared range.
const void *emulator_pointer(const void *pointer);

// Runs a grid: each of its threads calls thread(packed). `shared` (bytes) is the __shared__ memory
// of its blocks.
cudaError_t emulator_run(const dim3 &grid, const dim3 &block, void (*thread)(void *packed),
                         void *packed, char *shared, size_t bytes);

// Whether the kernel_X is captured; then its grids are kept, and run when its graph is launched:
// look_up(packed) then puts the pointers' usable addresses in a copy of packed.
bool emulator_captures(void);
cudaError_t emulator_capture(const dim3 &grid, const dim3 &block, void (*thread)(void *packed),
                             void (*look_up)(void *packed), const void *packed, size_t packed_bytes,
                             char *shared, size_t bytes);

unsigned emulator_lane(void);
// Wait for the rest of the block, or of the warp. `line` must be the same for all who meet. The
// threads of a warp each bring 64 bits, and get those of all 32.
void emulator_meet_block(int line);
const uint64_t *emulator_meet_warp(unsigned mask, uint64_t bits, int line);
// Ends the grid with an error.
[[noreturn]] void emulator_trap(void);

#endif
