/* Task 4, backward: the average over ranks, in shards, in order, in bounded memory. */
#include "bytes.h"
#include "exposed.h"
#include "rules.h"
#include "tests_gradients.h"

static void average_body(Sharded *s, const Rank *r, void *arg)
{
    for (int i = 0; i < s->model->n_children - 1; i++) {
        FsdpUnit *unit = fsdp_unit(s->model->children[i]);
        reduce_round(unit, 0);
        check_average(unit, 1, NULL);
    }
}

// A rank needs the sum of its own shard and of no other: a reduce-scatter sends the other ranks
// theirs, W-1 shards, and an all-reduce twice as much.
static void own_shard_body(Sharded *s, const Rank *r, void *arg)
{
    static const GpuOp REDUCE[] = {GPU_REDUCE_SCATTER, GPU_ALL_REDUCE, GPU_REDUCE,
                                   GPU_BROADCAST,      GPU_SEND,       GPU_ALL_GATHER};
    FsdpUnit *unit = fsdp_unit(s->model->children[0]);
    uint64_t sent = 0, want = (uint64_t)(4 * (r->world - 1) * unit->flat.layout.shard_numel);
    gpulog_reset_traffic();
    reduce_round(unit, 0);
    for (size_t i = 0; i < sizeof REDUCE / sizeof REDUCE[0]; i++)
        sent += gpulog_traffic(REDUCE[i]).sent;
    check(sent <= want,
          "to reduce unit %s this rank sent %llu bytes (%llu of them in all-reduces), want %llu, "
          "the other ranks' shards: each rank needs only the sum of its own shard, which is what "
          "a reduce-scatter brings",
          unit->module->name, (unsigned long long)sent,
          (unsigned long long)gpulog_traffic(GPU_ALL_REDUCE).sent, (unsigned long long)want);
}

TEST(gradient_is_the_average)
{
    known_gradients();
    for (int world = 2; world <= 8; world++) run_sharded(spec_mlp(3), average_body, world);
    run_sharded(spec_mlp(3), own_shard_body, 3, 4);
    draw_gradients();
    for (int i = 0; i < 2; i++) {
        run_drawn(5, average_body);
    }
    RULE(reduces_by_the_units_own_function, 2);
    RULE(shards_within_its_group);
    RULE(gradient_of_any_size_and_type);
    RULE(gradients_alone_are_reduced);
}

static void one_body(Sharded *s, const Rank *r, void *arg)
{
    FsdpUnit *unit = fsdp_unit(s->model->children[0]);
    size_t live = gpulog_live_bytes(r->device);
    need_cuda(cudaDeviceSynchronize());
    uint64_t log = gpulog_length();
    need(fsdp_begin_grad(unit));
    check(unit->flat.unsharded_grad.data == unit->flat.sharded_grad.data,
          "with one rank fsdp_begin_grad must make the gradient shard the unsharded gradient");
    check(gpulog_live_bytes(r->device) == live, "with one rank fsdp_begin_grad allocated memory");
    reduce(unit);
    check(gpulog_count(GPU_REDUCE_SCATTER, log) == 0 && gpulog_count(GPU_KERNEL, log) == 0,
          "with one rank fsdp_reduce_grad has nothing to reduce and nothing to divide");
    reduce_round(unit, 0);
    check_average(unit, 1, NULL);
    need(fsdp_begin_grad(unit));
    check_average(unit, 1,
                  "fsdp_begin_grad with one rank must leave what an earlier micro-batch "
                  "has added: does it zero the gradient shard?");
    write_gradients(unit, 1);
    reduce(unit);
    check_average(unit, 2, NULL);
}

TEST(world_of_one_divides_nothing)
{
    known_gradients();
    run_sharded(spec_mlp(3), one_body, 1);
    RULE(reduces_by_the_units_own_function, 1);
    draw_gradients();
    Shape shape = draw_shape(4);
    drawn_model(&shape.spec, 1);
    run_shape(shape, one_body, NULL, 1);
}

static void micro_body(Sharded *s, const Rank *r, void *arg)
{
    const int rounds = *(const int *)arg;
    FsdpUnit *unit = fsdp_unit(s->model->children[1]);
    for (int round = 0; round < rounds; round++) {
        reduce_round(unit, round);
        check_average(unit, round + 1, NULL);
    }
    // A step ends no sum: that is fsdp_zero_grad's. This one moves nothing.
    need(fsdp_sgd_step(s->model, &s->ctx, 0.0f, 0.0f));
    reduce_round(unit, rounds);
    check_average(
        unit, rounds + 1,
        "there was an optimizer's step before the last micro-batch, and nothing has zeroed "
        "the gradient: it is still added to");
}

TEST(micro_batches_add_up)
{
    known_gradients();
    Shape shape = {spec_mlp(3), TEST_OPTIONS};
    int rounds = 3;
    run_shape(shape, micro_body, &rounds, 1, 2, 5);
    draw_gradients();
    shape = draw_shape(4);
    rounds = draw(2, 5);
    run_shape(shape, micro_body, &rounds, drawn_world(&shape.spec, 2, 8));
}

static void padding_body(const Rank *r, void *arg)
{
    const Shape *shape = arg;
    Sharded s;
    FsdpOptions options = shape->options;
    options.align_shards = true;
    sharded_create(&s, &shape->spec, &options, NULL, r);
    FsdpUnit *unit = fsdp_unit(s.model->children[1]);
    FlatParam *flat = &unit->flat;
    int64_t padding = flat->layout.padded - flat->layout.numel;
    check(padding > 0, "the test needs a unit with padding");
    float *dirt = malloc((size_t)padding * sizeof *dirt);
    for (int64_t i = 0; i < padding; i++) dirt[i] = 7.0f;
    for (int round = 0; round < 2; round++) {
        need(fsdp_begin_grad(unit));
        write_gradients(unit, round);
        // A kernel that wrote past the last parameter.
        Buffer unsharded = buffer_range(&flat->unsharded_grad, flat->layout.numel, padding);
        if (flat->layout.world != 1) send_to(unsharded.data, dirt, (size_t)padding);
        reduce(unit);
        check_average(unit, round + 1, NULL); // wants zero in the padding
    }
    free(dirt);
    sharded_destroy(&s);
}

TEST(padding_gradient_is_zero)
{
    known_gradients();
    Shape shape = {spec_mlp(3), TEST_OPTIONS}; // 182 elements in the unit: padded in every world
    for (int world = 2; world <= 8; world++) run_ranks(world, padding_body, &shape);
    draw_gradients();
    for (int i = 0; i < 2; i++) {
        shape = draw_shape(4);
        int dim = shape.spec.dim, world = drawn_world(&shape.spec, 2, 8);
        if (dim * (dim + 1) % (4 * world) != 0) run_ranks(world, padding_body, &shape);
    }
}

static void begin_body(Sharded *s, const Rank *r, void *arg)
{
    for (int i = 0; i < s->model->n_children - 1; i++) {
        FsdpUnit *unit = fsdp_unit(s->model->children[i]);
        FlatParam *flat = &unit->flat;
        need(fsdp_begin_grad(unit));
        float *want = calloc((size_t)flat->layout.padded, sizeof *want);
        need_cuda(cudaStreamSynchronize(s->ctx.compute_stream));
        float *got = fetch(flat->unsharded_grad.data, (size_t)flat->layout.padded);
        Layout layout;
        unit_layout(&layout, s, flat, true);
        check_equal_in(&((Clues){.layout = &layout}),
                       "the unsharded gradient before the backward, padding included", got, want,
                       (size_t)flat->layout.padded);
        free(got);
        free(want);
        const float *whole = flat->unsharded_grad.data;
        for (int j = 0; j < flat->layout.n; j++)
            check(
                flat->layout.params[j]->grad.data == whole + flat->layout.offset[j],
                "%s: after fsdp_begin_grad its gradient does not point into the unsharded gradient",
                flat->layout.params[j]->name);
        part_holds("4.1");
        need(fsdp_reduce_grad(unit));
        check(flat->unsharded_grad.data == NULL && flat->layout.params[0]->grad.data == NULL,
              "fsdp_reduce_grad must take the unsharded gradient from the unit and its parameters");
    }
    need(fsdp_finish_backward(s->root));
}

TEST(begin_grad_is_zero_with_padding)
{
    run_sharded(spec_mlp(3), begin_body, 2, 3, 7);
    RULE(gradient_refusals);
    run_drawn(4, begin_body);
}

// After a backward every unit is sharded, and has no gradient but its shard.
static void check_all_sharded(const Sharded *s)
{
    FlatParam *flat[64];
    int n = flat_params(s->model, flat, 64);
    for (int i = 0; i < n; i++) {
        check(
            flat[i]->state != FLAT_UNSHARDING,
            "after the backward unit %s is still being gathered: fsdp_finish_backward must reshard "
            "what was gathered ahead, too",
            flat[i]->name);
        check(flat[i]->state == FLAT_SHARDED && flat[i]->layout.params[0]->data.data == NULL,
              "after the backward unit %s still has its parameters unsharded: fsdp_post_backward "
              "must reshard it, whatever the options say",
              flat[i]->name);
        check(
            flat[i]->unsharded_grad.data == NULL,
            "after the backward unit %s still has its gradient unsharded: does fsdp_post_backward "
            "reduce it?",
            flat[i]->name);
        check(flat[i]->layout.params[0]->grad.data == NULL,
              "after the backward the parameters of unit %s still point to a gradient: "
              "fsdp_reduce_grad must take it from them",
              flat[i]->name);
    }
}

// One training step through the hooks, with an optimizer behind it.
static void one_step(Sharded *s, const Batch *batch)
{
    train_batch(&s->spec, &s->run, s->model, batch);
    check_all_sharded(s);
    check_backward_over(s->root);
    need(fsdp_sgd_step(s->model, &s->ctx, 0.125f, 0.0f));
    need(fsdp_zero_grad(s->model, &s->ctx));
}

// Backward i-1 must be free to run while the gradient of unit i is reduced. [Note: two gradients]
static void check_reduce_overlaps(uint64_t first)
{
    int64_t scatter = -1; // the reduce-scatter queued last
    GpuLogEntry entry;
    for (uint64_t i = first; i < gpulog_length(); i++) {
        if (!gpulog_get(i, &entry)) continue;
        if (entry.op == GPU_REDUCE_SCATTER || entry.op == GPU_REDUCE) scatter = (int64_t)i;
        check(
            entry.op != GPU_BLAS || scatter < 0 || !log_ordered((uint64_t)scatter, i),
            "a unit's backward waits for the reduce-scatter of the unit before it: the two cannot "
            "overlap. fsdp_reduce_grad must leave the gradient in root->reduce_scatter_state until "
            "the next one is reduced; only fsdp_post_backward of the outermost unit ends the "
            "backward");
    }
}

// The unsharded gradient is freed where it was allocated, on the compute stream.
static void check_freed_on_compute(Sharded *s)
{
    FsdpUnit *unit = fsdp_unit(s->model->children[0]);
    GpuLogEntry entry;
    need(fsdp_begin_grad(unit));
    need(fsdp_reduce_grad(unit));
    if (s->root->reduce_scatter_state.buffer == NULL) return; // check_reduce_overlaps says why not
    uint64_t log = gpulog_length();
    need(fsdp_free_reduce_scatter(s->root));
    int64_t freed = gpulog_find(GPU_FREE, NULL, log);
    check(freed >= 0, "fsdp_free_reduce_scatter freed nothing");
    check(gpulog_get((uint64_t)freed, &entry) && entry.stream == s->ctx.compute_stream,
          "fsdp_free_reduce_scatter must free the gradient on the stream that allocated it, "
          "ctx->compute_stream");
}

static void order_body(Sharded *s, const Rank *r, void *arg)
{
    check_freed_on_compute(s);
    Batch batch = batch_create(&s->spec, 1 + (uint64_t)r->rank);
    one_step(s, &batch); // so that the next step meets an optimizer's writes
    need_cuda(cudaDeviceSynchronize());
    uint64_t log = gpulog_length();
    one_step(s, &batch);
    check_no_host_wait(log, "in a step");
    check_reduce_overlaps(log);
    GpuLogEntry entry;
    for (uint64_t i = log; i < gpulog_length(); i++)
        if (gpulog_get(i, &entry) && (entry.op == GPU_REDUCE_SCATTER || entry.op == GPU_REDUCE))
            check(entry.stream == s->ctx.reduce_scatter_stream,
                  "a reduce-scatter runs on another stream than ctx->reduce_scatter_stream");

    // The optimizer comes after every reduce-scatter.
    int64_t sgd = gpulog_find(GPU_KERNEL, "kernel_sgd", log);
    for (uint64_t i = log; i < (uint64_t)sgd; i++)
        check(!gpulog_get(i, &entry) ||
                  (entry.op != GPU_REDUCE_SCATTER && entry.op != GPU_REDUCE) ||
                  log_ordered(i, (uint64_t)sgd),
              "the optimizer may start before a reduce-scatter is done: the compute stream must "
              "have waited for it in fsdp_free_reduce_scatter, at the end of the backward the last "
              "time");
    check_no_race(log);
    batch_destroy(&batch);
}

TEST(streams_are_ordered)
{
    run_sharded(spec_mlp(5), order_body, 2, 3);
    RULE(contexts_are_apart, APART_BACKWARD);
    run_drawn(7, order_body);
    RULE(a_unit_may_have_no_gradient);
}

// How many collectives a step has. Their order is judged by what it hides: exposed.h.
static void ahead_body(const Rank *r, void *arg)
{
    const Shape *shape = arg;
    for (int reshard = 0; reshard <= 1; reshard++) {
        Sharded s;
        FsdpOptions options = shape->options;
        options.reshard_after_forward = reshard ? FSDP_RESHARD_ALWAYS : FSDP_RESHARD_NEVER;
        sharded_create(&s, &shape->spec, &options, NULL, r);
        Batch batch = batch_create(&shape->spec, 1);
        int units = s.model->n_children; // four blocks and the root, which holds the last layer
        uint64_t log = gpulog_length();
        train_batch(&shape->spec, &s.run, s.model, &batch);
        uint64_t want = (uint64_t)(reshard ? 2 * units : units);
        check(gpulog_count(GPU_ALL_GATHER, log) == want,
              "forward and backward of %d units, reshard_after_forward %s: %llu all-gathers, want "
              "%llu",
              units, reshard ? "true" : "false",
              (unsigned long long)gpulog_count(GPU_ALL_GATHER, log), (unsigned long long)want);
        // By which collective, gradient_is_the_average asks: a reduce for each rank is as good.
        uint64_t reduces = gpulog_count(GPU_REDUCE, log);
        uint64_t reduced = gpulog_count(GPU_REDUCE_SCATTER, log) +
                           gpulog_count(GPU_ALL_REDUCE, log) + reduces / (uint64_t)r->world;
        check(
            reduced == (uint64_t)units,
            "a backward of %d units made %llu reduce-scatters: does fsdp_post_backward reduce each "
            "unit's gradient?",
            units, (unsigned long long)reduced);
        batch_destroy(&batch);
        sharded_destroy(&s);
    }
}

TEST(gathers_again_before_backward)
{
    Shape shape = {spec_mlp(5), TEST_OPTIONS};
    run_ranks(2, ahead_body, &shape);
    RULE(backward_is_hidden);
    RULE(order_of_each_backward);
    shape = draw_shape(8);
    run_ranks(drawn_world(&shape.spec, 2, 8), ahead_body, &shape);
}

// Whether the allocation of this log entry becomes an unsharded parameter: an all-gather receives
// in it, or what does the same.
static bool is_gathered(const GpuLogEntry *alloc)
{
    const char *begin = alloc->range[0].ptr, *end = begin + alloc->range[0].bytes;
    GpuLogEntry entry;
    for (uint64_t i = alloc->index + 1; gpulog_get(i, &entry); i++) {
        if (entry.op == GPU_FREE && entry.range[0].ptr == begin) return false;
        if (entry.op != GPU_ALL_GATHER && entry.op != GPU_BROADCAST && entry.op != GPU_RECV)
            continue;
        for (int k = 0; k < entry.n_ranges; k++) {
            const char *at = entry.range[k].ptr;
            if (entry.range[k].access & GPU_WRITE && begin <= at && at < end) return true;
        }
    }
    return false;
}

// Bytes of unsharded parameters that are there at once, at most, from log entry `backward` on: a
// buffer is there from its allocation to its release. The forward begins at `step`.
static size_t most_gathered_bytes(uint64_t step, uint64_t backward)
{
    enum { MOST = 64 };
    const void *there[MOST];
    size_t bytes[MOST], sum = 0, most = 0;
    int n = 0;
    GpuLogEntry entry;
    for (uint64_t i = step; gpulog_get(i, &entry); i++) {
        if (entry.op == GPU_ALLOC && n < MOST && is_gathered(&entry)) {
            there[n] = entry.range[0].ptr;
            bytes[n++] = entry.bytes;
            sum += entry.bytes;
        }
        if (entry.op == GPU_ALLOC && i >= backward && sum > most) most = sum;
        for (int k = 0; k < n && entry.op == GPU_FREE; k++) {
            if (there[k] != entry.range[0].ptr) continue;
            sum -= bytes[k];
            there[k] = there[--n];
            bytes[k] = bytes[n];
        }
    }
    return most;
}

// Whole parameters of the root and two other units at a time, whatever the gradients take: before a
// unit's hook gathers, what was resharded last must go.
static void whole_body(const Rank *r, void *arg)
{
    const Spec *spec = arg;
    Sharded s;
    Sizes sizes;
    sharded_create(&s, spec, &TEST_OPTIONS, NULL, r);
    Batch batch = batch_create(spec, 1);
    sizes_of(&sizes, s.model, r->world);
    size_t block = 0;
    for (int i = 1; i < sizes.n; i++)
        if (sizes.size[i].bytes > block) block = sizes.size[i].bytes;
    size_t bound = sizes.size[0].bytes + 2 * block;
    uint64_t log = gpulog_length();
    train_batch(spec, &s.run, s.model, &batch);
    check_all_sharded(&s);
    int64_t loss = gpulog_find(GPU_KERNEL, "kernel_cross_entropy", log);
    check(loss >= 0, "the log has no loss since the forward began");
    size_t most = most_gathered_bytes(log, (uint64_t)loss);
    check(
        most <= bound,
        "in the backward %zu bytes of unsharded parameters are there at a time, want at most the "
        "root's and two other units', %zu: does fsdp_pre_backward release what was resharded last "
        "before it gathers, and gather no unit but this one and the next?",
        most, bound);
    batch_destroy(&batch);
    sharded_destroy(&s);
}

// Two gradients, one after the other, into the one slot.
static void slot_body(Sharded *s, const Rank *r, void *arg)
{
    size_t live = gpulog_live_bytes(r->device);
    for (int i = 0; i < 2; i++) {
        FsdpUnit *unit = fsdp_unit(s->model->children[i]);
        need(fsdp_begin_grad(unit));
        need(fsdp_reduce_grad(unit));
    }
    need(fsdp_free_reduce_scatter(s->root));
    check(gpulog_live_bytes(r->device) == live,
          "of two gradients that fsdp_reduce_grad left to be freed %zu bytes are lost: is the slot "
          "empty when the second one comes?",
          gpulog_live_bytes(r->device) - live);
}

TEST(peak_does_not_grow_with_depth)
{
    Spec deep = spec_mlp(6), heavy_root = spec_mlp(4);
    heavy_root.vocab = 61; // the root's 854 elements are more than four units of 182
    run_sharded(spec_mlp(3), slot_body, 2);
    run_ranks(2, whole_body, &deep);
    run_ranks(3, whole_body, &heavy_root);
    claim_peak(spec_mlp(4), 2);
    claim_peak(spec_mlp(12), 2);
    claim_peak(spec_mlp(12), 4);
    Spec spec = draw_mlp(12);
    claim_peak(spec, drawn_world(&spec, 2, 8));
}

// Runs after a unit's post-backward hook.
static Status check_resharded(Module *m, void *arg)
{
    const FsdpUnit *unit = fsdp_unit(m);
    check(unit->flat.state == FLAT_SHARDED,
          "after its own backward unit %s still has its parameters unsharded: fsdp_post_backward "
          "must reshard it, whatever the options say",
          m->name);
    return OK;
}

static void behind_body(const Rank *r, void *arg)
{
    const Shape *shape = arg;
    for (int reshard = 0; reshard <= 1; reshard++) {
        Sharded s;
        FsdpOptions options = shape->options;
        options.reshard_after_forward = reshard ? FSDP_RESHARD_ALWAYS : FSDP_RESHARD_NEVER;
        sharded_create(&s, &shape->spec, &options, NULL, r);
        Batch batch = batch_create(&shape->spec, 1);
        size_t live = gpulog_live_bytes(r->device);
        Sizes sizes;
        sizes_of(&sizes, s.model, r->world);
        for (int i = 0; i < s.model->n_children - 1; i++)
            check(module_add_hook(s.model->children[i], HOOK_POST_BACKWARD, check_resharded, NULL),
                  "no memory for a hook");
        for (int step = 0; step < 3; step++) {
            train_batch(&shape->spec, &s.run, s.model, &batch);
            check_all_sharded(&s);
            check(gpulog_live_bytes(r->device) == live,
                  "after backward %d the device holds %zu bytes more than before the forward%s",
                  step, gpulog_live_bytes(r->device) - live,
                  bytes_cause(gpulog_live_bytes(r->device) - live, &sizes));
            check(s.root->all_gather_state.buffer == NULL &&
                      s.root->reduce_scatter_state.buffer == NULL,
                  "after the root's backward a buffer still waits to be freed");
        }
        batch_destroy(&batch);
        sharded_destroy(&s);
    }
}

// The forward of the whole model and the backward of one block: the outermost backward is not the
// root's, and nobody uses what it prefetches.
static void part_body(Sharded *s, const Rank *r, void *arg)
{
    float *logits, *din;
    Batch batch = batch_create(&s->spec, 1);
    Module *block = s->model->children[2];
    s->run.B = s->spec.B;
    s->run.T = s->spec.T;
    need(module_forward(s->model, &s->run, batch.in, &logits));
    need(module_backward(block, &s->run, block->out, &din));
    need_cuda(cudaFreeAsync(din, r->stream));
    check(s->root->reduce_scatter_state.buffer == NULL && s->root->all_gather_state.buffer == NULL,
          "after the backward of a block alone a buffer is left to free: fsdp_pre_backward notes "
          "the outermost unit, whichever it is, and its fsdp_post_backward ends the iteration");
    check_all_sharded(s);
    check(s->root->n_post_forward == 0 && s->root->iter_backward_root == NULL,
          "after the backward of a block alone the iteration is not over: fsdp_finish_backward "
          "must reshard all and empty the order");
    need(module_discard(s->model, &s->run));
    batch_destroy(&batch);
}

TEST(nothing_is_left_behind)
{
    Shape shape = {spec_mlp(4), TEST_OPTIONS};
    run_worlds(behind_body, &shape, 1, 3);
    run_sharded(spec_mlp(4), part_body, 2);
    RULE(micro_batches_with_kept_parameters);
    RULE(nothing_grows, APART_BACKWARD);
    shape = draw_shape(6);
    run_ranks(drawn_world(&shape.spec, 1, 8), behind_body, &shape);
}

SUITE_MAIN("backward")
