/* Lab 7, pipeline: who has which blocks; schedules; the same gradients as without stages; tied
 * parameters.
 *
 * The oracle is that of strategies.h: each rank trains the model that is not cut, on the
 * micro-batches of its place, and adds the gradients of all places in the order of strategy.h. A
 * tied parameter has two copies in it, one for each stage that holds it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend.h"
#include "bubble.h"
#include "draw_model.h"
#include "strategies_oracle.h"
#include "tests.h"

const char *kind_name(PipelineKind kind)
{
    return kind == PIPELINE_1F1B ? "1F1B" : "GPipe";
}

// ---- Ranks and blocks ----

static void mesh_body(const Rank *r, void *arg)
{
    int stages = *(const int *)arg, ranks = r->world / stages, rank = -1, size = -1;
    PipelineMesh mesh;
    check(pipeline_mesh(&mesh, r->comm, r->world + 1) == ERR_ARGUMENT,
          "%d ranks were made %d stages", r->world, r->world + 1);
    need(pipeline_mesh(&mesh, r->comm, stages));
    check(
        mesh.stage == r->rank / ranks && mesh.place == r->rank % ranks,
        "of %d ranks in %d stages rank %d is number %d of stage %d, want number %d of stage %d: in "
        "pipeline_mesh neighbours are one stage",
        r->world, stages, r->rank, mesh.place, mesh.stage, r->rank % ranks, r->rank / ranks);
    check(mesh.world == r->comm && mesh.stages == stages, "the mesh has another world");
    check(mesh.group.rank == mesh.place && mesh.group.size == ranks,
          "the stage's group says rank %d of %d, want %d of %d", mesh.group.rank, mesh.group.size,
          mesh.place, ranks);
    check(
        mesh.group.comm != NULL && (mesh.group.comm == r->comm) == (stages == 1),
        "the stage's group has %s communicator: in pipeline_mesh it is the world's where there is "
        "one stage, else one of its own",
        mesh.group.comm == NULL      ? "no"
        : mesh.group.comm == r->comm ? "the world's"
                                     : "an own");
    need_nccl(ncclCommUserRank(mesh.group.comm, &rank));
    need_nccl(ncclCommCount(mesh.group.comm, &size));
    check(rank == mesh.place && size == ranks,
          "the stage's communicator says rank %d of %d, want %d of %d", rank, size, mesh.place,
          ranks);
    __attribute__((unused)) const ncclComm_t own = mesh.group.comm; // on simgpu alone
    need(pipeline_mesh_destroy(&mesh));
    check(mesh.group.comm == NULL, "a destroyed mesh still has a communicator");
#ifndef BACKEND_CUDA
    backend_ignore_reports();
    bool gone = ncclCommCount(own, &size) != ncclSuccess;
    backend_listen();
    check(gone == (stages > 1),
          "pipeline_mesh_destroy has %s the communicator of %d stages: it destroys its own, and "
          "not the world's",
          gone ? "destroyed" : "not destroyed", stages);
#endif
}

static void blocks_body(const Rank *r, void *arg)
{
    int first, last;
    check(pipeline_blocks(2, 3, 0, &first, &last) == ERR_ARGUMENT, "2 blocks were made 3 stages");
    check(pipeline_blocks(3, 3, 3, &first, &last) == ERR_ARGUMENT, "stage 3 of 3 has blocks");
    for (int blocks = 1; blocks <= 13; blocks++) {
        for (int stages = 1; stages <= blocks && stages <= 5; stages++) {
            int next = 0, least = blocks / stages;
            for (int stage = 0; stage < stages; stage++) {
                need(pipeline_blocks(blocks, stages, stage, &first, &last));
                check(first == next,
                      "stage %d of %d begins at block %d of %d, want %d: in order, "
                      "each block once, in pipeline_blocks",
                      stage, stages, first, blocks, next);
                check(
                    last - first == least || last - first == least + (blocks % stages > 0),
                    "stage %d of %d has %d of %d blocks: in pipeline_blocks no stage has more than "
                    "one block more than another",
                    stage, stages, last - first, blocks);
                next = last;
            }
            check(next == blocks, "the last of %d stages ends at block %d of %d", stages, next,
                  blocks);
        }
    }
    static const int LARGE[][5] = {{1 << 20, 1 << 12, 4000, 4000 << 8, 4001 << 8},
                                   {100003, 50000, 49999, 100000, 100003}};
    for (int i = 0; i < 2; i++) {
        need(pipeline_blocks(LARGE[i][0], LARGE[i][1], LARGE[i][2], &first, &last));
        check(first >= LARGE[i][3] && last - first >= LARGE[i][4] - LARGE[i][3] - 1 &&
                  last <= LARGE[i][4] + 1,
              "pipeline_blocks gives stage %d of %d blocks [%d, %d) of %d", LARGE[i][2],
              LARGE[i][1], first, last, LARGE[i][0]);
    }
}

TEST(ranks_of_a_stage)
{
    for (int world = 1; world <= 8; world++)
        for (int stages = 1; stages <= world && stages <= 4; stages++)
            if (world % stages == 0) run_ranks(world, mesh_body, &stages);
}

TEST(blocks_of_a_stage)
{
    run_ranks(1, blocks_body, NULL);
}

// ---- Schedules ----

// Schedules written by hand, with those of the handout and of pipeline.c: stage, stages, n and the
// actions ("F0 B0").
static const struct {
    PipelineKind kind;
    int stage, stages, n;
    const char *actions;
} BY_HAND[] = {
    {PIPELINE_GPIPE, 0, 2, 3, "F0 F1 F2 B0 B1 B2 "},
    {PIPELINE_GPIPE, 1, 2, 3, "F0 F1 F2 B0 B1 B2 "},
    {PIPELINE_1F1B, 0, 3, 5, "F0 F1 F2 B0 F3 B1 F4 B2 B3 B4 "},
    {PIPELINE_1F1B, 1, 3, 5, "F0 F1 B0 F2 B1 F3 B2 F4 B3 B4 "},
    {PIPELINE_1F1B, 2, 3, 5, "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 "},
    {PIPELINE_1F1B, 0, 4, 2, "F0 F1 B0 B1 "},
    {PIPELINE_GPIPE, 2, 3, 4, "F0 F1 F2 F3 B0 B1 B2 B3 "},
    {PIPELINE_1F1B, 0, 3, 4, "F0 F1 F2 B0 F3 B1 B2 B3 "},
    {PIPELINE_1F1B, 1, 3, 4, "F0 F1 B0 F2 B1 F3 B2 B3 "},
    {PIPELINE_1F1B, 2, 3, 4, "F0 B0 F1 B1 F2 B2 F3 B3 "},
    {PIPELINE_1F1B, 0, 4, 4, "F0 F1 F2 F3 B0 B1 B2 B3 "},
    {PIPELINE_1F1B, 1, 4, 4, "F0 F1 F2 B0 F3 B1 B2 B3 "},
};

static void check_in_flight(void)
{
    for (int stages = 1; stages <= 4; stages++)
        for (int stage = 0; stage < stages; stage++)
            for (int n = 1; n <= CASE_ROUNDS; n++) {
                int left = stages - stage, f = pipeline_in_flight(PIPELINE_1F1B, stage, stages, n);
                check(f == (n < left ? n : left),
                      "1F1B: stage %d of %d has %d of %d micro-batches in flight: in "
                      "pipeline_in_flight stages - stage, or all where there are fewer",
                      stage, stages, f, n);
                check(pipeline_in_flight(PIPELINE_GPIPE, stage, stages, n) == n,
                      "GPipe has all %d micro-batches in flight: in pipeline_in_flight", n);
            }
}

RANK_TEST(micro_batches_in_flight, 1)
{
    check_in_flight();
}

RANK_TEST(schedules_are_in_order, 1)
{
    PipelineAction actions[2 * CASE_ROUNDS];
    check_in_flight(); // which the schedule asks
    for (size_t i = 0; i < sizeof BY_HAND / sizeof BY_HAND[0]; i++) {
        char text[128] = "";
        int n = BY_HAND[i].n;
        pipeline_schedule(BY_HAND[i].kind, BY_HAND[i].stage, BY_HAND[i].stages, n, actions);
        for (int k = 0; k < 2 * n; k++)
            snprintf(text + strlen(text), sizeof text - strlen(text), "%c%d ",
                     actions[k].backward ? 'B' : 'F', actions[k].micro_batch);
        check(
            strcmp(text, BY_HAND[i].actions) == 0,
            "%s, stage %d of %d, %d micro-batches: the schedule is %s, want %s: pipeline_schedule "
            "takes the backward only where no forward is left or may be in flight",
            kind_name(BY_HAND[i].kind), BY_HAND[i].stage, BY_HAND[i].stages, n, text,
            BY_HAND[i].actions);
    }
}

// ---- A model in stages, and the one that is not cut ----

Case cut_of(Spec spec, int stages, int n, PipelineKind kind)
{
    Case c = case_of(spec, STRATEGY_ZERO3, 1, 1, n);
    c.stages = stages;
    c.kind = kind;
    c.without_norm = true; // norm_counts_once asks for it
    return c;
}

void run_cut(int world, Case *c)
{
    c->before_update = check_tied_bytes;
    run_case(world, c);
}

// One stage, whose forwards and backwards are called as its schedule says, without an exchange: the
// gradients are those of the same micro-batches without a pipeline.
static void alone_body(Wrapped *w, const Case *c, const Rank *r)
{
    Pipeline *p = w->pipeline;
    StageBatches batches;
    float *want[8];
    check(w->root->n_units <= 8, "too many units for this test");
    stage_batches_create(&batches, w, c, 0);
    need(fsdp_zero_grad(w->model, &w->ctx));
    for (int k = 0; k < c->rounds; k++) {
        need(strategy_micro_batch(w->model, k, c->rounds));
        case_pass(c, &w->run, w->model, 0, w->ranks.place, k, 0.25f);
    }
    need_cuda(cudaDeviceSynchronize());
    for (int u = 0; u < w->root->n_units; u++) {
        const FlatParam *flat = &w->root->units[u]->flat;
        want[u] = fetch(flat->sharded_grad.data, (size_t)flat->layout.shard_numel);
    }
    size_t live = gpulog_live_bytes(r->device);
    need(fsdp_zero_grad(w->model, &w->ctx));
    p->run = &w->run;
    p->batches = batches.batch;
    p->scale = 0.25f;
    for (int i = 0; i < p->n_actions; i++)
        need(p->actions[i].backward ? pipeline_backward(p, p->actions[i].micro_batch)
                                    : pipeline_forward(p, p->actions[i].micro_batch));
    need_cuda(cudaDeviceSynchronize());
    for (int u = 0; u < w->root->n_units; u++)
        check(w->root->units[u]->flat.unsharded_grad.data == NULL,
              "after the last micro-batch the gradient of %s is not reduced: pipeline_backward "
              "sets the flags (pipeline_micro_batch) before the module's backward",
              w->root->units[u]->flat.name);
    check(gpulog_live_bytes(r->device) == live,
          "%d forwards and backwards of one stage leave %zd bytes: pipeline_backward frees the "
          "loss's gradient, and that of the model's input",
          c->rounds, (ssize_t)(gpulog_live_bytes(r->device) - live));
    for (int u = 0; u < w->root->n_units; u++) {
        const FlatParam *flat = &w->root->units[u]->flat;
        size_t n = (size_t)flat->layout.shard_numel;
        float *got = fetch(flat->sharded_grad.data, n);
        check_equal("a gradient of one stage, by pipeline_forward and pipeline_backward", got,
                    want[u], n);
        free(got);
        free(want[u]);
    }
    stage_batches_destroy(&batches);
}

TEST(one_stage_alone)
{
    for (int i = 0; i < 2; i++) {
        Case c = cut_of(spec_mlp(3), 1, 3, KINDS[i]);
        run_wrapped(1 + i, alone_body, &c);
    }
}

// The functions of a step one by one, so that a message names the one that is wrong.
static void check_action(Wrapped *w, const Case *c, const PipelineAction *before,
                         const PipelineAction *action)
{
    Pipeline *p = w->pipeline;
    const PipelineSlot *slot = pipeline_slot(p, action->micro_batch);
    const StrategyState *flags = w->root->extensions->strategy;
    uint64_t first = gpulog_length();
    GpuLogEntry e;
    bool recorded = true;
    need(pipeline_exchange(p, before, action));
    for (uint64_t i = first; i < gpulog_length(); i++) {
        if (!gpulog_get(i, &e)) continue;
        if (e.op == GPU_RECV) recorded = false;
        recorded |= e.op == GPU_EVENT_RECORD && e.event == slot->received;
    }
    check(recorded, "after a message was received slot->received is not recorded: "
                    "pipeline_exchange records it on p->stream, compute waits for it");
    check(before == NULL || !before->backward ||
              pipeline_slot(p, before->micro_batch)->in_grad.data == NULL,
          "a backward has been done and its gradient was sent, and slot->in_grad is still there: "
          "pipeline_exchange frees it after the message");
    check_set_silent(true);
    Status status = action->backward ? pipeline_backward(p, action->micro_batch)
                                     : pipeline_forward(p, action->micro_batch);
    check_set_silent(false);
    check(status == OK,
          "%s of micro-batch %d failed (%s): a forward moves what it has left to its slot, a "
          "backward takes it from there, each by pipeline_swap",
          action->backward ? "pipeline_backward" : "pipeline_forward", action->micro_batch,
          check_last());
    bool last = action->micro_batch == c->rounds - 1;
    check(!action->backward || flags->is_last_backward == last,
          "the backward of micro-batch %d of %d has the flags of %s one: pipeline_backward calls "
          "pipeline_micro_batch before it",
          action->micro_batch, c->rounds, last ? "an earlier" : "the last");
}

static void actions_body(Wrapped *w, const Case *c, const Rank *r)
{
    Pipeline *p = w->pipeline;
    StageBatches batches;
    stage_batches_create(&batches, w, c, 0);
    need(fsdp_zero_grad(w->model, &w->ctx));
    p->run = &w->run;
    p->batches = batches.batch;
    p->scale = 1.0f;
    w->run.T = c->spec.T;
    for (int i = 0; i < p->n_actions; i++)
        check_action(w, c, i > 0 ? &p->actions[i - 1] : NULL, &p->actions[i]);
    need(pipeline_exchange(p, &p->actions[p->n_actions - 1], NULL));
    uint64_t first = gpulog_length();
    check_set_silent(true);
    Status status = pipeline_step(p, &w->run, batches.batch, 1.0f, NULL);
    check_set_silent(false);
    check(status == OK,
          "exchanges, forwards and backwards work one by one, and in a step they fail (%s): "
          "pipeline_step has an exchange before the first action, between two, and after the last",
          check_last());
    int sent = (int)gpulog_count(GPU_SEND, first);
    check(sent == c->rounds,
          "stage %d sent %d messages in a step of %d micro-batches, want %d: pipeline_step has an "
          "exchange before the first action, between two, and after the last",
          w->ranks.stage, sent, c->rounds, c->rounds);
    need_cuda(cudaDeviceSynchronize());
    stage_batches_destroy(&batches);
}

TEST(stages_sum_the_same)
{
    Case actions = cut_of(spec_mlp(5), 2, 2, PIPELINE_GPIPE);
    run_wrapped(2, actions_body, &actions);
    for (int i = 0; i < 2; i++) {
        Case c = cut_of(spec_mlp(5), 2, 4, KINDS[i]);
        run_cut(4, &c);
        c = cut_of(spec_mlp(5), 3, 5, KINDS[i]);
        c.uneven = true;
        run_cut(3, &c);
        c = cut_of(spec_mlp(3), 1, 3, KINDS[i]);
        run_cut(2, &c);
    }
    static const MixedPrecisionPolicy bf16 = {DTYPE_BF16, DTYPE_F32, DTYPE_F32, true};
    Case narrow = cut_of(spec_mlp(4), 2, 3, PIPELINE_1F1B);
    narrow.policy = &bf16;
    run_cut(4, &narrow);
    Case llama = cut_of(spec_llama(2, false), 2, 2, PIPELINE_1F1B);
    run_cut(2, &llama);
    Case drawn = cut_of(draw_mlp(4), 0, draw(1, CASE_ROUNDS), draw_of(KINDS));
    drawn.stages = draw(1, drawn.spec.layers - 1 < 4 ? drawn.spec.layers - 1 : 4);
    run_cut(drawn.stages * draw(1, CASE_RANKS / drawn.stages), &drawn);
}

// All strategies within a stage, with replicas too.
TEST(strategies_within_a_stage)
{
    static const Strategy ALL[] = {STRATEGY_DDP, STRATEGY_ZERO1, STRATEGY_ZERO2, STRATEGY_ZERO3};
    for (int i = 0; i < 4; i++) {
        Case c = cut_of(spec_mlp(4), 2, 3, KINDS[i % 2]);
        c.options.strategy = ALL[i];
        c.replicas = i == 0 ? 3 : 1; // DDP has one on each rank
        run_cut(6, &c);
        c.replicas = i == 0 ? 4 : 2;
        c.kind = KINDS[(i + 1) % 2];
        run_cut(8, &c);
    }
}

TEST(tied_stages_stay_equal)
{
    static const int SHAPES[][3] = {{2, 2, 2}, {6, 2, 3}, {8, 2, 4},
                                    {3, 3, 1}, {4, 4, 5}, {6, 3, 2}};
    for (size_t i = 0; i < sizeof SHAPES / sizeof SHAPES[0]; i++) {
        int stages = SHAPES[i][1];
        Case c = cut_of(i % 2 == 0 ? spec_gpt2(4) : spec_llama(4, true), stages, SHAPES[i][2],
                        KINDS[i % 2]);
        c.replicas = SHAPES[i][0] == 8 ? 2 : 1;
        if (i == 1) c.options.strategy = STRATEGY_ZERO1;
        run_cut(SHAPES[i][0], &c);
    }
}

TEST(failures_are_told)
{
    RULE(without_a_world);
    RULE(a_failed_step_is_told);
}

SUITE_MAIN("pipeline")
