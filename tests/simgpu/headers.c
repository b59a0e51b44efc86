/* headers.c: simgpu's headers declare what NVIDIA's declare.
 *
 * This file is compiled against one set of headers at a time, and compiling is the test: every
 * function must have the type that the lists in types_*.h give it, every constant the value, every
 * field the type. What compiles against both sets is the same in both. Run, it says how much it
 * compared.
 *
 *   cc -Isimgpu/include -c tests/simgpu/headers.c
 *   cc -I$CUDA_HOME/include -c tests/simgpu/headers.c
 */
#include <cuda_runtime_api.h>
#include <cuda_runtime.h>
#include <stddef.h>
#include <stdio.h>

#if __has_include("types_nccl.h")
#include <nccl.h>
#endif
#if __has_include("types_cublas.h")
#include <cublas_v2.h>
#endif

#define SAME(type_a, type_b) __builtin_types_compatible_p(type_a, type_b)

// The functions of the lists, as types.
#define CHECK(function, ...) _Static_assert(SAME(__typeof__(&function), __VA_ARGS__), #function);
#include "types_cuda.h"
#if __has_include("types_nccl.h")
#include "types_nccl.h"
#endif
#if __has_include("types_cublas.h")
#include "types_cublas.h"
#endif
#undef CHECK

#define VALUE(name, value) _Static_assert((long long)(name) == (value), #name);
#include "types_cuda.h"
#if __has_include("types_nccl.h")
#include "types_nccl.h"
#endif
#if __has_include("types_cublas.h")
#include "types_cublas.h"
#endif
#undef VALUE

#define FIELD(structure, name, ...) \
    _Static_assert(SAME(__typeof__(((structure *)0)->name), __VA_ARGS__), #structure "." #name);
#include "types_cuda.h"
#if __has_include("types_nccl.h")
#include "types_nccl.h"
#endif
#if __has_include("types_cublas.h")
#include "types_cublas.h"
#endif
#undef FIELD

_Static_assert(SAME(cudaStream_t, struct CUstream_st *), "cudaStream_t");
_Static_assert(SAME(cudaEvent_t, struct CUevent_st *), "cudaEvent_t");
_Static_assert(SAME(cudaMemPool_t, struct CUmemPoolHandle_st *), "cudaMemPool_t");
_Static_assert(SAME(cudaHostFn_t, void (*)(void *)), "cudaHostFn_t");
