/* same_log_steps.h: the steps of the random programs of same_log.c, on emulated CUDA. */
#ifndef SAME_LOG_STEPS_H
#define SAME_LOG_STEPS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cublas_v2.h>
#include <nccl.h>

#include "emulated_cuda/logs_agree.h"
#include "harness.h"
#include "kernels.h"
#include "simgpu.h"

#define STEPS 1500
#define BUFFERS 16
#define STREAMS 7
#define EVENTS 4
#define HOST_BYTES 65536
#define NET_FLOATS 65536

typedef struct LabBuffer {
    char *ptr; // NULL: none here
    size_t bytes;
    bool managed;
} LabBuffer;

typedef struct Lab {
    const Rank *rank;
    uint64_t own, common; // generators
    int device[2];        // this rank's, and another that no rank has
    cudaStream_t stream[STREAMS];
    cudaEvent_t event[EVENTS];   // the first half on device[0]
    cublasHandle_t blas;         // on device[0]
    LabBuffer buffer[BUFFERS];   // anywhere
    LabBuffer messages[BUFFERS]; // ncclMemAlloc'ed
    char *pinned, *host;         // (HOST_BYTES)
    float *matrix;               // (NET_FLOATS) on device[0]
    float *net;                  // (NET_FLOATS) on device[0], for collectives
    float *two;                  // on device[0]: the number 2
    ncclRedOp_t doubled;         // premulsum, the scalar in device memory
    ncclComm_t comm;
    int depth; // of groups
} Lab;

// ---- Chance ----

// SplitMix64 (Steele, Lea, Flood 2014).
static uint64_t draw(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static size_t below(uint64_t *state, size_t n)
{
    return draw(state) % n;
}

#define OWN(n) below(&lab->own, n)
#define COMMON(n) below(&lab->common, n)

// ---- Calls ----

// Makes a call, which must return `want`; each entry that it writes must name the calling function.
// Entries that a group writes at its end come from other places.
#define MAKE(want, call)                                                                           \
    do {                                                                                           \
        uint64_t before_ = gpulog_length();                                                        \
        int answer_ = (int)(call);                                                                 \
        check(answer_ == (int)(want), "%s returned %d, not %d", #call, answer_, (int)(want));      \
        check_places(before_, __func__, #call);                                                    \
    } while (0)
#define WORKS(call) MAKE(0, call)

static void check_places(uint64_t first, const char *function, const char *call)
{
    char where[256], want[128];
    GpuLogEntry e;
    snprintf(want, sizeof want, " (%s)", function);
    for (uint64_t i = first; i < gpulog_length() && strcmp(call, "ncclGroupEnd()"); i++) {
        check(gpulog_get(i, &e), "entry %lu is not there", (unsigned long)i);
        gpulog_where(e.site, where, sizeof where);
        check(strncmp(where, "tests/same_log", 14) == 0 && strstr(where, want),
              "%s is said to be called at %s, not in %s", call, where, function);
    }
}

// ---- Steps of one rank ----

static LabBuffer *any_buffer(Lab *lab)
{
    for (int tries = 0; tries < 8; tries++) {
        LabBuffer *b = &lab->buffer[OWN(BUFFERS)];
        if (b->ptr) return b;
    }
    return NULL;
}

static cudaStream_t any_stream(Lab *lab)
{
    return lab->stream[OWN(STREAMS)];
}

static void choose_device(Lab *lab)
{
    WORKS(cudaSetDevice(lab->device[OWN(2)]));
}

static void allocate(Lab *lab)
{
    LabBuffer *b = &lab->buffer[OWN(BUFFERS)];
    cudaMemPool_t pool;
    void *ptr = NULL;
    if (b->ptr) return;
    size_t bytes = OWN(8) ? 16 * (1 + OWN(1024)) : 0;
    WORKS(cudaDeviceGetDefaultMemPool(&pool, lab->device[OWN(2)]));
    size_t call = OWN(5), pitch;
    switch (call) {
    case 0: WORKS(cudaMalloc(&ptr, bytes)); break;
    case 1: WORKS(cudaMallocAsync(&ptr, bytes, any_stream(lab))); break;
    case 2: WORKS(cudaMallocFromPoolAsync(&ptr, bytes, pool, any_stream(lab))); break;
    case 3: WORKS(cudaMallocManaged(&ptr, bytes ? bytes : 1, cudaMemAttachGlobal)); break;
    case 4: WORKS(cudaMallocPitch(&ptr, &pitch, bytes / 8, 8)); break;
    }
    *b = (LabBuffer){ptr, bytes, call == 3};
}

static void release(Lab *lab)
{
    LabBuffer *b = any_buffer(lab);
    void *ptr = b && OWN(8) ? b->ptr : NULL;
    if (OWN(2) || (ptr && b->managed)) // managed memory is in no pool
        WORKS(cudaFree(ptr));
    else
        WORKS(cudaFreeAsync(ptr, any_stream(lab)));
    if (ptr) b->ptr = NULL;
}

// A place with room for `bytes` bytes: on a device, in pinned or in pageable memory.
static char *any_place(Lab *lab, size_t bytes, bool *device)
{
    LabBuffer *b = any_buffer(lab);
    size_t kind = OWN(4);
    *device = kind > 1 && b && b->bytes >= bytes;
    if (*device) return b->ptr + OWN(b->bytes - bytes + 1);
    return (kind % 2 ? lab->pinned : lab->host) + OWN(HOST_BYTES - bytes + 1);
}

static enum cudaMemcpyKind kind_of(Lab *lab, bool to_device, bool from_device)
{
    if (OWN(3) == 0) return cudaMemcpyDefault;
    return to_device     ? from_device ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice
           : from_device ? cudaMemcpyDeviceToHost
                         : cudaMemcpyHostToHost;
}

static void copy(Lab *lab)
{
    bool to_device, from_device;
    size_t width = OWN(40), height = OWN(4), dpitch = width + OWN(9), spitch = width + OWN(9);
    size_t bytes = OWN(2000);
    char *to = any_place(lab, 2000, &to_device), *from = any_place(lab, 2000, &from_device);
    enum cudaMemcpyKind kind = kind_of(lab, to_device, from_device);
    cudaStream_t s = any_stream(lab);
    switch (OWN(4)) {
    case 0: WORKS(cudaMemcpy(to, from, bytes, kind)); break;
    case 1: WORKS(cudaMemcpyAsync(to, from, bytes, kind, s)); break;
    case 2: WORKS(cudaMemcpy2D(to, dpitch, from, spitch, width, height, kind)); break;
    case 3: WORKS(cudaMemcpy2DAsync(to, dpitch, from, spitch, width, height, kind, s)); break;
    }
}

static int device_of(const void *ptr)
{
    struct cudaPointerAttributes attributes;
    need_cuda(cudaPointerGetAttributes(&attributes, ptr));
    return attributes.device;
}

static void copy_between_devices(Lab *lab)
{
    LabBuffer *to = any_buffer(lab), *from = any_buffer(lab);
    if (!to || !from) return;
    int d = device_of(to->ptr), s = device_of(from->ptr);
    size_t bytes = OWN((to->bytes < from->bytes ? to->bytes : from->bytes) + 1);
    if (OWN(2))
        WORKS(cudaMemcpyPeer(to->ptr, d, from->ptr, s, bytes));
    else
        WORKS(cudaMemcpyPeerAsync(to->ptr, d, from->ptr, s, bytes, any_stream(lab)));
}

static void fill(Lab *lab)
{
    LabBuffer *b = any_buffer(lab);
    if (!b || b->bytes < 16) return;
    size_t bytes = OWN(b->bytes + 1), height = OWN(4), pitch = b->bytes / 4, width = OWN(pitch);
    switch (OWN(4)) {
    case 0: WORKS(cudaMemset(b->ptr, 1, bytes)); break;
    case 1: WORKS(cudaMemsetAsync(b->ptr, 1, bytes, any_stream(lab))); break;
    case 2: WORKS(cudaMemset2D(b->ptr, pitch, 1, width, height)); break;
    case 3: WORKS(cudaMemset2DAsync(b->ptr, pitch, 1, width, height, any_stream(lab))); break;
    }
}

// An event can be recorded only on its device: streams 3 and 4 are on device[0], 5 and 6 on
// device[1], those before on the current one.
static cudaStream_t stream_on(Lab *lab, int which)
{
    WORKS(cudaSetDevice(lab->device[which]));
    return lab->stream[OWN(2) ? OWN(3) : 3 + 2 * (size_t)which + OWN(2)];
}

static void use_event(Lab *lab)
{
    size_t i = OWN(EVENTS);
    cudaEvent_t event = lab->event[i];
    cudaStream_t s = stream_on(lab, i >= EVENTS / 2);
    switch (OWN(6)) {
    case 0: WORKS(cudaEventRecord(event, s)); break;
    case 1: WORKS(cudaEventRecordWithFlags(event, s, cudaEventRecordDefault)); break;
    case 2: WORKS(cudaStreamWaitEvent(any_stream(lab), event, 0)); break;
    case 3: WORKS(cudaEventSynchronize(event)); break;
    case 4:
        while (cudaEventQuery(event) == cudaErrorNotReady) continue;
        WORKS(cudaEventQuery(event));
        break;
    case 5:
        WORKS(cudaEventDestroy(event));
        WORKS(OWN(2) ? cudaEventCreate(&lab->event[i])
                     : cudaEventCreateWithFlags(&lab->event[i], cudaEventDisableTiming));
        break;
    }
}

static void renew_stream(Lab *lab)
{
    size_t i = 3 + OWN(4);
    cudaStream_t *s = &lab->stream[i];
    WORKS(cudaSetDevice(lab->device[i > 4]));
    WORKS(cudaStreamDestroy(*s));
    switch (OWN(3)) {
    case 0: WORKS(cudaStreamCreate(s)); break;
    case 1: WORKS(cudaStreamCreateWithFlags(s, cudaStreamNonBlocking)); break;
    case 2: WORKS(cudaStreamCreateWithPriority(s, OWN(2) ? cudaStreamNonBlocking : 0, -1)); break;
    }
}

static void wait_for_device(Lab *lab)
{
    cudaStream_t stream = any_stream(lab);
    switch (OWN(3)) {
    case 0: WORKS(cudaStreamSynchronize(stream)); break;
    case 1:
        while (cudaStreamQuery(stream) == cudaErrorNotReady) continue;
        WORKS(cudaStreamQuery(stream));
        break;
    case 2: WORKS(cudaDeviceSynchronize()); break;
    }
}

static void count_call(void *arg)
{
    ++*(int *)arg;
}

static void count_callback(cudaStream_t stream, cudaError_t status, void *arg)
{
    ++*(int *)arg;
}

static void run_on_host(Lab *lab)
{
    int count = 0;
    if (OWN(2))
        WORKS(cudaLaunchHostFunc(any_stream(lab), count_call, &count));
    else
        WORKS(cudaStreamAddCallback(any_stream(lab), count_callback, &count, 0));
}

static void run_kernel(Lab *lab)
{
    cudaStream_t s = stream_on(lab, 0);
    size_t n = OWN(3) ? OWN(500) : 0;
    float *x = lab->matrix, *y = lab->matrix + 1000;
    switch (OWN(4)) {
    case 0: WORKS(kernel_fill(x, 1.0f, n, s)); break;
    case 1: WORKS(kernel_scale(x, 2.0f, n, s)); break;
    case 2: WORKS(kernel_add(x, y, n, s)); break;
    case 3: WORKS(kernel_adamw(x, y, x + 2000, x + 3000, n, 1, 0, 0, 1, 0, 1, s)); break;
    }
}

// Two streams are captured, which fork and join; the graph is launched on a third.
static void launch_graph(Lab *lab)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    float *x = lab->matrix, *y = x + 1000, alpha = 2, *own;
    cudaStream_t s = lab->stream[4], other = lab->stream[3];
    size_t n = 1 + OWN(500), times = OWN(3);
    WORKS(cudaSetDevice(lab->device[0]));
    uint64_t before = gpulog_length();
    WORKS(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    WORKS(cudaEventRecord(lab->event[0], s));
    WORKS(cudaStreamWaitEvent(other, lab->event[0], 0));
    WORKS(kernel_scale(x, 2.0f, n, s));
    WORKS(cudaMemsetAsync(y, 1, n, other));
    WORKS(cudaMallocAsync((void **)&own, n * sizeof *own, other));
    WORKS(cudaMemcpyAsync(own, y, n * sizeof *own, cudaMemcpyDeviceToDevice, other));
    WORKS(cudaFreeAsync(own, other));
    WORKS(cudaEventRecord(lab->event[0], other));
    WORKS(cudaStreamWaitEvent(s, lab->event[0], 0));
    WORKS(cublasSetStream(lab->blas, s));
    WORKS(cublasSaxpy(lab->blas, (int)n, &alpha, x, 1, y, 1));
    WORKS(cudaStreamEndCapture(s, &graph));
    WORKS(cudaGraphInstantiate(&exec, graph, 0));
    WORKS(cudaGraphDestroy(graph));
    check(gpulog_length() == before, "what was captured is in the log before a launch");
    for (size_t i = 0; i < times; i++) WORKS(cudaGraphLaunch(exec, lab->stream[4 - OWN(2)]));
    WORKS(cudaGraphExecDestroy(exec));
    WORKS(cudaEventRecord(lab->event[0], s)); // no longer part of a capture
}

static void multiply(Lab *lab)
{
    static const float scalars[] = {0.0f, 1.0f, 0.5f};
    float alpha = scalars[OWN(3)], beta = scalars[OWN(3)], *x = lab->matrix;
    float *y = lab->matrix + 20000, *z = lab->matrix + 40000;
    const float *a = &alpha, *b = &beta;
    int m = (int)OWN(9), n = (int)OWN(9), k = (int)OWN(9), ld = 9 + (int)OWN(3);
    cublasOperation_t ta = OWN(2) ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t tb = OWN(2) ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasHandle_t h = lab->blas;
    int count = (int)OWN(4), step = 200 * ((int)OWN(3) - 1);
    WORKS(cublasSetStream(h, stream_on(lab, 0)));
    if (OWN(4) == 0) {
        WORKS(cublasSetPointerMode(h, CUBLAS_POINTER_MODE_DEVICE));
        a = b = lab->two;
    }
    switch (OWN(4)) {
    case 0: WORKS(cublasSgemm(h, ta, tb, m, n, k, a, x, ld, y, ld, b, z, ld)); break;
    case 1:
        WORKS(cublasSgemmStridedBatched(h, ta, tb, m, n, k, a, x + 1000, ld, step, y + 1000, ld,
                                        -step, b, z, ld, 300, count));
        break;
    case 2:
        WORKS(cublasGemmEx(h, ta, tb, m, n, k, a, x, CUDA_R_32F, ld, y, CUDA_R_32F, ld, b, z,
                           CUDA_R_32F, ld, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
        break;
    case 3: WORKS(cublasSgemv(h, ta, m, n, a, x, ld, y, 1 + (int)OWN(3), b, z, 2)); break;
    }
    WORKS(cublasSetPointerMode(h, CUBLAS_POINTER_MODE_HOST));
}

static void use_vectors(Lab *lab)
{
    float alpha = 2.0f, sum, *result = &sum, *x = lab->matrix, *y = lab->matrix + 20000;
    const float *a = &alpha;
    int n = (int)OWN(200) - 5, incx = (int)OWN(5) - 2, incy = OWN(2) ? 1 : -2;
    cublasHandle_t h = lab->blas;
    if (incx == 0) incx = 1;
    WORKS(cublasSetStream(h, stream_on(lab, 0)));
    if (OWN(2)) {
        WORKS(cublasSetPointerMode(h, CUBLAS_POINTER_MODE_DEVICE));
        a = lab->two;
        result = lab->matrix + 50000;
    }
    switch (OWN(6)) {
    case 0: WORKS(cublasSscal(h, n, a, x, incx)); break;
    case 1: WORKS(cublasSaxpy(h, n, a, x, incx, y, incy)); break;
    case 2: WORKS(cublasScopy(h, n, x, incx, y, incy)); break;
    case 3: WORKS(cublasSdot(h, n, x, incx, y, incy, result)); break;
    case 4: WORKS(cublasSnrm2(h, n, x, incx, result)); break;
    case 5: WORKS(cublasSasum(h, n, x, incx, result)); break;
    }
    WORKS(cublasSetPointerMode(h, CUBLAS_POINTER_MODE_HOST));
}

static void hand_over(Lab *lab)
{
    int n = (int)OWN(20), cols = (int)OWN(5), ld = 20 + (int)OWN(3), inc = 1 + (int)OWN(3);
    float *device = lab->matrix, *host = (float *)(void *)lab->host;
    switch (OWN(4)) {
    case 0: WORKS(cublasSetVector(n, 4, host, inc, device, 2)); break;
    case 1: WORKS(cublasGetVector(n, 4, device, inc, host, 1)); break;
    case 2: WORKS(cublasSetMatrix(n, cols, 4, host, ld, device, 20)); break;
    case 3: WORKS(cublasGetMatrix(n, cols, 4, device, ld, host, 21)); break;
    }
}

static void hold_messages(Lab *lab)
{
    LabBuffer *b = &lab->messages[OWN(BUFFERS)];
    void *ptr = NULL;
    if (b->ptr) {
        WORKS(ncclMemFree(b->ptr));
    } else {
        b->bytes = OWN(5) * 1000;
        WORKS(ncclMemAlloc(&ptr, b->bytes));
    }
    b->ptr = ptr;
}

// Calls that are refused.
static void fail_alone(Lab *lab)
{
    float alpha = 1.0f, *x = lab->matrix;
    cublasHandle_t h = lab->blas;
    void *ptr;
    uint64_t before = gpulog_length();
    switch (OWN(9)) {
    case 0: MAKE(cudaErrorInvalidValue, cudaFree(lab->host)); break;
    case 1: MAKE(cudaErrorInvalidValue, cudaMemcpy(x, x, 4, cudaMemcpyDeviceToHost)); break;
    case 2: MAKE(cudaErrorMemoryAllocation, cudaMalloc(&ptr, (size_t)1 << 50)); break;
    case 3: MAKE(cudaErrorMemoryAllocation, cudaMallocAsync(&ptr, (size_t)1 << 50, NULL)); break;
    case 4:
        MAKE(CUBLAS_STATUS_INVALID_VALUE,
             cublasSgemm(h, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, &alpha, x, 1, x, 2, &alpha, x, 2));
        break;
    case 5: MAKE(cudaErrorInvalidPitchValue, cudaMemset2D(x, 1, 0, 2, 2)); break;
    case 6:
        MAKE(ncclInvalidArgument, ncclBroadcast(x, x, 1, ncclFloat, -1, lab->comm, NULL));
        break;
    case 7: MAKE(cudaErrorInvalidValue, cudaFree(lab->net + 1)); break;
    case 8: MAKE(cudaErrorInvalidDevice, cudaMemcpyPeer(x, -1, x, 0, 4)); break;
    }
    check(gpulog_length() == before, "a call that failed is in the log");
    cudaGetLastError();
}

// ---- Steps of all ranks together ----

// A collective of `count` elements between the two halves of `net`, or in place.
static void communicate(Lab *lab)
{
    static const ncclDataType_t types[] = {ncclFloat, ncclInt8, ncclHalf, ncclInt64, ncclDouble};
    size_t rank = (size_t)lab->rank->rank, world = (size_t)lab->rank->world;
    size_t count = COMMON(5) ? COMMON(700) : 0, place = COMMON(2);
    ncclDataType_t type = types[COMMON(5)];
    ncclRedOp_t op = COMMON(2) ? ncclSum : ncclMax;
    int root = (int)COMMON(world);
    size_t kind = COMMON(10);
    float *from = lab->net, *to = lab->net + NET_FLOATS / 2;
    ncclComm_t comm = lab->comm;
    cudaStream_t s = lab->stream[OWN(STREAMS)];
    size_t element = type == ncclInt8 ? 1 : type == ncclHalf ? 2 : type == ncclFloat ? 4 : 8;
    char *mine = (char *)to + rank * count * element;
    if (type == ncclFloat && COMMON(3) == 0) op = lab->doubled;
    switch (kind) {
    case 0: WORKS(ncclAllGather(place ? (void *)mine : from, to, count, type, comm, s)); break;
    case 1:
        WORKS(ncclReduceScatter(to, place ? (void *)mine : from, count, type, op, comm, s));
        break;
    case 2: WORKS(ncclAllReduce(place ? to : from, to, count, type, op, comm, s)); break;
    case 3: WORKS(ncclReduce(place ? to : from, to, count, type, op, root, comm, s)); break;
    case 4: WORKS(ncclBroadcast(place ? to : from, to, count, type, root, comm, s)); break;
    case 5: WORKS(ncclBcast(to, count, type, root, comm, s)); break;
    case 6: WORKS(ncclAlltoAll(from, to, count, type, comm, s)); break;
    case 7: WORKS(ncclGather(from, to, count, type, root, comm, s)); break;
    case 8: WORKS(ncclScatter(from, to, count, type, root, comm, s)); break;
    case 9:
        WORKS(ncclGroupStart());
        WORKS(ncclSend(from, count, type, (int)((rank + 1) % world), comm, s));
        WORKS(ncclRecv(to, count, type, (int)((rank + world - 1) % world), comm, s));
        WORKS(ncclGroupEnd());
        break;
    }
}

static void communicate_in_group(Lab *lab)
{
    size_t calls = COMMON(4);
    bool nested = COMMON(2), wrong = COMMON(4) == 0;
    uint64_t before = gpulog_length();
    WORKS(ncclGroupStart());
    if (nested) WORKS(ncclGroupStart());
    for (size_t i = 0; i < calls; i++) communicate(lab);
    check(gpulog_length() == before, "a call of a group is in the log before the group's end");
    if (wrong)
        MAKE(ncclInvalidArgument,
             ncclReduce(lab->net, lab->net, 1, ncclFloat, ncclSum, 99, lab->comm, NULL));
    if (nested) WORKS(ncclGroupEnd());
    MAKE(wrong ? ncclInvalidArgument : ncclSuccess, ncclGroupEnd());
    check(!wrong || gpulog_length() == before, "calls of a group that failed are in the log");
}

// Makes another communicator of the same ranks, by a split, and destroys it.
static void split(Lab *lab)
{
    ncclComm_t made;
    WORKS(ncclCommSplit(lab->rank->comm, 0, (int)OWN(1000), &made, NULL));
    WORKS(ncclCommDestroy(made));
}

static void step(Lab *lab)
{
    static void (*const alone[])(Lab *) = {
        choose_device,        allocate,   allocate,     release,   copy,         copy,
        copy_between_devices, fill,       use_event,    use_event, renew_stream, wait_for_device,
        run_on_host,          run_kernel, launch_graph, multiply,  use_vectors,  hand_over,
        hold_messages,        fail_alone};
    switch (COMMON(20)) {
    case 0:
    case 1: communicate(lab); break;
    case 2: communicate_in_group(lab); break;
    case 3:
        if (COMMON(5) == 0) split(lab);
        break;
    default: alone[OWN(sizeof alone / sizeof alone[0])](lab);
    }
}

#endif
