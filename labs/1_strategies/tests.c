/* Lab 1, strategies: the mesh; what each strategy keeps, sends and sums.
 *
 * Every case trains a small model with a strategy, and each rank compares the result with an oracle
 * of its own (tests/support/strategies.h).
 */
#include "tests.h"

#include <stdlib.h>

#include "draw_model.h"
#include "fsdp.h"

// ---- The mesh ----

static void mesh_body(const Rank *r, void *arg)
{
    int replicas = *(const int *)arg, shards = r->world / replicas;
    Mesh mesh;
    int wrong = r->world > 2 ? r->world - 1 : r->world + 1; // does not divide them
    check(mesh_2d(&mesh, r->comm, wrong) == ERR_ARGUMENT, "%d ranks were made %d replicas",
          r->world, wrong);
    need(mesh_2d(&mesh, r->comm, replicas));
    check(mesh.shard.size == shards && mesh.replicate.size == replicas,
          "the mesh of %d ranks and %d replicas is %d shards × %d replicas", r->world, replicas,
          mesh.shard.size, mesh.replicate.size);
    check(mesh.shard.rank == r->rank % shards && mesh.replicate.rank == r->rank / shards,
          "of %d shards and %d replicas, rank %d has place %d among those that shard and %d among "
          "the replicas, want %d and %d: in mesh_2d neighbours shard together",
          shards, replicas, r->rank, mesh.shard.rank, mesh.replicate.rank, r->rank % shards,
          r->rank / shards);
    const ProcessGroup groups[] = {mesh.shard, mesh.replicate};
    for (int i = 0; i < 2; i++) {
        const char *name = i == 0 ? "ranks that shard" : "replicas";
        int rank = 0, size = 1;
        bool own = groups[i].comm != NULL && groups[i].comm != r->comm;
        check(own == (shards > 1 && replicas > 1),
              "the %s have %s: in mesh_2d a communicator is made only for a group that is neither "
              "one rank nor all",
              name, own ? "a communicator of their own" : "none of their own");
        if (groups[i].size == 1) continue;
        check(groups[i].comm != NULL, "the %d %s have no communicator", groups[i].size, name);
        need_nccl(ncclCommUserRank(groups[i].comm, &rank));
        need_nccl(ncclCommCount(groups[i].comm, &size));
        check(rank == groups[i].rank && size == groups[i].size,
              "the communicator of the %s says rank %d of %d, the mesh %d of %d", name, rank, size,
              groups[i].rank, groups[i].size);
    }
    need(mesh_destroy(&mesh, r->comm));
}

TEST(mesh_of_shards_and_replicas)
{
    for (int world = 1; world <= 8; world++)
        for (int replicas = 1; replicas <= world; replicas++)
            if (world % replicas == 0) run_ranks(world, mesh_body, &replicas);
}

// ---- Evaluation ----

static int unsharded_units(const Wrapped *w)
{
    int n = 0;
    for (int i = 0; i < w->root->n_units; i++) n += w->root->units[i]->flat.state != FLAT_SHARDED;
    return n;
}

static void evaluation_body(Wrapped *w, const Case *c, const Rank *r)
{
    Batch batch = case_batch(c, 0, r->rank, 0);
    for (int round = 0; round < 2; round++) {
        need(fsdp_set_training(w->model, false));
        forward_batch(&c->spec, &w->run, w->model, &batch);
        forward_batch(&c->spec, &w->run, w->model, &batch);
        check(unsharded_units(w) == 0,
              "after an evaluation's forward %d units are unsharded: set_reshard_after_forward",
              unsharded_units(w));
        check(w->root->n_post_forward == 0,
              "after an evaluation's forward the post-forward order has %d units: no backward will "
              "take them out",
              w->root->n_post_forward);
        need(fsdp_set_training(w->model, true));
        case_train(w, c, r, round);
        check(unsharded_units(w) == 0, "after the last backward %d units are unsharded",
              unsharded_units(w));
        need(fsdp_adamw_step(&w->adamw));
    }
    batch_destroy(&batch);
}

// ---- All of them ----

// Of lab 2: sums of another type than float.
static const MixedPrecisionPolicy NARROW = {DTYPE_BF16, DTYPE_BF16, DTYPE_F32, true};

// And sums of which reduce_input has divided each part by 2: gradients of 8 before that, all alike.
static void divided_body(Wrapped *w, const Case *c, const Rank *r)
{
    StrategyState *state = w->root->extensions->strategy;
    FlatParam *flat = &w->root->units[0]->flat;
    state->divided_before = 2.0f;
    need(fsdp_begin_grad(w->root->units[0]));
    need_cuda(cudaDeviceSynchronize());
    const float half = 4.0f;
    for (int64_t i = 0; i < flat->unsharded_grad.numel; i++)
        send_to((float *)flat->unsharded_grad.data + i, &half, 1);
    ddp_begin_backward(state);
    for (int i = state->ddp.n_hooks - 1; i >= 0; i--)
        need(ddp_post_backward(state->ddp.hooked[i], state));
    need(fsdp_reduce_grad(w->root->units[0]));
    need_cuda(cudaDeviceSynchronize());
    float *got = fetch(flat->sharded_grad.data, 1);
    check(*got != 4.0f,
          "each rank has a gradient of 8, divided_before is 2, and %s adds 4, want 8: it divides "
          "the sum by what is left of the factor (strategy_divisor)",
          state->ddp.n_hooks > 0 ? "send_bucket"
          : c->replicas > 1      ? "reduce_between"
                                 : "strategy_reduce");
    state->divided_before = 1.0f;
    free(got);
    need(fsdp_reshard_all(w->model));
}

static void defaults_body(Wrapped *w, const Case *c, const Rank *r)
{
    const StrategyOptions *o = &w->root->extensions->strategy->options;
    check(o->divide_factor == (float)r->world && o->first_bucket_bytes == 1 << 20 &&
              o->bucket_bytes == 25 << 20,
          "by default the factor is %g and buckets have %lld and %lld bytes, want %d, 1 MiB and "
          "25 MiB",
          (double)o->divide_factor, (long long)o->first_bucket_bytes, (long long)o->bucket_bytes,
          r->world);
}

TEST(zero_sums_the_same)
{
    for (size_t i = 1; i < sizeof ALL / sizeof ALL[0]; i++) {
        Case c = case_of(spec_mlp(3), ALL[i], 4, 1, 1);
        c.options.divide_factor = i == 3 ? 3.0f : 0.0f;
        run_case(4, &c);
        c = case_of(spec_mlp(3), ALL[i], 1, 1, 2);
        run_case(1, &c);
    }
    Case divided = case_of(spec_mlp(3), STRATEGY_ZERO2, 2, 1, 1);
    run_wrapped(2, divided_body, &divided);
}

TEST(strategies_sum_the_same)
{
    Case plain = {.spec = spec_mlp(3), .options = {.strategy = STRATEGY_ZERO2}, .replicas = 1};
    run_wrapped(2, defaults_body, &plain);
    Case gpt2 = case_of(spec_gpt2(1), STRATEGY_DDP, 2, 1, 1);
    run_case(2, &gpt2);
    Case tied = case_of(spec_mlp(4), STRATEGY_DDP, 2, 1, 1);
    tied.tied = true;
    tied.options.first_bucket_bytes = tied.options.bucket_bytes = 1; // each parameter by itself
    run_case(2, &tied);
    Case ddp = case_of(spec_mlp(3), STRATEGY_DDP, 3, 1, 3);
    run_case(3, &ddp);
    run_wrapped(3, evaluation_body, &ddp);
    ddp.options.reduce_every_time = true;
    ddp.policy = &NARROW;
    run_case(3, &ddp);
    Case divided = case_of(spec_mlp(3), STRATEGY_DDP, 2, 1, 1);
    run_wrapped(2, divided_body, &divided);
    RULE(strategy_is_removed, STRATEGY_DDP, 2, 2, 0, FSDP_RESHARD_AUTO);
    RULE(strategy_is_removed, STRATEGY_ZERO1, 2, 1, 0, FSDP_RESHARD_NEVER);
    RULE(strategy_is_removed, STRATEGY_ZERO1, 1, 1, 0, FSDP_RESHARD_ALWAYS);
    RULE(strategy_refusals);
    RULE(failed_strategies_are_told, STRATEGY_ZERO3, 2, 1, 0);
    RULE(failed_strategies_are_told, STRATEGY_DDP, 2, 2, 0);
    RULE(costs_of_replicas, STRATEGY_DDP);
    Spec spec = draw_mlp(4);
    Strategy strategy = draw_of(ALL);
    int world = drawn_world(&spec, 2, 8);
    Case c = case_of(spec, strategy, world, 1, 1);
    c.align = draw_chance(50);
    c.options.divide_factor = (float)draw(1, 9);
    run_case(world, &c);
}

TEST(micro_batches_accumulate)
{
    for (size_t i = 1; i < sizeof ALL / sizeof ALL[0]; i++) {
        Case c = case_of(spec_mlp(3), ALL[i], 3, 1, 3);
        run_case(3, &c);
        if (ALL[i] == STRATEGY_ZERO1) continue;
        c.options.reduce_every_time = true;
        run_case(3, &c);
    }
    RULE(backward_gathers_ahead);
}

TEST(replicas_are_summed_last)
{
    static const int SHAPES[][2] = {{4, 2}, {6, 2}, {6, 3}, {8, 2}};
    for (size_t i = 0; i < sizeof SHAPES / sizeof SHAPES[0]; i++) {
        Case c = case_of(spec_mlp(3), ALL[1 + i % 3], SHAPES[i][0], SHAPES[i][1], 2);
        run_case(SHAPES[i][0], &c);
    }
    Case divided = case_of(spec_mlp(3), STRATEGY_ZERO2, 4, 2, 1);
    run_wrapped(4, divided_body, &divided);
    RULE(costs_of_replicas, STRATEGY_ZERO1);
    Case c = case_of(spec_mlp(3), STRATEGY_ZERO3, 4, 2, 3);
    c.options.reduce_every_time = true;
    run_case(4, &c);
    c.options.reduce_every_time = false;
    c.partial = true;
    run_case(4, &c);
    c.policy = &NARROW;
    run_case(4, &c);
    RULE(strategies_beyond_32_bits);
    RULE(strategy_is_removed, STRATEGY_ZERO2, 4, 2, 0, FSDP_RESHARD_ALWAYS);
    RULE(failed_strategies_are_told, STRATEGY_ZERO2, 4, 2, 0);
}

TEST(an_evaluation_leaves_nothing)
{
    for (size_t i = 1; i < sizeof ALL / sizeof ALL[0]; i++) {
        Case c = case_of(spec_mlp(3), ALL[i], 2, 1, 1);
        run_wrapped(2, evaluation_body, &c);
    }
}

SUITE_MAIN("strategies")
