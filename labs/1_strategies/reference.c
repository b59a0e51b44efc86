/* Lab 1: strategies. Who keeps what, and who sums it with whom.
 *
 * Interface:
 *   mesh_2d, mesh_destroy      shards × replicas, a communicator for each group
 */
#include "mesh.h"
#include "not_yet.h"

Status mesh_2d(Mesh *mesh, ncclComm_t world, int replicas)
{
    int rank, size;
    NCCL_TRY(ncclCommUserRank(world, &rank));
    NCCL_TRY(ncclCommCount(world, &size));
    if (replicas < 1 || size % replicas != 0)
        return fail(ERR_ARGUMENT, "%d ranks cannot be %d replicas: each needs as many ranks", size,
                    replicas);
    //[L1.1] Both groups of the mesh are as mesh.h says.
    //? Which ranks shard with this one, and which hold the same shard?
    int shards = size / replicas;
    *mesh = (Mesh){.shard = {.rank = rank % shards, .size = shards},
                   .replicate = {.rank = rank / shards, .size = replicas}};
    if (replicas == 1 || shards == 1) {
        *(replicas == 1 ? &mesh->shard.comm : &mesh->replicate.comm) = world;
        return OK;
    }
    NCCL_TRY(ncclCommSplit(world, rank / shards, rank, &mesh->shard.comm, NULL));
    NCCL_TRY(ncclCommSplit(world, rank % shards, rank, &mesh->replicate.comm, NULL));
    return OK;
    //[end L1.1]
}

Status mesh_destroy(Mesh *mesh, ncclComm_t world)
{
    //[[L1.1a] What mesh_2d made is destroyed, and the mesh is zero.
    ProcessGroup *const groups[] = {&mesh->shard, &mesh->replicate};
    for (int i = 0; i < 2; i++)
        if (groups[i]->comm != NULL && groups[i]->comm != world)
            NCCL_TRY(ncclCommDestroy(groups[i]->comm));
    *mesh = (Mesh){{NULL, 0, 0}, {NULL, 0, 0}};
    return OK;
    //[end L1.1a]
}
