/* buffer.h: device memory with the type of its elements. Given code.
 *
 * A pointer to void does not know what it points to. From the flat parameter to the modules memory
 * is therefore handed on as a Buffer; a kernel is given the pointer, once the caller has made sure
 * of the type.
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

// What NCCL calls the type.
static inline ncclDataType_t dtype_nccl(DType dtype)
{
    if (dtype == DTYPE_BYTE) return ncclUint8;
    return dtype == DTYPE_F32 ? ncclFloat : dtype == DTYPE_BF16 ? ncclBfloat16 : ncclHalf;
}

static inline size_t buffer_bytes(const Buffer *buffer)
{
    return (size_t)(buffer->numel * dtype_bytes(buffer->dtype));
}

// Elements [begin, begin + numel) of a buffer, as a view: no byte is copied. A range of no memory
// is no memory.
static inline Buffer buffer_range(const Buffer *buffer, int64_t begin, int64_t numel)
{
    if (buffer->data == NULL) return (Buffer){NULL, buffer->dtype, numel};
    char *data = (char *)buffer->data + begin * dtype_bytes(buffer->dtype);
    return (Buffer){data, buffer->dtype, numel};
}

#endif
