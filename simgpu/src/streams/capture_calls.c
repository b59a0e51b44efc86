/* capture_calls.c: the calls that begin, end and query a capture.
 *
 * Interface: cudaStreamBeginCapture, cudaStreamEndCapture, cudaStreamIsCapturing,
 * cudaStreamGetCaptureInfo, cudaStreamUpdateCaptureDependencies,
 * cudaThreadExchangeStreamCaptureMode.
 */
#include <stdio.h>
#include <stdlib.h>

#include "core/error.h"
#include "report/report.h"
#include "streams/handles.h"

static _Thread_local enum cudaStreamCaptureMode thread_mode; // Global: 0

// ---- Calls that are unsafe while something is captured ----

// "Potentially unsafe API calls", as cudaThreadExchangeStreamCaptureMode says of its modes.
static bool forbids(const SimCapture *c)
{
    bool own = pthread_equal(c->thread, pthread_self());
    if (thread_mode == cudaStreamCaptureModeRelaxed) return false;
    if (own) return c->mode != cudaStreamCaptureModeRelaxed;
    return thread_mode == cudaStreamCaptureModeGlobal && c->mode == cudaStreamCaptureModeGlobal;
}

static cudaError_t check_unsafe(const char *call, const void *site)
{
    SimCaptureFault f = {.error = cudaSuccess};
    if (!simgpu_captures) return cudaSuccess;
    pthread_mutex_lock(&sim_streams_lock);
    for (SimCapture *c = sim_captures_open; c; c = c->next) {
        if (!forbids(c)) continue;
        bool told = c->invalid || f.what;
        c->invalid = true;
        if (f.what) continue;
        f = (SimCaptureFault){
            .error = told ? cudaErrorStreamCaptureInvalidated : cudaErrorStreamCaptureUnsupported,
            .what = told ? NULL
                         : "may wait for work, or use the default stream, inside of CUDA: it is "
                           "not safe\nwhile this thread, or with cudaStreamCaptureModeGlobal any "
                           "thread, captures",
            .instead = "Does the call belong before cudaStreamBeginCapture (memory can be "
                       "allocated there,\nor by cudaMallocAsync), or after cudaStreamEndCapture? "
                       "cudaStreamCaptureModeRelaxed\nallows it.",
            .begun = c->site};
    }
    pthread_mutex_unlock(&sim_streams_lock);
    return f.error == cudaSuccess ? cudaSuccess : sim_report_capture(&f, call, site);
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    SIM_ENTER();
    if (!mode || (unsigned)*mode > cudaStreamCaptureModeRelaxed)
        return sim_leave(cudaErrorInvalidValue);
    enum cudaStreamCaptureMode old = thread_mode;
    thread_mode = *mode;
    *mode = old;
    return cudaSuccess;
}

// ---- Begin and end ----

static uint64_t captures_made;

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    SIM_ENTER();
    if ((unsigned)mode > cudaStreamCaptureModeRelaxed) return sim_leave(cudaErrorInvalidValue);
    SimCapture *capture = calloc(1, sizeof *capture);
    cudaGraph_t graph = sim_graph_new(SIM_SITE);
    if (!capture || !graph) {
        if (graph) sim_graph_free(graph);
        free(capture);
        return sim_leave(cudaErrorMemoryAllocation);
    }
    graph->captured = true;
    *capture = (SimCapture){
        .mode = mode, .thread = pthread_self(), .site = SIM_SITE, .graph = graph, .invalid = false};
    pthread_mutex_lock(&sim_streams_lock);
    struct CUstream_st *s = sim_stream_of_handle(stream);
    bool busy = s && s->capture, legacy = s && s->is_default;
    if (s && !busy && !legacy) {
        capture->id = ++captures_made;
        capture->origin = s;
        capture->next = sim_captures_open;
        sim_captures_open = capture;
        s->capture = capture;
        s->last.n = 0;
        simgpu_captures++;
        sim_unsafe_hook = check_unsafe;
        capture = NULL;
    }
    pthread_mutex_unlock(&sim_streams_lock);
    if (!capture) return cudaSuccess;
    sim_graph_free(graph);
    free(capture);
    if (!s) return sim_report_stream("cudaStreamBeginCapture", stream, SIM_SITE);
    if (busy) return sim_leave(cudaErrorIllegalState);
    return sim_report_capture(
        &(SimCaptureFault){.error = cudaErrorStreamCaptureUnsupported,
                           .what = "tries to capture the default stream, which is not possible",
                           .instead = "Can the work be on a stream of cudaStreamCreate?"},
        "cudaStreamBeginCapture", SIM_SITE);
}

// The last node of a stream that was not joined to the origin; NULL: all were joined.
static cudaGraphNode_t unjoined(const SimCapture *c, const struct CUstream_st *s)
{
    cudaGraphNode_t found = NULL;
    bool *seen = calloc((size_t)c->graph->n + 1, 1);
    for (size_t i = 0; i < s->last.n && seen; i++) sim_graph_mark_before(s->last.node[i], seen);
    for (int i = 0; i < c->graph->n && seen && !found; i++)
        if (!seen[i]) found = c->graph->node[i];
    free(seen);
    return found;
}

static cudaError_t report_unjoined(cudaGraphNode_t node, const void *begun, const void *site)
{
    char what[512], where[256];
    gpulog_where(node->site, where, sizeof where);
    snprintf(what, sizeof what,
             "ends a capture while a stream that joined it has work that the first stream does "
             "not\nwait for: %s, called at %s",
             node->name, where);
    return sim_report_capture(
        &(SimCaptureFault){.error = cudaErrorStreamCaptureUnjoined,
                           .what = what,
                           .instead = "Should an event be recorded on that stream at its end, "
                                      "and the first\nstream wait for it?",
                           .begun = begun},
        "cudaStreamEndCapture", site);
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *pGraph)
{
    SIM_ENTER();
    if (pGraph) *pGraph = NULL;
    if (!pGraph) return sim_leave(cudaErrorInvalidValue);
    SimCaptureFault f = {.error = cudaSuccess};
    pthread_mutex_lock(&sim_streams_lock);
    struct CUstream_st *s = sim_stream_of_handle(stream);
    SimCapture *c = s ? s->capture : NULL;
    cudaGraphNode_t left = NULL;
    cudaGraph_t graph = NULL;
    const void *begun = c ? c->site : NULL;
    if (c && c->origin != s) {
        c->invalid = true;
        f = (SimCaptureFault){
            .error = cudaErrorStreamCaptureUnmatched,
            .what = "ends the capture of a stream that joined it, and did not begin it",
            .instead = "Do you mean the stream of the cudaStreamBeginCapture?",
            .begun = begun};
    } else if (c && c->mode != cudaStreamCaptureModeRelaxed &&
               !pthread_equal(c->thread, pthread_self())) {
        f = (SimCaptureFault){
            .error = cudaErrorStreamCaptureWrongThread,
            .what = "ends a capture that another thread began",
            .instead = "Should that thread end it? With cudaStreamCaptureModeRelaxed any may.",
            .begun = begun};
    } else if (c) {
        if (c->invalid) f.error = cudaErrorStreamCaptureInvalidated;
        left = c->invalid ? NULL : unjoined(c, s);
        if (!c->invalid && !left) {
            graph = c->graph;
            c->graph = NULL;
            graph->captured = false;
        }
    }
    pthread_mutex_unlock(&sim_streams_lock);
    cudaError_t error = cudaSuccess;
    if (!s) return sim_report_stream("cudaStreamEndCapture", stream, SIM_SITE);
    if (!c) return sim_leave(cudaErrorIllegalState);
    if (f.error != cudaSuccess) error = sim_report_capture(&f, "cudaStreamEndCapture", SIM_SITE);
    if (left) error = report_unjoined(left, begun, SIM_SITE);
    bool stays =
        f.error == cudaErrorStreamCaptureUnmatched || f.error == cudaErrorStreamCaptureWrongThread;
    pthread_mutex_lock(&sim_streams_lock);
    if (!stays) sim_capture_close(c);
    pthread_mutex_unlock(&sim_streams_lock);
    *pGraph = graph;
    return error;
}

// ---- Questions ----

static enum cudaStreamCaptureStatus status_of(const SimCapture *c)
{
    if (!c) return cudaStreamCaptureStatusNone;
    return c->invalid ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
}

// "If called on cudaStreamLegacy while a blocking stream on the same device is capturing, it
// returns cudaErrorStreamCaptureImplicit", and invalidates nothing.
static cudaError_t ask(const char *call, cudaStream_t stream, struct CUstream_st *seen,
                       const void *site)
{
    pthread_mutex_lock(&sim_streams_lock);
    struct CUstream_st *s = sim_stream_of_handle(stream);
    bool implicit = false;
    if (s) *seen = *s;
    for (struct CUstream_st *o = s && s->is_default ? sim_device_streams[s->device].streams : NULL;
         o; o = o->next)
        implicit |= o->capture && o->blocking;
    pthread_mutex_unlock(&sim_streams_lock);
    if (!s) return sim_report_stream(call, stream, site);
    return sim_leave(implicit ? cudaErrorStreamCaptureImplicit : cudaSuccess);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *pCaptureStatus)
{
    SIM_ENTER();
    struct CUstream_st s;
    if (!pCaptureStatus) return sim_leave(cudaErrorInvalidValue);
    cudaError_t error = ask("cudaStreamIsCapturing", stream, &s, SIM_SITE);
    if (error == cudaSuccess) *pCaptureStatus = status_of(s.capture);
    return error;
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream,
                                     enum cudaStreamCaptureStatus *captureStatus_out,
                                     unsigned long long *id_out, cudaGraph_t *graph_out,
                                     const cudaGraphNode_t **dependencies_out,
                                     const cudaGraphEdgeData **edgeData_out,
                                     size_t *numDependencies_out)
{
    SIM_ENTER();
    struct CUstream_st s;
    if (!captureStatus_out) return sim_leave(cudaErrorInvalidValue);
    cudaError_t error = ask("cudaStreamGetCaptureInfo", stream, &s, SIM_SITE);
    if (error != cudaSuccess) return error;
    *captureStatus_out = status_of(s.capture);
    if (*captureStatus_out != cudaStreamCaptureStatusActive) return cudaSuccess;
    if (id_out) *id_out = s.capture->id;
    if (graph_out) *graph_out = s.capture->graph;
    if (dependencies_out) *dependencies_out = s.last.node;
    if (edgeData_out) *edgeData_out = NULL;
    if (numDependencies_out) *numDependencies_out = s.last.n;
    return cudaSuccess;
}

cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t stream, cudaGraphNode_t *dependencies,
                                                const cudaGraphEdgeData *dependencyData,
                                                size_t numDependencies, unsigned int flags)
{
    SIM_ENTER();
    if ((numDependencies && !dependencies) || flags > cudaStreamSetCaptureDependencies)
        return sim_leave(cudaErrorInvalidValue);
    cudaError_t error = cudaSuccess;
    pthread_mutex_lock(&sim_streams_lock);
    struct CUstream_st *s = sim_stream_of_handle(stream);
    if (s && !s->capture) error = cudaErrorIllegalState;
    if (s && s->capture && s->capture->invalid) error = cudaErrorStreamCaptureInvalidated;
    for (size_t i = 0; i < numDependencies && s && error == cudaSuccess; i++)
        if (!sim_is_node(dependencies[i]) || dependencies[i]->graph != s->capture->graph)
            error = cudaErrorInvalidValue;
    if (s && error == cudaSuccess && flags == cudaStreamSetCaptureDependencies) s->last.n = 0;
    for (size_t i = 0; i < numDependencies && s && error == cudaSuccess; i++)
        if (!sim_nodes_add(&s->last, dependencies[i])) error = cudaErrorMemoryAllocation;
    pthread_mutex_unlock(&sim_streams_lock);
    if (!s) return sim_report_stream("cudaStreamUpdateCaptureDependencies", stream, SIM_SITE);
    return sim_leave(error);
}
