/* streams/capture.h: stream capture: calls on a stream become nodes of a graph.
 *
 * The CUDA programming guide (CUDA graphs, "Prohibited and unhandled operations") and the CUDA
 * Runtime API (Stream Management: cudaStreamBeginCapture, cudaThreadExchangeStreamCaptureMode) say
 * what may be captured, and which error other calls return. A forbidden call invalidates the
 * captures that it concerns: all later calls in them fail, until EndCapture.
 *
 * All functions here need sim_streams_lock, unless they say otherwise.
 */
#ifndef SIMGPU_CAPTURE_H
#define SIMGPU_CAPTURE_H

#include <pthread.h>

#include "simgpu.h"
#include "streams/graph.h"

typedef struct SimCapture {
    uint64_t id; // 1, 2 … of the process
    enum cudaStreamCaptureMode mode;
    pthread_t thread; // that began it
    struct CUstream_st *origin;
    const void *site; // of its beginning
    cudaGraph_t graph;
    bool invalid;
    const char *broken_by; // the call that invalidated it
    const void *broken_at;
    struct SimCapture *next;
} SimCapture;
extern SimCapture *sim_captures_open;

// What is wrong with a call, for a report that is made after the lock is released.
typedef struct SimCaptureFault {
    cudaError_t error; // cudaSuccess: nothing is wrong
    const char *what;  // NULL: an earlier fault has been reported
    const char *instead;
    const void *begun, *broken_at;
    const char *broken_by;
} SimCaptureFault;
// Reports it, without the lock; returns the error.
cudaError_t sim_report_capture(const SimCaptureFault *fault, const char *call, const void *site);

// Whether an operation on a stream is captured, and what is wrong with it.
SimCaptureFault sim_capture_operation(SimgpuOp *op, struct CUstream_st *s);
// What is wrong with a call that waits for a stream, or queries it; the same for an event.
SimCaptureFault sim_capture_wait_stream(struct CUstream_st *s);
SimCaptureFault sim_capture_wait_event(cudaEvent_t event);
// The stream is about to be destroyed.
void sim_capture_stream_ends(struct CUstream_st *s);
// A capture or its streams end: no stream is part of it any more.
void sim_capture_close(SimCapture *capture);
// Records an event in a capture, or has a stream wait for one.
SimCaptureFault sim_capture_record(struct CUstream_st *s, cudaEvent_t event);
SimCaptureFault sim_capture_wait(struct CUstream_st *s, cudaEvent_t event);

// ---- Without the lock ----

// A call that waits for a whole device: if one of its streams is captured, reports the error.
cudaError_t sim_capture_check_device(int device, const char *call, const void *site);

// Reports an operation that must not be captured: cudaErrorStreamCaptureUnsupported.
cudaError_t sim_capture_refuse(SimgpuOp *op, const char *what, const char *instead);
// Adds a node for an operation that is captured, and ends the operation.
cudaError_t sim_capture_node(SimgpuOp *op, SimNewNode what);

#endif
