/* buffer.h: device memory with the type of its elements. Given code.
 *
 * A pointer to void does not say what it points to. So all code from the flat parameter to the
 * modules passes memory as a Buffer. A kernel gets the pointer, after its caller has checked the
 * type.
 */
#ifndef SHARDLAB_BUFFER_H
#define SHARDLAB_BUFFER_H

#include <nccl.h>
#include <stddef.h>
#include <stdint.h>

#include "dtype.h"

typedef struct Buffer {
    void *data;    // device; NULL: there is none
    DType dtype;   // of each element
    int64_t numel; // elements
} Buffer;

// NCCL's name of the type.
static inline ncclDataType_t dtype_nccl(DType dtype)
{
    if (dtype == DTYPE_BYTE) return ncclUint8;
    return dtype == DTYPE_F32 ? ncclFloat : dtype == DTYPE_BF16 ? ncclBfloat16 : ncclHalf;
}

static inline size_t buffer_bytes(const Buffer *buffer)
{
    return (size_t)(buffer->numel * dtype_bytes(buffer->dtype));
}

// Elements [begin, begin + numel) of a buffer, as a view: no byte is copied. If the buffer has no
// memory, the range has none.
static inline Buffer buffer_range(const Buffer *buffer, int64_t begin, int64_t numel)
{
    if (buffer->data == NULL) return (Buffer){NULL, buffer->dtype, numel};
    char *data = (char *)buffer->data + begin * dtype_bytes(buffer->dtype);
    return (Buffer){data, buffer->dtype, numel};
}

#endif
