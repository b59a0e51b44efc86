/* runtime/noted.h: calls that note their function and their arguments, so that a graph can make
 * them again: kernels and cuBLAS (simgpu_capture.h).
 */
#ifndef SIMGPU_NOTED_H
#define SIMGPU_NOTED_H

#include "simgpu.h"
#include "streams/graph.h"

#define SIM_MAX_ARGS 32
#define SIM_MAX_SCALARS 4
#define SIM_MAX_BYTES 512

// A noted call, as a node keeps it.
typedef struct SimNotedCall {
    const void *function;
    int n;
    SimgpuArg arg[SIM_MAX_ARGS];
    unsigned char bytes[SIM_MAX_BYTES]; // its structures, one after the other
    // Host memory that the call reads, as it was when it was captured: cuBLAS's scalars.
    int n_scalars;
    struct {
        const void *ptr;
        unsigned char bytes[16];
    } scalar[SIM_MAX_SCALARS];
    int handle_bytes; // size of a copy in place of the first argument's target; 0: no copy
    unsigned char handle[128];
} SimNotedCall;

// Whether the noted call is held back. The caller has seen that sim_hold_node is not NULL.
bool sim_hold_kernel(const char *name, cudaStream_t stream, const void *site);
// Turns the captured operation into a node that makes the noted call again. Reports it if no call
// was noted.
void sim_capture_noted(SimgpuOp *op, enum cudaGraphNodeType type);
// Called before that, if the call depends on the memory at its first argument (a handle). The node
// keeps a copy of it. In each launch the call gets a copy of that copy, which lives until the call
// returns.
void sim_note_handle(const void *handle, int bytes);
// The address from which the call reads the host scalar at ptr. In a capture the node copies the
// scalar, and in a launch the result is that copy; else it is ptr.
const void *sim_noted_scalar(const SimgpuOp *op, const void *ptr, size_t bytes);

#endif
