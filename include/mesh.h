/* mesh.h: which ranks shard together, and which ones hold replicas. mesh_1d and mesh_size are given
 * code; a mesh of two dimensions is part of lab 1.
 *
 * The words are PyTorch's (DeviceMesh). Ranks that *shard* together hold one W-th of the parameters
 * each; ranks that *replicate* hold the same shard and average its gradient. FSDP alone is a mesh
 * of one replica; data parallelism (DDP) is a mesh of one shard. A group of size 1 needs no
 * communicator, because it sends nothing.
 */
#ifndef SHARDLAB_MESH_H
#define SHARDLAB_MESH_H

#include "check.h"

#define Status CHECKED_STATUS // as check.h says

// Ranks that take part in one collective.
typedef struct ProcessGroup {
    ncclComm_t comm; // may be NULL if size is 1
    int rank;        // this process's, 0 … size-1
    int size;
} ProcessGroup;

typedef struct Mesh {
    ProcessGroup shard;     // the ranks that share one replica's parameters
    ProcessGroup replicate; // the ranks that hold the same shard
} Mesh;

// The number of all ranks.
static inline int mesh_size(const Mesh *mesh)
{
    return mesh->shard.size * mesh->replicate.size;
}

// One replica: all ranks of the communicator shard together. ERR_NCCL.
Status mesh_1d(Mesh *mesh, ncclComm_t comm);

// shards × replicas = the communicator's ranks. Replica r is ranks r·shards … (r+1)·shards - 1,
// which shard together. They are neighbours, because ranks send more within a replica than between
// replicas. The communicator of a group is `world` if the group has all ranks, NULL if it has one
// rank (with one rank in all either is right), else a new one (ncclCommSplit); so all ranks make
// the call. ERR_ARGUMENT if `replicas` does not divide the ranks, ERR_NCCL.
Status mesh_2d(Mesh *mesh, ncclComm_t world, int replicas);
// Destroys the communicators that mesh_2d made, but not `world`.
Status mesh_destroy(Mesh *mesh, ncclComm_t world);

// Cuts a group into parts of `ranks` neighbours: rank r of the group is rank r % ranks of its part.
// It makes the part's communicator (ncclCommSplit), so all ranks of the group make the call: once,
// not before each use. ERR_ARGUMENT unless `ranks` divides the group, is at least 2, and less than
// all; ERR_NCCL.
Status group_split(ProcessGroup *part, const ProcessGroup *group, int ranks);
// Destroys the communicator that group_split made. A zeroed group is fine.
Status group_destroy(ProcessGroup *part);

#undef Status

#endif
