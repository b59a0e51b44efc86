/* headers.c: simgpu's headers declare what NVIDIA's declare.
 *
 * Compiling is the test. With each set of headers, every field must have the type that the lists in
 * types_*.h give it. declared.py lists the functions and constants of simgpu's headers; against
 * NVIDIA's, each must have the same type or value. The suite itself is the compilation against
 * simgpu; run, it compiles this file against the toolkit's headers, where grader/find_cuda.sh finds
 * them, and looks that declared.py has found every function.
 *
 *   python3 simgpu/tests/declared.py >/tmp/declared.h
 *   cc -DHEADERS_ONLY -DDECLARED='"/tmp/declared.h"' -fsyntax-only -I$CUDA_HOME/include \
 *       simgpu/tests/headers.c
 */
#include <cuda.h>
#include <cuda_profiler_api.h>
#include <cuda_runtime.h>
#include <cuda_runtime_api.h>

#if __has_include("types_nccl.h") && __has_include(<nccl.h>)
#include <nccl.h>

#include "../../gpulog/include/gpulog_collectives.h"
#define HAVE_NCCL
#endif
#if __has_include("types_cublas.h") && __has_include(<cublas_v2.h>)
#include <cublas_v2.h>
#define HAVE_CUBLAS
#endif

#define SAME(type_a, type_b) __builtin_types_compatible_p(type_a, type_b)

#define CHECK_cuda(function, ...)                                                                  \
    _Static_assert(SAME(__typeof__(&function), __VA_ARGS__), #function);
// No assertion: to clang a pointer or a float that is cast is no constant, but it folds a size.
#define VALUE_cuda(name, value) HOLDS((long long)(name) == (value), __COUNTER__)
#define HOLDS(holds, number) HOLDS_NUMBERED(holds, number)
#define HOLDS_NUMBERED(holds, number) extern char value_##number[(holds) ? 1 : -1];
#ifdef HAVE_NCCL
#define CHECK_nccl CHECK_cuda
#define VALUE_nccl VALUE_cuda
#else
#define CHECK_nccl(...)
#define VALUE_nccl(...)
#endif
#ifdef HAVE_CUBLAS
#define CHECK_cublas CHECK_cuda
#define VALUE_cublas VALUE_cuda
#else
#define CHECK_cublas(...)
#define VALUE_cublas(...)
#endif
#ifdef DECLARED
#include DECLARED
#endif

#include "../../simgpu/include/simgpu_driver.h"
#define CHECK_DRIVER(name, parameters, instead)                                                    \
    _Static_assert(SAME(__typeof__(&name), CUresult(*) parameters), #name);
SIMGPU_DRIVER_CALLS(CHECK_DRIVER)
_Static_assert(SAME(CUdeviceptr, unsigned long long) && SAME(CUstream, cudaStream_t), "handles");

#define VALUE VALUE_cuda
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
_Static_assert(SAME(cudaGraph_t, struct CUgraph_st *), "cudaGraph_t");
_Static_assert(SAME(cudaGraphNode_t, struct CUgraphNode_st *), "cudaGraphNode_t");
_Static_assert(SAME(cudaGraphExec_t, struct CUgraphExec_st *), "cudaGraphExec_t");
_Static_assert(SAME(cudaStreamCallback_t, void (*)(cudaStream_t, cudaError_t, void *)),
               "cudaStreamCallback_t");
_Static_assert(SAME(cudaHostFn_t, void (*)(void *)), "cudaHostFn_t");

#ifndef HEADERS_ONLY
#include "heard.h"

// Runs a shell script; what it prints first (a line) goes to text. Returns its exit status.
static int run_shell(const char *script, char *text, size_t size)
{
    FILE *pipe = popen(script, "r");
    assert_non_null(pipe);
    if (!fgets(text, (int)size, pipe)) text[0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    while (fgetc(pipe) != EOF) continue;
    return pclose(pipe);
}

TEST(test_the_toolkit_agrees)
{
    char text[1024];
    needs_kit(__FILE__);
    if (run_shell("f=$(mktemp) && sh grader/find_cuda.sh $f; s=$?; rm -f $f; exit $s", text,
                  sizeof text) != 0) {
        print_message("no toolkit: %s\n", text);
        skip();
    }
    int status = run_shell(
        "f=$(mktemp) && sh grader/find_cuda.sh $f\n"
        "includes=$(sed -n 's/^CUDA_INCLUDES := *//p' $f)\n"
        "python3 simgpu/tests/declared.py >$f || exit 1\n"
        "timeout 60 ${CC:-cc} -std=gnu11 -DHEADERS_ONLY -DDECLARED=\"\\\"$f\\\"\" -fsyntax-only "
        "$includes " __FILE__ " 2>&1; s=$?; rm -f $f; exit $s",
        text, sizeof text);
    if (status != 0) fail_msg("the toolkit's headers declare something else: %s", text);
}

// Products of halves, which the headers have for C++ alone: another declaration is an error there.
TEST(test_the_toolkit_agrees_on_halves)
{
    char text[1024];
    needs_kit(__FILE__);
    int status =
        run_shell("f=$(mktemp) && sh grader/find_cuda.sh $f && command -v c++ || exit 77\n"
                  "includes=$(sed -n 's/^CUDA_INCLUDES := *//p' $f); rm -f $f\n"
                  "printf '%s\n' '#include <cublas_v2.h>' '#include \"simgpu_cublas/calls.h\"' "
                  "'extern \"C\" {'"
                  " '#define SAY(name, end, KIND, T, TF, TR, parameters, ...) cublasStatus_t "
                  "name##end parameters;'"
                  " 'SIMGPU_CUBLAS_HALF_PRODUCTS(SAY)' 'SIMGPU_CUBLAS_HALF_BATCHES(SAY)' '}' |"
                  " timeout 60 c++ -fsyntax-only -xc++ $includes -idirafter simgpu/include - 2>&1",
                  text, sizeof text);
    if (WEXITSTATUS(status) == 77) {
        print_message("no toolkit, or no C++ compiler: %s\n", text);
        skip();
    }
    if (status != 0) fail_msg("the toolkit's headers declare something else: %s", text);
}

// A function that declared.py does not find would be one that nobody compares.
TEST(test_all_functions_are_found)
{
    char text[1024];
    needs_kit(__FILE__);
    // cudaOccupancyMaxPotentialBlockSize is for C++ alone.
    run_shell(
        "declared=$(mktemp) found=$(mktemp)\n"
        "grep -ohE '\\b(cuda|nccl|cublas)[A-Z][A-Za-z0-9_]*\\(' simgpu/include/*.h "
        "simgpu/include/simgpu_cublas/handle.h | "
        "tr -d '(' | grep -vx cudaOccupancyMaxPotentialBlockSize | sort -u >$declared\n"
        "python3 simgpu/tests/declared.py | sed -n 's/^CHECK_[a-z]*(\\([A-Za-z0-9_]*\\).*/\\1/p' | "
        "sort -u >$found\n"
        "comm -23 $declared $found; [ -s $declared ] || echo nothing was found\n"
        "rm -f $declared $found",
        text, sizeof text);
    if (text[0]) fail_msg("declared, and not found by declared.py: %s", text);
}

SUITE_MAIN("simgpu/headers")
#endif
