/* captured.h: NCCL calls in a stream capture become nodes of a graph. */
#ifndef SIMGPU_NCCL_CAPTURED_H
#define SIMGPU_NCCL_CAPTURED_H

#include "nccl/call.h"
#include "streams/graph.h"

// Whether the calls of a group, which are checked, are captured. If so, they are nodes now, or
// *result says what is wrong. The caller still owns `calls`.
bool sim_capture_calls(const Call *calls, int n, ncclResult_t *result);
// The *n calls of a node: those of its group; 0: it has none.
const Call *sim_captured_calls(cudaGraphNode_t node, int *n);
// Begins the calls that the launch has reached. They are done when *comm is no longer pending.
cudaError_t sim_captured_begin(cudaGraphNode_t node, const SimLaunch *launch, ncclComm_t *comm);

#endif
