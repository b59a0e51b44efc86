/* headers.c: simgpu's headers declare what NVIDIA's declare.
 *
 * Compiling is the test: with one set of headers at a time, every function must have the type that
 * the lists in types_*.h give it, every constant the value, every field the type. What compiles
 * against both is the same in both. The suite itself is the compilation against simgpu; run, it
 * compiles this file against the toolkit's headers ($CUDA_HOME, else /usr/local/cuda), where they
 * are.
 *
 *   cc -DHEADERS_ONLY -fsyntax-only -Isimgpu/include tests/simgpu/headers.c
 *   cc -DHEADERS_ONLY -fsyntax-only -I$CUDA_HOME/include tests/simgpu/headers.c
 */
#include <cuda_runtime.h>
#include <cuda_runtime_api.h>

#if __has_include("types_nccl.h") && __has_include(<nccl.h>)
#include <nccl.h>
#define HAVE_NCCL
#endif
#if __has_include("types_cublas.h") && __has_include(<cublas_v2.h>)
#include <cublas_v2.h>
#define HAVE_CUBLAS
#endif

#define SAME(type_a, type_b) __builtin_types_compatible_p(type_a, type_b)

// The functions of the lists, as types.
#define CHECK(function, ...) _Static_assert(SAME(__typeof__(&function), __VA_ARGS__), #function);
#include "types_cuda.h"
#ifdef HAVE_NCCL
#include "types_nccl.h"
#endif
#ifdef HAVE_CUBLAS
#include "types_cublas.h"
#endif
#undef CHECK

#define VALUE(name, value) _Static_assert((long long)(name) == (value), #name);
#include "types_cuda.h"
#ifdef HAVE_NCCL
#include "types_nccl.h"
#endif
#ifdef HAVE_CUBLAS
#include "types_cublas.h"
#endif
#undef VALUE

#define FIELD(structure, name, ...)                                                                \
    _Static_assert(SAME(__typeof__(((structure *)0)->name), __VA_ARGS__), #structure "." #name);
#include "types_cuda.h"
#ifdef HAVE_NCCL
#include "types_nccl.h"
#endif
#ifdef HAVE_CUBLAS
#include "types_cublas.h"
#endif
#undef FIELD

_Static_assert(SAME(cudaStream_t, struct CUstream_st *), "cudaStream_t");
_Static_assert(SAME(cudaEvent_t, struct CUevent_st *), "cudaEvent_t");
_Static_assert(SAME(cudaMemPool_t, struct CUmemPoolHandle_st *), "cudaMemPool_t");
_Static_assert(SAME(cudaHostFn_t, void (*)(void *)), "cudaHostFn_t");

#ifndef HEADERS_ONLY
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "harness.h"

static void test_the_toolkit_agrees(void **state)
{
    const char *home = getenv("CUDA_HOME"), *compiler = getenv("CC");
    char header[4096], command[8192];
    if (!home) home = "/usr/local/cuda";
    snprintf(header, sizeof header, "%s/include/cuda_runtime_api.h", home);
    if (access(header, R_OK) || access(__FILE__, R_OK)) {
        print_message("no toolkit at %s, or not run from the kit's folder\n", home);
        skip();
    }
    snprintf(command, sizeof command,
             "timeout 60 %s -std=gnu11 -DHEADERS_ONLY -fsyntax-only -I%s/include %s",
             compiler ? compiler : "cc", home, __FILE__);
    assert_int_equal(system(command), 0);
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(test_the_toolkit_agrees)};
SUITE_MAIN("simgpu/headers", tests)
#endif
