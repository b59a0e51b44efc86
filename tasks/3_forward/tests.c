/* Task 3, forward: parameters are unsharded while their unit runs, in order, and no longer. */
#include "bytes.h"
#include "claims.h"
#include "draw_model.h"
#include "exposed.h"
#include "fsdp.h"
#include "harness.h"
#include "kernels.h"
#include "rules.h"

static Shape draw_shape(int layers)
{
    Shape shape = {draw_mlp(layers), TEST_OPTIONS};
    shape.options.align_shards = draw_chance(50);
    return shape;
}

// On a model of so many layers at most, on 2 to 8 ranks.
static void run_drawn(int layers, ShardedBody body)
{
    Shape shape = draw_shape(layers);
    run_shape(shape, body, NULL, drawn_world(&shape.spec, 2, 8));
}

// The first block of a sharded MLP, and the model around it.
static FsdpUnit *first_unit(Sharded *s)
{
    return fsdp_unit(s->model->children[0]);
}

// ---- Gathers in the log ----

// One gathering of an unsharded parameter: an all-gather, or what does the same, a group of
// broadcasts or of receives into one buffer.
typedef struct Gather {
    uint64_t first, last; // log entries
    uint64_t alloc;       // the entry that allocated the buffer
    const char *begin, *end;
} Gather;

static const GpuRange *written(const GpuLogEntry *entry)
{
    if (entry->op != GPU_ALL_GATHER && entry->op != GPU_BROADCAST && entry->op != GPU_RECV)
        return NULL;
    for (int i = 0; i < entry->n_ranges; i++)
        if (entry->range[i].access & GPU_WRITE && entry->range[i].bytes > 0)
            return &entry->range[i];
    return NULL;
}

// The allocation that the range lies in, the latest before log entry `before`.
static bool find_buffer(const GpuRange *range, uint64_t before, Gather *g)
{
    GpuLogEntry entry;
    for (uint64_t i = before; i-- > 0;) {
        if (!gpulog_get(i, &entry) || entry.op != GPU_ALLOC || entry.n_ranges == 0) continue;
        g->alloc = i;
        g->begin = entry.range[0].ptr;
        g->end = g->begin + entry.range[0].bytes;
        const char *at = range->ptr;
        if (g->begin <= at && at < g->end) return true;
    }
    return false;
}

// The first gather at or behind log entry `from`.
static bool next_gather(uint64_t from, Gather *gather)
{
    bool found = false;
    GpuLogEntry entry;
    for (uint64_t i = from; i < gpulog_length(); i++) {
        Gather here;
        const GpuRange *range = gpulog_get(i, &entry) ? written(&entry) : NULL;
        if (range == NULL || !find_buffer(range, i, &here)) continue;
        if (found && here.alloc != gather->alloc) break;
        if (!found) {
            *gather = here;
            gather->first = i;
        }
        gather->last = i;
        found = true;
    }
    return found;
}

static int count_gathers(uint64_t from)
{
    Gather g;
    int n = 0;
    for (; next_gather(from, &g); from = g.last + 1) n++;
    return n;
}

// ---- Unshard, wait, reshard ----

static void gather_body(Sharded *s, const Rank *r, void *arg)
{
    need_cuda(
        cudaDeviceSynchronize()); // no hook orders the gathers behind the making of the shards
    for (int i = 0; i < s->model->n_children - 1; i++) {
        FsdpUnit *unit = fsdp_unit(s->model->children[i]);
        need(fsdp_unshard(unit));
        need(fsdp_wait_for_unshard(unit));
        check(unit->flat.unsharded_param.data != NULL,
              "the unit has no unsharded parameter after unshard and wait");
        check_initial_values(unit, TEST_OPTIONS.seed);
        const float *whole = unit->flat.unsharded_param.data;
        for (int j = 0; j < unit->flat.layout.n; j++)
            check(unit->flat.layout.params[j]->data.data == whole + unit->flat.layout.offset[j],
                  "fsdp_unshard must make every parameter a view of unsharded_param, at its "
                  "offset: %s "
                  "is not (flat_set_views)",
                  unit->flat.layout.params[j]->name);
        if (r->world > 1) part_holds("3.1");
        part_holds("3.2");
        need(fsdp_reshard(unit));
    }
}

TEST(unshard_gathers_all_shards)
{
    for (int world = 1; world <= 8; world++) run_sharded(spec_mlp(3), gather_body, world);
    RULE(gathers_by_the_units_own_function);
    RULE(gathers_in_the_shards_own_type);
    RULE(gathers_any_size_and_type);
    RULE(failed_unshard_keeps_its_status);
    for (int i = 0; i < 2; i++) {
        run_drawn(5, gather_body);
    }
}

static void alias_body(Sharded *s, const Rank *r, void *arg)
{
    FsdpUnit *unit = first_unit(s);
    size_t live = gpulog_live_bytes(r->device);
    uint64_t log = gpulog_length();
    need(fsdp_unshard(unit));
    uint64_t wait = gpulog_length();
    need(fsdp_wait_for_unshard(unit));
    const bool waits = gpulog_length() > wait;
    check(unit->flat.unsharded_param.data == unit->flat.sharded_param.data,
          "with one rank fsdp_unshard must make the shard the unsharded parameter");
    check(gpulog_live_bytes(r->device) == live, "with one rank fsdp_unshard allocated %zu bytes",
          gpulog_live_bytes(r->device) - live);
    check(!waits, "with one rank fsdp_wait_for_unshard must make no stream wait");
    need(fsdp_reshard(unit));
    need(fsdp_free_all_gather(s->root));
    check(count_gathers(log) == 0, "with one rank fsdp_unshard has nothing to gather");
    check(gpulog_count(GPU_COPY, log) == 0, "with one rank fsdp_unshard has nothing to copy");
    check(gpulog_count(GPU_FREE, log) == 0, "fsdp_reshard freed a buffer that is the shard itself");
    check(gpulog_length() == log, "with one rank unshard, wait and reshard queue nothing");
    check(unit->flat.sharded_param.data != NULL && unit->flat.unsharded_param.data == NULL,
          "fsdp_reshard must set full to NULL, and leave shard");
}

TEST(one_rank_gathers_nothing)
{
    run_sharded(spec_mlp(3), alias_body, 1);
    Shape shape = draw_shape(4);
    drawn_model(&shape.spec, 1);
    run_shape(shape, alias_body, NULL, 1);
    RULE(unshards_within_its_group);
}

// A kernel on the compute stream that reads the unsharded parameter, as a layer would.
static void read_whole(const FsdpUnit *unit)
{
    float *out = NULL;
    size_t n = (size_t)unit->flat.layout.numel;
    cudaStream_t compute = unit->ctx->compute_stream;
    need_cuda(cudaMallocAsync((void **)&out, n * sizeof *out, compute));
    need_cuda(kernel_add_out(out, unit->flat.unsharded_param.data, unit->flat.unsharded_param.data,
                             n, compute));
    need_cuda(cudaFreeAsync(out, compute));
}

static void order_body(Sharded *s, const Rank *r, void *arg)
{
    FsdpUnit *unit = first_unit(s);
    need_cuda(cudaDeviceSynchronize());
    uint64_t log = gpulog_length();

    need(fsdp_unshard(unit));
    need(fsdp_wait_for_unshard(unit));
    Gather gather;
    GpuLogEntry entry;
    check(next_gather(log, &gather), "unshard queued no all-gather");
    read_whole(unit);
    int64_t kernel = gpulog_find(GPU_KERNEL, "kernel_add_out", log);
    for (uint64_t i = gather.first; i <= gather.last; i++)
        check(!gpulog_get(i, &entry) || written(&entry) == NULL ||
                  entry.stream == s->ctx.all_gather_stream,
              "the all-gather must be queued on ctx->all_gather_stream");
    check(log_ordered(gather.last, (uint64_t)kernel),
          "a kernel on the compute stream may run before the all-gather is done: after "
          "fsdp_wait_for_unshard "
          "nothing orders the two");
    check_no_host_wait(log, "in unshard or wait");
    need(fsdp_reshard(unit));
    need(fsdp_free_all_gather(s->root));
    check_no_race(log);
}

TEST(compute_waits_for_the_gather)
{
    run_sharded(spec_mlp(3), order_body, 2, 5);
    RULE(unshard_is_one_gather_ahead);
    RULE(waits_where_one_rank_gathers);
    run_drawn(4, order_body);
}

static void free_body(const Rank *r, void *arg)
{
    Spec spec = spec_mlp(3);
    Sharded s;
    sharded_create(&s, &spec, &TEST_OPTIONS, NULL, r);
    FsdpUnit *unit = first_unit(&s);
    size_t live = gpulog_live_bytes(r->device);
    Sizes sizes;
    sizes_of(&sizes, s.model, r->world);
    need_cuda(cudaDeviceSynchronize());
    uint64_t log = gpulog_length();

    need(fsdp_unshard(unit));
    need(fsdp_wait_for_unshard(unit));
    read_whole(unit);
    const float *whole = unit->flat.unsharded_param.data;
    need(fsdp_reshard(unit));
    check(
        s.root->all_gather_state.buffer == whole &&
            gpulog_count(GPU_FREE, log) == 1, // read_whole's own
        "fsdp_reshard must not free the buffer, but leave it in root->all_gather_state until it is "
        "released");
    uint64_t released = gpulog_length();
    need(fsdp_free_all_gather(s.root));
    check(gpulog_live_bytes(r->device) == live,
          "after reshard and release %zu bytes of the unsharded parameter "
          "are still there%s",
          gpulog_live_bytes(r->device) - live,
          bytes_cause(gpulog_live_bytes(r->device) - live, &sizes));
    int64_t freed = gpulog_find(GPU_FREE, NULL, released);
    int64_t kernel = gpulog_find(GPU_KERNEL, "kernel_add_out", log);
    GpuLogEntry entry;
    check(freed >= 0, "fsdp_free_all_gather freed nothing");
    check(gpulog_get((uint64_t)freed, &entry) && entry.stream == s.ctx.all_gather_stream,
          "fsdp_free_all_gather must free the buffer on the stream that allocated it, "
          "ctx->all_gather_stream");
    check(log_ordered((uint64_t)kernel, (uint64_t)freed),
          "the buffer may be freed while a kernel on the compute stream still reads it");
    check_no_host_wait(log, "in unshard, wait, reshard or release");
    check_no_race(log);
    need(fsdp_free_all_gather(s.root));
    check(gpulog_count(GPU_FREE, (uint64_t)freed + 1) == 0,
          "a second release freed something again");
    sharded_destroy(&s);
}

TEST(reshard_frees_after_compute)
{
    run_worlds(free_body, NULL, 2, 3);
    RULE(each_buffer_is_freed_after_its_use);
}

static void states_body(Sharded *s, const Rank *r, void *arg)
{
    FsdpUnit *unit = first_unit(s);
    FlatParam *flat = &unit->flat;

    check(flat->state == FLAT_SHARDED && flat->layout.params[0]->data.data == NULL,
          "a new unit must be sharded");
    check(fsdp_wait_for_unshard(unit) == ERR_ARGUMENT,
          "fsdp_wait_for_unshard of a unit that is not unsharding must be an error");
    uint64_t log = gpulog_length();
    need(fsdp_reshard(unit));
    check(gpulog_length() == log, "resharding a sharded unit must do nothing");

    need(fsdp_unshard(unit));
    check(flat->state == FLAT_UNSHARDING, "after fsdp_unshard the state must be FLAT_UNSHARDING");
    log = gpulog_length();
    need(fsdp_unshard(unit));
    check(gpulog_length() == log, "a second fsdp_unshard must do nothing");
    check(fsdp_reshard(unit) == ERR_ARGUMENT && flat->state == FLAT_UNSHARDING,
          "fsdp_reshard of a unit that is still unsharding must be an error, and "
          "change nothing");
    need(fsdp_wait_for_unshard(unit));
    check(flat->state == FLAT_UNSHARDED,
          "after fsdp_wait_for_unshard the state must be FLAT_UNSHARDED");
    log = gpulog_length();
    need(fsdp_wait_for_unshard(unit));
    check(gpulog_length() == log, "a second fsdp_wait_for_unshard must do nothing");
    need(fsdp_reshard(unit));
    check(flat->state == FLAT_SHARDED, "after fsdp_reshard the state must be FLAT_SHARDED");
    check(flat->unsharded_param.data == NULL && flat->layout.params[0]->data.data == NULL,
          "after fsdp_reshard the parameters still point into the buffer");
}

TEST(states_move_in_order)
{
    run_sharded(spec_mlp(3), states_body, 1, 3);
    RULE(reshard_all_reaches_every_unit);
    RULE(refuses_before_it_queues);
    RULE(failed_calls_are_told);
}

static void keep_body(const Rank *r, void *arg)
{
    static const char *const NAME[] = {"FSDP_RESHARD_AUTO", "FSDP_RESHARD_ALWAYS",
                                       "FSDP_RESHARD_NEVER"};
    const Shape *shape = arg;
    for (FsdpReshard reshard = FSDP_RESHARD_AUTO; reshard <= FSDP_RESHARD_NEVER; reshard++) {
        Sharded s;
        FsdpOptions options = shape->options;
        options.reshard_after_forward = reshard;
        sharded_create(&s, &shape->spec, &options, NULL, r);
        Batch batch = batch_create(&shape->spec, 1);
        uint64_t log = gpulog_length();
        forward_batch(&shape->spec, &s.run, s.model, &batch);
        int n = s.model->n_children, again = 0; // how many must be gathered once more
        for (int i = 0; i < n; i++) {           // the blocks, and the root
            const FsdpUnit *unit = fsdp_unit(i < n - 1 ? s.model->children[i] : s.model);
            bool reshards =
                reshard == FSDP_RESHARD_ALWAYS || (reshard == FSDP_RESHARD_AUTO && i < n - 1);
            again += reshards;
            check(unit->flat.state == (reshards ? FLAT_SHARDED : FLAT_UNSHARDED),
                  "reshard_after_forward is %s, but %s %s is %s after the forward: does "
                  "fsdp_post_forward go by it?",
                  NAME[reshard], i < n - 1 ? "unit" : "the root", unit->flat.name,
                  reshards ? "still unsharded" : "not unsharded");
        }

        // A second forward gathers again only what is not there.
        uint64_t second = gpulog_length();
        int gathers = count_gathers(log);
        check(gathers == n, "a forward of %d units made %d all-gathers", n, gathers);
        forward_batch(&shape->spec, &s.run, s.model, &batch);
        check(count_gathers(second) == again,
              "reshard_after_forward is %s: the second forward made %d all-gathers, want %d",
              NAME[reshard], count_gathers(second), again);
        batch_destroy(&batch);
        sharded_destroy(&s);
    }
}

TEST(keeps_units_if_asked)
{
    Shape shape = {spec_mlp(4), TEST_OPTIONS};
    run_ranks(2, keep_body, &shape);
    RULE(each_unit_has_its_own_option);
    RULE(options_change_between_forwards);
    shape = draw_shape(6);
    run_ranks(drawn_world(&shape.spec, 2, 8), keep_body, &shape);
}

// The whole forward through the hooks: order, the shards that the optimizer wrote.
static void hooks_body(Sharded *s, const Rank *r, void *arg)
{
    Batch batch = batch_create(&s->spec, 1);
    need_cuda(cudaDeviceSynchronize());
    uint64_t log = gpulog_length();
    int n = s->model->n_children;
    for (int step = 0; step < 2; step++) {
        // What an optimizer does: it writes every shard on the compute stream.
        need(fsdp_sgd_step(s->model, &s->ctx, 0.125f, 0.0f));
        forward_batch(&s->spec, &s->run, s->model, &batch);
        check_forward_over(s->root);
        int recorded = s->root->n_post_forward;
        check(step == 0 || recorded != 2 * n,
              "a second forward of %d units leaves %d in root->post_forward_order: does "
              "fsdp_pre_forward call fsdp_begin_forward for the outermost unit? It forgets a "
              "forward that was discarded",
              n, recorded);
        check(recorded == n,
              "a forward of %d units recorded %d of them: does fsdp_post_forward call "
              "fsdp_record_post_forward for each unit, once?",
              n, recorded);
    }
    check_no_host_wait(log, "in a forward");
    // The root's forward ends last.
    for (int i = 0; i < n; i++) {
        const FsdpUnit *unit = fsdp_unit(i < n - 1 ? s->model->children[i] : s->model);
        check(s->root->post_forward_order[i] == unit && unit->n_indices == 1 &&
                  unit->post_forward_indices[0] == i,
              "fsdp_post_forward: place %d of post_forward_order is not the unit whose forward "
              "ended there",
              i);
    }
    check_no_race(log);
    batch_destroy(&batch);
}

// A block that runs alone: its forward is the outermost, waits for the optimizer and is over.
static void part_body(Sharded *s, const Rank *r, void *arg)
{
    float *out;
    Batch batch = batch_create(&s->spec, 1);
    s->run.B = s->spec.B;
    s->run.T = s->spec.T;
    FsdpUnit *unit = unit_of(s, 0);
    need(fsdp_pre_forward(unit->module, unit));
    check(s->root->iter_forward_root == unit,
          "a forward of unit %s alone is the outermost: fsdp_pre_forward must make it "
          "root->iter_forward_root, and let its all-gather wait for the optimizer, whichever unit "
          "it is",
          unit->flat.name);
    need(fsdp_post_forward(unit->module, unit));
    need_cuda(cudaDeviceSynchronize());
    uint64_t log = gpulog_length();
    need(fsdp_sgd_step(s->model, &s->ctx, 0.125f, 0.0f));
    need(module_forward(s->model->children[0], &s->run, batch.in, &out));
    check_forward_over(s->root);
    check_no_race(log);
    need(module_discard(s->model, &s->run));
    batch_destroy(&batch);
}

TEST(hooks_gather_in_order)
{
    run_sharded(spec_mlp(5), hooks_body, 2, 4);
    RULE(forward_is_hidden);
    run_sharded(spec_mlp(3), part_body, 2);
    RULE(order_is_of_this_iteration);
    RULE(a_failed_model_fails_alone);
    RULE(contexts_are_apart, APART_FORWARD);
    RULE(nothing_grows, APART_FORWARD);
    run_drawn(7, hooks_body);
}

// While a unit runs, the one before it has gone: the hooks of two blocks, called as a model does.
static void check_one_at_a_time(Sharded *s)
{
    Module *root = s->model, *first = root->children[0], *second = root->children[1];
    FsdpUnit *unit = fsdp_unit(second);
    need(fsdp_pre_forward(root, fsdp_unit(root)));
    need(fsdp_pre_forward(first, fsdp_unit(first)));
    need(fsdp_post_forward(first, fsdp_unit(first)));
    need(fsdp_pre_forward(second, unit));
    check(unit->flat.state == FLAT_UNSHARDED, "after its pre-forward hook unit %s is not unsharded",
          second->name);
    check(s->root->all_gather_state.buffer == NULL,
          "while unit %s runs, the buffer of unit %s is still there: fsdp_pre_forward must release "
          "it after its own all-gather",
          second->name, first->name);
    need(fsdp_post_forward(second, unit));
    need(fsdp_post_forward(root, fsdp_unit(root)));
    need(fsdp_free_all_gather(s->root));
}

static void one_at_a_time_body(Sharded *s, const Rank *r, void *arg)
{
    check_one_at_a_time(s);
}

TEST(peak_is_two_units)
{
    claim_forward_peak(spec_mlp(4), 2);
    claim_forward_peak(spec_mlp(12), 2);
    claim_forward_peak(spec_mlp(12), 4);
    run_sharded(spec_mlp(4), one_at_a_time_body, 2, 4);
    Spec spec = draw_mlp(12);
    claim_forward_peak(spec, drawn_world(&spec, 2, 8));
}

SUITE_MAIN("forward")
