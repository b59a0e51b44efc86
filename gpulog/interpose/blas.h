/* blas.h: what the files of the interposer share for cuBLAS. Its calls are in the tables of
 * simgpu_cublas/calls.h. For each kind of call, a function touch_KIND takes the arguments and lists
 * the operands in simgpu's order; gpulog/log/operands.c counts their bytes.
 *
 *   blas.c           handles, vectors, matrices
 *   blas_products.c  products, batches of matrices in factors, copies between host and device
 *
 * If alpha is 0 the factors are not read; if beta is 0 the result is only written. The interposer
 * cannot read scalars in device memory without waiting for the device: they count as not 0. Nor can
 * it read arrays of addresses: it logs the arrays of such a batch, and not the matrices. Calls for
 * C++ alone, of halves, are not logged.
 */
#ifndef GPULOG_BLAS_H
#define GPULOG_BLAS_H

// Not cublas_v2.h: its macros would change the names in the tables.
#include <cublas_api.h>

#include "../../simgpu/include/simgpu_cublas/calls.h"
#include "interpose.h"

// A type of number: its bytes, in one part or two.
typedef struct Number {
    size_t bytes;
    int parts;
} Number;

// The types of a call: of its numbers, its factors, its result.
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
    bool on_device; // scalars and results are in device memory
} Op;
Op blas_begin(const char *name, cublasHandle_t handle, const void *site);
// Logs a scalar that is read from device memory; true: it may be other than 0.
bool blas_scalar(Op *op, const void *scalar, Number type);
void blas_list(Op *op, const void *addresses, int count); // which are read

// The wrapped function of a call, from its row in a table. touch_KIND returns false if the call
// does nothing and gets no entry.
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
// A call with a result may wait for the device.
#define RESULT(name, end, KIND, T, TF, TR, parameters, arguments)                                  \
    WRAP(name##end, #name, KIND, T, TF, TR, parameters, arguments,                                 \
         WAITING(#name, site, __real_##name##end arguments))

#endif
