/* dtype.h: the types of the numbers in device memory. */
#ifndef SHARDLAB_DTYPE_H
#define SHARDLAB_DTYPE_H

#include <stdint.h>

typedef enum DType {
    DTYPE_F32,
    DTYPE_BF16,
    DTYPE_F16,
    DTYPE_BYTE // for a message with several types; no kernel computes with it
} DType;

// Bytes of one element.
static inline int64_t dtype_bytes(DType dtype)
{
    return dtype == DTYPE_F32 ? 4 : dtype == DTYPE_BYTE ? 1 : 2;
}

#endif
