/* Lab 7, pipeline: who has which blocks; schedules; the same gradients as without stages; tied
 * parameters.
 *
 * The oracle is serial and has its own code: each rank trains the model that is not cut, on the
 * micro-batches of its place, and adds the gradients of all places in the order of strategy.h. A
 * tied parameter has two copies in it, one for each stage that holds it.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bubble.h"
#include "draw_model.h"
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
    need(pipeline_mesh_destroy(&mesh));
    check(mesh.group.comm == NULL, "a destroyed mesh still has a communicator");
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
}

TEST(ranks_and_blocks)
{
    for (int world = 1; world <= 8; world++)
        for (int stages = 1; stages <= world && stages <= 4; stages++)
            if (world % stages == 0) run_ranks(world, mesh_body, &stages);
    run_ranks(1, blocks_body, NULL);
}

// ---- Schedules ----

// Two schedules written by hand: n, stages, stage and the actions ("F0 B0").
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
};

RANK_TEST(schedules_are_in_order, 1)
{
    PipelineAction actions[2 * MOST_BATCHES];
    for (int stages = 1; stages <= 4; stages++)
        for (int stage = 0; stage < stages; stage++)
            for (int n = 1; n <= MOST_BATCHES; n++) {
                int left = stages - stage, f = pipeline_in_flight(PIPELINE_1F1B, stage, stages, n);
                check(f == (n < left ? n : left),
                      "1F1B: stage %d of %d has %d of %d micro-batches in flight: in "
                      "pipeline_in_flight stages - stage, or all where there are fewer",
                      stage, stages, f, n);
                check(pipeline_in_flight(PIPELINE_GPIPE, stage, stages, n) == n,
                      "GPipe has all %d micro-batches in flight: in pipeline_in_flight", n);
            }
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

Cut cut_of(Spec spec, int stages, int n, PipelineKind kind)
{
    return (Cut){.spec = spec,
                 .strategy = STRATEGY_ZERO3,
                 .stages = stages,
                 .replicas = 1,
                 .n = n,
                 .steps = 2,
                 .kind = kind};
}

void stage_create(Stage *s, const Cut *c, const Rank *r)
{
    const FsdpOptions fsdp = {.seed = 42};
    const StrategyOptions strategy = {
        .strategy = c->strategy, .first_bucket_bytes = 64, .bucket_bytes = 900};
    memset(s, 0, sizeof *s);
    need(nn_run_create(&s->run, r->stream));
    s->run.T = c->spec.T;
    need(pipeline_mesh(&s->ranks, r->comm, c->stages));
    s->model = spec_create(&c->spec);
    need(pipeline_cut(s->model, &s->ranks, &s->ties));
    need(mesh_2d(&s->mesh, s->ranks.group.comm,
                 c->strategy == STRATEGY_DDP ? s->ranks.group.size : c->replicas));
    need(fsdp_context_create(&s->ctx, &s->mesh, r->stream));
    if (c->strategy == STRATEGY_DDP)
        need(fully_shard(s->model, &s->ctx, &fsdp));
    else
        need(pipeline_fully_shard(s->model, &s->ctx, &fsdp));
    need(strategy_apply(s->model, &strategy));
    need(pipeline_create(&s->pipeline, s->model, &s->ranks, &s->ties, c->kind, c->n));
    s->root = fsdp_unit(s->model)->root;
    need(fsdp_adamw_create(&s->adamw, s->model, &s->ctx, &TEST_ADAMW));
}

void stage_destroy(Stage *s)
{
    need_cuda(cudaDeviceSynchronize());
    fsdp_adamw_destroy(&s->adamw);
    need(pipeline_destroy(s->pipeline));
    need(strategy_remove(s->model));
    fsdp_unwrap(s->model);
    module_destroy(s->model);
    need(fsdp_context_destroy(&s->ctx));
    need(mesh_destroy(&s->mesh, s->ranks.group.comm));
    need(pipeline_mesh_destroy(&s->ranks));
    need(nn_run_destroy(&s->run));
}

// The micro-batch of the ranks at a place.
static int sequences(const Cut *c, int step, int place, int k)
{
    return c->uneven ? 1 + (3 * place + 5 * k + step) % c->spec.B : c->spec.B;
}

static Batch batch_of(const Cut *c, int step, int place, int k)
{
    Spec spec = c->spec;
    spec.B = sequences(c, step, place, k);
    return batch_create(&spec, (uint64_t)(1 + step * 1000 + place * 10 + k));
}

float scale_of(const Cut *c)
{
    return 1.0f / (float)(c->spec.B * c->spec.T * c->n);
}

void stage_batches(Stage *s, const Cut *c, int step)
{
    for (int k = 0; k < c->n; k++) {
        s->memory[k] = batch_of(c, step, s->ranks.place, k);
        s->batches[k] = (MicroBatch){.B = sequences(c, step, s->ranks.place, k)};
        if (s->ranks.stage == 0) s->batches[k].in = s->memory[k].in;
        if (s->ranks.stage == c->stages - 1) s->batches[k].targets = s->memory[k].targets;
    }
}

void free_batches(Stage *s, const Cut *c)
{
    for (int k = 0; k < c->n; k++) batch_destroy(&s->memory[k]);
}

void stage_step(Stage *s, const Cut *c, int step, float *losses)
{
    stage_batches(s, c, step);
    need(fsdp_zero_grad(s->model, &s->ctx));
    need(pipeline_step(s->pipeline, &s->run, s->batches, scale_of(c), losses));
    need_cuda(cudaDeviceSynchronize());
    free_batches(s, c);
}

// The model that is not cut. Where two stages share the head's weight it has a copy of its own,
// with the same values.
static void plain_of(Plain *p, const Cut *c, const Rank *r)
{
    memset(p, 0, sizeof *p);
    p->spec = c->spec;
    p->model = spec_create(&c->spec);
    if (c->tied && c->stages > 1) {
        Module *head = p->model->children[p->model->n_children - 1];
        Param *copy = malloc(sizeof *copy);
        check(copy != NULL && head->n_params == 1, "the model's head is not tied");
        *copy = *head->params[0];
        head->params[0] = copy;
    }
    need(nn_run_create(&p->run, r->stream));
    need(meta_materialize(p->model, 42, r->stream));
    need(plain_adamw_create(&p->adamw, p->model, &TEST_ADAMW, &p->run));
}

// Accumulates the micro-batches of a place; losses (n).
static void plain_step(Plain *p, const Cut *c, int place, int step, float *losses)
{
    need(plain_adamw_zero_grad(p->adamw));
    for (int k = 0; k < c->n; k++) {
        float *logits = NULL, *dlogits = NULL, *din = NULL;
        Batch batch = batch_of(c, step, place, k);
        p->run.B = sequences(c, step, place, k);
        p->run.T = c->spec.T;
        need(module_forward(p->model, &p->run, batch.in, &logits));
        need(cross_entropy_scaled(&p->run, logits, batch.targets, p->run.B * p->run.T,
                                  c->spec.vocab, scale_of(c), &losses[k], &dlogits));
        need(module_backward(p->model, &p->run, dlogits, &din));
        need_cuda(cudaFreeAsync(dlogits, p->run.stream));
        if (din != NULL) need_cuda(cudaFreeAsync(din, p->run.stream));
        batch_destroy(&batch);
    }
}

// In a collective's order: a balanced tree.
static float tree(const float *x, int n)
{
    if (n == 1) return x[0];
    int half = 1;
    while (2 * half < n) half *= 2;
    return tree(x, half) + tree(x + half, n - half);
}

// Element i of the average over the places: over those that shard, then over the replicas.
static float average(const Cut *c, int ranks, size_t i)
{
    int replicas = c->strategy == STRATEGY_DDP ? ranks : c->replicas, shards = ranks / replicas;
    float sums[MOST_RANKS], of[MOST_RANKS];
    if (ranks == 1) return c->grads[0][i];
    for (int p = 0; p < replicas; p++) {
        for (int s = 0; s < shards; s++) of[s] = c->grads[p * shards + s][i];
        sums[p] = tree(of, shards);
    }
    return tree(sums, replicas) / (float)ranks;
}

// The gradients of the model that is not cut, at its parameters: of all places; `first` and
// `second` are those of a tied parameter's two copies, before they were added.
typedef struct Oracle {
    Param *param[MOST_PARAMS];
    size_t begin[MOST_PARAMS + 1];
    int n;
    float *grad, *own; // (begin[n]); own: of a tied parameter each copy's own part
} Oracle;

static int same_name(const Oracle *o, int i)
{
    for (int j = 0; j < o->n; j++)
        if (j != i && strcmp(o->param[j]->name, o->param[i]->name) == 0) return j;
    return -1;
}

static void oracle_of(Oracle *o, Plain *p, const Cut *c, int ranks)
{
    o->n = meta_params(p->model, o->param, MOST_PARAMS);
    o->begin[0] = 0;
    for (int i = 0; i < o->n; i++) o->begin[i + 1] = o->begin[i] + (size_t)meta_numel(o->param[i]);
    size_t n = o->begin[o->n];
    o->grad = malloc((n + 1) * sizeof(float));
    o->own = malloc((n + 1) * sizeof(float));
    check(o->grad != NULL && o->own != NULL, "no memory for the oracle");
    for (size_t i = 0; i < n; i++) o->own[i] = average(c, ranks, i);
    for (int k = 0; k < o->n; k++) {
        int other = same_name(o, k);
        for (size_t i = o->begin[k]; i < o->begin[k + 1]; i++)
            o->grad[i] = o->own[i] + (other < 0 ? 0.0f : o->own[o->begin[other] + i - o->begin[k]]);
        send_to(o->param[k]->grad.data, o->grad + o->begin[k], o->begin[k + 1] - o->begin[k]);
    }
}

// The gradient of this rank's shard of one parameter.
static void check_param(const Oracle *o, const FlatParam *flat, int place, const float *grad,
                        const Cut *c, const Stage *s, int step)
{
    const Param *param = flat->layout.params[place];
    int64_t begin, end, at;
    int i = 0, other;
    while (i < o->n && strcmp(o->param[i]->name, param->name) != 0) i++;
    check(i < o->n, "the stage has a parameter %s that the model has not", param->name);
    flat_param_range_in_shard(&flat->layout, place, flat->layout.rank, &begin, &end, &at);
    other = same_name(o, i);
    for (int64_t k = begin; k < end; k++) {
        float got = grad[at + k - begin], want = o->grad[o->begin[i] + (size_t)k];
        if (memcmp(&got, &want, sizeof got) == 0) continue;
        bool own = other >= 0 && (got == o->own[o->begin[i] + (size_t)k] ||
                                  got == o->own[o->begin[other] + (size_t)k]);
        check(
            false,
            "%s, %d micro-batches, step %d, stage %d of %d: the gradient of %s is %.9g at element "
            "%lld, must be %.9g, %s%s",
            kind_name(c->kind), c->n, step, s->ranks.stage, c->stages, param->name, (double)got,
            (long long)k, (double)want,
            other < 0 ? "as without stages" : "the sum of the two stages'",
            own ? LIKELY "it is one stage's part alone: pipeline_step calls pipeline_sum_ties, "
                         "which adds the other's, after the last reduction"
                : "");
    }
}

static void check_grads(const Oracle *o, const Stage *s, const Cut *c, int step)
{
    for (int u = 0; u < s->root->n_units; u++) {
        const FlatParam *flat = &s->root->units[u]->flat;
        float *grad = fetch(flat->sharded_grad.data, (size_t)flat->layout.shard_numel);
        for (int i = 0; i < flat->layout.n; i++) check_param(o, flat, i, grad, c, s, step);
        int shard = s->ctx.mesh.shard.rank; // what is after the valid elements is padding
        for (int64_t i = flat_valid_numel(&flat->layout, shard); i < flat->layout.shard_numel; i++)
            check(grad[i] == 0.0f, "step %d: the padding of %s's gradient is %g", step, flat->name,
                  (double)grad[i]);
        free(grad);
    }
}

static void check_norm(const Oracle *o, const Stage *s, const Cut *c, int step)
{
    double squares = 0.0, twice = 0.0;
    float norm, before = c->clip > 0.0f ? c->clip : 1.0f;
    for (int k = 0; k < o->n; k++) {
        int other = same_name(o, k);
        double sum = 0.0;
        for (size_t i = o->begin[k]; i < o->begin[k + 1]; i++)
            sum += (double)o->grad[i] * (double)o->grad[i];
        if (other < 0 || other > k) squares += sum;
        twice += sum;
    }
    need(c->clip > 0.0f ? pipeline_clip_grad_norm(s->pipeline, before, &norm)
                        : pipeline_grad_norm(s->pipeline, &norm));
    double want = sqrt(squares);
    check(fabs((double)norm - want) <= 1e-6 * want,
          "step %d, stage %d: the norm of the gradient is %.9g, want %.9g%s", step, s->ranks.stage,
          (double)norm, want,
          twice > squares && fabs((double)norm - sqrt(twice)) <= 1e-6 * want
              ? LIKELY "a parameter that two stages share is counted twice: in counts"
              : LIKELY "sum_all sums over all stages, and a replica once");
}

// The oracle's step: clipped as the stages' gradients, by the norm that they have.
static void oracle_step(Oracle *o, Plain *p, const Stage *s, const Cut *c)
{
    float norm = 0.0f;
    if (c->clip > 0.0f) {
        double squares = 0.0;
        need(pipeline_grad_norm(s->pipeline, &norm)); // of the clipped gradient
        check((double)norm <= (double)c->clip * 1.00001, "after clipping to %g the norm is %.9g",
              (double)c->clip, (double)norm);
        (void)squares;
    }
    need(plain_adamw_step(p->adamw));
    free(o->grad);
    free(o->own);
}

// Parameters of the plain model by name.
static Status compare_param(const Param *param, const float *values, void *arg)
{
    const Plain *p = arg;
    Param *params[MOST_PARAMS];
    int n = meta_params(p->model, params, MOST_PARAMS);
    for (int i = 0; i < n; i++) {
        if (strcmp(params[i]->name, param->name) != 0) continue;
        size_t numel = (size_t)meta_numel(param);
        float *want = fetch(params[i]->data.data, numel);
        check(memcmp(values, want, numel * sizeof *want) == 0,
              "after the steps %s is not what one process makes of the same gradients",
              param->name);
        free(want);
    }
    return OK;
}

static void cut_body(const Rank *r, void *arg)
{
    const Cut *c = arg;
    int ranks = r->world / c->stages;
    Stage s;
    Plain p;
    Oracle o;
    float losses[MOST_BATCHES], want[MOST_BATCHES];
    plain_of(&p, c, r);
    stage_create(&s, c, r);
    uint64_t first = gpulog_length();
    for (int step = 0; step < c->steps; step++) {
        plain_step(&p, c, s.ranks.place, step, want);
        float *grads = plain_grads(&p);
        if (s.ranks.stage == 0)
            memcpy(c->grads[s.ranks.place], grads, (size_t)model_numel(p.model) * sizeof *grads);
        free(grads);
        ranks_meet(r);
        uint64_t begin = gpulog_length();
        stage_step(&s, c, step, losses);
        check_tied_bytes(&s, begin);
        if (s.ranks.stage == c->stages - 1)
            for (int k = 0; k < c->n; k++)
                check(losses[k] == want[k], "the loss of micro-batch %d is %.9g, must be %.9g", k,
                      (double)losses[k], (double)want[k]);
        oracle_of(&o, &p, c, ranks);
        check_grads(&o, &s, c, step);
        check_norm(&o, &s, c, step);
        oracle_step(&o, &p, &s, c);
        need(fsdp_adamw_step(&s.adamw));
        ranks_meet(r); // before the shared gradients are written again
    }
    check_no_race(first);
    need(fsdp_full_state(s.model, compare_param, &p));
    stage_destroy(&s);
    plain_destroy(&p);
}

void run_cut(int world, Cut *c)
{
    static float *grads[MOST_RANKS], *memory;
    if (memory == NULL) memory = shared_alloc(sizeof *memory * MOST_RANKS * MOST_NUMEL);
    for (int i = 0; i < MOST_RANKS; i++) grads[i] = memory + (size_t)i * MOST_NUMEL;
    c->grads = grads;
    run_ranks(world, cut_body, c);
}

TEST(stages_sum_the_same)
{
    for (int i = 0; i < 2; i++) {
        Cut c = cut_of(spec_mlp(5), 2, 4, KINDS[i]);
        run_cut(4, &c);
        c = cut_of(spec_mlp(5), 3, 5, KINDS[i]);
        c.uneven = true;
        run_cut(3, &c);
        c = cut_of(spec_mlp(3), 1, 3, KINDS[i]);
        run_cut(2, &c);
    }
    Cut llama = cut_of(spec_llama(2, false), 2, 2, PIPELINE_1F1B);
    run_cut(2, &llama);
    Cut drawn = cut_of(draw_mlp(4), 0, (int)draw(1, MOST_BATCHES), draw_of(KINDS));
    drawn.stages = (int)draw(1, drawn.spec.layers - 1 < 4 ? drawn.spec.layers - 1 : 4);
    run_cut(drawn.stages * (int)draw(1, MOST_RANKS / drawn.stages), &drawn);
}

// All strategies within a stage, with replicas too.
TEST(strategies_within_a_stage)
{
    static const Strategy ALL[] = {STRATEGY_DDP, STRATEGY_ZERO1, STRATEGY_ZERO2, STRATEGY_ZERO3};
    for (int i = 0; i < 4; i++) {
        Cut c = cut_of(spec_mlp(4), 2, 3, KINDS[i % 2]);
        c.strategy = ALL[i];
        run_cut(6, &c);
        c.replicas = 2;
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
        Cut c = cut_of(i % 2 == 0 ? spec_gpt2(4) : spec_llama(4, true), stages, SHAPES[i][2],
                       KINDS[i % 2]);
        c.tied = true;
        c.replicas = SHAPES[i][0] == 8 ? 2 : 1;
        if (i == 1) c.strategy = STRATEGY_ZERO1;
        run_cut(SHAPES[i][0], &c);
    }
}

SUITE_MAIN("pipeline")
