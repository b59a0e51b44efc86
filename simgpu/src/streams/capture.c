/* capture.c: which streams are captured, how streams join a capture, and what it forbids. See
 * capture.h.
 */
#include "streams/capture.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/error.h"
#include "report/report.h"
#include "streams/handles.h"

SimCapture *sim_captures_open;
int simgpu_captures; // how many: simgpu.h

// ---- What is wrong ----

static SimCaptureFault fault(const SimCapture *capture, cudaError_t error, const char *what,
                             const char *instead)
{
    return (SimCaptureFault){error,
                             what,
                             instead,
                             capture ? capture->site : NULL,
                             capture ? capture->broken_at : NULL,
                             capture ? capture->broken_by : NULL};
}

// The first fault of a capture is reported; later calls return "invalidated".
static SimCaptureFault invalidate(SimCapture *capture, cudaError_t error, const char *what,
                                  const char *instead)
{
    SimCaptureFault f = fault(capture, error, what, instead);
    capture->invalid = true;
    return f;
}

static SimCaptureFault earlier_fault(const SimCapture *capture)
{
    return fault(capture, cudaErrorStreamCaptureInvalidated, NULL, NULL);
}

cudaError_t sim_report_capture(const SimCaptureFault *f, const char *call, const void *site)
{
    char where[256], begun[256], text[300] = "";
    if (f->what) {
        gpulog_where(site, where, sizeof where);
        gpulog_where(f->begun, begun, sizeof begun);
        if (f->begun) snprintf(text, sizeof text, "\nThe capture began at %s.", begun);
        sim_facts_call(call, site, SIM_NO_STREAM);
        if (f->begun) sim_facts_call("cudaStreamBeginCapture", f->begun, SIM_NO_STREAM);
        sim_report(SIMGPU_CAPTURE, "a call that is not allowed during capture",
                   "%s, called at %s,\n%s.%s\nOn a GPU it returns %s (\"%s\"), as here.\n%s", call,
                   where, f->what, text, cudaGetErrorName(f->error), cudaGetErrorString(f->error),
                   f->instead);
    }
    return sim_leave(f->error);
}

// ---- Operations ----

// "When any stream in the same context is being captured, and it was not created with
// cudaStreamNonBlocking, any attempted use of the legacy stream is invalid."
static SimCaptureFault use_of_legacy(int device)
{
    for (struct CUstream_st *s = sim_device_streams[device].streams; s; s = s->next)
        if (s->capture && s->blocking)
            return s->capture->invalid
                       ? earlier_fault(s->capture)
                       : invalidate(s->capture, cudaErrorStreamCaptureImplicit,
                                    "uses the default stream, which waits for a stream that is "
                                    "captured",
                                    "Does the call belong on the captured stream, or should the "
                                    "stream be made\nwith cudaStreamNonBlocking?");
    return (SimCaptureFault){.error = cudaSuccess};
}

SimCaptureFault sim_capture_operation(SimgpuOp *op, struct CUstream_st *s)
{
    if (s->capture && s->capture->invalid) return earlier_fault(s->capture);
    op->captured = s->capture != NULL;
    return s->is_default ? use_of_legacy(s->device) : (SimCaptureFault){.error = cudaSuccess};
}

SimCaptureFault sim_capture_wait_stream(struct CUstream_st *s)
{
    if (s->is_default) return use_of_legacy(s->device);
    if (!s->capture) return (SimCaptureFault){.error = cudaSuccess};
    if (s->capture->invalid) return earlier_fault(s->capture);
    return invalidate(s->capture, cudaErrorStreamCaptureUnsupported,
                      "waits for a captured stream, or queries it: nothing runs there\n"
                      "before the graph is launched",
                      "Does the wait belong after cudaGraphLaunch, or before the capture?");
}

static SimCapture *capture_of(uint64_t id)
{
    for (SimCapture *c = sim_captures_open; c; c = c->next)
        if (c->id == id) return c;
    return NULL;
}

SimCaptureFault sim_capture_wait_event(cudaEvent_t event)
{
    if (!event->captured) return (SimCaptureFault){.error = cudaSuccess};
    SimCapture *capture = capture_of(event->captured);
    const char *what = "waits for an event that was last recorded in a capture, or queries it:\n"
                       "it stands for nodes of a graph, not for work that is under way";
    const char *instead = "Do you mean an event that is recorded after cudaGraphLaunch?";
    if (!capture) return fault(NULL, cudaErrorCapturedEvent, what, instead);
    if (capture->invalid) return earlier_fault(capture);
    return invalidate(capture, cudaErrorCapturedEvent, what, instead);
}

cudaError_t sim_capture_check_device(int device, const char *call, const void *site)
{
    SimCaptureFault first = {.error = cudaSuccess};
    if (!simgpu_captures) return cudaSuccess;
    pthread_mutex_lock(&sim_streams_lock);
    for (struct CUstream_st *s = sim_device_streams[device].streams; s; s = s->next) {
        if (!s->capture) continue;
        SimCaptureFault f =
            s->capture->invalid
                ? earlier_fault(s->capture)
                : invalidate(s->capture, cudaErrorStreamCaptureUnsupported,
                             "waits for a device with a captured stream: nothing runs there\n"
                             "before the graph is launched",
                             "Does the wait belong after cudaGraphLaunch, or before the capture?");
        if (first.error == cudaSuccess || (f.what && !first.what)) first = f;
    }
    pthread_mutex_unlock(&sim_streams_lock);
    return first.error == cudaSuccess ? cudaSuccess : sim_report_capture(&first, call, site);
}

void sim_capture_stream_ends(struct CUstream_st *s)
{
    if (s->capture) s->capture->invalid = true;
    if (s->capture && s->capture->origin == s) sim_capture_close(s->capture);
    s->capture = NULL;
    free(s->last.node);
    s->last = (SimNodes){NULL, 0, 0};
}

void sim_capture_close(SimCapture *capture)
{
    for (int d = 0; d < SIM_MAX_DEVICES; d++)
        for (struct CUstream_st *s = sim_device_streams[d].streams; s; s = s->next)
            if (s->capture == capture) s->capture = NULL;
    SimCapture **link = &sim_captures_open;
    while (*link != capture) link = &(*link)->next;
    *link = capture->next;
    simgpu_captures--;
    if (capture->graph) sim_graph_free(capture->graph);
    free(capture);
}

// ---- Events ----

SimCaptureFault sim_capture_record(struct CUstream_st *s, cudaEvent_t event)
{
    if (!sim_nodes_set(&event->nodes, s->last.node, s->last.n))
        return fault(s->capture, cudaErrorMemoryAllocation, NULL, NULL);
    event->captured = s->capture->id;
    return (SimCaptureFault){.error = cudaSuccess};
}

SimCaptureFault sim_capture_wait(struct CUstream_st *s, cudaEvent_t event)
{
    SimCapture *of = event->captured ? capture_of(event->captured) : NULL;
    const char *merge = "has a stream of one capture wait for an event of another capture";
    const char *merge_instead = "Should both be one graph, with one cudaStreamBeginCapture, from "
                                "which\nthe streams are forked by events?";
    if (of && of->invalid) return earlier_fault(of);
    if (!s->capture && event->captured && !of)
        return fault(NULL, cudaErrorCapturedEvent,
                     "waits for an event that was last recorded in a capture, which is over",
                     "Do you mean an event that is recorded after cudaGraphLaunch?");
    if (!s->capture && !of) return (SimCaptureFault){.error = cudaSuccess};
    if (!of)
        return invalidate(
            s->capture, cudaErrorStreamCaptureIsolation,
            "has a captured stream wait for an event that was not recorded in its capture:\n"
            "the graph cannot wait for work that is under way now",
            "Is the event's record missing in the capture? To wait for work of before the\n"
            "capture, have the stream wait before cudaStreamBeginCapture, or before the launch.");
    if (s->capture && s->capture != of) {
        s->capture->invalid = true;
        return invalidate(of, cudaErrorStreamCaptureMerge, merge, merge_instead);
    }
    if (s->is_default)
        return invalidate(of, cudaErrorStreamCaptureImplicit,
                          "has the default stream join a capture, but it cannot be captured",
                          "Can the work be on a stream of its own?");
    if (!s->capture) {
        s->capture = of;
        s->last.n = 0;
    }
    for (size_t i = 0; i < event->nodes.n; i++)
        if (!sim_nodes_add(&s->last, event->nodes.node[i]))
            return fault(of, cudaErrorMemoryAllocation, NULL, NULL);
    return (SimCaptureFault){.error = cudaSuccess};
}

// ---- Nodes ----

cudaError_t sim_capture_refuse(SimgpuOp *op, const char *what, const char *instead)
{
    SimCaptureFault f = {.error = op->error};
    pthread_mutex_lock(&sim_streams_lock);
    struct CUstream_st *s = sim_stream_of_op(op);
    if (f.error == cudaSuccess && s && s->capture)
        f = invalidate(s->capture, cudaErrorStreamCaptureUnsupported, what, instead);
    pthread_mutex_unlock(&sim_streams_lock);
    op->error = f.error;
    return sim_report_capture(&f, op->entry.name, op->entry.site);
}

cudaError_t sim_capture_node(SimgpuOp *op, SimNewNode what)
{
    if (op->error != cudaSuccess) return sim_leave(op->error);
    if (!what.name) what.name = op->entry.name;
    what.site = op->entry.site;
    what.device = op->entry.device;
    pthread_mutex_lock(&sim_streams_lock);
    struct CUstream_st *s = sim_stream_of_op(op);
    cudaGraphNode_t node = NULL;
    if (s && s->capture) node = sim_graph_add(s->capture->graph, what, s->last.node, s->last.n);
    if (node && !sim_nodes_set(&s->last, &node, 1)) node = NULL;
    pthread_mutex_unlock(&sim_streams_lock);
    return node ? cudaSuccess : sim_leave(cudaErrorMemoryAllocation);
}
