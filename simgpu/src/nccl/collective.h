/* collective.h: the calls of each kind, and their data movement. */
#ifndef SIMGPU_NCCL_COLLECTIVE_H
#define SIMGPU_NCCL_COLLECTIVE_H

#include "nccl/call.h"

// Bytes that this rank's call reads from its send and writes to its receive buffer.
size_t sim_send_bytes(const Call *call);
size_t sim_recv_bytes(const Call *call);
void sim_count_traffic(const Call *call, GpuLogEntry *entry);
// Makes a call and submits it (group.h). The root of a message is the peer.
ncclResult_t sim_call_collective(GpuOp kind, const void *send, void *recv, size_t count,
                                 ncclDataType_t type, ncclRedOp_t op, int root, ncclComm_t comm,
                                 cudaStream_t stream, const void *site);
// Does this rank's part of the data movement, when every rank has posted.
void sim_do_work(Call *call);

#endif
