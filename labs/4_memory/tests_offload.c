/* Lab 4, offload: shards and their copies, replicas, the host's step and norm, what is refused.
 */
#include <math.h>
#include <stdlib.h>

#include "backend.h"
#include "host_kernels.h"
#include "kernels.h"
#include "narrow.h"
#include "snapshot.h"
#include "tests.h"

// ---- Offload ----

Case offloaded(Spec spec, Strategy strategy, int world)
{
    Case c = case_of(spec, strategy, world, 1, 1);
    c.offload = true;
    return c;
}

TEST(offloaded_training_follows_the_oracle)
{
    static const MixedPrecisionPolicy policies[] = {{DTYPE_BF16, DTYPE_F32, DTYPE_F32, true},
                                                    {DTYPE_F16, DTYPE_F16, DTYPE_F32, true}};
    for (int world = 1; world <= 8; world += world == 5 ? 3 : 1) {
        Case c = offloaded(spec_mlp(3), ALL[1 + world % 3], world);
        c.rounds = 1 + world % 3;
        c.options.reduce_every_time = c.options.strategy != STRATEGY_ZERO1 && world % 4 < 2;
        if (world % 3 == 1) c.policy = &policies[world % 2];
        run_case(world, &c);
        c.options.reduce_every_time = c.options.strategy != STRATEGY_ZERO1;
        c.rounds = 2;
        c.policy = NULL;
        run_case(world, &c);
    }
    Case gpt2 = offloaded(spec_gpt2(2), STRATEGY_ZERO3, 2);
    run_case(2, &gpt2);
    RULE(micro_batches_add_up);
    RULE(a_failed_pass_is_over, RECOMPUTE_NONE, true);
}

TEST(replicas_are_added_before_the_copy)
{
    for (int i = 0; i < 4; i++) {
        Case c = offloaded(spec_mlp(3), i % 2 ? STRATEGY_ZERO2 : STRATEGY_ZERO3, i < 2 ? 4 : 6);
        c.replicas = 2;
        c.rounds = 1 + i;
        c.partial = i > 1;
        c.options.reduce_every_time = i == 1;
        run_case(i < 2 ? 4 : 6, &c);
    }
}

// Whether the entry copies between this device and the host, to the device or from it.
bool is_copy(const GpuLogEntry *entry, bool to_device)
{
    if (entry->op != GPU_COPY) return false;
    return to_device ? entry->from == GPULOG_HOST && entry->to >= 0
                     : entry->to == GPULOG_HOST && entry->from >= 0;
}

// The entries of the log since `first`: copies to the device, and all-gathers. Returns how many
// there are of those that `what` asks for.
int find_entries(uint64_t first, GpuOp what, bool to_device, uint64_t *out, int max)
{
    int n = 0;
    for (uint64_t i = first; i < gpulog_length(); i++) {
        GpuLogEntry entry;
        if (!gpulog_get(i, &entry)) continue;
        bool wanted =
            what == GPU_COPY ? is_copy(&entry, to_device) && !entry.host_waits : entry.op == what;
        if (wanted && n < max) out[n] = i;
        n += wanted;
    }
    return n;
}

static void check_copy(const Wrapped *w, const FlatParam *flat, uint64_t at)
{
    GpuLogEntry entry;
    check(gpulog_get(at, &entry), "the log has no entry %llu", (unsigned long long)at);
    check(entry.stream == w->root->extensions->offload->to_device,
          "the copy of %s's shard is queued on another stream than the one to the device: "
          "offload_all_gather",
          flat->name);
    check(entry.bytes == buffer_bytes(&flat->sharded_param),
          "%zu bytes of %s cross the bus, want %zu: the rank's shard, in float", entry.bytes,
          flat->name, buffer_bytes(&flat->sharded_param));
}

static void gathers_body(Wrapped *w, const Case *c, const Rank *r)
{
    uint64_t copies[8], gathers[8], first;
    for (int u = 0; u < w->root->n_units; u++) {
        FsdpUnit *unit = w->root->units[u];
        FlatParam *flat = &unit->flat;
        size_t n = (size_t)flat->layout.shard_numel;
        const float *shard = flat->sharded_param.data;
        first = gpulog_length();
        need(fsdp_unshard(unit));
        check(flat->sharded_param.data == shard, "after an all-gather %s's shard is not the host's",
              flat->name);
        need(fsdp_wait_for_unshard(unit));
        need_cuda(cudaDeviceSynchronize());
        check_no_race(first);
        check(find_entries(first, GPU_COPY, true, copies, 8) == 1,
              "%s was copied to the device %d times in a stream's order, want once: "
              "offload_all_gather",
              flat->name, find_entries(first, GPU_COPY, true, copies, 8));
        check_copy(w, flat, copies[0]);
        if (find_entries(first, GPU_ALL_GATHER, true, gathers, 8) == 1)
            check(log_ordered(copies[0], gathers[0]),
                  "the all-gather of %s does not wait for the copy of its shard", flat->name);
        DType type = flat->unsharded_param.dtype;
        float *got = fetch_typed(type, flat->unsharded_param.data, (size_t)flat->layout.padded);
        for (size_t i = 0; i < n; i++)
            check(got[(size_t)flat->layout.rank * n + i] == half_float(type, shard[i]),
                  "element %zu of %s's shard is %.9g on the host and was gathered as %.9g", i,
                  flat->name, (double)shard[i], (double)got[(size_t)flat->layout.rank * n + i]);
        free(got);
        need(fsdp_reshard(unit));
    }
}

TEST(shards_are_copied_before_the_gather)
{
    static const MixedPrecisionPolicy bf16 = {DTYPE_BF16, DTYPE_F32, DTYPE_F32, true};
    for (int world = 1; world <= 4; world++) {
        Case c = offloaded(spec_mlp(4), STRATEGY_ZERO3, world);
        run_wrapped(world, gathers_body, &c);
        c.policy = &bf16;
        run_wrapped(world, gathers_body, &c);
    }
}

// ---- The host's work ----

static void host_step_body(const Rank *r, void *arg)
{
    for (size_t n = 1; n < 200; n += 37) {
        float *host[4], *device[4];
        for (int k = 0; k < 4; k++) {
            host[k] = malloc(n * sizeof(float));
            check(host[k] != NULL, "no memory");
            for (size_t i = 0; i < n; i++)
                host[k][i] = 0.01f * (float)((int)(i * 7 + (size_t)k * 5) % 23 - (k == 3 ? 0 : 11));
            need_cuda(cudaMalloc((void **)&device[k], n * sizeof(float)));
            send_to(device[k], host[k], n);
        }
        for (int t = 1; t < 4; t++) {
            need_cuda(kernel_adamw(device[0], device[1], device[2], device[3], n, 1e-3f, 0.9f,
                                   0.99f, 1e-8f, 0.1f, t, r->stream));
            host_adamw(host[0], host[1], host[2], host[3], n, 1e-3f, 0.9f, 0.99f, 1e-8f, 0.1f, t);
        }
        for (int k = 0; k < 4; k++) {
            float *got = fetch(device[k], n);
            check_near("AdamW by the host and by the kernel", host[k], got, n,
                       backend_sums_in_tree_order(2) ? 0.0 : 1e-6);
            need_cuda(cudaFree(device[k]));
            free(host[k]);
            free(got);
        }
    }
}

static void norm_body(Wrapped *w, const Case *c, const Rank *r)
{
    float norm, clipped, step = c->rounds > 1 ? 0.25f : 4.0f;
    if (r->world == 3) step = 1e20f; // whose square is none of a float's
    double want = 0.0;
    // Rank k's gradients are k + 1, each element; the padding is 0.
    for (int u = 0; u < w->root->n_units; u++) {
        const FlatLayout *layout = &w->root->units[u]->flat.layout;
        float *grad = w->root->units[u]->flat.sharded_grad.data;
        for (int64_t i = 0; i < flat_valid_numel(layout, layout->rank); i++)
            grad[i] = step * (float)(layout->rank + 1);
        for (int k = 0; k < layout->world; k++)
            want += (double)flat_valid_numel(layout, k) * pow(step * (k + 1), 2.0);
    }
    need(fsdp_grad_norm(w->model, &w->ctx, &norm));
    check(fabs((double)norm - sqrt(want)) <= 1e-6 * sqrt(want),
          "offload_sum_squares: the norm of all ranks' gradients is %.9g, want %.9g%s",
          (double)norm, sqrt(want),
          r->world > 1 ? ": each rank knows only its own shards, and replicas count once" : "");
    need(fsdp_clip_grad_norm(w->model, &w->ctx, 2.0f * norm, &clipped));
    need(fsdp_clip_grad_norm(w->model, &w->ctx, 0.5f * norm, &clipped));
    check(clipped == norm, "clipping says a norm of %.9g, want %.9g", (double)clipped,
          (double)norm);
    for (int u = 0; u < w->root->n_units; u++) {
        const FlatLayout *layout = &w->root->units[u]->flat.layout;
        const float *grad = w->root->units[u]->flat.sharded_grad.data;
        for (int64_t i = 0; i < flat_valid_numel(layout, layout->rank); i++)
            check(grad[i] == 0.5f * norm / norm * (step * (float)(layout->rank + 1)),
                  "clipped to half, a gradient of %g is %.9g",
                  (double)(step * (float)(layout->rank + 1)), (double)grad[i]);
    }
    need(fsdp_zero_grad(w->model, &w->ctx));
    need(fsdp_grad_norm(w->model, &w->ctx, &norm));
    check(norm == 0.0f, "zeroed gradients have a norm of %g", (double)norm);
    for (int pass = 0; pass < 2; pass++) // what is in a gradient's padding is nobody's
        for (int u = 0; u < w->root->n_units; u++) {
            const FlatParam *flat = &w->root->units[u]->flat;
            const float *values = flat->sharded_param.data;
            float *grad = flat->sharded_grad.data;
            if (pass == 1 && u == 0) need(fsdp_adamw_step(&w->adamw));
            const AdamWConfig *config = &w->adamw.config;
            if (flat_valid_numel(&flat->layout, flat->layout.rank) > 0 && pass == 0) grad[0] = 3.0f;
            if (flat_valid_numel(&flat->layout, flat->layout.rank) > 0 && pass == 1)
                check(w->adamw.m[u][0] == (1.0f - config->beta1) * 3.0f &&
                          fabsf(w->adamw.v[u][0] - (1.0f - config->beta2) * 9.0f) <= 1e-6f,
                      "after a step with a gradient of 3 offload_adamw_step has moments of %g and "
                      "%g",
                      (double)w->adamw.m[u][0], (double)w->adamw.v[u][0]);
            for (int64_t i = flat_valid_numel(&flat->layout, flat->layout.rank);
                 i < flat->layout.shard_numel; i++) {
                grad[i] = 7.0f;
                check(values[i] == 0.0f, "after offload_adamw_step the padding of %s is %g, want 0",
                      flat->name, (double)values[i]);
            }
        }
}

TEST(the_host_steps_and_clips)
{
    run_ranks(1, host_step_body, NULL);
    for (int world = 1; world <= 8; world++) {
        Case c = offloaded(spec_mlp(3), STRATEGY_ZERO3, world);
        if (world % 4 == 0) c.replicas = 2;
        c.rounds = 1 + world % 2;
        run_wrapped(world, norm_body, &c);
    }
}

// ---- What does not go together, and what is left ----

static void suits_body(const Rank *r, void *arg)
{
    const MixedPrecisionPolicy bf16 = {DTYPE_BF16, DTYPE_F32, DTYPE_F32, true};
    Case c = case_of(spec_mlp(3), STRATEGY_ZERO3, r->world, 1, 1);
    Wrapped w;
    case_wrap(&w, &c, r);
    need(fsdp_unshard(w.root->units[1]));
    need_refused_whole(w.model, &w.adamw, offload_apply(w.model), "in the middle of a step");
    need(fsdp_reshard_all(w.model));
    need(precision_apply(w.model, &bf16));
    need_refused_whole(w.model, &w.adamw, offload_apply(w.model),
                       "call offload_apply before precision_apply");
    need(precision_remove(w.model));
    need(offload_apply(w.model));
    need_refused_whole(w.model, &w.adamw, offload_apply(w.model), "is offloaded already");
    need_refused_whole(w.model, &w.adamw, fsdp_adamw_step(&w.adamw),
                       "was made before offload_apply");
    FsdpAdamW host;
    need(fsdp_adamw_create(&host, w.model, &w.ctx, &TEST_ADAMW));
    need_refused_whole(w.model, &w.adamw, offload_remove(w.model), "fsdp_adamw_destroy");
    case_train(&w, &c, r, 0);
    need(fsdp_adamw_step(&host));
    need(fsdp_sgd_step(w.model, &w.ctx, 0.1f, 0.1f));
    fsdp_adamw_destroy(&host);
    need(offload_remove(w.model));
    check(offload_remove(w.model) == ERR_ARGUMENT, "what is not on was taken off");
    check(w.root->units[0]->all_gather == fsdp_all_gather &&
              w.root->ops.adamw_step == fsdp_adamw_step_default,
          "offload that was taken off has left something");
    case_train(&w, &c, r, 1);
    need(fsdp_adamw_step(&w.adamw));
    case_unwrap(&w, r);
    Case ddp = case_of(spec_mlp(3), STRATEGY_DDP, r->world, 1, 1);
    case_wrap(&w, &ddp, r);
    need_refused_whole(w.model, &w.adamw, offload_apply(w.model),
                       "DDP keeps everything on the device");
    case_unwrap(&w, r);
}

static void slices_body(const Rank *r, void *arg)
{
    Case c = case_of(spec_mlp(3), STRATEGY_ZERO3, r->world, 1, 1);
    Wrapped w;
    c.options.reshard_ranks = 2;
    case_wrap(&w, &c, r);
    need_refused_whole(w.model, &w.adamw, offload_apply(w.model), "reshard_ranks keeps slices");
    case_unwrap(&w, r);
}

TEST(offload_suits_the_strategy)
{
    run_ranks(2, suits_body, NULL);
    run_ranks(4, slices_body, NULL);
    RULE(offload_leaves_nothing);
}
