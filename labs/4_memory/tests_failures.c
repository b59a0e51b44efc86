/* Lab 4, memory: what a call that fails leaves; what is in flight, or still there, when a call has
 * returned; one unit alone, and sums that nobody zeroed in between.
 */
#include <stdlib.h>
#include <string.h>

#include "huge.h"
#include "tests.h"

// ---- Sums ----

// Three passes, all of them reduced, and no fsdp_zero_grad in between.
static float *sum_of_three(const Case *c, const Rank *r, size_t *n)
{
    Wrapped w;
    case_wrap(&w, c, r);
    for (int k = 0; k < 3; k++) {
        Batch batch = case_batch(c, 0, r->rank, k);
        train_batch(&c->spec, &w.run, w.model, &batch);
        batch_destroy(&batch);
    }
    float *sum = case_gradients(&w, n);
    case_unwrap(&w, r);
    return sum;
}

static void unzeroed_body(const Rank *r, void *arg)
{
    Case c = *(const Case *)arg;
    size_t n, m;
    float *got = sum_of_three(&c, r, &n);
    c.offload = false;
    float *want = sum_of_three(&c, r, &m);
    check(n == m && memcmp(got, want, n * sizeof *got) == 0,
          "three backwards without fsdp_zero_grad in between do not leave the sum that they leave "
          "without offload: what the host has since the gradients were zeroed is added to "
          "(offload_begin_grad, has_grad)");
    free(got);
    free(want);
}

// What is on its way to the host is fetched from there.
static void arrived_body(Wrapped *w, const Case *c, const Rank *r)
{
    FsdpUnit *unit = w->root->units[0];
    uint64_t first = gpulog_length(), sent[2], fetched[2];
    need(fsdp_zero_grad(w->model, &w->ctx));
    need(offload_begin_grad(unit));
    need(offload_send_grad(unit));
    need(offload_begin_grad(unit));
    check(find_entries(first, GPU_COPY, false, sent, 2) == 1 &&
              find_entries(first, GPU_COPY, true, fetched, 2) == 1,
          "a gradient is sent to the host and fetched again: want one copy each way");
    check(log_ordered(sent[0], fetched[0]),
          "the copy from the host does not wait until what was sent has arrived there "
          "(offload_begin_grad)");
    need(offload_send_grad(unit));
    need(offload_wait(w->root->extensions->offload));
}

void rule_micro_batches_add_up(void)
{
    Case alone = offloaded(spec_mlp(1), STRATEGY_ZERO3, 2);
    run_wrapped(2, arrived_body, &alone);
    run_wrapped(1, arrived_body, &alone);
    for (int i = 1; i < 4; i++) { // one rank, by the last micro-batch alone
        Case c = offloaded(spec_mlp(3), ALL[i], 1);
        c.rounds = 3;
        run_case(1, &c);
    }
    for (int world = 1; world <= 4; world += world) { // one unit: no other's copy is in between
        Case c = offloaded(spec_mlp(1), STRATEGY_ZERO3, world);
        c.rounds = 3;
        c.replicas = world == 4 ? 2 : 1;
        c.options.reduce_every_time = true;
        run_case(world, &c);
    }
    Case c = offloaded(spec_mlp(3), STRATEGY_ZERO3, 2);
    run_worlds(unzeroed_body, &c, 1, 2);
}

// ---- What is in flight ----

// That the host has waited for the last copy to the device since `first`.
static void check_copied(uint64_t first, int unit, const OffloadState *state, const Rank *r)
{
    int64_t copy = -1;
    bool right = true; // the copy's stream
    uint64_t next = gpulog_length();
    GpuLogEntry entry;
    void *later;
    for (uint64_t i = first; i < next; i++)
        if (gpulog_get(i, &entry) && entry.op == GPU_COPY && entry.from == GPULOG_HOST) {
            copy = (int64_t)i;
            right = entry.stream == state->to_device;
        }
    need_cuda(cudaMallocAsync(&later, 1, r->stream));
    next = gpulog_length();
    need_cuda(cudaMemsetAsync(later, 0, 1, r->stream));
    need_cuda(cudaFreeAsync(later, r->stream));
    check(copy < 0 || log_ordered((uint64_t)copy, next),
          "unit %d was gathered, and after %s the copy of its shard to the device may still "
          "run" LIKELY "%s",
          unit, right ? "offload_wait" : "the host's wait",
          right ? "offload_wait waits for the stream to the host alone"
                : "offload_all_gather queues it on another stream than state->to_device");
}

static void in_flight_body(Wrapped *w, const Case *c, const Rank *r)
{
    size_t live = gpulog_live_bytes(r->device);
    for (int u = 0; u < w->root->n_units; u++) { // gathered, and nobody uses it
        float *shard = w->root->units[u]->flat.sharded_param.data;
        uint64_t first = gpulog_length();
        need(fsdp_unshard(w->root->units[u]));
        need(offload_wait(w->root->extensions->offload));
        check_copied(first, u, w->root->extensions->offload, r);
        shard[0] += 0.0f; // as the optimizer does
        check(w->root->extensions->offload->param.buffer == NULL,
              "after offload_wait a copy of a parameter shard is still there");
        need(fsdp_reshard_all(w->model));
    }
    need(fsdp_free_all_gather(w->root));
    Batch batch = case_batch(c, 0, r->rank, 0);
    need(fsdp_set_training(w->model, false));
    size_t before = gpulog_live_bytes(r->device);
    forward_batch(&c->spec, &w->run, w->model, &batch);
    need(fsdp_set_training(w->model, true));
    need(module_discard(w->model, &w->run));
    need(fsdp_reshard_all(w->model));
    check(gpulog_live_bytes(r->device) == before,
          "an evaluation leaves %zu bytes on the device: the last copy of a parameter shard goes "
          "with the outermost forward",
          gpulog_live_bytes(r->device) - before);
    batch_destroy(&batch);
    check(gpulog_live_bytes(r->device) == live, "the evaluations have left %zu bytes",
          gpulog_live_bytes(r->device) - live);
}

void rule_nothing_is_in_flight(void)
{
    for (int world = 1; world < 4; world++) {
        Case c = offloaded(spec_mlp(3), STRATEGY_ZERO3, world);
        run_wrapped(world, in_flight_body, &c);
    }
}

// ---- Sizes ----

static void huge_body(OneUnit *u, const Rank *r)
{
    static const StrategyOptions ZERO3 = {.strategy = STRATEGY_ZERO3};
    FsdpUnit *unit = u->unit;
    Buffer *shards[] = {&unit->flat.sharded_param, &unit->flat.sharded_grad};
    const int64_t numel = shards[0]->numel;
    const size_t want = buffer_bytes(shards[0]);
    for (int i = 0; i < 2; i++) shards[i]->numel = 8; // what offload_apply moves, it moves
    for (int i = 0; i < unit->flat.layout.n; i++) unit->flat.layout.params[i]->init = INIT_NONE;
    need(strategy_apply(u->model, &ZERO3));
    need(offload_apply(u->model));
    for (int i = 0; i < 2; i++) {
        need_cuda(cudaFreeHost(shards[i]->data));
        need_cuda(cudaMallocHost(&shards[i]->data, want));
        shards[i]->numel = numel;
    }
    offload_of(unit)->param = shards[0]->data;
    offload_of(unit)->grad = shards[1]->data;
    uint64_t first = gpulog_length();
    need(fsdp_unshard(unit));
    for (int i = 0; i < 2; i++) { // zeros, then what the host has
        offload_of(unit)->has_grad = i == 1;
        need(offload_begin_grad(unit));
        offload_drop(unit); // a copy to the host would be made, also in a dry run
    }
    need(offload_wait(unit->root->extensions->offload));
    int copies = 0;
    for (uint64_t i = first; i < gpulog_length(); i++) {
        GpuLogEntry entry;
        if (!gpulog_get(i, &entry) || (entry.op != GPU_COPY && entry.op != GPU_MEMSET)) continue;
        check(entry.range[0].bytes == want || entry.range[0].bytes == want * (size_t)r->world,
              "%s of a shard of %zu bytes has %zu: counted in 32 bits", entry.name, want,
              entry.range[0].bytes);
        copies++;
    }
    check(copies >= 3,
          "a shard is copied to the device, a gradient set to zero and one fetched: the "
          "log has %d operations",
          copies);
    need(fsdp_reshard_all(u->model));
    FsdpRoot *root = unit->root;
    need(fsdp_free_all_gather(root));
    for (int i = 0; i < 2; i++) shards[i]->numel = 8;
    need(offload_remove(u->model));
    need(strategy_remove(u->model));
}

void rule_copies_beyond_32_bits(void)
{
    run_huge(huge_body, 2);
}

// ---- What is taken off ----

static size_t hooks_of(const Module *m)
{
    size_t n = 0;
    for (int point = 0; point < HOOK_POINTS; point++)
        for (const Hook *hook = m->hooks[point]; hook != NULL; hook = hook->next) n++;
    for (int i = 0; i < m->n_children; i++) n += hooks_of(m->children[i]);
    return n;
}

// All that a snapshot would compare but for addresses: shards come back to other ones.
static void taken_off_body(Wrapped *w, const Case *c, const Rank *r)
{
    const FsdpRootOps ops = w->root->ops;
    const size_t hooks = hooks_of(w->model), live = gpulog_live_bytes(r->device);
    need_cuda(cudaDeviceSynchronize());
    for (int u = 0; u < w->root->n_units; u++) {
        const FsdpUnit *unit = w->root->units[u];
        const FlatParam *flat = &unit->flat;
        const FsdpUnit before = *unit;
        size_t n = (size_t)flat->layout.shard_numel;
        float *want = fetch(flat->sharded_param.data, n);
        need(offload_apply(w->model));
        if (u > 0) case_train(w, c, r, 0);
        need(fsdp_zero_grad(w->model, &w->ctx));
        need(offload_remove(w->model));
        float *got = fetch(flat->sharded_param.data, n), *grad = fetch(flat->sharded_grad.data, n);
        for (size_t i = 0; i < n; i++)
            check(got[i] == want[i] && grad[i] == 0.0f,
                  "element %zu of %s comes back from the host as %g, with a gradient of %g, want "
                  "%g and 0",
                  i, flat->name, (double)got[i], (double)grad[i], (double)want[i]);
        check(unit->all_gather == before.all_gather && flat->layout.ops == before.flat.layout.ops &&
                  unit->gather_shards == before.gather_shards &&
                  unit->reduce_scatter == before.reduce_scatter &&
                  flat->gathers_alone == before.flat.gathers_alone &&
                  memcmp(&w->root->ops, &ops, sizeof ops) == 0 && hooks_of(w->model) == hooks &&
                  gpulog_live_bytes(r->device) == live,
              "offload_remove leaves functions, hooks or memory in %s", flat->name);
        free(want);
        free(got);
        free(grad);
    }
}

// A device that is full takes no shard back, and everything stays on the host.
static void full_body(const Rank *r, void *arg)
{
    Case c = offloaded(spec_mlp(3), STRATEGY_ZERO3, r->world);
    Wrapped w;
    case_wrap(&w, &c, r);
    fsdp_adamw_destroy(&w.adamw);
    for (size_t room = 0; room <= 4096; room += 512) {
        void *filler = fill_all_but(room);
        const size_t live = gpulog_live_bytes(r->device);
        check_set_silent(true);
        Status status = offload_remove(w.model);
        check_set_silent(false);
        bool all_there = w.root->extensions->offload != NULL;
        for (int u = 0; u < w.root->n_units && all_there; u++)
            all_there =
                w.root->units[u]->flat.sharded_param.data == offload_of(w.root->units[u])->param;
        check(
            (status == OK) == (w.root->extensions->offload == NULL) &&
                (status == OK || (all_there && gpulog_live_bytes(r->device) == live)),
            "with %zu bytes of the device free offload_remove gives status %d, and some shards are "
            "on the device",
            room, (int)status);
        need_cuda(cudaFree(filler));
        if (status == OK) need(offload_apply(w.model));
    }
    need(fsdp_adamw_create(&w.adamw, w.model, &w.ctx, &TEST_ADAMW));
    case_train(&w, &c, r, 0);
    case_unwrap(&w, r);
}

void rule_offload_leaves_nothing(void)
{
    run_ranks_small(2, full_body, NULL);
    Case c = case_of(spec_mlp(3), STRATEGY_ZERO3, 2, 1, 1);
    run_wrapped(2, taken_off_body, &c);
}

// ---- A call or a hook that fails ----

void rule_a_failed_pass_is_over(RecomputeKind kind, bool offload)
{
    bool attention = kind == RECOMPUTE_ATTENTION;
    for (int world = offload ? 1 : 2; world <= 2; world++) {
        Case c = offloaded(attention ? spec_gpt2(1) : spec_mlp(2), STRATEGY_ZERO3, world);
        c.recompute = kind;
        c.offload = c.options.reduce_every_time = offload;
        c.rounds = offload ? 2 : 1;
        run_failing_calls(world, &c);
    }
}
