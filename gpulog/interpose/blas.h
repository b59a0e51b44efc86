/* blas.h: what the files of the interposer share for cuBLAS. Its calls are in the tables of
 * simgpu_cublas/calls.h; what each kind of them touches is said by a function touch_KIND with the
 * arguments of the call, in the order in which simgpu says it, and how many bytes that is by
 * gpulog/log/operands.c.
 *
 *   blas.c           handles, vectors, matrices
 *   blas_products.c  products, batches of matrices in factors, copies between host and device
 *
 * Where alpha is 0 the factors are not read, and where beta is 0 the result is only written.
 * Scalars in device memory cannot be looked at without waiting for the device; they count as not 0.
 * Nor can arrays of addresses: of a batch that is handed over by them, the arrays are logged and
 * the matrices are not. Calls for C++ alone, of halves, are not logged.
 */
#ifndef GPULOG_BLAS_H
#define GPULOG_BLAS_H

// Not cublas_v2.h: its macros would change the names in the tables.
#include <cublas_api.h>

#include "../../simgpu/include/simgpu_cublas/calls.h"
#include "interpose.h"

// A type of numbers: its bytes, in one part or two.
typedef struct Number {
    size_t bytes;
    int parts;
} Number;

// Of a call: its numbers, its factors, its result.
typedef struct Types {
    Number element, factor, result;
} Types;

#define NUMBER(T)                                                                                  \
    {                                                                                              \
        sizeof(T), _Generic((T *)NULL, cuComplex * : 2, cuDoubleComplex * : 2, default : 1)        \
    }

// A call on the stream of its handle.
typedef struct Op {
    GpuLogEntry entry;
    bool on_device; // scalars and results are
} Op;
Op blas_begin(const char *name, cublasHandle_t handle, const void *site);
// Notes a scalar that is read from device memory; true: it may be other than 0.
bool blas_scalar(Op *op, const void *scalar, Number type);
void blas_list(Op *op, const void *addresses, int count); // that are read

// The wrapped function of a call, from its row in a table. touch_KIND returns false where the call
// does nothing, and has no entry.
#define OPEN(...) __VA_ARGS__
#define WRAP(symbol, name, KIND, T, TF, TR, parameters, arguments, call)                           \
    WRAPPED(symbol);                                                                               \
    cublasStatus_t __wrap_##symbol parameters                                                      \
    {                                                                                              \
        static const Types types = {NUMBER(T), NUMBER(TF), NUMBER(TR)};                            \
        const void *site = SITE;                                                                   \
        cublasStatus_t status = call;                                                              \
        if (status != CUBLAS_STATUS_SUCCESS) return status;                                        \
        Op op = blas_begin(name, handle, site);                                                    \
        if (touch_##KIND(&op, &types, OPEN arguments)) write_entry(&op.entry);                     \
        return status;                                                                             \
    }
#define CALL(name, end, KIND, T, TF, TR, parameters, arguments)                                    \
    WRAP(name##end, #name, KIND, T, TF, TR, parameters, arguments, __real_##name##end arguments)
// One that has a result may wait for the device.
#define RESULT(name, end, KIND, T, TF, TR, parameters, arguments)                                  \
    WRAP(name##end, #name, KIND, T, TF, TR, parameters, arguments,                                 \
         WAITING(#name, site, __real_##name##end arguments))

#endif
