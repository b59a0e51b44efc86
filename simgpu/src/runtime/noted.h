/* runtime/noted.h: calls that say their function and their arguments, so that a graph can make them
 * again: kernels and cuBLAS's (simgpu_capture.h).
 */
#ifndef SIMGPU_NOTED_H
#define SIMGPU_NOTED_H

#include "simgpu.h"
#include "streams/graph.h"

#define SIM_MAX_ARGS 32
#define SIM_MAX_SCALARS 4
#define SIM_MAX_BYTES 512

// As a node keeps it.
typedef struct SimNotedCall {
    const void *function;
    int n;
    SimgpuArg arg[SIM_MAX_ARGS];
    unsigned char bytes[SIM_MAX_BYTES]; // of its structures, one after the other
    // What the host's memory held for the call when it was captured: cuBLAS's scalars.
    int n_scalars;
    struct {
        const void *ptr;
        unsigned char bytes[16];
    } scalar[SIM_MAX_SCALARS];
    int handle_bytes; // of what the first argument points to, in its place; 0: it stays as it is
    unsigned char handle[128];
} SimNotedCall;

// Whether the noted call is held back (sim_hold_node, which is there).
bool sim_hold_kernel(const char *name, cudaStream_t stream, const void *site);
// The captured operation becomes a node that makes the noted call; a report where none was noted.
void sim_capture_noted(SimgpuOp *op, enum cudaGraphNodeType type);
// Before that: the call depends on what the first argument points to. Keeps it; at a launch a copy
// of it, which is the launching thread's until the call has returned, takes its place.
void sim_note_handle(const void *handle, int bytes);
// The node's own copy of a scalar of the host's: kept now (a captured operation), or from then (in
// a launch); else ptr itself.
const void *sim_noted_scalar(const SimgpuOp *op, const void *ptr, size_t bytes);

#endif
