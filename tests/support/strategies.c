/* strategies.c: small models trained under a strategy, and their oracle. See strategies.h.
 */
#include "strategies.h"
#include "checkpoint.h"
#include "files.h"
#include "fp8_numbers.h"
#include "narrow.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- A model under a strategy ----

static bool is_block(const Spec *spec, const Module *model, int i)
{
    if (spec->gpt2) return strncmp(model->children[i]->name, "h.", 2) == 0;
    return i < model->n_children - 1;
}

static Module *model_of(const Case *c)
{
    Module *model = c->random != NULL ? random_model_create(c->random) : spec_create(&c->spec);
    Param *params[256];
    int n = c->frozen != NULL ? meta_params(model, params, 256) : 0;
    for (int i = 0; i < n; i++) params[i]->frozen = c->frozen(i);
    if (c->frozen_base) random_model_freeze_base(c->random, model);
    if (!c->tied) return model;
    Module *first = model->children[1]->children[0], *second = model->children[2]->children[0];
    free(second->params[1]);
    second->params[1] = first->params[1];
    return model;
}

// The model's head and its embedding, where they share a parameter and are on two stages; else NULL.
static Module *tied_head(const Case *c, const Module *model)
{
    if (c->stages < 2 || !c->spec.gpt2) return NULL;
    const Param *wte = model->children[0]->params[0];
    for (int i = 1; i < model->n_children; i++)
        for (int k = 0; k < model->children[i]->n_params; k++)
            if (model->children[i]->params[k] == wte) return model->children[i];
    return NULL;
}

// The model as the oracle has it: of a parameter that two stages share each has a copy, with the
// same values, and the gradients of its own part.
static Module *oracle_model(const Case *c)
{
    Module *model = model_of(c), *head = tied_head(c, model);
    if (head == NULL) return model;
    Param *copy = malloc(sizeof *copy);
    check(copy != NULL, "no memory for the oracle");
    *copy = *head->params[0];
    head->params[0] = copy;
    return model;
}

Case case_of(Spec spec, Strategy strategy, int world, int replicas, int rounds)
{
    return (Case){.spec = spec,
                  .options = {.strategy = strategy, .first_bucket_bytes = 64, .bucket_bytes = 900},
                  .replicas = strategy == STRATEGY_DDP ? world : replicas,
                  .rounds = rounds,
                  .steps = 2};
}

// Whether a parameter of the model is frozen.
static bool any_frozen(const Case *c)
{
    if (c->random == NULL) return c->frozen != NULL;
    Param *params[256];
    bool any = false;
    Module *model = model_of(c);
    int n = meta_params(model, params, 256);
    for (int i = 0; i < n && i < 256; i++) any |= params[i]->frozen;
    module_destroy(model);
    return any;
}

static int blocks_of(const Case *c)
{
    return c->random != NULL ? c->random->blocks : c->spec.layers - !c->spec.gpt2;
}

// What recompute_apply says of the model; "": it takes it.
static const char *recompute_refusal(const Case *c)
{
    if (c->recompute == RECOMPUTE_BLOCKS && blocks_of(c) == 0)
        return "has no blocks, children with";
    if (c->recompute == RECOMPUTE_ATTENTION && (!c->spec.gpt2 || c->spec.kv_heads > 0))
        return "has no attention that keeps its weights";
    return "";
}

const char *case_refusal(const Case *c, int world)
{
    const StrategyOptions *o = &c->options;
    if (c->stages > 0 && world % c->stages != 0) return "the stages must divide them";
    if (c->stages > 0) world /= c->stages;
    if (world % c->replicas != 0) return "the replicas must divide them";
    int shards = world / c->replicas, slice = o->reshard_ranks;
    bool ddp = o->strategy == STRATEGY_DDP, frozen = any_frozen(c);
    if (c->stages > 0 && c->stages > blocks_of(c)) return "each has one at least";
    if (c->align && c->layout != NULL) return "align_shards is for flat parameters";
    if (frozen && c->layout == NULL) return "a flat parameter trains as one";
    if (slice != 0 && o->strategy != STRATEGY_ZERO3)
        return "only ZeRO-3 reshards between forward and backward";
    if (slice != 0 && (slice < 2 || slice >= shards || shards % slice != 0))
        return "it must divide the";
    if (world == 1 && o->divide_factor != 0.0f && o->divide_factor != 1.0f)
        return "one rank reduces nothing";
    if (ddp && shards != 1) return "DDP shards nothing";
    if (!ddp && world > 1 && shards == 1) return "leaves nobody to shard with";
    if (o->reduce_every_time && o->strategy == STRATEGY_ZERO1) return "cannot reduce every time";
    if (slice != 0 && c->layout != NULL) return "a slice (reshard_ranks) is a part of the gathered";
    if (ddp && frozen) return "DDP sums every parameter's gradient";
    if (c->partial && ddp) return "DDP's reduction is the all-reduce";
    if (c->partial && c->replicas == 1) return "there is one replica, and nothing to all-reduce";
    if (c->offload && ddp) return "DDP keeps everything on the device";
    if (c->offload && slice != 0) return "reshard_ranks keeps slices on the device";
    if (c->fp8 != NULL && ddp) return "DDP gathers nothing, so nothing in FP8";
    if (c->fp8 != NULL && c->offload) return "FP8 finds its scales in shards on the device";
    if (c->fp8 != NULL && c->layout == NULL) return "FP8 has a scale for each parameter";
    if (recompute_refusal(c)[0] != '\0') return recompute_refusal(c);
    if (c->stages > 0 && slice != 0) return "several micro-batches in flight";
    if (c->stages > 0 && c->partial) return "a pipeline all-reduces at each reduction";
    return "";
}

// The model and what is below it become units; DDP's model alone.
static Status shard_model(Wrapped *w, const Case *c, const FsdpOptions *fsdp)
{
    bool units = c->options.strategy != STRATEGY_DDP;
    if (units && c->random == NULL && c->stages > 0)
        return pipeline_fully_shard(w->model, &w->ctx, fsdp);
    if (units && c->random != NULL) TRY(random_model_shard(c->random, w->model, &w->ctx, fsdp));
    for (int i = 0; i < w->model->n_children; i++)
        if (units && c->random == NULL && is_block(&c->spec, w->model, i))
            TRY(fully_shard(w->model->children[i], &w->ctx, fsdp));
    return fully_shard(w->model, &w->ctx, fsdp);
}

Status case_build(Wrapped *w, const Case *c)
{
    FsdpOptions fsdp = {.align_shards = c->align, .seed = 42, .layout = c->layout};
    MixedPrecisionPolicy policy = {0};
    PipelineTies ties;
    w->model = model_of(c);
    if (c->stages > 0) TRY(pipeline_cut(w->model, &w->ranks, &ties));
    TRY(shard_model(w, c, &fsdp));
    w->root = fsdp_unit(w->model)->root;
    TRY(strategy_apply(w->model, &c->options));
    if (c->partial) TRY(fsdp_set_requires_all_reduce(w->model, false));
    if (c->offload) TRY(offload_apply(w->model));
    if (c->policy != NULL) policy = *c->policy;
    if (c->stages > 0) pipeline_policy(&w->ranks, &policy);
    if (c->policy != NULL) TRY(precision_apply(w->model, &policy));
    if (c->fp8 != NULL) TRY(fp8_apply(w->model, c->fp8));
    if (c->prefetch != NULL) TRY(prefetch_apply(w->model, c->prefetch));
    if (c->recompute != RECOMPUTE_NONE) TRY(recompute_apply(w->model, c->recompute));
    if (c->stages == 0) return OK;
    return pipeline_create(&w->pipeline, w->model, &w->ranks, &ties, c->kind, c->rounds);
}

void case_take_down(Wrapped *w)
{
    if (w->model == NULL) return; // the ranks' shape was refused
    need(pipeline_destroy(w->pipeline));
    w->pipeline = NULL;
    if (w->root != NULL && w->root->extensions->recompute != NULL) need(recompute_remove(w->model));
    if (w->root != NULL && w->root->extensions->prefetch != NULL) need(prefetch_remove(w->model));
    if (w->root != NULL && w->root->extensions->fp8 != NULL) need(fp8_remove(w->model));
    if (w->root != NULL && w->root->extensions->precision != NULL) need(precision_remove(w->model));
    if (w->root != NULL && w->root->extensions->offload != NULL) need(offload_remove(w->model));
    if (w->root != NULL && w->root->extensions->strategy != NULL) need(strategy_remove(w->model));
    fsdp_unwrap(w->model);
    module_destroy(w->model);
    w->model = NULL;
    w->root = NULL;
}

Status case_mesh(Wrapped *w, const Case *c, const Rank *r)
{
    TRY(pipeline_mesh(&w->ranks, r->comm, c->stages > 0 ? c->stages : 1));
    Status status = mesh_2d(&w->mesh, w->ranks.group.comm, c->replicas);
    if (status != OK) {
        need(pipeline_mesh_destroy(&w->ranks));
        return status;
    }
    need(fsdp_context_create(&w->ctx, &w->mesh, r->stream));
    return OK;
}

void case_unmesh(Wrapped *w)
{
    need(fsdp_context_destroy(&w->ctx));
    need(mesh_destroy(&w->mesh, w->ranks.group.comm));
    need(pipeline_mesh_destroy(&w->ranks));
}

void case_wrap(Wrapped *w, const Case *c, const Rank *r)
{
    memset(w, 0, sizeof *w);
    need(nn_run_create(&w->run, r->stream));
    need(case_mesh(w, c, r));
    need(case_build(w, c));
    need(fsdp_adamw_create(&w->adamw, w->model, &w->ctx, &TEST_ADAMW));
    need_cuda(cudaDeviceSynchronize());
}

void case_unwrap(Wrapped *w, const Rank *r)
{
    need_cuda(cudaDeviceSynchronize());
    fsdp_adamw_destroy(&w->adamw);
    case_take_down(w);
    case_unmesh(w);
    need(nn_run_destroy(&w->run));
}

char case_folder[PATH_BYTES];

void case_resume(Wrapped *w, const Case *c, const Rank *r, int step)
{
    CheckpointPosition position = {.step = step, .data_seed = 7};
    char own[PATH_BYTES + 32]; // each stage is a model of its own
    snprintf(own, sizeof own, "%s/state-%d", case_folder, w->ranks.stage);
    need(checkpoint_save(own, w->model, &w->adamw, &position));
    case_unwrap(w, r);
    case_wrap(w, c, r);
    position = (CheckpointPosition){.step = 0, .data_seed = 0};
    need(checkpoint_load(own, w->model, &w->adamw, &position));
    check(position.step == step && position.data_seed == 7, "the position was not saved");
}

int case_rows(const Case *c, int step, int rank, int round)
{
    return c->uneven ? 1 + (3 * rank + 5 * round + step) % c->spec.B : c->spec.B;
}

Batch case_batch(const Case *c, int step, int rank, int round)
{
    Spec spec = c->spec;
    spec.B = case_rows(c, step, rank, round);
    return batch_create(&spec, (uint64_t)(1 + step * 1000 + rank * 10 + round));
}

// Forward, loss and backward of a micro-batch, each token's loss times `scale`.
static void pass(const Case *c, NnRun *run, Module *model, int step, int rank, int round,
                 float scale)
{
    float *logits = NULL, *dlogits = NULL, *din = NULL, loss;
    Batch batch = case_batch(c, step, rank, round);
    run->B = case_rows(c, step, rank, round);
    run->T = c->spec.T;
    need(module_forward(model, run, batch.in, &logits));
    need(cross_entropy_scaled(run, logits, batch.targets, run->B * run->T, c->spec.vocab, scale,
                              &loss, &dlogits));
    need(module_backward(model, run, dlogits, &din));
    need_cuda(cudaFreeAsync(dlogits, run->stream));
    if (din != NULL) need_cuda(cudaFreeAsync(din, run->stream));
    batch_destroy(&batch);
}

// Whether micro-batches accumulate unsharded.
static bool accumulates(const Case *c)
{
    return c->rounds > 1 && !c->options.reduce_every_time && !c->partial;
}

// After micro-batch k: each unit has the unsharded gradient that it had after the first one.
static void check_kept(const Wrapped *w, const Case *c, int k, const void **kept)
{
    for (int u = 0; u < w->root->n_units && k < c->rounds - 1; u++) {
        const FlatParam *flat = &w->root->units[u]->flat;
        if (flat->unsharded_grad.numel == 0) continue;
        if (k == 0) kept[u] = flat->unsharded_grad.data;
        check(flat->unsharded_grad.data != NULL,
              "after micro-batch %d of %d %s has no unsharded gradient: strategy_post_backward "
              "reduces where gradients are to be synchronised, after the last one",
              k, c->rounds, flat->name);
        check(flat->unsharded_grad.data == kept[u],
              "after micro-batch %d of %d %s has another unsharded gradient than after the first: "
              "strategy_pre_backward begins one where there is none",
              k, c->rounds, flat->name);
    }
}

// A step of a pipeline. Each stage has the data of its ranks' places.
static void train_stages(Wrapped *w, const Case *c, int step, float scale)
{
    MicroBatch batches[CASE_ROUNDS];
    Batch memory[CASE_ROUNDS];
    w->run.T = c->spec.T;
    for (int k = 0; k < c->rounds; k++) {
        memory[k] = case_batch(c, step, w->ranks.place, k);
        batches[k] =
            (MicroBatch){memory[k].in, memory[k].targets, case_rows(c, step, w->ranks.place, k)};
    }
    need(pipeline_step(w->pipeline, &w->run, batches, scale, NULL));
    for (int k = 0; k < c->rounds; k++) batch_destroy(&memory[k]);
}

void case_train(Wrapped *w, const Case *c, const Rank *r, int step)
{
    float scale = 1.0f / (float)(c->spec.B * c->spec.T);
    const void *kept[256];
    int64_t mine = 0, total;
    int place = w->ranks.place;
    for (int k = 0; k < c->rounds; k++) mine += case_rows(c, step, place, k) * c->spec.T;
    need(fsdp_zero_grad(w->model, &w->ctx));
    if (c->uneven) need(fsdp_token_scale(w->model, mine, &total, &scale));
    if (w->pipeline != NULL) {
        train_stages(w, c, step, scale);
        return;
    }
    for (int k = 0; k < c->rounds; k++) {
        need(strategy_micro_batch(w->model, k, c->rounds));
        if (c->partial) {
            need(fsdp_set_requires_gradient_sync(w->model, true));
            need(fsdp_set_requires_all_reduce(w->model, k == c->rounds - 1));
        }
        pass(c, &w->run, w->model, step, place, k, scale);
        if (r->world > 1 && accumulates(c)) check_kept(w, c, k, kept);
    }
}

// ---- The oracle ----

// What is added up, and what a mistake may leave out.
typedef struct Sum {
    float factor;    // what the sum is divided by
    int first, last; // of the micro-batches
    int replica;     // whose sum alone; -1: all
} Sum;

static float factor_of(const Case *c, int world)
{
    return c->options.divide_factor > 0.0f ? c->options.divide_factor : (float)world;
}

static Sum right_sum(const Case *c, int world)
{
    return (Sum){factor_of(c, world), 0, c->rounds - 1, -1};
}

// g[0][i] + g[1][i] + …, n of them, in a collective's order: a balanced tree.
static float tree(float *const *g, int n, size_t i)
{
    if (n == 1) return g[0][i];
    int half = 1;
    while (2 * half < n) half *= 2;
    return tree(g, half, i) + tree(g + half, n - half, i);
}

// The type in which gradients are summed.
static DType sum_type(const Case *c, int world)
{
    return c->policy == NULL || world == 1 ? DTYPE_F32 : c->policy->reduce_dtype;
}

static float rounded(const Case *c, int world, float x)
{
    return half_float(sum_type(c, world), x);
}

// What a rank's gradient is divided by before the sum.
static float before_of(const Case *c, int world)
{
    int factor = (int)factor_of(c, world), before = 1;
    if (sum_type(c, world) != DTYPE_F16) return 1.0f;
    while (factor % before == 0 && factor / before > before) before *= 2;
    return (float)before;
}

// Whether each micro-batch reduces.
static bool each_reduces(const Case *c)
{
    return c->options.reduce_every_time || c->partial;
}

// Whether each backward begins a gradient of its own type, which is cast afterwards.
static bool casts(const Case *c, int world)
{
    return c->policy != NULL && c->policy->param_dtype != sum_type(c, world);
}

// Whether each micro-batch's gradient is apart from the others', as the ranks have made them.
static bool apart(const Case *c, int world)
{
    return (world > 1 && each_reduces(c)) || casts(c, world);
}

// What a rank gives to the reduction after micro-batch k.
static float given(const Case *c, int world, int rank, const Sum *sum, int k, size_t i)
{
    float *const *grads = c->grads + (size_t)rank * CASE_ROUNDS;
    int first = casts(c, world) && !each_reduces(c) ? sum->first : k;
    float all = rounded(c, world, grads[first][i]);
    for (int j = first + 1; j <= k; j++) all = rounded(c, world, all + grads[j][i]);
    return rounded(c, world, all / before_of(c, world));
}

// x[0] + x[1] + …, as one collective leaves it.
static float sum_up(const Case *c, int world, float *x, int n)
{
    float *place[CASE_RANKS];
    for (int i = 0; i < n; i++) place[i] = &x[i];
    return rounded(c, world, tree(place, n, 0));
}

// Of micro-batch k: the sum over the shards of each replica.
static float within(const Case *c, int world, int replica, const Sum *sum, int k, size_t i)
{
    int shards = world / c->replicas;
    float of[CASE_RANKS];
    for (int s = 0; s < shards; s++) of[s] = given(c, world, replica * shards + s, sum, k, i);
    return sum_up(c, world, of, shards);
}

// Element i of the gradient that a step leaves.
static float oracle(const Case *c, int world, const Sum *sum, size_t i)
{
    float grad = 0.0f, sums[CASE_RANKS] = {0.0f}, after = sum->factor / before_of(c, world);
    for (int k = sum->first; k <= sum->last && world == 1 && casts(c, 1); k++)
        grad += c->grads[k][i];
    if (world == 1) return casts(c, 1) ? grad : c->grads[sum->last][i]; // the backwards have added
    for (int k = each_reduces(c) ? sum->first : sum->last; k <= sum->last; k++) {
        for (int p = 0; p < c->replicas; p++) {
            float one = within(c, world, p, sum, k, i);
            sums[p] = c->partial && k > sum->first ? rounded(c, world, sums[p] + one) : one;
        }
        if (c->partial && k < sum->last) continue;
        float all = sum->replica < 0 ? sum_up(c, world, sums, c->replicas) : sums[sum->replica];
        grad += all / after;
    }
    return grad;
}

// Waits until every rank is here.
static void meet(const Rank *r)
{
    float *one;
    need_cuda(cudaMalloc((void **)&one, sizeof *one));
    need_cuda(cudaMemset(one, 0, sizeof *one));
    need_cuda(cudaDeviceSynchronize());
    need_nccl(ncclAllReduce(one, one, 1, ncclFloat, ncclSum, r->comm, r->stream));
    need_cuda(cudaStreamSynchronize(r->stream));
    need_cuda(cudaFree(one));
}

// What a token's loss counts for: counted here, by the batches of all ranks.
static float scale_of(const Case *c, int world, int step)
{
    int total = 0;
    if (!c->uneven) return 1.0f / (float)(c->spec.B * c->spec.T);
    for (int rank = 0; rank < world; rank++)
        for (int k = 0; k < c->rounds; k++) total += case_rows(c, step, rank, k) * c->spec.T;
    return (float)((double)factor_of(c, world) / total);
}

// Of a stage: its ranks, and this one's place among them. Ranks of the same place have the same data.
static Rank in_stage(const Case *c, const Rank *r)
{
    Rank mine = *r;
    if (c->stages > 0) mine.world = r->world / c->stages;
    mine.rank = r->rank % mine.world;
    return mine;
}

// Has the parameters that are chosen be what a gather in FP8 makes of them.
static void quantise(const Fp8Options *fp8, const Plain *p, float *params)
{
    static Layout all;
    layout_module(&all, p->model, false, 1, LAYOUT_WHOLE);
    for (int i = 0; i < all.n; i++) {
        bool chosen = fp8->chosen != NULL ? fp8->chosen(all.param[i]) : all.param[i]->ndim > 1;
        if (chosen) fp8_param(params + all.begin[i], all.begin[i + 1] - all.begin[i]);
    }
}

static void load_params(const Plain *p, const float *params)
{
    static Layout all;
    layout_module(&all, p->model, false, 1, LAYOUT_WHOLE);
    for (int i = 0; i < all.n; i++)
        send_to(all.param[i]->data.data, params + all.begin[i], all.begin[i + 1] - all.begin[i]);
}

// Writes this rank's gradients at the parameters of p into the shared memory, the first stage's.
static void make_grads(Plain *p, const Case *c, const Rank *all, int step)
{
    Rank mine = in_stage(c, all), *r = &mine;
    size_t n = (size_t)model_numel(p->model);
    float *masters = plain_params(p), *rounded = plain_params(p);
    if (c->fp8 != NULL) quantise(c->fp8, p, rounded);
    load_params(p, rounded);
    need(plain_adamw_zero_grad(p->adamw));
    for (int k = 0; k < c->rounds; k++) {
        pass(c, &p->run, p->model, step, r->rank, k, scale_of(c, r->world, step));
        float *grads = plain_grads(p);
        if (all->rank == r->rank)
            memcpy(c->grads[r->rank * CASE_ROUNDS + k], grads, n * sizeof *grads);
        free(grads);
        if (apart(c, r->world)) need(plain_adamw_zero_grad(p->adamw));
    }
    load_params(p, masters);
    free(masters);
    free(rounded);
    meet(all);
}

// The same under a policy: at the parameters of p, rounded.
static void make_narrow_grads(Narrow *w, Plain *p, const Case *c, const Rank *all, int step)
{
    Rank mine = in_stage(c, all), *r = &mine;
    float *masters = plain_params(p);
    Spec spec = c->spec;
    if (c->fp8 != NULL) quantise(c->fp8, p, masters);
    narrow_load(w, masters);
    narrow_zero(w);
    free(masters);
    for (int k = 0; k < c->rounds; k++) {
        Batch batch = case_batch(c, step, r->rank, k);
        spec.B = case_rows(c, step, r->rank, k);
        narrow_pass(w, &p->run, &spec, &batch, scale_of(c, r->world, step));
        float *grads = narrow_grads(w);
        if (all->rank == r->rank)
            memcpy(c->grads[r->rank * CASE_ROUNDS + k], grads, w->n * sizeof *grads);
        free(grads);
        batch_destroy(&batch);
        if (apart(c, r->world)) narrow_zero(w);
    }
    meet(all);
}

// ---- The mistakes that a wrong gradient can come from ----

enum { MOST_CAUSES = 8 };
typedef struct Causes {
    int n;
    Sum sum[MOST_CAUSES];
    const char *text[MOST_CAUSES];
} Causes;

static void add_cause(Causes *causes, Sum sum, const char *text)
{
    causes->sum[causes->n] = sum;
    causes->text[causes->n++] = text;
}

// Under a policy, where lab 1's functions are right.
static Causes policy_causes(const Case *c, int world)
{
    Causes causes = {0};
    Sum wrong = right_sum(c, world);
    wrong.factor = factor_of(c, world) / before_of(c, world);
    if (before_of(c, world) != 1.0f)
        add_cause(&causes, wrong,
                  "fp16 is not divided before the sum: precision_reduce_input divides by "
                  "divided_before");
    wrong = right_sum(c, world);
    wrong.first = wrong.last;
    if (c->rounds > 1 && !each_reduces(c) && casts(c, world))
        add_cause(&causes, wrong,
                  "the last micro-batch alone is in it: precision_reduce_input adds to what has "
                  "accumulated (own->adds)");
    return causes;
}

static Causes causes_of(const Case *c, int world)
{
    Causes causes = {0};
    if (c->policy != NULL) return policy_causes(c, world);
    Sum right = right_sum(c, world), wrong = right;
    bool ddp = c->options.strategy == STRATEGY_DDP, replicas = !ddp && c->replicas > 1;
    wrong.factor = (float)(world / c->replicas);
    if (replicas)
        add_cause(&causes, wrong,
                  "it is divided by the ranks that shard alone: reduce_between divides by "
                  "options.divide_factor, all ranks of the mesh unless it was set");
    wrong.factor = (float)world;
    add_cause(&causes, wrong,
              ddp ? "it is divided by the ranks, and not by options.divide_factor: in send_bucket"
              : replicas ? "it is divided by the ranks, not by options.divide_factor: in "
                           "reduce_between"
                         : "it is divided by the ranks, not by options.divide_factor: in "
                           "strategy_reduce");
    wrong.factor = 1.0f;
    add_cause(&causes, wrong,
              ddp        ? "the sum is not divided: in send_bucket"
              : replicas ? "the sum is not divided: in reduce_between"
                         : "the sum is not divided: in strategy_reduce");
    wrong = right;
    wrong.first = wrong.last;
    if (c->partial)
        add_cause(&causes, wrong,
                  "the last micro-batch alone is in it: without an all-reduce reduce_within adds "
                  "to what *partial has");
    else if (c->rounds > 1 && c->options.reduce_every_time)
        add_cause(&causes, wrong,
                  "the last micro-batch alone is in it: each reduction adds to sharded_grad");
    wrong = right;
    for (wrong.replica = 0; wrong.replica < c->replicas && replicas; wrong.replica++)
        add_cause(&causes, wrong,
                  "the sum of one replica alone is in it: the sum over the replicas is "
                  "reduce_between's");
    return causes;
}

// What is sure where no such sum explains the gradient.
static const char *otherwise(const Case *c)
{
    if (c->policy != NULL) return NULL;
    if (c->rounds > 1) return NULL;
    if (c->options.strategy == STRATEGY_DDP)
        return "of DDP each element is in one bucket, which send_bucket sums over the replicas "
               "when ddp_post_backward has counted the last backward that writes it: is one sent "
               "too early, or its range another one's?";
    if (c->options.reshard_ranks > 0)
        return "with reshard_ranks the backward must have the same parameters as the forward: "
               "which slice does keep_slice keep, and when does strategy_all_gather take it?";
    return NULL;
}

// ---- Comparing ----

// A rank's part of all the values (padded with zeros), as unit u's shard has them.
static float *shard_of(const FlatParam *flat, const Layout *all, const float *values)
{
    float *shard = calloc((size_t)flat->layout.shard_numel + 1, sizeof *shard);
    check(shard != NULL, "no memory for the oracle");
    for (int j = 0; j < flat->layout.n; j++) {
        int64_t begin, end, at;
        int i = 0;
        while (i < all->n && strcmp(all->param[i]->name, flat->layout.params[j]->name) != 0) i++;
        flat_param_range_in_shard(&flat->layout, j, flat->layout.rank, &begin, &end, &at);
        memcpy(shard + at, values + all->begin[i] + begin, (size_t)(end - begin) * sizeof *shard);
    }
    return shard;
}

static float *values_of(const Case *c, int world, const Sum *sum, size_t n)
{
    float *values = malloc((n + 1) * sizeof *values);
    check(values != NULL, "no memory for the oracle");
    for (size_t i = 0; i < n; i++) values[i] = oracle(c, world, sum, i);
    return values;
}

// The gradients of a unit's shard against the oracle's.
static void check_unit(const Wrapped *w, const FsdpUnit *unit, const Case *c, const Rank *r,
                       int step, const Layout *all, const float *values)
{
    const FlatParam *flat = &unit->flat;
    size_t numel = (size_t)flat->sharded_grad.numel, n = all->begin[all->n];
    if (numel == 0) return; // all of it is frozen
    float *got = fetch(flat->sharded_grad.data, numel), *want = shard_of(flat, all, values);
    if (memcmp(got, want, numel * sizeof *got) == 0) {
        free(got);
        free(want);
        return;
    }
    static Layout layout;
    char what[900];
    Causes causes = causes_of(c, r->world);
    Clues clues = {.layout = c->layout == NULL ? &layout : NULL, .otherwise = otherwise(c)};
    layout_module(&layout, unit->module, true, flat->layout.world, flat->layout.rank);
    for (int i = 0; i < causes.n; i++) {
        float *all_of_it = values_of(c, r->world, &causes.sum[i], n);
        clues.clue[clues.n++] = (Clue){shard_of(flat, all, all_of_it), causes.text[i]};
        free(all_of_it);
    }
    snprintf(what, sizeof what,
             "%s%sstep %d, the gradient of %s (over the ranks that shard, then over the replicas, "
             "divided once)",
             c->name != NULL ? c->name : "", c->name != NULL ? ": " : "", step, flat->name);
    check_equal_in(&clues, what, got, want, numel);
    check(false, "%s: zeros of another sign", what);
}

// Shard groups of neighbours, a power of two in size, add in the order of all ranks: the same sums.
static void check_order(const Case *c, int world, const float *want, size_t n)
{
    Case flat = *c;
    int shards = world / c->replicas;
    flat.replicas = 1;
    if (c->options.strategy == STRATEGY_DDP || c->partial || (shards & (shards - 1)) != 0) return;
    if (sum_type(c, world) != DTYPE_F32) return; // two collectives round twice
    Sum sum = right_sum(&flat, world);
    float *other = values_of(&flat, world, &sum, n);
    check(memcmp(other, want, n * sizeof *want) == 0,
          "%d replicas of %d shards do not add in the order of all ranks", c->replicas, shards);
    free(other);
}

// The gradients of a parameter that two stages share are added, one to the other, and both have the
// sum. Returns where the second copy begins, at the end of `values`, or where they end.
static size_t add_ties(const Case *c, Module *model, const Layout *all, float *values)
{
    size_t n = all->begin[all->n], wte = all->begin[1], copy = n - wte;
    const Module *head = model->children[model->n_children - 1];
    if (c->stages < 2 || !c->spec.gpt2 || head->n_params != 1 ||
        strcmp(head->params[0]->name, all->param[0]->name) != 0)
        return n;
    for (size_t i = 0; i < wte; i++) values[i] = values[copy + i] = values[i] + values[copy + i];
    return copy;
}

// All gradients of this rank, and their norm; then the oracle's own step with them.
static void check_shards(Wrapped *w, Plain *p, const Case *c, const Rank *world, int step)
{
    Rank mine = in_stage(c, world), *r = &mine;
    static Layout all;
    size_t n = (size_t)model_numel(p->model);
    Sum sum = right_sum(c, r->world);
    float *want = values_of(c, r->world, &sum, n), norm;
    layout_module(&all, p->model, false, 1, LAYOUT_WHOLE);
    check_order(c, r->world, want, n);
    size_t copy = add_ties(c, p->model, &all, want);
    double squares = 0.0;
    for (size_t i = 0; i < copy; i++) squares += (double)want[i] * (double)want[i];
    float root = (float)sqrt(squares);
    if (c->clip == 0.0f || step == 0) {
        for (int u = 0; u < w->root->n_units; u++)
            check_unit(w, w->root->units[u], c, r, step, &all, want);
        need(w->pipeline != NULL ? pipeline_grad_norm(w->pipeline, &norm)
                                 : fsdp_grad_norm(w->model, &w->ctx, &norm));
        check(fabsf(norm - root) <= nextafterf(root, INFINITY) - root,
              "step %d, the gradient's norm is %.9g, want %.9g: each replica counts once", step,
              (double)norm, sqrt(squares));
    }
    for (size_t i = 0; i < n && c->clip > 0.0f && root > c->clip; i++) want[i] *= c->clip / root;
    // By parameter, with its gradient.
    for (int i = 0; i < all.n; i++)
        send_to(all.param[i]->grad.data, want + all.begin[i], all.begin[i + 1] - all.begin[i]);
    free(want);
    need(plain_adamw_step(p->adamw));
}

static bool *case_ended; // in shared memory

bool case_overflowed(void)
{
    return *case_ended;
}

// Whether a gradient of the oracle's is not finite: the model has overflowed, and which NaN comes
// out of that is nobody's promise. All ranks see the same.
static bool overflowed(const Case *c, const Rank *r, size_t n)
{
    int ranks = c->stages > 0 ? r->world / c->stages : r->world;
    for (int k = 0; k < ranks * CASE_ROUNDS; k++)
        for (size_t i = 0; i < n && k % CASE_ROUNDS < c->rounds; i++)
            if (!isfinite(c->grads[k][i])) return *case_ended = true;
    return false;
}

typedef struct Compared {
    const Plain *plain;
    bool near; // to 1e-6; else bitwise
} Compared;

static Status compare_param(const Param *param, const float *values, void *arg)
{
    const Compared *compared = arg;
    const Plain *p = compared->plain;
    static Layout all;
    layout_module(&all, p->model, false, 1, LAYOUT_WHOLE);
    for (int i = 0; i < all.n; i++) {
        size_t n = all.begin[i + 1] - all.begin[i];
        if (strcmp(all.param[i]->name, param->name) != 0) continue;
        float *want = fetch(all.param[i]->data.data, n);
        float most = 0.0f;
        for (size_t e = 0; e < n && compared->near; e++)
            most = fmaxf(most, fabsf(values[e] - want[e]));
        check(compared->near ? most <= 1e-6f : memcmp(values, want, n * sizeof *want) == 0,
              "after the steps %s is not what one process makes of the same gradients",
              param->name);
        free(want);
    }
    return OK;
}

static void case_body(const Rank *r, void *arg)
{
    const Case *c = arg;
    Plain plain;
    Narrow narrow;
    Wrapped w;
    float norm;
    memset(&plain, 0, sizeof plain);
    plain.spec = c->spec;
    plain.model = oracle_model(c);
    need(nn_run_create(&plain.run, r->stream));
    need(meta_materialize(plain.model, 42, r->stream));
    need(plain_adamw_create(&plain.adamw, plain.model, &TEST_ADAMW, &plain.run));
    if (c->policy != NULL) narrow_create(&narrow, oracle_model(c), c->policy->param_dtype);
    case_wrap(&w, c, r);
    uint64_t first = gpulog_length();
    for (int step = 0; step < c->steps; step++) {
        if (step > 0 && c->between != NULL) c->between(&w, c, r, step);
        if (c->policy != NULL)
            make_narrow_grads(&narrow, &plain, c, r, step);
        else
            make_grads(&plain, c, r, step);
        if (overflowed(c, r, (size_t)model_numel(plain.model))) break;
        case_train(&w, c, r, step);
        need_cuda(cudaDeviceSynchronize());
        check_shards(&w, &plain, c, r, step);
        if (c->before_update != NULL) c->before_update(&w, c, r, step);
        if (c->clip > 0.0f)
            need(w.pipeline != NULL ? pipeline_clip_grad_norm(w.pipeline, c->clip, &norm)
                                    : fsdp_clip_grad_norm(w.model, &w.ctx, c->clip, &norm));
        need(fsdp_adamw_step(&w.adamw));
        meet(r); // before the shared gradients are written again
    }
    check_no_race(first);
    Compared compared = {&plain, c->clip > 0.0f};
    need(fsdp_full_state(w.model, compare_param, &compared));
    case_unwrap(&w, r);
    if (c->policy != NULL) narrow_destroy(&narrow);
    plain_destroy(&plain);
}

// The ranks' gradients, in memory that all of them see.
static void share_grads(Case *c)
{
    static float *grads[CASE_RANKS * CASE_ROUNDS];
    static float *memory;
    enum { MOST_NUMEL = 1 << 16 };
    if (memory == NULL) memory = shared_alloc(sizeof grads / sizeof *grads * MOST_NUMEL * 4);
    if (case_ended == NULL) case_ended = shared_alloc(sizeof *case_ended);
    *case_ended = false;
    for (int i = 0; i < CASE_RANKS * CASE_ROUNDS; i++) grads[i] = memory + (size_t)i * MOST_NUMEL;
    c->grads = grads;
}

void run_case(int world, Case *c)
{
    share_grads(c);
    run_ranks(world, case_body, c);
}

char *run_case_message(int world, Case *c)
{
    share_grads(c);
    return run_ranks_message(world, RANKS_LIMIT, case_body, c);
}

// ---- What is refused ----

typedef struct Refused {
    const Case *c;
    const char *reason;
} Refused;

static void refused_body(const Rank *r, void *arg)
{
    const Refused *refused = arg;
    Wrapped w;
    memset(&w, 0, sizeof w);
    check_set_silent(true);
    Status status = case_mesh(&w, refused->c, r);
    if (status == OK) status = case_build(&w, refused->c);
    check(status == ERR_ARGUMENT, "taken, and not refused: \"%s\" is what it says of it",
          refused->reason);
    check(strstr(check_last(), refused->reason) != NULL, "the line is: %s; not: %s", check_last(),
          refused->reason);
    case_take_down(&w);
    check_set_silent(false);
    if (w.ctx.compute_stream != NULL) case_unmesh(&w);
}

char *run_refused_message(int world, Case *c, const char *reason)
{
    Refused refused = {c, reason};
    return run_ranks_message(world, RANKS_LIMIT, refused_body, &refused);
}

// ---- Memory ----

size_t case_peak(uint64_t first, GpuCategory category)
{
    size_t live = 0, peak = 0;
    for (uint64_t i = first; i < gpulog_length(); i++) {
        GpuLogEntry entry, later;
        if (!gpulog_get(i, &entry)) continue;
        if (entry.op == GPU_FREE && entry.category == category && entry.range[0].bytes <= live)
            live -= entry.range[0].bytes;
        if (entry.op != GPU_ALLOC) continue;
        bool found = false;
        for (uint64_t j = i + 1; j < gpulog_length() && !found; j++) {
            if (!gpulog_get(j, &later) || later.op != GPU_FREE) continue;
            found = later.range[0].ptr == entry.range[0].ptr;
        }
        if (found && later.category == category) live += entry.range[0].bytes;
        if (live > peak) peak = live;
    }
    return peak;
}

float *case_gradients(const Wrapped *w, size_t *n)
{
    float *values = NULL;
    *n = 0;
    for (int u = 0; u < w->root->n_units; u++) {
        const Buffer *grad = &w->root->units[u]->flat.sharded_grad;
        float *part = fetch(grad->data, (size_t)grad->numel);
        values = realloc(values, (*n + (size_t)grad->numel + 1) * sizeof *values);
        check(values != NULL, "no memory for gradients");
        memcpy(values + *n, part, (size_t)grad->numel * sizeof *part);
        *n += (size_t)grad->numel;
        free(part);
    }
    return values;
}
