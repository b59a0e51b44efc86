/* failing.c: calls that fail, one after the other. See failing.h. */
#include "failing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local int calls_left; // until one fails; 0: none does
static char failed_call[300];
static int nccl_calls, allowed = -1;        // of NCCL: so far; before one fails, if not -1
static int *counted, most_counted, n_calls; // failing_counts
bool failing_visits;

void failing_begins(int n)
{
    failed_call[0] = '\0';
    check_set_silent(true);
    calls_left = n;
    nccl_calls = n_calls = 0;
}

void failing_ends(void)
{
    calls_left = 0;
    check_set_silent(false);
    if (counted != NULL) __atomic_store_n(&counted[0], n_calls, __ATOMIC_SEQ_CST);
    counted = NULL;
    allowed = -1;
}

void failing_counts(int *made, int most)
{
    counted = made;
    most_counted = most;
}

void failing_follows(int made)
{
    allowed = made;
}

int failing_calls_left(void)
{
    return calls_left;
}

const char *failing_call(void)
{
    return failed_call[0] == '\0' ? NULL : failed_call;
}

static bool call_fails(const char *name, const void *site)
{
    if (failing_visits &&
        (strcmp(name, "cudaMemcpyAsync") == 0 || strcmp(name, "cudaStreamSynchronize") == 0))
        return false;
    const bool nccl = strncmp(name, "nccl", 4) == 0;
    if (calls_left == 0) return false;
    if (counted != NULL && ++n_calls < most_counted) counted[n_calls] = nccl_calls;
    if (allowed < 0 ? --calls_left > 0 : !nccl || nccl_calls < allowed) {
        nccl_calls += nccl;
        return false;
    }
    char place[256] = "";
    if (site != NULL) gpulog_where(site, place, sizeof place);
    snprintf(failed_call, sizeof failed_call, "%s%s%s", name, site != NULL ? " at " : "", place);
    return true;
}

// A function in front of one whose failure is `error`. It jumps there: the caller that a report
// names is the one that called.
#ifdef __clang__
#define JUMPS
#define JUMP_TO __attribute__((musttail)) return
#else
#define JUMPS __attribute__((optimize("O2", "omit-frame-pointer", "optimize-sibling-calls")))
#define JUMP_TO return
#endif
#define FAILING(type, error, name, parameters, arguments)                                          \
    type __real_##name parameters;                                                                 \
    type __wrap_##name parameters;                                                                 \
    JUMPS type __wrap_##name parameters                                                            \
    {                                                                                              \
        if (calls_left != 0 && call_fails(#name, __builtin_return_address(0))) return (error);     \
        JUMP_TO __real_##name arguments;                                                           \
    }
#define CUDA(name, parameters, arguments)                                                          \
    FAILING(cudaError_t, cudaErrorUnknown, name, parameters, arguments)
// What has failed to be allocated has no address.
#define ALLOC(name, parameters, arguments)                                                         \
    FAILING(cudaError_t, (*p = NULL, cudaErrorUnknown), name, parameters, arguments)
#define NCCL(name, parameters, arguments)                                                          \
    FAILING(ncclResult_t, ncclSystemError, name, parameters, arguments)

#ifndef BACKEND_CUDA
ALLOC(cudaMalloc, (void **p, size_t n), (p, n))
ALLOC(cudaMallocAsync, (void **p, size_t n, cudaStream_t s), (p, n, s))
ALLOC(cudaMallocHost, (void **p, size_t n), (p, n))
CUDA(cudaMemcpyAsync, (void *to, const void *from, size_t n, enum cudaMemcpyKind k, cudaStream_t s),
     (to, from, n, k, s))
CUDA(cudaMemcpy2DAsync,
     (void *to, size_t to_pitch, const void *from, size_t pitch, size_t width, size_t rows,
      enum cudaMemcpyKind k, cudaStream_t s),
     (to, to_pitch, from, pitch, width, rows, k, s))
CUDA(cudaMemsetAsync, (void *p, int value, size_t n, cudaStream_t s), (p, value, n, s))
CUDA(cudaEventCreateWithFlags, (cudaEvent_t * e, unsigned flags), (e, flags))
CUDA(cudaEventRecord, (cudaEvent_t e, cudaStream_t s), (e, s))
CUDA(cudaEventSynchronize, (cudaEvent_t e), (e))
CUDA(cudaStreamWaitEvent, (cudaStream_t s, cudaEvent_t e, unsigned flags), (s, e, flags))
CUDA(cudaStreamCreateWithFlags, (cudaStream_t * s, unsigned flags), (s, flags))
CUDA(cudaStreamCreateWithPriority, (cudaStream_t * s, unsigned flags, int p), (s, flags, p))
CUDA(cudaStreamSynchronize, (cudaStream_t s), (s))
CUDA(cudaGraphInstantiate, (cudaGraphExec_t * e, cudaGraph_t g, unsigned long long flags),
     (e, g, flags))
CUDA(cudaGraphLaunch, (cudaGraphExec_t e, cudaStream_t s), (e, s))
CUDA(kernel_add_divided, (float *to, const float *x, float by, size_t n, cudaStream_t s),
     (to, x, by, n, s))
CUDA(kernel_add_divided_ex,
     (DType to_type, void *to, DType type, const void *x, float by, size_t n, cudaStream_t s),
     (to_type, to, type, x, by, n, s))
CUDA(kernel_add_ex, (DType to_type, void *to, DType type, const void *x, size_t n, cudaStream_t s),
     (to_type, to, type, x, n, s))
CUDA(kernel_cast, (DType to_type, void *to, DType type, const void *x, size_t n, cudaStream_t s),
     (to_type, to, type, x, n, s))
CUDA(kernel_adamw,
     (float *p, const float *g, float *m, float *v, size_t n, float lr, float b1, float b2,
      float eps, float decay, int t, cudaStream_t s),
     (p, g, m, v, n, lr, b1, b2, eps, decay, t, s))
CUDA(kernel_check_finite, (int32_t * found, DType type, const void *x, size_t n, cudaStream_t s),
     (found, type, x, n, s))
CUDA(kernel_scale_ex, (DType type, void *x, float factor, size_t n, cudaStream_t s),
     (type, x, factor, n, s))
CUDA(kernel_scale, (float *x, float factor, size_t n, cudaStream_t s), (x, factor, n, s))
CUDA(kernel_sum_squares, (double *sum, const float *x, size_t n, cudaStream_t s), (sum, x, n, s))
CUDA(kernel_amax, (uint32_t * amax, const float *x, size_t n, cudaStream_t s), (amax, x, n, s))
CUDA(kernel_quantize_e4m3,
     (uint8_t * to, const float *x, const uint32_t *amax, size_t n, cudaStream_t s),
     (to, x, amax, n, s))
CUDA(kernel_dequantize_e4m3,
     (DType type, void *to, const uint8_t *x, size_t stride, const uint32_t *amax, size_t rows,
      size_t n, cudaStream_t s),
     (type, to, x, stride, amax, rows, n, s))
NCCL(ncclAllGather,
     (const void *in, void *out, size_t n, ncclDataType_t t, ncclComm_t c, cudaStream_t s),
     (in, out, n, t, c, s))
NCCL(ncclReduceScatter,
     (const void *in, void *out, size_t n, ncclDataType_t t, ncclRedOp_t op, ncclComm_t c,
      cudaStream_t s),
     (in, out, n, t, op, c, s))
NCCL(ncclAllReduce,
     (const void *in, void *out, size_t n, ncclDataType_t t, ncclRedOp_t op, ncclComm_t c,
      cudaStream_t s),
     (in, out, n, t, op, c, s))
NCCL(ncclReduce,
     (const void *in, void *out, size_t n, ncclDataType_t t, ncclRedOp_t op, int root, ncclComm_t c,
      cudaStream_t s),
     (in, out, n, t, op, root, c, s))
NCCL(ncclBroadcast,
     (const void *in, void *out, size_t n, ncclDataType_t t, int root, ncclComm_t c,
      cudaStream_t s),
     (in, out, n, t, root, c, s))
NCCL(ncclSend, (const void *in, size_t n, ncclDataType_t t, int peer, ncclComm_t c, cudaStream_t s),
     (in, n, t, peer, c, s))
NCCL(ncclRecv, (void *out, size_t n, ncclDataType_t t, int peer, ncclComm_t c, cudaStream_t s),
     (out, n, t, peer, c, s))
NCCL(ncclCommSplit, (ncclComm_t c, int color, int key, ncclComm_t *out, ncclConfig_t *config),
     (c, color, key, out, config))
#endif

static Status failing_hook(Module *module, void *arg)
{
    return call_fails("a hook", NULL) ? fail(ERR_IO, "%s: its hook fails", module->name) : OK;
}

void failing_add_hooks(Module *m)
{
    for (HookPoint point = 0; point < HOOK_POINTS; point++) {
        check(module_add_first_hook(m, point, failing_hook, NULL) != NULL &&
                  module_add_hook(m, point, failing_hook, NULL) != NULL,
              "no hook");
    }
    for (int i = 0; i < m->n_children; i++) failing_add_hooks(m->children[i]);
}
