/* typed.h: arrays of any DType, worked on as floats.
 *
 * A kernel computes in float. It uses floats where they are. Of bf16 and fp16 it widens one piece
 * at a time into a copy, which is exact, and rounds the results once, when it stores them. A piece
 * is a block of an array or a row, so copies are small.
 *
 *   float copy[TYPED_BLOCK];
 *   for (size_t i = 0; i < n; i += typed_step(type, n)) {
 *       size_t count = typed_count(type, n, i);
 *       float *x = typed_open(type, copy, array, i, count);
 *       for (size_t j = 0; j < count; j++) x[j] *= factor;
 *       typed_store(type, array, i, x, count);
 *   }
 */
#ifndef SHARDLAB_TYPED_H
#define SHARDLAB_TYPED_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "dtype.h"
#include "rounding.h"
#include "simgpu.h"

// SIMGPU_BEGIN of a kernel's _ex form, which on floats is the kernel of floats.
#define TYPED_BEGIN(name, type, ...)                                                               \
    SIMGPU_BEGIN((type) == DTYPE_F32 ? name : name "_ex", __VA_ARGS__)

// n numbers at ptr, as simgpu_read, _overwrite and _update.
static inline const void *typed_read(SimgpuOp *op, DType type, const void *ptr, size_t n)
{
    size_t one = (size_t)dtype_bytes(type);
    return simgpu_read_as(op, ptr, n * one, one);
}
static inline void *typed_write(SimgpuOp *op, DType type, void *ptr, size_t n)
{
    size_t one = (size_t)dtype_bytes(type);
    return simgpu_overwrite_as(op, ptr, n * one, one);
}
static inline void *typed_update(SimgpuOp *op, DType type, void *ptr, size_t n)
{
    size_t one = (size_t)dtype_bytes(type);
    return simgpu_update_as(op, ptr, n * one, one);
}

// How many numbers of an array a step takes, and how many of n are left from i on.
enum { TYPED_BLOCK = 1024 };
static inline size_t typed_step(DType type, size_t n)
{
    return type == DTYPE_F32 ? n : TYPED_BLOCK;
}
static inline size_t typed_count(DType type, size_t n, size_t i)
{
    size_t step = typed_step(type, n);
    return n - i < step ? n - i : step;
}

// typed.c: n numbers of two bytes as floats, floats as such numbers, and both, one after the other.
void typed_widen(DType type, float *to, const uint16_t *from, size_t n);
void typed_narrow(DType type, uint16_t *to, const float *from, size_t n);
void typed_narrow_and_widen(DType type, float *x, size_t n);

// Numbers [at, at + n) of x, to be read and overwritten; `copy` (n) is not used for floats.
static inline float *typed_open(DType type, float *copy, void *x, size_t at, size_t n)
{
    if (type == DTYPE_F32) return (float *)x + at;
    typed_widen(type, copy, (const uint16_t *)x + at, n);
    return copy;
}

// …to be read.
static inline const float *typed_load(DType type, float *copy, const void *x, size_t at, size_t n)
{
    return typed_open(type, copy, (void *)x, at, n);
}

// …to be written, whatever they were.
static inline float *typed_place(DType type, float *copy, void *x, size_t at)
{
    return type == DTYPE_F32 ? (float *)x + at : copy;
}

// Ends the use of numbers that were opened or placed: rounds the copy into x.
static inline void typed_store(DType type, void *x, size_t at, const float *copy, size_t n)
{
    if (type != DTYPE_F32) typed_narrow(type, (uint16_t *)x + at, copy, n);
}

// Rounds a copy in place, to the numbers that a later kernel would read.
static inline void typed_round(DType type, float *copy, size_t n)
{
    if (type != DTYPE_F32) typed_narrow_and_widen(type, copy, n);
}

// *copies becomes room for n floats, or NULL for floats, which need none; free() it. False, and
// *failed is set, without memory.
static inline bool typed_room(DType type, float **copies, size_t n, atomic_bool *failed)
{
    *copies = type == DTYPE_F32 ? NULL : malloc((n + 1) * sizeof **copies);
    if (*copies != NULL || type == DTYPE_F32) return true;
    atomic_store(failed, true);
    return false;
}

// After all pieces: the operation fails if one of them had no memory.
static inline void typed_check_room(SimgpuOp *op, atomic_bool *failed)
{
    if (atomic_load(failed)) op->error = cudaErrorMemoryAllocation;
}

// A part of the copies; NULL if there are none.
static inline float *typed_part(float *copies, size_t at)
{
    return copies != NULL ? copies + at : NULL;
}

#endif
