/* graph.c: captures and graphs. The entries of captured calls are kept with their graph and written
 * when the graph is launched.
 *
 * In the log a graph has streams of its own for those of the capture. They begin after the launch's
 * stream and end before it goes on. Events, too, are the graph's own, so the order of the log
 * (gpulog_order.h) includes the graph's. A call of NCCL keeps the number that it had when captured.
 *
 * Interface: graph_takes; the wrapped cudaStreamBeginCapture, cudaStreamEndCapture, cudaGraph….
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "interpose.h"

WRAPPED(cudaStreamBeginCapture);
WRAPPED(cudaStreamEndCapture);
WRAPPED(cudaGraphClone);
WRAPPED(cudaGraphDestroy);
WRAPPED(cudaGraphInstantiate);
WRAPPED(cudaGraphInstantiateWithFlags);
WRAPPED(cudaGraphExecUpdate);
WRAPPED(cudaGraphExecDestroy);
WRAPPED(cudaGraphLaunch);

// The entries of a graph, or of an executable; and the stand-in for a stream of the capture.
typedef struct Kept {
    const void *key;
    GpuLogEntry *entry;
    int n, room;
    struct Kept *next;
} Kept;
typedef struct Stand {
    const void *of;
    cudaStream_t stream;
    cudaEvent_t last; // recorded when the stream has done its part
    uint32_t number;
} Stand;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Kept *all;
static atomic_int open_captures;
static uint64_t launches;

static Kept *find(const void *key, bool make)
{
    Kept *k = all;
    while (k && k->key != key) k = k->next;
    if (k || !make) return k;
    k = calloc(1, sizeof *k);
    if (!k) give_up("no host memory for the log of a graph");
    *k = (Kept){.key = key, .next = all};
    return all = k;
}

static void append(Kept *k, const GpuLogEntry *entry)
{
    if (k->n == k->room) {
        k->room = k->room ? 2 * k->room : 64;
        k->entry = realloc(k->entry, (size_t)k->room * sizeof *k->entry);
        if (!k->entry) give_up("no host memory for the log of a graph");
    }
    k->entry[k->n++] = *entry;
}

static void copy(const void *to, const void *from)
{
    pthread_mutex_lock(&lock);
    const Kept *source = find(from, false);
    Kept *k = find(to, true);
    k->n = 0;
    for (int i = 0; source && i < source->n; i++) append(k, &source->entry[i]);
    pthread_mutex_unlock(&lock);
}

static void forget(const void *key)
{
    pthread_mutex_lock(&lock);
    Kept **link = &all, *k;
    while (*link && (*link)->key != key) link = &(*link)->next;
    k = *link;
    if (k) *link = k->next;
    pthread_mutex_unlock(&lock);
    if (k) free(k->entry);
    free(k);
}

static cudaGraph_t graph_of(cudaStream_t stream)
{
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    cudaGraph_t graph = NULL;
#if CUDART_VERSION >= 13000
    cudaError_t error = cudaStreamGetCaptureInfo(stream, &status, NULL, &graph, NULL, NULL, NULL);
#else
    cudaError_t error = cudaStreamGetCaptureInfo_v2(stream, &status, NULL, &graph, NULL, NULL);
#endif
    return error == cudaSuccess && status == cudaStreamCaptureStatusActive ? graph : NULL;
}

bool graph_captures(cudaStream_t stream)
{
    return atomic_load(&open_captures) > 0 && stream && graph_of(stream) != NULL;
}

bool graph_takes(const GpuLogEntry *entry)
{
    cudaGraph_t graph =
        atomic_load(&open_captures) > 0 && entry->stream ? graph_of(entry->stream) : NULL;
    if (!graph) return false;
    pthread_mutex_lock(&lock);
    append(find(graph, true), entry);
    pthread_mutex_unlock(&lock);
    return true;
}

// ---- Captures and graphs ----

cudaError_t __wrap_cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    cudaError_t error = __real_cudaStreamBeginCapture(stream, mode);
    if (error == cudaSuccess) atomic_fetch_add(&open_captures, 1);
    return error;
}

cudaError_t __wrap_cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *pGraph)
{
    cudaGraph_t graph = graph_of(stream);
    cudaError_t error = __real_cudaStreamEndCapture(stream, pGraph);
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    if (error != cudaSuccess && graph) forget(graph);
    if (cudaStreamIsCapturing(stream, &status) == cudaSuccess &&
        status == cudaStreamCaptureStatusNone && error != cudaErrorIllegalState)
        atomic_fetch_sub(&open_captures, 1);
    return error;
}

cudaError_t __wrap_cudaGraphClone(cudaGraph_t *pGraphClone, cudaGraph_t originalGraph)
{
    cudaError_t error = __real_cudaGraphClone(pGraphClone, originalGraph);
    if (error == cudaSuccess) copy(*pGraphClone, originalGraph);
    return error;
}

cudaError_t __wrap_cudaGraphDestroy(cudaGraph_t graph)
{
    cudaError_t error = __real_cudaGraphDestroy(graph);
    if (error == cudaSuccess) forget(graph);
    return error;
}

cudaError_t __wrap_cudaGraphInstantiate(cudaGraphExec_t *pGraphExec, cudaGraph_t graph,
                                        unsigned long long flags)
{
    cudaError_t error = __real_cudaGraphInstantiate(pGraphExec, graph, flags);
    if (error == cudaSuccess) copy(*pGraphExec, graph);
    return error;
}

cudaError_t __wrap_cudaGraphInstantiateWithFlags(cudaGraphExec_t *pGraphExec, cudaGraph_t graph,
                                                 unsigned long long flags)
{
    cudaError_t error = __real_cudaGraphInstantiateWithFlags(pGraphExec, graph, flags);
    if (error == cudaSuccess) copy(*pGraphExec, graph);
    return error;
}

cudaError_t __wrap_cudaGraphExecUpdate(cudaGraphExec_t hGraphExec, cudaGraph_t hGraph,
                                       cudaGraphExecUpdateResultInfo *resultInfo)
{
    cudaError_t error = __real_cudaGraphExecUpdate(hGraphExec, hGraph, resultInfo);
    if (error == cudaSuccess) copy(hGraphExec, hGraph);
    return error;
}

cudaError_t __wrap_cudaGraphExecDestroy(cudaGraphExec_t graphExec)
{
    cudaError_t error = __real_cudaGraphExecDestroy(graphExec);
    if (error == cudaSuccess) forget(graphExec);
    return error;
}

// ---- Launches ----

typedef struct Launch {
    GpuLogEntry on; // the launch's own entry
    const char *exec;
    Stand *stand;
    int n;
} Launch;

// Unused handles, a different one for each event of the capture.
static cudaEvent_t event_of(const Launch *l, const void *of)
{
    return (cudaEvent_t)((uintptr_t)of ^ ~(uintptr_t)l->exec);
}

static void write_order(const Launch *l, const Stand *stand, GpuOp op, cudaEvent_t event)
{
    GpuLogEntry entry = l->on;
    entry.op = op;
    entry.event = event;
    if (stand) {
        entry.stream = stand->stream;
        entry.stream_number = stand->number;
        entry.blocking_stream = false;
    }
    gpulog_write(&entry);
}

// The stand-in for a captured stream; it begins where the launch does.
static const Stand *stand_for(Launch *l, const GpuLogEntry *entry)
{
    for (int i = 0; i < l->n; i++)
        if (l->stand[i].of == entry->stream) return &l->stand[i];
    l->stand = realloc(l->stand, ((size_t)l->n + 1) * sizeof *l->stand);
    if (!l->stand) give_up("no host memory for the log of a graph");
    Stand *stand = &l->stand[l->n++];
    *stand =
        (Stand){entry->stream, (cudaStream_t)(void *)(l->exec + 4096 + l->n),
                (cudaEvent_t)(void *)(l->exec + 8192 + l->n), stream_next_number(entry->device)};
    write_order(l, stand, GPU_STREAM_WAIT, (cudaEvent_t)(void *)l->exec);
    return stand;
}

static void write_again(Launch *l, GpuLogEntry entry)
{
    const Stand *stand = stand_for(l, &entry);
    entry.stream = stand->stream;
    entry.stream_number = stand->number;
    entry.blocking_stream = false;
    entry.launch = l->on.launch;
    if (entry.event) entry.event = event_of(l, entry.event);
    if (entry.op == GPU_ALLOC || entry.op == GPU_FREE) memory_launched(&entry);
    gpulog_write(&entry);
}

static void write_launch(cudaGraphExec_t exec, cudaStream_t stream, const void *site)
{
    Launch l = {entry_on(GPU_GRAPH_LAUNCH, "cudaGraphLaunch", stream, site), NULL, NULL, 0};
    pthread_mutex_lock(&lock);
    l.on.launch = ++launches;
    const Kept *kept = find(exec, false);
    Kept copied = {.key = exec};
    for (int i = 0; kept && i < kept->n; i++) append(&copied, &kept->entry[i]);
    pthread_mutex_unlock(&lock);
    l.exec = (const char *)exec;
    gpulog_write(&l.on);
    cudaEvent_t begin = (cudaEvent_t)(void *)l.exec, end = (cudaEvent_t)(void *)(l.exec + 16384);
    write_order(&l, NULL, GPU_STREAM_WAIT, end); // the launch before
    write_order(&l, NULL, GPU_EVENT_RECORD, begin);
    for (int i = 0; i < copied.n; i++) write_again(&l, copied.entry[i]);
    for (int i = 0; i < l.n; i++) {
        write_order(&l, &l.stand[i], GPU_EVENT_RECORD, l.stand[i].last);
        write_order(&l, NULL, GPU_STREAM_WAIT, l.stand[i].last);
    }
    write_order(&l, NULL, GPU_EVENT_RECORD, end);
    free(l.stand);
    free(copied.entry);
}

cudaError_t __wrap_cudaGraphLaunch(cudaGraphExec_t graphExec, cudaStream_t stream)
{
    cudaError_t error = __real_cudaGraphLaunch(graphExec, stream);
    settings();
    if (error == cudaSuccess && !graph_captures(stream)) write_launch(graphExec, stream, SITE);
    return error;
}
