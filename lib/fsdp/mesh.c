/* mesh.c: the mesh of FSDP alone. */
#include "mesh.h"

Status mesh_1d(Mesh *mesh, ncclComm_t comm)
{
    *mesh = (Mesh){.shard = {.comm = comm}, .replicate = {.rank = 0, .size = 1}};
    NCCL_TRY(ncclCommUserRank(comm, &mesh->shard.rank));
    NCCL_TRY(ncclCommCount(comm, &mesh->shard.size));
    return OK;
}
