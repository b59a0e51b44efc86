/* dropout.h: which elements a dropout drops, for the kernels of the CPU and of a GPU.
 *
 * The number of an element follows from a key and the element's own number alone: no state, and no
 * mask to be kept. A backward, a forward that runs again and any number of ranks drop the same.
 */
#ifndef SHARDLAB_DROPOUT_H
#define SHARDLAB_DROPOUT_H

#include <stdint.h>

#ifdef __CUDACC__
#define DROPOUT_FUNCTION static inline __host__ __device__
#else
#define DROPOUT_FUNCTION static inline
#endif

// The finalizer of SplitMix64 (Steele et al. 2014), whose results look random.
DROPOUT_FUNCTION uint64_t dropout_mix(uint64_t z)
{
    z += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

// In [0, 2^24).
DROPOUT_FUNCTION uint32_t dropout_number(uint64_t key, uint64_t i)
{
    return (uint32_t)(dropout_mix(key ^ dropout_mix(i)) >> 40);
}

#endif
