/* streams/capture.h: stream capture: what a stream is given becomes nodes of a graph.
 *
 * What may be captured, and which error what may not be returns, is in the CUDA programming guide
 * (CUDA graphs, "Prohibited and unhandled operations") and in the CUDA Runtime API (Stream
 * Management: cudaStreamBeginCapture, cudaThreadExchangeStreamCaptureMode). What is not allowed
 * invalidates the captures that it is about: all that follows in them fails, until EndCapture.
 *
 * All that is declared here is called with sim_streams_lock held, but what says otherwise.
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
    const char *broken_by; // the call that made it so
    const void *broken_at;
    struct SimCapture *next;
} SimCapture;
extern SimCapture *sim_captures_open;

// What is wrong with a call, for a report: it is made when the lock is free again.
typedef struct SimCaptureFault {
    cudaError_t error; // cudaSuccess: nothing is
    const char *what;  // NULL: an earlier fault, of which the report was
    const char *instead;
    const void *begun, *broken_at;
    const char *broken_by;
} SimCaptureFault;
// Says it, without the lock; returns the error.
cudaError_t sim_report_capture(const SimCaptureFault *fault, const char *call, const void *site);

// An operation on a stream: whether it is captured; what is wrong with it.
SimCaptureFault sim_capture_operation(SimgpuOp *op, struct CUstream_st *s);
// A call that waits for a stream, or asks about it; for an event.
SimCaptureFault sim_capture_wait_stream(struct CUstream_st *s);
SimCaptureFault sim_capture_wait_event(cudaEvent_t event);
// The stream is about to be destroyed.
void sim_capture_stream_ends(struct CUstream_st *s);
// The end of a capture or of its streams: none is part of it any more.
void sim_capture_close(SimCapture *capture);
// Records an event in a capture, or has a stream wait for one.
SimCaptureFault sim_capture_record(struct CUstream_st *s, cudaEvent_t event);
SimCaptureFault sim_capture_wait(struct CUstream_st *s, cudaEvent_t event);

// ---- Without the lock ----

// A call that waits for all of a device: the error, reported, where one of its streams is captured.
cudaError_t sim_capture_check_device(int device, const char *call, const void *site);

// An operation that is captured and may not be: cudaErrorStreamCaptureUnsupported.
cudaError_t sim_capture_refuse(SimgpuOp *op, const char *what, const char *instead);
// Adds a node for an operation that is captured, and ends the operation.
cudaError_t sim_capture_node(SimgpuOp *op, SimNewNode what);

#endif
