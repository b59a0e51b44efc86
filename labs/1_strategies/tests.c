/* Lab 1, strategies: the mesh; what each strategy keeps, sends and sums.
 */
#include "harness.h"
#include "mesh.h"

typedef struct Shape {
    int replicas;
} Shape;

static void mesh_body(const Rank *r, void *arg)
{
    int replicas = ((const Shape *)arg)->replicas, shards = r->world / replicas;
    Mesh mesh;
    need(mesh_2d(&mesh, r->comm, replicas));
    check(mesh.shard.size == shards && mesh.replicate.size == replicas,
          "the mesh of %d ranks and %d replicas is %d shards × %d replicas", r->world, replicas,
          mesh.shard.size, mesh.replicate.size);
    check(mesh.shard.rank == r->rank % shards && mesh.replicate.rank == r->rank / shards,
          "rank %d has place %d among its shards and %d among its replicas, want %d and %d", r->rank,
          mesh.shard.rank, mesh.replicate.rank, r->rank % shards, r->rank / shards);
    const ProcessGroup groups[] = {mesh.shard, mesh.replicate};
    for (int i = 0; i < 2; i++) {
        int rank = 0, size = 1;
        if (groups[i].size == 1) continue;
        need_nccl(ncclCommUserRank(groups[i].comm, &rank));
        need_nccl(ncclCommCount(groups[i].comm, &size));
        check(rank == groups[i].rank && size == groups[i].size,
              "the communicator of the %s says rank %d of %d, the mesh %d of %d",
              i == 0 ? "shards" : "replicas", rank, size, groups[i].rank, groups[i].size);
    }
    need(mesh_destroy(&mesh, r->comm));
}

static void mesh_of_shards_and_replicas(void **state)
{
    for (int world = 1; world <= 8; world++)
        for (int replicas = 1; replicas <= world; replicas++)
            if (world % replicas == 0) run_ranks(world, mesh_body, &(Shape){replicas});
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(mesh_of_shards_and_replicas),
};
SUITE_MAIN("strategies", tests)
