/* captured.h: calls of NCCL that are captured become nodes of a graph. */
#ifndef SIMGPU_NCCL_CAPTURED_H
#define SIMGPU_NCCL_CAPTURED_H

#include "nccl/call.h"

// Whether the calls of a group, all checked, are captured; then they are nodes now, or *result says
// what is wrong. The caller keeps `calls`.
bool sim_capture_calls(const Call *calls, int n, ncclResult_t *result);

#endif
