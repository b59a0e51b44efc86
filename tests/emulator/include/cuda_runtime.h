/* cuda_runtime.h: the language of a CUDA kernel for g++, so that lib/kernels/cuda runs on the CPU.
 *
 * Comes before simgpu's header of the same name. The words that mark functions and variables are
 * simgpu's, which mean nothing; every thread of a grid runs as a fiber of the calling thread, one
 * block after the other (emulator.cpp). Only what the kernels use is here, with their meaning in
 * CUDA C++; a __shared__ variable must stand in a function that is no template, because it goes
 * into a section, EMULATED_SHARED, that each file has for itself, and which is filled with NaNs
 * before each block of the file's kernels.
 *
 * Interface: __shared__; threadIdx, blockIdx, blockDim, gridDim; barriers, shuffles, ballot, fence,
 * atomicInc, atomicMax, __stwb, __trap, __ffs; cudaLaunchKernelEx.
 */
#ifndef EMULATOR_CUDA_RUNTIME_H
#define EMULATOR_CUDA_RUNTIME_H

#include <cuda_runtime_api.h>
#include <stdint.h>
#include <string.h>
#include <tuple>
#include <utility>
#include <vector_types.h>

#include "emulator.h"

#define EMULATED_PASTE(a, b) a##b
#define EMULATED_NAME(a, b) EMULATED_PASTE(a, b)
#define EMULATED_TEXT_OF(name) #name
#define EMULATED_TEXT(name) EMULATED_TEXT_OF(name)

#undef __shared__
#define __shared__ static __attribute__((section(EMULATED_TEXT(EMULATED_SHARED))))

// The linker names the two ends of a section; there is none where no kernel has shared memory.
extern "C" char EMULATED_NAME(__start_, EMULATED_SHARED)[] __attribute__((weak));
extern "C" char EMULATED_NAME(__stop_, EMULATED_SHARED)[] __attribute__((weak));

// Those of the thread that runs now. emulator.cpp runs one grid at a time.
extern dim3 threadIdx, blockIdx, blockDim, gridDim;

// ---- Inside a kernel. The line tells one barrier from another. ----

#define __syncthreads() emulator_meet_block(__LINE__)
#define __syncwarp() ((void)emulator_meet_warp(0xffffffffu, 0, __LINE__))
#define __shfl_xor_sync(mask, x, bits) emulator_shuffle(mask, x, emulator_lane() ^ (bits), __LINE__)
#define __shfl_down_sync(mask, x, by) emulator_shuffle(mask, x, emulator_lane() + (by), __LINE__)
#define __shfl_sync(mask, x, lane) emulator_shuffle(mask, x, lane, __LINE__)
#define __ballot_sync(mask, truth) emulator_ballot(mask, truth, __LINE__)
#define __trap() emulator_trap()

// Every lane hands in x and gets that of `lane`; its own where there is no such lane, as in CUDA.
template <class Number> Number emulator_shuffle(unsigned mask, Number x, unsigned lane, int line)
{
    static_assert(sizeof(Number) <= sizeof(uint64_t), "a shuffle moves 64 bits at most");
    uint64_t bits = 0;
    memcpy(&bits, &x, sizeof x);
    const uint64_t *of_lane = emulator_meet_warp(mask, bits, line);
    if (lane < 32) memcpy(&x, &of_lane[lane], sizeof x);
    return x;
}

static inline unsigned emulator_ballot(unsigned mask, bool truth, int line)
{
    const uint64_t *of_lane = emulator_meet_warp(mask, truth, line);
    unsigned bits = 0;
    for (int lane = 0; lane < 32; lane++) bits |= (unsigned)of_lane[lane] << lane;
    return bits;
}

// Nothing runs at the same time, so nothing need be ordered.
static inline void __threadfence()
{
}

// *at + 1, or 0 where that would pass `most`; returns what was there.
static inline unsigned atomicInc(unsigned *at, unsigned most)
{
    unsigned old = *at;
    *at = old >= most ? 0 : old + 1;
    return old;
}

static inline unsigned atomicMax(unsigned *at, unsigned x)
{
    unsigned old = *at;
    *at = x > old ? x : old;
    return old;
}

// A store with the cache's usual policy.
template <class Value> void __stwb(Value *at, Value value)
{
    *at = value;
}

static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}

// ---- The launch ----

struct cudaLaunchAttribute;
struct cudaLaunchConfig_t {
    dim3 gridDim, blockDim;
    size_t dynamicSmemBytes;
    cudaStream_t stream;
    cudaLaunchAttribute *attrs;
    unsigned numAttrs;
};

// A pointer is replaced by the address that the host may use for it; anything else stays.
template <class Value> Value emulator_usable(Value value)
{
    return value;
}
template <class Target> Target *emulator_usable(Target *pointer)
{
    return (Target *)emulator_pointer((const void *)pointer);
}

// Static, because each file has its own shared memory.
template <class... Parameters, class... Arguments>
static cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config,
                                      void (*kernel)(Parameters...), Arguments... args)
{
    struct Call {
        void (*kernel)(Parameters...);
        std::tuple<Parameters...> args;
    } call = {kernel, std::tuple<Parameters...>(Parameters(args)...)};
    auto look_up = [](void *packed) {
        Call *c = (Call *)packed;
        std::apply([](Parameters &...p) { ((p = emulator_usable(p)), ...); }, c->args);
    };
    auto run = [](void *packed) {
        Call *c = (Call *)packed;
        std::apply(c->kernel, c->args);
    };
    char *shared = EMULATED_NAME(__start_, EMULATED_SHARED);
    size_t bytes = (size_t)(EMULATED_NAME(__stop_, EMULATED_SHARED) - shared);
    if (emulator_captures())
        return emulator_capture(config->gridDim, config->blockDim, run, look_up, &call, sizeof call,
                                shared, bytes);
    look_up(&call);
    return emulator_run(config->gridDim, config->blockDim, run, &call, shared, bytes);
}

#endif
