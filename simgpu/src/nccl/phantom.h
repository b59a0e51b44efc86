/* phantom.h: dry runs of one rank, without its peers. */
#ifndef SIMGPU_NCCL_PHANTOM_H
#define SIMGPU_NCCL_PHANTOM_H

#include "nccl/call.h"

#define SIM_MAX_PHANTOMS 65536 // ranks of a communicator, where all but this one are phantoms

bool sim_phantoms(void); // SIMGPU_PHANTOMS=1: this process is a rank without its peers
// As sim_comm_join, but there is no peer to connect to.
ncclResult_t sim_phantom_join(const Init *init, ncclComm_t *comm);
void sim_phantom_free(ncclComm_t comm);
// As sim_run_calls, for calls that are prepared: they are done at once.
ncclResult_t sim_phantom_run(Call *calls, int n);
// On how many nodes its ranks are, `per_node` to a node; peer >= 0: this rank and that one.
int sim_phantom_nodes(ncclComm_t comm, int peer, int per_node);

#endif
