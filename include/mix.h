/* mix.h: functions for numbers that look random, without state, on the CPU and in a GPU's kernels:
 * for the order of training data and for dropout. A backward, a forward that runs again and any
 * number of ranks get the same numbers.
 */
#ifndef SHARDLAB_MIX_H
#define SHARDLAB_MIX_H

#include <stdint.h>

#ifdef __CUDACC__
#define MIX_FUNCTION static inline __host__ __device__
#else
#define MIX_FUNCTION static inline
#endif

// The finalizer of SplitMix64 (Steele et al. 2014).
MIX_FUNCTION uint64_t mix(uint64_t z)
{
    z += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

// The number of sequence `number` of a training step.
MIX_FUNCTION uint64_t mix_sequence(uint64_t seed, int step, int number)
{
    return mix(seed ^ mix((uint64_t)step << 32 | (uint32_t)number));
}

// The number of element i for a dropout, in [0, 2^24).
MIX_FUNCTION uint32_t dropout_number(uint64_t key, uint64_t i)
{
    return (uint32_t)(mix(key ^ mix(i)) >> 40);
}

#endif
