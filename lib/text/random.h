/* random.h: a number that looks random, for the choice of training data. */
#ifndef SHARDLAB_TEXT_RANDOM_H
#define SHARDLAB_TEXT_RANDOM_H

#include <stdint.h>

// A number of 64 bits that looks random: the finalizer of SplitMix64 (Steele et al. 2014).
static inline uint64_t mix(uint64_t z)
{
    z += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

// The same for sequence `number` of a step.
static inline uint64_t mix_sequence(uint64_t seed, int step, int number)
{
    return mix(seed ^ mix((uint64_t)step << 32 | (uint32_t)number));
}

#endif
