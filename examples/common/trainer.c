/* trainer.c: a GPT-2 or a Llama, the ranks that train it, and one step of the training. See
 * trainer.h.
 */
#include "trainer.h"
#include "report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fp8_gather.h"
#include "gpulog.h"
#include "graph_steps.h"
#include "kernels.h"
#include "last_words.h"
#include "params.h"
#include "per_parameter.h"
#include "stages.h"

// ---- Setting up ----

static Status create_unsharded(Trainer *t)
{
    TRY(meta_materialize(t->model, t->opt.seed, t->stream));
    TRY(plain_adamw_create(&t->plain, t->model, &t->opt.adamw, &t->run));
    return OK;
}

// Whether the loss is scaled.
static bool scales(const Trainer *t)
{
    return t->opt.mixed && t->opt.policy.param_dtype == DTYPE_F16;
}

static Status create_sharded(Trainer *t)
{
    static const TaskFile files[] = {TASK_FILES(TASK_FILE_ROW){NULL, NULL}};
    FsdpOptions options = {.reshard_after_forward =
                               t->opt.keep ? FSDP_RESHARD_NEVER : FSDP_RESHARD_AUTO,
                           .seed = t->opt.seed,
                           .layout = t->opt.layout == 1 ? per_parameter_layout : flat_layout};
    MixedPrecisionPolicy policy = t->opt.policy;
    bool ddp = t->opt.strategic && t->opt.strategy == STRATEGY_DDP, staged = t->opt.stages > 1;
    if (t->opt.freeze != NULL) TRY(params_freeze(t->model, t->opt.freeze));
    if (staged) TRY(stages_cut(t));
    if (t->opt.strategic)
        TRY(mesh_2d(&t->mesh, staged ? t->stages.group.comm : t->comm,
                    ddp ? t->places : t->opt.replicas));
    else
        TRY(mesh_1d(&t->mesh, t->comm));
    TRY(fsdp_context_create(&t->ctx, &t->mesh, t->stream));
    report_own_code(files, NULL);
    report_streams(&t->ctx);
    for (int i = 0; i < t->model->n_children && !staged; i++)
        if (!ddp && strncmp(t->model->children[i]->name, "h.", 2) == 0)
            TRY(fully_shard(t->model->children[i], &t->ctx, &options));
    TRY(staged ? stages_shard(t, &options) : fully_shard(t->model, &t->ctx, &options));
    StrategyOptions strategy = {.strategy = t->opt.strategy,
                                .reduce_every_time = t->opt.reduce_every_time,
                                .reshard_ranks = t->opt.reshard_ranks};
    if (t->opt.strategic) TRY(strategy_apply(t->model, &strategy));
    if (t->opt.offload) TRY(offload_apply(t->model));
    if (staged) pipeline_policy(&t->stages, &policy);
    if (t->opt.mixed) TRY(precision_apply(t->model, &policy));
    if (t->opt.gather == 1) TRY(fp8_apply(t->model, NULL));
    PrefetchOptions ahead = {t->opt.prefetch, t->opt.prefetch, 0};
    if (t->opt.prefetches) TRY(prefetch_apply(t->model, &ahead));
    if (t->opt.recompute != RECOMPUTE_NONE)
        TRY(recompute_apply_every(t->model, t->opt.recompute,
                                  t->opt.recompute_every > 0 ? t->opt.recompute_every : 1));
    t->scaler = LOSS_SCALER_DEFAULTS;
    if (scales(t)) TRY(loss_scaler_create(&t->scaler, t->model));
    TRY(fsdp_adamw_create(&t->adamw, t->model, &t->ctx, &t->opt.adamw));
    if (t->opt.decay_groups) param_groups_apply(&t->adamw, &PARAMS_DECAY_MATRICES);
    return staged ? stages_create(t) : graph_steps_create(t);
}

Status trainer_create(Trainer *t)
{
    size_t bytes = (size_t)t->opt.B * (size_t)t->opt.T * sizeof(int32_t);
    int stages = t->opt.stages > 1 ? t->opt.stages : 1;
    if (stages > 1) bytes *= (size_t)t->opt.accumulate; // all of a step are in flight
    t->batch_bytes = 2 * bytes;
    t->places = t->world.size / stages;
    t->place = t->world.rank % t->places;
    t->parameters = meta_count(t->model);
    last_words_step();
    CUDA_TRY(cudaStreamCreate(&t->stream));
    TRY(nn_run_create(&t->run, t->stream));
    TRY(t->opt.unsharded ? create_unsharded(t) : create_sharded(t));
    CUDA_TRY(cudaGetDevice(&t->device));
    CUDA_TRY(cudaMalloc((void **)&t->tokens, bytes));
    CUDA_TRY(cudaMalloc((void **)&t->targets, bytes));
    return OK;
}

Status trainer_destroy(Trainer *t)
{
    CUDA_TRY(cudaFree(t->tokens));
    CUDA_TRY(cudaFree(t->targets));
    if (t->opt.unsharded) {
        plain_adamw_destroy(t->plain);
        meta_release(t->model);
    } else {
        TRY(graph_steps_destroy(t));
        fsdp_adamw_destroy(&t->adamw);
        if (scales(t)) loss_scaler_destroy(&t->scaler);
        TRY(stages_destroy(t));
        if (t->opt.recompute != RECOMPUTE_NONE) TRY(recompute_remove(t->model));
        if (t->opt.prefetches) TRY(prefetch_remove(t->model));
        if (t->opt.gather == 1) TRY(fp8_remove(t->model));
        if (t->opt.mixed) TRY(precision_remove(t->model));
        if (t->opt.offload) TRY(offload_remove(t->model));
        if (t->opt.strategic) TRY(strategy_remove(t->model));
        fsdp_unwrap(t->model);
        TRY(fsdp_context_destroy(&t->ctx));
        bool staged = t->opt.stages > 1;
        if (t->opt.strategic) TRY(mesh_destroy(&t->mesh, staged ? t->stages.group.comm : t->comm));
        if (staged) TRY(pipeline_mesh_destroy(&t->stages));
    }
    module_destroy(t->model);
    TRY(nn_run_destroy(&t->run));
    CUDA_TRY(cudaStreamDestroy(t->stream));
    return OK;
}

// ---- What ranks tell each other ----

Status mean_over_ranks(Trainer *t, float *value)
{
    float *device = NULL;
    if (t->world.size == 1) return OK;
    CUDA_TRY(cudaMalloc((void **)&device, sizeof *value));
    CUDA_TRY(cudaMemcpyAsync(device, value, sizeof *value, cudaMemcpyHostToDevice, t->stream));
    NCCL_TRY(ncclAllReduce(device, device, 1, ncclFloat, ncclSum, t->comm, t->stream));
    CUDA_TRY(cudaMemcpyAsync(value, device, sizeof *value, cudaMemcpyDeviceToHost, t->stream));
    CUDA_TRY(cudaStreamSynchronize(t->stream));
    CUDA_TRY(cudaFree(device));
    *value /= (float)t->world.size;
    return OK;
}

Status gather_over_ranks(Trainer *t, const uint64_t *mine, int n, uint64_t *all)
{
    uint64_t *device = NULL, *own;
    size_t size = (size_t)t->world.size, count = (size_t)n, bytes = count * sizeof *mine;
    if (size == 1) {
        memcpy(all, mine, bytes);
        return OK;
    }
    CUDA_TRY(cudaMalloc((void **)&device, size * bytes));
    own = device + (size_t)t->world.rank * count;
    CUDA_TRY(cudaMemcpyAsync(own, mine, bytes, cudaMemcpyHostToDevice, t->stream));
    NCCL_TRY(ncclAllGather(own, device, count, ncclUint64, t->comm, t->stream));
    CUDA_TRY(cudaMemcpyAsync(all, device, size * bytes, cudaMemcpyDeviceToHost, t->stream));
    CUDA_TRY(cudaStreamSynchronize(t->stream));
    CUDA_TRY(cudaFree(device));
    return OK;
}

Status agree_over_ranks(Trainer *t, Status mine)
{
    uint64_t own = (uint64_t)mine, *all = malloc((size_t)t->world.size * sizeof *all);
    Status status = all != NULL ? gather_over_ranks(t, &own, 1, all) : ERR_MEMORY;
    for (int i = 0; i < t->world.size && status == OK && mine == OK; i++)
        if (all[i] != OK) mine = ERR_IO;
    free(all);
    return status != OK ? status : mine;
}

// ---- Training ----

// Copies a batch to the device. cudaMemcpy from pageable memory: the compute stream, a blocking
// one, comes after it.
static Status load_batch(Trainer *t, const int32_t *in, const int32_t *targets, int B, int T)
{
    size_t bytes = (size_t)B * (size_t)T * sizeof *in;
    CUDA_TRY(cudaMemcpy(t->tokens, in, bytes, cudaMemcpyHostToDevice));
    if (targets != NULL) CUDA_TRY(cudaMemcpy(t->targets, targets, bytes, cudaMemcpyHostToDevice));
    t->run.B = B;
    t->run.T = T;
    return OK;
}

// Adds the squares of every gradient of the module to *sum (NULL: nothing), then scales the
// gradients by `factor` (1: not). A tied parameter is the embedding's, which comes first, and the
// head's.
static cudaError_t walk_grads(const Trainer *t, const Module *m, double *sum, float factor)
{
    cudaError_t error = cudaSuccess;
    const Module *embed = t->model->children[0];
    for (int i = 0; i < m->n_params && error == cudaSuccess; i++) {
        size_t n = 1;
        if (m != embed && m->params[i] == embed->params[0]) continue;
        for (int d = 0; d < m->params[i]->ndim; d++) n *= (size_t)m->params[i]->shape[d];
        if (sum != NULL)
            error = kernel_sum_squares(sum, m->params[i]->grad.data, n, t->stream);
        else
            error = kernel_scale(m->params[i]->grad.data, factor, n, t->stream);
    }
    for (int i = 0; i < m->n_children && error == cudaSuccess; i++)
        error = walk_grads(t, m->children[i], sum, factor);
    return error;
}

// What fsdp_clip_grad_norm does, where every gradient is here.
static Status clip_unsharded(Trainer *t)
{
    double *sum = NULL, host = 0.0;
    CUDA_TRY(cudaMallocAsync((void **)&sum, sizeof *sum, t->stream));
    CUDA_TRY(cudaMemsetAsync(sum, 0, sizeof *sum, t->stream));
    CUDA_TRY(walk_grads(t, t->model, sum, 1.0f));
    CUDA_TRY(cudaMemcpyAsync(&host, sum, sizeof host, cudaMemcpyDeviceToHost, t->stream));
    CUDA_TRY(cudaStreamSynchronize(t->stream));
    CUDA_TRY(cudaFreeAsync(sum, t->stream));
    t->norm = (float)sqrt(host);
    if (t->norm > t->opt.clip) CUDA_TRY(walk_grads(t, t->model, NULL, t->opt.clip / t->norm));
    return OK;
}

// Whether the optimizer takes the step, by the gradient's norm, which all ranks have alike.
static Status judge_norm(Trainer *t, int step)
{
    const TrainerOptions *o = &t->opt;
    bool spikes = o->spike > 0.0f && t->norm > o->spike;
    t->skipped = (!isfinite(t->norm) || spikes) && o->on_nan != ON_NAN_GO_ON;
    if (!t->skipped || o->on_nan == ON_NAN_SKIP) return OK;
    check_set_silent(t->world.rank != 0);
    return fail(ERR_ARGUMENT,
                "step %d: the gradient's norm is %g%s: stopped before the optimizer took it "
                "(--on-nan skip leaves such steps out)",
                step, (double)t->norm, spikes ? ", above --spike" : "");
}

// The optimizer's step with a loss that was scaled.
static Status update_scaled(Trainer *t, int step)
{
    TRY(loss_scaler_unscale(&t->scaler));
    t->skipped = t->scaler.found_inf;
    if (t->skipped) {
        t->norm = INFINITY;
    } else {
        TRY(fsdp_clip_grad_norm(t->model, &t->ctx, t->opt.clip, &t->norm));
        TRY(judge_norm(t, step));
    }
    if (!t->skipped) TRY(loss_scaler_step(&t->scaler, &t->adamw));
    return loss_scaler_update(&t->scaler);
}

static Status update(Trainer *t, int step)
{
    if (t->opt.unsharded) {
        TRY(clip_unsharded(t));
        TRY(judge_norm(t, step));
        plain_adamw_set_lr(t->plain, t->rate);
        if (!t->skipped) TRY(plain_adamw_step(t->plain));
        TRY(plain_adamw_zero_grad(t->plain));
    } else {
        t->adamw.config.lr = t->rate;
        if (scales(t)) {
            TRY(update_scaled(t, step));
        } else {
            TRY(t->pipeline != NULL
                    ? pipeline_clip_grad_norm(t->pipeline, t->opt.clip, &t->norm)
                    : fsdp_clip_grad_norm(t->model, &t->ctx, t->opt.clip, &t->norm));
            TRY(judge_norm(t, step));
            if (!t->skipped) TRY(fsdp_adamw_step(&t->adamw));
        }
        TRY(fsdp_zero_grad(t->model, &t->ctx));
    }
    return OK;
}

// The sequences of this rank's i-th micro-batch.
static int sequences(const Trainer *t, int step, int i)
{
    const TrainerOptions *o = &t->opt;
    return o->uneven ? 1 + (5 * t->place + 3 * i + step) % o->B : o->B;
}

// What a token's loss counts for, so that the reduced gradient is that of the mean over all tokens.
static Status token_scale(Trainer *t, int step, int n, float *scale)
{
    const TrainerOptions *o = &t->opt;
    int64_t tokens = 0;
    for (int i = 0; i < n; i++) tokens += (int64_t)sequences(t, step, i) * o->T;
    t->step_tokens = tokens * t->places;
    *scale = 1.0f / (float)tokens;
    // All ranks have as many: nothing has to be asked.
    if (!o->uneven || o->unsharded) return OK;
    return fsdp_token_scale(t->model, tokens, &t->step_tokens, scale);
}

Status trainer_step(Trainer *t, int step, const int32_t *in, const int32_t *targets, float *loss)
{
    const TrainerOptions *o = &t->opt;
    int n = o->accumulate > 1 ? o->accumulate : 1;
    size_t rows = (size_t)o->B * (size_t)o->T;
    float scale;
    uint64_t first = t->drawn + (uint64_t)(t->place * n * o->B);
    *loss = 0.0f;
    last_words_step();
    TRY(token_scale(t, step, n, &scale));
    t->rate = rate_of(&o->rate, o->adamw.lr, step, o->steps);
    if (t->graph != NULL) return graph_steps_run(t, in, targets, loss);
    if (t->pipeline != NULL) {
        TRY(load_batch(t, in, targets, n * o->B, o->T));
        TRY(stages_step(t, step, scale, sequences, loss));
        return update(t, step);
    }
    for (int i = 0; i < n; i++) {
        float *logits, *din, one;
        int B = sequences(t, step, i);
        if (o->strategic) TRY(strategy_micro_batch(t->model, i, n));
        if (o->reduce_replicas_once) TRY(fsdp_set_requires_all_reduce(t->model, i == n - 1));
        t->run.dropout = (Dropout){o->dropout, o->seed, first + (uint64_t)(i * o->B)};
        TRY(load_batch(t, in + (size_t)i * rows, targets + (size_t)i * rows, B, o->T));
        TRY(regroup_record(t, i, n));
        TRY(module_forward(t->model, &t->run, t->tokens, &logits));
        TRY(cross_entropy_in_place(&t->run, logits, t->targets, B * o->T, o->model.vocab, scale,
                                   &one));
        if (scales(t))
            TRY(loss_scaler_scale(&t->scaler, logits, (size_t)(B * o->T) * (size_t)o->model.vocab,
                                  t->stream));
        TRY(module_backward(t->model, &t->run, logits, &din)); // by now they are their gradient
        TRY(regroup_by_record(t, i, n));
        *loss += one * scale * (float)(B * o->T);
    }
    t->run.dropout.p = 0.0f; // until the next step: what is evaluated or written drops nothing
    return update(t, step);
}

void trainer_scale(Trainer *t, float *scale, int *growth_tracker, bool set)
{
    if (!scales(t)) return;
    if (set && *scale > 0.0f) {
        t->scaler.scale = *scale;
        t->scaler.growth_tracker = *growth_tracker;
    }
    *scale = t->scaler.scale;
    *growth_tracker = t->scaler.growth_tracker;
}

// What a forward without a backward leaves unsharded: at least the root.
static Status reshard_all(Trainer *t)
{
    TRY(fsdp_reshard(fsdp_unit(t->model)));
    for (int i = 0; i < t->model->n_children; i++) {
        FsdpUnit *block = fsdp_unit(t->model->children[i]);
        if (block != NULL) TRY(fsdp_reshard(block));
    }
    return OK;
}

// A forward of B·T tokens that no backward follows: *loss where targets is not NULL, and the logits
// from row `first` on where `logits` is not.
static Status evaluate(Trainer *t, const int32_t *targets, int first, float *loss, float *logits)
{
    int rows = t->run.B * t->run.T, vocab = t->opt.model.vocab;
    float *out;
    if (t->opt.strategic) TRY(fsdp_set_training(t->model, false));
    TRY(module_forward(t->model, &t->run, t->tokens, &out));
    if (t->opt.strategic) TRY(fsdp_set_training(t->model, true));
    if (targets != NULL) TRY(cross_entropy(&t->run, out, t->targets, rows, vocab, loss, NULL));
    if (logits != NULL) {
        size_t before = (size_t)first * (size_t)vocab;
        size_t bytes = ((size_t)rows * (size_t)vocab - before) * sizeof *logits;
        CUDA_TRY(cudaMemcpyAsync(logits, out + before, bytes, cudaMemcpyDeviceToHost, t->stream));
        CUDA_TRY(cudaStreamSynchronize(t->stream));
    }
    TRY(module_discard(t->model, &t->run));
    if (!t->opt.unsharded) TRY(reshard_all(t));
    return OK;
}

Status trainer_forward(Trainer *t, const int32_t *in, const int32_t *targets, int B, int T,
                       float *loss, float *logits)
{
    last_words_step();
    TRY(load_batch(t, in, targets, B, T));
    if (t->pipeline != NULL && logits != NULL)
        return fail(ERR_ARGUMENT, "only the last stage of a pipeline has logits");
    if (t->pipeline != NULL) return stages_evaluate(t, B, loss);
    return evaluate(t, targets, 0, loss, logits);
}

Status trainer_next(Trainer *t, const int32_t *in, int T, float *logits)
{
    last_words_step();
    TRY(load_batch(t, in, NULL, 1, T));
    TRY(evaluate(t, NULL, T - 1, NULL, logits));
    t->run.cache->length += T;
    return OK;
}

Status trainer_unsharded_peak(Trainer *t, size_t *peak)
{
    float *logits, *dlogits, *din;
    PlainAdamW *adamw;
    int B = t->opt.B, T = t->opt.T;
    Module *model = model_create(&t->opt.model, &t->opt.llama);
    if (model == NULL) return ERR_MEMORY;
    last_words_step();
    CUDA_TRY(cudaStreamSynchronize(t->stream));
    size_t before = gpulog_live_bytes(t->device);
    gpulog_reset_peak(t->device);
    CUDA_TRY(cudaMemset(t->tokens, 0, (size_t)B * (size_t)T * sizeof *t->tokens));
    CUDA_TRY(cudaMemset(t->targets, 0, (size_t)B * (size_t)T * sizeof *t->targets));
    t->run.B = B;
    t->run.T = T;
    TRY(meta_materialize(model, t->opt.seed, t->stream));
    TRY(plain_adamw_create(&adamw, model, &t->opt.adamw, &t->run));
    TRY(module_forward(model, &t->run, t->tokens, &logits));
    TRY(cross_entropy(&t->run, logits, t->targets, B * T, t->opt.model.vocab, NULL, &dlogits));
    TRY(module_backward(model, &t->run, dlogits, &din));
    CUDA_TRY(cudaFreeAsync(dlogits, t->stream));
    plain_adamw_destroy(adamw);
    meta_release(model);
    module_destroy(model);
    *peak = gpulog_peak_bytes(t->device) - before;
    return OK;
}
