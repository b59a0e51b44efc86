/* Lab 1, slices: who has which, what the backward gathers from whom, and when a slice is not used.
 */
#include <stdlib.h>

#include "fsdp.h"
#include "tests.h"

// That those which have the slices of one unit are neighbours, in their order.
static void check_neighbours(const Wrapped *w, const Rank *r, int slice)
{
    const ProcessGroup *shard = &w->mesh.shard, *part = &w->root->extensions->strategy->slice_group;
    float *sum, mine = (float)shard->rank, first = (float)(shard->rank / slice * slice);
    int rank = -1, size = 0;
    check(part->comm != NULL && part->size == slice && part->rank == shard->rank % slice,
          "group_split: rank %d of the %d that shard is rank %d of %d neighbours, want %d of %d",
          shard->rank, shard->size, part->rank, part->size, shard->rank % slice, slice);
    need_nccl(ncclCommUserRank(part->comm, &rank));
    need_nccl(ncclCommCount(part->comm, &size));
    check(rank == part->rank && size == slice,
          "group_split: the neighbours' communicator says rank %d of %d, want %d of %d", rank, size,
          part->rank, slice);
    need_cuda(cudaMalloc((void **)&sum, sizeof *sum));
    send_to(sum, &mine, 1);
    need_nccl(ncclAllReduce(sum, sum, 1, ncclFloat, ncclSum, part->comm, r->stream));
    need_cuda(cudaStreamSynchronize(r->stream));
    float *got = fetch(sum, 1), want = (float)slice * (first + 0.5f * (float)(slice - 1));
    check(*got == want,
          "group_split: the places of rank %d and its neighbours add up to %g, want %g: from %g on",
          shard->rank, (double)*got, (double)want, (double)first);
    free(got);
    need_cuda(cudaFree(sum));
}

static void slice_body(Wrapped *w, const Case *c, const Rank *r)
{
    uint64_t comm[2] = {0, 0};
    check_neighbours(w, r, c->options.reshard_ranks);
    for (int step = 0; step < 2; step++) {
        uint64_t first = gpulog_length();
        GpuLogEntry entry;
        case_train(w, c, r, step);
        for (uint64_t i = first; i < gpulog_length(); i++)
            if (gpulog_get(i, &entry) && entry.op == GPU_ALL_GATHER &&
                entry.collective.ranks == c->options.reshard_ranks)
                comm[step] = entry.collective.comm;
        check(comm[step] != 0,
              "step %d gathers from all ranks that shard, and never slices" LIKELY
              "strategy_all_gather gathers the slice that keep_slice has kept",
              step);
        check(comm[step] == comm[0],
              "the slices of step %d are gathered on another communicator than those of step 0: "
              "strategy_apply makes one, once",
              step);
        check_no_race(first);
        need(fsdp_adamw_step(&w->adamw));
    }
}

// Before the optimizer steps: a forward whose backward never comes. It leaves slices.
static void discard(Wrapped *w, const Case *c, const Rank *r, int step)
{
    Batch batch = case_batch(c, step, r->rank, 0);
    forward_batch(&c->spec, &w->run, w->model, &batch);
    for (int i = 1; i < w->root->n_units; i++) {
        int64_t n = w->root->units[i]->flat.layout.padded / c->options.reshard_ranks;
        int64_t got = w->root->extensions->strategy->slices[i].numel;
        check(got == n,
              "after its forward %s has a slice of %lld elements, want %lld: in keep_slice it is a "
              "part of the padded parameter",
              w->root->units[i]->flat.name, (long long)got, (long long)n);
    }
    need(fsdp_reshard_all(w->model));
    batch_destroy(&batch);
}

static void unused_slice_body(Wrapped *w, const Case *c, const Rank *r)
{
    Batch batch = case_batch(c, 0, r->rank, 0);
    need(fsdp_set_training(w->model, false));
    forward_batch(&c->spec, &w->run, w->model, &batch);
    need(fsdp_set_training(w->model, true));
    batch_destroy(&batch);
    for (int i = 0; i < w->root->n_units; i++)
        check(w->root->extensions->strategy->slices[i].data == NULL,
              "an evaluation has kept a slice of %s for a backward that it does not have",
              w->root->units[i]->flat.name);
}

static void parts_body(const Rank *r, void *arg)
{
    static const int WRONG[] = {-2, 0, 1, 4, 6, 12};
    const ProcessGroup all = {r->comm, r->rank, r->world};
    ProcessGroup part = {.size = 0};
    need(group_destroy(&part)); // a zeroed one
    for (size_t i = 0; i < sizeof WRONG / sizeof WRONG[0]; i++)
        check(group_split(&part, &all, WRONG[i]) == ERR_ARGUMENT,
              "%d ranks were cut into parts of %d", r->world, WRONG[i]);
    need(group_split(&part, &all, 3));
    need(group_destroy(&part));
    check(part.comm == NULL, "group_destroy has left a communicator in the group");
    need(group_destroy(&part));
}

TEST(a_slice_is_gathered_from_fewer)
{
    run_ranks(6, parts_body, NULL);
    static const int SHAPES[][2] = {{4, 2}, {6, 3}, {8, 4}}; // ranks, slices
    for (size_t i = 0; i < sizeof SHAPES / sizeof SHAPES[0]; i++) {
        Case c = case_of(spec_mlp(4), STRATEGY_ZERO3, SHAPES[i][0], 1, 1);
        c.options.reshard_ranks = SHAPES[i][1];
        run_wrapped(SHAPES[i][0], slice_body, &c);
        run_case(SHAPES[i][0], &c);
        Case costs = case_in_mode(spec_gpt2(3), STRATEGY_ZERO3, SHAPES[i][0], 1, ONE);
        costs.options.reshard_ranks = SHAPES[i][1];
        run_ranks(SHAPES[i][0], costs_body, &costs);
    }
    Case c = case_of(spec_mlp(4), STRATEGY_ZERO3, 4, 1, 1);
    c.options.reshard_ranks = 2;
    c.before_update = discard;
    c.steps = 3;
    run_case(4, &c);
    run_wrapped(4, unused_slice_body, &c);
    RULE(slices_beyond_32_bits);
    RULE(strategy_is_removed, STRATEGY_ZERO3, 4, 1, 2, FSDP_RESHARD_NEVER);
    RULE(failed_strategies_are_told, STRATEGY_ZERO3, 4, 1, 2);
}
