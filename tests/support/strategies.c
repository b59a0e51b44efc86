/* strategies.c: small models under a strategy: made, trained, refused, taken down. See
 * strategies.h.
 */
#include "strategies_oracle.h"

#include "checkpoint.h"
#include "kernels.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- A model under a strategy ----

Module *case_model(const Case *c)
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
    Module *model = case_model(c);
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

// What lab 8 says of the other labs' options.
static const char *graph_refusal(const Case *c)
{
    if (c->graph && c->offload) return "steps in another way than fsdp.h's AdamW";
    if (c->graph && (c->stages > 0 || c->policy != NULL || c->fp8 != NULL))
        return "whose step asks the host";
    if (c->regroup == 0.0) return "";
    if (c->stages > 0) return "is in a pipeline, and its micro-batches take turns";
    if (c->prefetch != NULL) return "has a prefetch, which queues its all-gathers";
    if (c->options.reshard_ranks != 0 || c->policy != NULL || c->fp8 != NULL || c->offload)
        return "which cannot be in a group";
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
    if (!ddp && world > 1 && shards == 1) return "leaves no rank to shard with";
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
    return graph_refusal(c);
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

Status case_shard(Wrapped *w, const Case *c, PipelineTies *ties)
{
    FsdpOptions fsdp = {.reshard_after_forward = c->reshard,
                        .align_shards = c->align,
                        .seed = 42,
                        .layout = c->layout};
    w->model = case_model(c);
    if (c->stages > 0) TRY(pipeline_cut(w->model, &w->ranks, ties));
    TRY(shard_model(w, c, &fsdp));
    w->root = fsdp_unit(w->model)->root;
    return OK;
}

Status case_build(Wrapped *w, const Case *c)
{
    MixedPrecisionPolicy policy = {0};
    PipelineTies ties;
    TRY(case_shard(w, c, &ties));
    TRY(strategy_apply(w->model, &c->options));
    if (c->partial) TRY(fsdp_set_requires_all_reduce(w->model, false));
    if (c->offload) TRY(offload_apply(w->model));
    if (c->policy != NULL) policy = *c->policy;
    if (c->stages > 0) pipeline_policy(&w->ranks, &policy);
    if (c->policy != NULL) TRY(precision_apply(w->model, &policy));
    if (c->fp8 != NULL) TRY(fp8_apply(w->model, c->fp8));
    if (c->prefetch != NULL) TRY(prefetch_apply(w->model, c->prefetch));
    if (c->recompute != RECOMPUTE_NONE) TRY(recompute_apply(w->model, c->recompute));
    if (c->stages > 0)
        TRY(pipeline_create(&w->pipeline, w->model, &w->ranks, &ties, c->kind, c->rounds));
    if (c->graph) TRY(graph_nothing(w));
    return c->regroup > 0.0 ? regroup_nothing(w, c) : OK;
}

void case_take_down(Wrapped *w)
{
    if (w->model == NULL) return; // the ranks' shape was refused
    if (w->root != NULL && w->root->extensions->regroup != NULL) need(regroup_remove(w->model));
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
    ncclComm_t group = w->ranks.group.comm;
    Status status =
        c->replicas == 1 ? mesh_1d(&w->mesh, group) : mesh_2d(&w->mesh, group, c->replicas);
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
    w->run.T = c->spec.T;
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

typedef struct WrappedRun {
    WrappedBody body;
    const Case *c;
} WrappedRun;

static void wrapped_body(const Rank *r, void *arg)
{
    const WrappedRun *run = arg;
    Wrapped w;
    case_wrap(&w, run->c, r);
    run->body(&w, run->c, r);
    case_unwrap(&w, r);
}

void run_wrapped_at(const char *file, int line, int world, WrappedBody body, const Case *c)
{
    WrappedRun run = {body, c};
    run_ranks_at(file, line, world, RANKS_LIMIT, wrapped_body, &run);
}

typedef struct EachRun {
    RankBody body;
    Case *cases;
} EachRun;

static void each_body(const Rank *r, void *arg)
{
    const EachRun *run = arg;
    for (Case *c = run->cases; c->rounds > 0; c++) run->body(r, c);
}

void run_each_at(const char *file, int line, int world, RankBody body, Case *cases)
{
    EachRun run = {body, cases};
    run_ranks_at(file, line, world, RANKS_LIMIT, each_body, &run);
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
    Status loaded = checkpoint_load(own, w->model, &w->adamw, &position);
    check(loaded == OK, "checkpoint_load failed (%s)%s", last_error(),
          strstr(last_error(), "has no tensor") == NULL ? ""
                                                        : LIKELY
              "checkpoint_describe lists the parameter, frozen or not, and list_pieces "
              "leaves it out");
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

// What the optimizer is to find after the last backward of a step, before anything waits for the
// device (as cudaFree does): whatever has written gradients since log entry `first` comes before
// what is queued on the compute stream now.
static void check_reduced(const FsdpRoot *root, uint64_t first)
{
    cudaStream_t stream = root->ctx->compute_stream;
    char place[256];
    GpuLogEntry e;
    uint64_t now = gpulog_length();
    need_cuda(cudaEventRecord(root->ctx->compute_done, stream)); // entry `now`
    for (int u = 0; u < root->n_units; u++) {
        const Buffer *grad = &root->units[u]->flat.sharded_grad;
        const char *begin = grad->data, *end = begin + buffer_bytes(grad);
        for (uint64_t i = first; i < now; i++)
            for (int k = 0; gpulog_get(i, &e) && k < e.n_ranges; k++) {
                const char *at = e.range[k].ptr;
                if (at < begin || at >= end || !(e.range[k].access & GPU_WRITE)) continue;
                gpulog_where(e.site, place, sizeof place);
                place[strcspn(place, " ")] = '\0'; // who wrote it is not who is to be waited for
                check(log_ordered(i, now),
                      "after the last backward of a step the compute stream has not waited for %s "
                      "at %s, which writes the gradient of %s: end_backward ends it, and then the "
                      "compute stream sees every gradient reduced, over the replicas too",
                      e.name, place, root->units[u]->flat.name);
            }
        need_cuda(kernel_scale(grad->data, 1.0f, (size_t)grad->numel, stream));
    }
}

// After a backward, which began at log entry `first`: it kept no host waiting.
static void check_after(const Module *model, uint64_t first)
{
    const FsdpUnit *unit = fsdp_unit(model);
    const FsdpExtensions *on = unit == NULL ? NULL : unit->root->extensions;
    if (on == NULL || on->offload != NULL) return; // the oracle's; or gradients on the host
    check_no_host_wait(first, "in a backward");
    if (on->strategy == NULL || on->strategy->is_last_backward) check_reduced(unit->root, first);
}

float case_pass(const Case *c, NnRun *run, Module *model, int step, int rank, int round,
                float scale)
{
    float *logits = NULL, *dlogits = NULL, *din = NULL, loss;
    Batch batch = case_batch(c, step, rank, round);
    run->B = case_rows(c, step, rank, round);
    run->T = c->spec.T;
    need(module_forward(model, run, batch.in, &logits));
    need(cross_entropy_scaled(run, logits, batch.targets, run->B * run->T, c->spec.vocab, scale,
                              &loss, &dlogits));
    uint64_t first = gpulog_length();
    need(module_backward(model, run, dlogits, &din));
    check_after(model, first);
    need_cuda(cudaFreeAsync(dlogits, run->stream));
    if (din != NULL) need_cuda(cudaFreeAsync(din, run->stream));
    batch_destroy(&batch);
    return loss;
}

// Whether micro-batches accumulate unsharded.
static bool accumulates(const Case *c)
{
    return c->rounds > 1 && !c->options.reduce_every_time && !c->partial;
}

// What strategy_micro_batch says of micro-batch k.
static void check_flags(const StrategyState *state, const Case *c, int k)
{
    const bool last = k == c->rounds - 1;
    const bool sync = last || c->options.reduce_every_time;
    if (c->partial) return; // the loop has set them itself
    check(state->requires_gradient_sync == sync && state->is_last_backward == last &&
              (!sync || state->requires_all_reduce),
          "for micro-batch %d of %d strategy_micro_batch sets requires_gradient_sync to %d, "
          "requires_all_reduce to %d and is_last_backward to %d, want %d, 1 and %d",
          k, c->rounds, state->requires_gradient_sync, state->requires_all_reduce,
          state->is_last_backward, sync, last);
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
              "reduces only if requires_gradient_sync, and end_backward ends the step only if "
              "is_last_backward",
              k, c->rounds, flat->name);
        check(flat->unsharded_grad.data == kept[u],
              "after micro-batch %d of %d %s has another unsharded gradient than after the first: "
              "strategy_pre_backward begins one where there is none",
              k, c->rounds, flat->name);
    }
}

void stage_batches_create(StageBatches *b, const Wrapped *w, const Case *c, int step)
{
    const PipelineMesh *ranks = &w->ranks;
    b->n = c->rounds;
    for (int k = 0; k < b->n; k++) {
        b->memory[k] = case_batch(c, step, ranks->place, k);
        b->batch[k] = (MicroBatch){.B = case_rows(c, step, ranks->place, k)};
        if (ranks->stage == 0) b->batch[k].in = b->memory[k].in;
        if (ranks->stage == ranks->stages - 1) b->batch[k].targets = b->memory[k].targets;
    }
}

void stage_batches_destroy(StageBatches *b)
{
    for (int k = 0; k < b->n; k++) batch_destroy(&b->memory[k]);
}

// A step of a pipeline. Each stage has the data of its ranks' places.
static void train_stages(Wrapped *w, const Case *c, int step, float scale)
{
    StageBatches batches;
    stage_batches_create(&batches, w, c, step);
    need(pipeline_step(w->pipeline, &w->run, batches.batch, scale, w->losses));
    stage_batches_destroy(&batches);
}

Status case_micro_batch(Module *model, const Case *c, int k)
{
    TRY(strategy_micro_batch(model, k, c->rounds));
    if (!c->partial) return OK;
    TRY(fsdp_set_requires_gradient_sync(model, true));
    return fsdp_set_requires_all_reduce(model, k == c->rounds - 1);
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
    if (c->regroup > 0.0) regroup_by_step(w, c, step);
    if (c->graph) {
        train_by_launch(w, c, step, scale);
        return;
    }
    for (int k = 0; k < c->rounds; k++) {
        need(case_micro_batch(w->model, c, k));
        check_flags(w->root->extensions->strategy, c, k);
        case_pass(c, &w->run, w->model, step, place, k, scale);
        if (r->world > 1 && accumulates(c)) check_kept(w, c, k, kept);
        check(w->root->n_post_forward == 0 && w->root->iter_backward_root == NULL,
              "after micro-batch %d of %d %d forwards are recorded and root->iter_backward_root is "
              "%s: end_backward ends the pass, of a step's last backward and of another one",
              k, c->rounds, w->root->n_post_forward,
              w->root->iter_backward_root == NULL ? "NULL" : "set");
    }
}

void ranks_meet(const Rank *r)
{
    float *one;
    need_cuda(cudaMalloc((void **)&one, sizeof *one));
    need_cuda(cudaMemset(one, 0, sizeof *one));
    need_cuda(cudaDeviceSynchronize());
    need_nccl(ncclAllReduce(one, one, 1, ncclFloat, ncclSum, r->comm, r->stream));
    need_cuda(cudaStreamSynchronize(r->stream));
    need_cuda(cudaFree(one));
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

// The allocations and frees since `first`, in order; free it. Of one that is freed the category is
// known by then.
typedef struct Memory {
    bool alloc, freed;
    GpuRange range;
    GpuCategory category;
    const void *site;
} Memory;

static Memory *memory_since(uint64_t first, int *n)
{
    const uint64_t end = gpulog_length();
    Memory *all = calloc(end - first + 1, sizeof *all);
    GpuLogEntry e;
    check(all != NULL, "no memory for a log");
    *n = 0;
    for (uint64_t i = first; i < end; i++) {
        if (!gpulog_get(i, &e) || (e.op != GPU_ALLOC && e.op != GPU_FREE)) continue;
        all[*n] = (Memory){e.op == GPU_ALLOC, false, e.range[0], e.category, e.site};
        for (int k = *n - 1; k >= 0 && e.op == GPU_FREE; k--) {
            if (!all[k].alloc || all[k].freed || all[k].range.ptr != e.range[0].ptr) continue;
            all[k].freed = true;
            all[k].category = e.category;
            break;
        }
        ++*n;
    }
    return all;
}

void check_all_freed(uint64_t first)
{
    char place[256];
    int n;
    Memory *all = memory_since(first, &n);
    for (int i = 0; i < n; i++) {
        if (!all[i].alloc || all[i].freed) continue;
        gpulog_where(all[i].site, place, sizeof place);
        check(false, "after a step nobody has freed the %zu bytes allocated at %s",
              all[i].range.bytes, place);
    }
    free(all);
}

size_t case_peak(uint64_t first, GpuCategory category)
{
    size_t live = 0, peak = 0;
    int n;
    Memory *all = memory_since(first, &n);
    for (int i = 0; i < n; i++) {
        size_t bytes = all[i].range.bytes;
        if (all[i].category != category) continue;
        if (all[i].alloc ? all[i].freed : bytes <= live) live += all[i].alloc ? bytes : -bytes;
        if (live > peak) peak = live;
    }
    free(all);
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
