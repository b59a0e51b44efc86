/* bytes.h: what a surplus of bytes is made of.
 *
 * A test that counts bytes finds "416 more than it must be". Who knows the size of every unit's
 * unsharded parameter can say that this is l.0's. The sizes are counted from the parameters'
 * shapes.
 */
#ifndef SHARDLAB_BYTES_H
#define SHARDLAB_BYTES_H

#include <stddef.h>

#include "nn.h"

enum { SIZES_MAX = 16 };

typedef struct Size {
    char name[48];
    size_t bytes;
} Size;

typedef struct Sizes {
    int n;
    Size size[SIZES_MAX]; // of every unit: its padded parameters, whole
    int world;
} Sizes;

// The units of the model: the root first, then its children that have hooks.
void sizes_of(Sizes *sizes, const Module *root, int world);

// LIKELY and a sentence, where the surplus is the whole buffers of one or more units, each once,
// and no other choice of as few units has this size (but units of equal size stand for each other);
// else "".
const char *bytes_cause(size_t surplus, const Sizes *sizes);

// LIKELY and a sentence, where `got` is the bytes of so many arrays (of which there are `arrays`,
// each of `shard` bytes as it must be) of which some have `whole` bytes; else "".
const char *arrays_cause(size_t got, int arrays, size_t shard, size_t whole);

#endif
