/* Units with frozen parameters under the six files alone, without a strategy: which views there
 * are, what shards and moments take, and what the optimizer's functions touch. (simgpu reports what
 * reaches past a gradient shard, which is shorter than the shard.)
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend.h"
#include "harness.h"
#include "per_parameter.h"
#include "random_model.h"
#include "training.h"

// Blocks of frozen layers, each with an adapter. A block is a unit; or its sequences are, some of
// which are all frozen.
static const RandomModel ADAPTERS = {
    .in_dim = 7, .out_dim = 5, .blocks = 3, .layers = 2, .width = 13, .adapter = 2};

// Where the unit's gradients are views, behind its own hook.
static Status check_grad_views(Module *module, void *arg)
{
    const FlatParam *flat = &((FsdpUnit *)arg)->flat;
    bool trains = false;
    for (int i = 0; i < flat->layout.n; i++) {
        const Param *param = flat->layout.params[i];
        trains |= !param->frozen;
        check((param->grad.data != NULL) == !param->frozen,
              "%s, which %s, has %s gradient in its backward", param->name,
              param->frozen ? "is frozen" : "trains", param->grad.data != NULL ? "a" : "no");
    }
    check((flat->unsharded_grad.data != NULL) == trains, "%s has %s unsharded gradient", flat->name,
          trains ? "no" : "an");
    return OK;
}

static void pass(NnRun *run, Module *model, const Batch *batch, const Spec *spec)
{
    float *logits, *dlogits, *din = NULL, loss;
    run->B = spec->B;
    run->T = 1;
    need(module_forward(model, run, batch->in, &logits));
    need(cross_entropy(run, logits, batch->targets, spec->B, spec->vocab, &loss, &dlogits));
    need(module_backward(model, run, dlogits, &din));
    need_cuda(cudaFreeAsync(dlogits, run->stream));
    need_cuda(cudaFreeAsync(din, run->stream));
    need_cuda(cudaDeviceSynchronize());
}

// A unit that is all frozen asks for no gradient, not even one of no bytes.
static void check_no_empty_memory(uint64_t first)
{
    for (uint64_t i = first; i < gpulog_length(); i++) {
        GpuLogEntry entry;
        check(!gpulog_get(i, &entry) || entry.op != GPU_ALLOC || entry.bytes > 0,
              "memory of no bytes was allocated");
    }
}

// Each rank's batch is the same: the average is the gradient of one process, for 2 and 4 ranks
// bitwise. Frozen parameters stay what they are.
static void compare(const FsdpRoot *root, const Plain *plain, bool grads)
{
    Param *params[64];
    int n = meta_params(plain->model, params, 64);
    for (int u = 0; u < root->n_units; u++) {
        const FlatParam *flat = &root->units[u]->flat;
        for (int i = 0; i < flat->layout.n; i++) {
            const Param *param = flat->layout.params[i];
            int64_t begin, end, at;
            int k = 0;
            while (k < n && strcmp(params[k]->name, param->name) != 0) k++;
            flat_param_range_in_shard(&flat->layout, i, flat->layout.rank, &begin, &end, &at);
            if (begin == end || (grads && param->frozen)) continue;
            const Buffer *shard = grads ? &flat->sharded_grad : &flat->sharded_param;
            const Buffer *whole = grads ? &params[k]->grad : &params[k]->data;
            float *got = fetch((float *)shard->data + at, (size_t)(end - begin));
            float *want = fetch((float *)whole->data + begin, (size_t)(end - begin));
            check_equal(param->name, got, want, (size_t)(end - begin));
            free(got);
            free(want);
        }
    }
}

// Two steps of both: the same gradients before each step, the same parameters after it.
static void train_both(Module *model, FsdpContext *ctx, FsdpAdamW *adamw, Plain *plain,
                       const Batch *batch)
{
    const FsdpRoot *root = fsdp_unit(model)->root;
    for (int step = 0; step < 2; step++) {
        need(fsdp_zero_grad(model, ctx));
        need(plain_adamw_zero_grad(plain->adamw));
        uint64_t first = gpulog_length();
        pass(&plain->run, model, batch, &plain->spec);
        check_no_empty_memory(first);
        pass(&plain->run, plain->model, batch, &plain->spec);
        compare(root, plain, true);
        need(fsdp_adamw_step(adamw));
        need(plain_adamw_step(plain->adamw));
        need_cuda(cudaDeviceSynchronize());
        compare(root, plain, false);
    }
}

static void frozen_body(const Rank *r, void *arg)
{
    RandomModel described = ADAPTERS;
    described.units = *(const RandomUnits *)arg;
    const FsdpOptions options = {.seed = 42, .layout = per_parameter_layout};
    Spec spec = {.layers = 1, .B = 6, .T = 1, .in_dim = 7, .vocab = 5};
    Batch batch = batch_create(&spec, 3);
    Plain plain = {.spec = spec, .model = random_model_create(&described)};
    Module *model = random_model_create(&described);
    FsdpContext ctx;
    FsdpAdamW adamw;
    float norm, clipped;
    random_model_freeze_base(&described, plain.model);
    random_model_freeze_base(&described, model);
    need(nn_run_create(&plain.run, r->stream));
    need(meta_materialize(plain.model, 42, r->stream));
    need(plain_adamw_create(&plain.adamw, plain.model, &TEST_ADAMW, &plain.run));
    make_context(&ctx, r);
    size_t before = gpulog_live_bytes(r->device), shards = 0, grads = 0;
    need(random_model_shard(&described, model, &ctx, &options));
    need(fully_shard(model, &ctx, &options));
    FsdpRoot *root = fsdp_unit(model)->root;
    for (int u = 0; u < root->n_units; u++) {
        shards += buffer_bytes(&root->units[u]->flat.sharded_param);
        grads += buffer_bytes(&root->units[u]->flat.sharded_grad);
        check(module_add_hook(root->units[u]->module, HOOK_PRE_BACKWARD, check_grad_views,
                              root->units[u]) != NULL,
              "no hook");
    }
    size_t after = gpulog_live_bytes(r->device);
    check(after - before == shards + grads, "the shards take %zu bytes, want %zu", after - before,
          shards + grads);
    need(fsdp_adamw_create(&adamw, model, &ctx, &TEST_ADAMW));
    before = after;
    after = gpulog_live_bytes(r->device);
    check(after - before == 2 * grads, "the moments take %zu bytes, want %zu: of what trains",
          after - before, 2 * grads);
    train_both(model, &ctx, &adamw, &plain, &batch);
    need(fsdp_clip_grad_norm(model, &ctx, 1e-3f, &norm));
    need(fsdp_grad_norm(model, &ctx, &clipped));
    check(norm > 1e-3f && fabsf(clipped - 1e-3f) < 1e-8f,
          "the norm is %g, and %g after clipping to 1e-3", (double)norm, (double)clipped);
    need(fsdp_sgd_step(model, &ctx, 0.1f, 0.1f));
    need_cuda(cudaDeviceSynchronize());
    fsdp_adamw_destroy(&adamw);
    fsdp_unwrap(model);
    module_destroy(model);
    need(fsdp_context_destroy(&ctx));
    batch_destroy(&batch);
    plain_destroy(&plain);
}

TEST(frozen_units_train_without_a_strategy)
{
    static const int WORLDS[] = {1, 2, 4};
    for (int i = 0; i < 6; i++) {
        RandomUnits units = i < 3 ? UNITS_BLOCKS : UNITS_ALL;
        run_ranks(WORLDS[i % 3], frozen_body, &units);
    }
}

SUITE_MAIN("frozen_units")
