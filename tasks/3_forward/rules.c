/* rules.c: sentences of fsdp.h on forward.c that no other body of its suite reads. See
 * rules.h.
 */
#include "rules.h"

#include "draw.h"
#include "fsdp.h"
#include "harness.h"
#include "kernels.h"
#include "training.h"

static void begin_forward(Module *m)
{
    need(fsdp_pre_forward(m, fsdp_unit(m)));
    check(fsdp_unit(m)->phase == FSDP_FORWARD,
          "in the forward of unit %s its phase is %d, want FSDP_FORWARD", m->name,
          fsdp_unit(m)->phase);
}

static void end_forward(Module *m)
{
    need(fsdp_post_forward(m, fsdp_unit(m)));
    check(fsdp_unit(m)->phase == FSDP_IDLE,
          "after the forward of unit %s its phase is %d, want FSDP_IDLE", m->name,
          fsdp_unit(m)->phase);
}

// A forward of the units `order`, by their hooks, in the root's.
static void forward_by_hooks(Sharded *s, const int *order, int n)
{
    begin_forward(s->model);
    for (int i = 0; i < n; i++) {
        check(s->root->iter_forward_root == fsdp_unit(s->model),
              "fsdp_pre_forward must make the outermost unit root->iter_forward_root, and keep it "
              "in the forwards below (fsdp_begin_forward)");
        begin_forward(s->model->children[order[i]]);
        check(s->root->iter_forward_root == fsdp_unit(s->model),
              "unit %s is an inner one, and fsdp_pre_forward makes it root->iter_forward_root: is "
              "a forward under way already?",
              unit_of(s, order[i])->flat.name);
        end_forward(s->model->children[order[i]]);
        check(s->root->iter_forward_root == fsdp_unit(s->model),
              "unit %s is an inner one, and after its forward root->iter_forward_root is not the "
              "outermost unit any more: fsdp_post_forward must set it to NULL for the unit that it "
              "names alone",
              unit_of(s, order[i])->flat.name);
    }
    end_forward(s->model);
}

// ---- One unit ----

// The last operation since log entry `from` that moves data between ranks, or -1.
static int64_t last_collective(uint64_t from)
{
    GpuLogEntry entry;
    for (uint64_t i = gpulog_length(); i-- > from;)
        if (gpulog_get(i, &entry) && gpulog_is_collective(entry.op)) return (int64_t)i;
    return -1;
}

// Between unshard and wait the compute stream is free: what it runs there runs beside the
// all-gather.
static void beside_body(Sharded *s, const Rank *r, void *arg)
{
    float *own = NULL;
    FsdpUnit *unit = unit_of(s, 0);
    uint64_t sent = 4 * (uint64_t)(r->world - 1) * (uint64_t)unit->flat.layout.shard_numel;
    need_cuda(cudaMalloc((void **)&own, 4 * sizeof *own));
    need_cuda(cudaDeviceSynchronize());
    gpulog_reset_traffic();
    uint64_t log = gpulog_length();
    need(fsdp_unshard(unit));
    int64_t gather = last_collective(log);
    uint64_t total = 0;
    for (int op = GPU_ALL_GATHER; op <= GPU_RECV; op++) total += gpulog_traffic((GpuOp)op).sent;
    check(gather >= 0, "fsdp_unshard queued no collective");
    check(
        total <= sent,
        "to unshard unit %s this rank sent %llu bytes, want %llu: fsdp_all_gather sends its shard, "
        "once, to each of the other ranks",
        unit->flat.name, (unsigned long long)total, (unsigned long long)sent);
    need_cuda(kernel_fill(own, 1.0f, 4, s->ctx.compute_stream));
    int64_t kernel = gpulog_find(GPU_KERNEL, "kernel_fill", log);
    check(kernel >= 0 && !log_ordered((uint64_t)gather, (uint64_t)kernel),
          "after fsdp_unshard alone the compute stream waits for the all-gather: a unit that is "
          "gathered ahead would stop the one that computes. The wait belongs to "
          "fsdp_wait_for_unshard");
    // Nor does the wait for one unit hold up what needs no other: unit 1 is gathered ahead.
    FsdpUnit *ahead = unit_of(s, 1);
    need(fsdp_unshard(ahead));
    gather = last_collective(log);
    need(fsdp_wait_for_unshard(unit));
    log = gpulog_length();
    need_cuda(kernel_fill(own, 2.0f, 4, s->ctx.compute_stream));
    kernel = gpulog_find(GPU_KERNEL, "kernel_fill", log);
    check(kernel >= 0 && !log_ordered((uint64_t)gather, (uint64_t)kernel),
          "after fsdp_wait_for_unshard of unit %s the compute stream waits for unit %s too, which "
          "was gathered ahead after it: a wait is for all_gather_done of its unit, not for all "
          "that is queued on the all-gather stream",
          unit->flat.name, ahead->flat.name);
    need(fsdp_wait_for_unshard(ahead));
    need(fsdp_reshard(unit));
    need(fsdp_reshard(ahead));
    need_cuda(cudaDeviceSynchronize());
    need_cuda(cudaFree(own));
}

static int gathers_of_test;
static Status gather_for_test(FsdpUnit *unit)
{
    gathers_of_test++;
    return fsdp_all_gather(unit);
}

// Twice: one rank gathers, too, where it is told to. Without an argument the host waits for the
// gather, so that whether the compute stream does is not asked.
static void pointer_body(Sharded *s, const Rank *r, void *arg)
{
    FsdpUnit *unit = unit_of(s, 1);
    FlatParam *flat = &unit->flat;
    float *out = NULL;
    need_cuda(cudaMalloc((void **)&out, whole_bytes(unit)));
    unit->all_gather = gather_for_test;
    for (int alone = 0; alone < 2; alone++) {
        const bool gathers = r->world > 1 || alone;
        flat->gathers_alone = alone;
        gathers_of_test = 0;
        need_cuda(cudaDeviceSynchronize());
        const size_t live = gpulog_live_bytes(r->device);
        uint64_t log = gpulog_length();
        need(fsdp_unshard(unit));
        check(gathers_of_test == gathers &&
                  (flat->unsharded_param.data == flat->sharded_param.data) == !gathers,
              "with %d ranks%s fsdp_unshard called unit->all_gather %d times, want %d, and the "
              "unsharded parameter is%s the shard (flat_param_is_shard)",
              r->world, alone ? " and flat.gathers_alone" : "", gathers_of_test, gathers,
              flat->unsharded_param.data == flat->sharded_param.data ? "" : " not");
        need(fsdp_wait_for_unshard(unit));
        if (arg == NULL) need_cuda(cudaStreamSynchronize(s->ctx.all_gather_stream));
        need_cuda(kernel_add_out(out, flat->unsharded_param.data, flat->unsharded_param.data,
                                 (size_t)flat->layout.numel, s->ctx.compute_stream));
        need(fsdp_reshard(unit));
        check(
            flat->state == FLAT_SHARDED && flat->unsharded_param.data == NULL,
            "fsdp_reshard gave OK, and the unit is not FLAT_SHARDED, without unsharded_param.data");
        check((s->root->all_gather_state.buffer != NULL) == gathers,
              "with %d ranks%s fsdp_reshard leaves %s", r->world,
              alone ? " and flat.gathers_alone" : "",
              gathers ? "no buffer in root->all_gather_state: must it hold the unit's "
                        "(flat_param_is_shard), and is the one that it held before freed first?"
                      : "a buffer in root->all_gather_state (flat_param_is_shard)");
        need(fsdp_free_all_gather(s->root));
        check_no_race(log);
        check(
            gpulog_live_bytes(r->device) == live,
            "fsdp_free_all_gather must free what root->all_gather_state holds: %zu bytes are left",
            gpulog_live_bytes(r->device) - live);
    }
    flat->gathers_alone = false;
    need_cuda(cudaDeviceSynchronize());
    need_cuda(cudaFree(out));
}

// Shards of bf16, as lab 2 has them: of each rank five elements of two bytes, all with its number.
static void narrow_body(Sharded *s, const Rank *r, void *arg)
{
    enum { SHARD = 5, MOST = 8 };
    unsigned short mine[2 * SHARD], all[2 * SHARD * MOST];
    void *from = NULL, *to = NULL;
    FlatParam *flat = &unit_of(s, 0)->flat;
    const FlatParam own = *flat;
    for (int i = 0; i < 2 * SHARD; i++) mine[i] = (unsigned short)(100 + r->rank);
    need_cuda(cudaMalloc(&from, sizeof mine));
    need_cuda(cudaMalloc(&to, sizeof all));
    need_cuda(cudaMemcpy(from, mine, sizeof mine, cudaMemcpyHostToDevice));
    need_cuda(cudaMemset(to, 0, sizeof all));
    need_cuda(cudaDeviceSynchronize());
    flat->layout.shard_numel = SHARD;
    flat->layout.padded = SHARD * r->world;
    flat->sharded_param = (Buffer){from, DTYPE_BF16, SHARD};
    flat->unsharded_param = (Buffer){to, DTYPE_BF16, SHARD * r->world};
    need(fsdp_all_gather(unit_of(s, 0)));
    need_cuda(cudaDeviceSynchronize());
    need_cuda(cudaMemcpy(all, to, sizeof all, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 2 * SHARD * MOST; i++) {
        int want = i < SHARD * r->world ? 100 + i / SHARD : 0;
        check(all[i] == want,
              "fsdp_all_gather of bf16 shards of %d elements: element %d of what was gathered has "
              "the bits %d, want %d: an all-gather is of the shards' own type (dtype_nccl)",
              SHARD, i, all[i], want);
    }
    *flat = own;
    need_cuda(cudaFree(from));
    need_cuda(cudaFree(to));
}

static Status gather_nothing(FsdpUnit *unit)
{
    return OK;
}

// One rank shards, and two hold replicas (DDP): what is unsharded is the shard.
RANK_RULE(unshards_within_its_group, 2)
{
    const Mesh mesh = mesh_of_replicas(r);
    OneUnit one;
    check_leaks();
    one_unit_create(&one, &mesh, r);
    FsdpUnit *unit = one.unit;
    unit->all_gather = gather_nothing; // there is no communicator
    need_cuda(cudaDeviceSynchronize());
    uint64_t log = gpulog_length();
    need(fsdp_unshard(unit));
    check(unit->flat.unsharded_param.data == unit->flat.sharded_param.data &&
              gpulog_length() == log,
          "one rank shards and %d replicate: fsdp_unshard must make the shard the unsharded "
          "parameter, and neither allocate nor gather. World size 1 is that of the ranks that "
          "shard (flat_param_is_shard)",
          r->world);
    need(fsdp_wait_for_unshard(unit));
    need(fsdp_reshard(unit));
    one_unit_destroy(&one);
}

void rule_unshard_is_one_gather_ahead(void)
{
    run_sharded(spec_mlp(3), beside_body, 2, 3);
}

void rule_gathers_by_the_units_own_function(void)
{
    run_sharded(spec_mlp(3), pointer_body, 1, 2);
}

void rule_waits_where_one_rank_gathers(void)
{
    run_shape(((Shape){spec_mlp(3), TEST_OPTIONS}), pointer_body, "waits", 1);
}

void rule_gathers_in_the_shards_own_type(void)
{
    run_sharded(spec_mlp(3), narrow_body, 3);
}

// ---- Options ----

static void check_order(const Sharded *s, const int *order, int n, const char *what)
{
    const FsdpRoot *root = s->root;
    check(root->n_post_forward == n + 1,
          "%s: fsdp_post_forward recorded %d forwards, %d have ended", what, root->n_post_forward,
          n + 1);
    for (int i = 0; i <= n; i++) {
        const FsdpUnit *want = i < n ? unit_of(s, order[i]) : fsdp_unit(s->model);
        check(root->post_forward_order[i] == want,
              "%s: place %d of post_forward_order is unit %s, want %s, whose forward ended there",
              what, i, root->post_forward_order[i]->flat.name, want->flat.name);
    }
}

static void options_body(const Rank *r, void *arg)
{
    static const char *const NAME[] = {"AUTO", "ALWAYS", "NEVER"};
    static const FsdpReshard OF[] = {FSDP_RESHARD_NEVER, FSDP_RESHARD_ALWAYS, FSDP_RESHARD_AUTO};
    Spec spec = spec_mlp(4); // three units and the root
    for (FsdpReshard outer = FSDP_RESHARD_AUTO; outer <= FSDP_RESHARD_NEVER; outer++) {
        Sharded s;
        sharded_create(&s, &spec, &TEST_OPTIONS, NULL, r);
        for (int i = 0; i < 3; i++) unit_of(&s, i)->reshard_after_forward = OF[i];
        fsdp_unit(s.model)->reshard_after_forward = outer;
        forward_by_hooks(&s, (int[]){0, 1, 2}, 3);
        for (int i = 0; i < 4; i++) {
            const FsdpUnit *unit = i < 3 ? unit_of(&s, i) : fsdp_unit(s.model);
            FsdpReshard own = i < 3 ? OF[i] : outer;
            bool stays = own == FSDP_RESHARD_NEVER || (own == FSDP_RESHARD_AUTO && i == 3);
            check(unit->flat.state == (stays ? FLAT_UNSHARDED : FLAT_SHARDED),
                  "unit %s was told FSDP_RESHARD_%s, the root FSDP_RESHARD_%s: after the forward "
                  "it %s. Each unit goes by its own option",
                  unit->flat.name, NAME[own], NAME[outer],
                  stays ? "is not unsharded" : "still is unsharded");
        }
        check_order(&s, (int[]){0, 1, 2}, 3,
                    "units that keep their parameters, and units that do not");
        need(fsdp_reshard_all(s.model));
        sharded_destroy(&s);
    }
}

// A unit that runs outside of any forward of the root's, which is not the root all the same.
static void part_body(const Rank *r, void *arg)
{
    Spec spec = spec_mlp(4);
    Sharded s;
    FsdpOptions options = TEST_OPTIONS;
    options.reshard_after_forward = FSDP_RESHARD_AUTO;
    sharded_create(&s, &spec, &options, NULL, r);
    for (int i = 0; i < 3; i++) {
        begin_forward(s.model->children[i]);
        end_forward(s.model->children[i]);
        check(unit_of(&s, i)->flat.state == FLAT_SHARDED,
              "after a forward of unit %s alone it still is unsharded: FSDP_RESHARD_AUTO keeps the "
              "root (fsdp_is_root), and not whichever unit's forward is the outermost",
              unit_of(&s, i)->flat.name);
    }
    need(fsdp_reshard_all(s.model));
    sharded_destroy(&s);
}

void rule_each_unit_has_its_own_option(void)
{
    run_worlds(options_body, NULL, 1, 2);
    run_worlds(part_body, NULL, 1, 2);
}

// ---- Iterations ----

// Other units in another order in each iteration, one of them twice.
static void orders_body(Sharded *s, const Rank *r, void *arg)
{
    check_leaks();
    count_entries(s);
    forward_by_hooks(s, (int[]){0, 1, 2}, 3);
    check_order(s, (int[]){0, 1, 2}, 3, "first iteration");
    check_entry_asked(ASKED_WAIT, 4, "fsdp_pre_forward");
    check_entry_asked(ASKED_RESHARD, 4, "fsdp_post_forward");
    check_entry_asked(ASKED_RECORD, 4, "fsdp_post_forward");
    need(fsdp_reshard_all(s->model));
    forward_by_hooks(s, (int[]){2, 0}, 2);
    check_order(s, (int[]){2, 0}, 2, "second iteration, of other units");
    need(fsdp_reshard_all(s->model));
    forward_by_hooks(s, (int[]){1, 0, 1}, 3);
    check_order(s, (int[]){1, 0, 1}, 3, "an iteration in which a unit runs twice");
    check(unit_of(s, 1)->n_indices == 2 && unit_of(s, 1)->post_forward_indices[0] == 0 &&
              unit_of(s, 1)->post_forward_indices[1] == 2,
          "a unit that ran twice must be recorded twice by fsdp_post_forward");
    need(fsdp_reshard_all(s->model));
    forward_by_hooks(s, (int[]){2, 0, 1, 0}, 4);
    check_order(s, (int[]){2, 0, 1, 0}, 4, "an iteration that ends with a unit's second run");
    need(fsdp_reshard_all(s->model));
    forward_by_hooks(s, (int[]){0, 0, 2, 2}, 4);
    check_order(s, (int[]){0, 0, 2, 2}, 4, "an iteration in which units run twice in a row");
    need(fsdp_reshard_all(s->model));
}

// Two models on one context, the second running inside the first one's forward.
static void two_models_body(const Rank *r, void *arg)
{
    Spec spec = spec_mlp(3);
    FsdpContext ctx;
    Module *model[2];
    FsdpUnit *root[2], *inner[2];
    make_context(&ctx, r);
    for (int i = 0; i < 2; i++) {
        model[i] = spec_create(&spec);
        need(fully_shard(model[i]->children[0], &ctx, &TEST_OPTIONS));
        need(fully_shard(model[i], &ctx, &TEST_OPTIONS));
        root[i] = fsdp_unit(model[i]);
        inner[i] = fsdp_unit(model[i]->children[0]);
    }
    for (int i = 0; i < 2; i++) need(fsdp_pre_forward(model[i], root[i]));
    for (int i = 0; i < 2; i++) need(fsdp_pre_forward(model[i]->children[0], inner[i]));
    for (int i = 0; i < 2; i++) need(fsdp_post_forward(model[i]->children[0], inner[i]));
    for (int i = 0; i < 2; i++)
        check(root[i]->root->iter_forward_root == root[i] && root[i]->root->n_post_forward == 1 &&
                  root[i]->root->post_forward_order[0] == inner[i],
              "two models run on one context, one inside the other's forward: what "
              "fsdp_pre_forward must remember of an iteration belongs to the root of each");
    need(fsdp_post_forward(model[0], root[0]));
    check(root[0]->root->iter_forward_root == NULL && root[1]->root->iter_forward_root == root[1],
          "the end of one model's forward is not that of the other's on the same context");
    need(fsdp_post_forward(model[1], root[1]));
    for (int i = 0; i < 2; i++) {
        check(root[i]->root->iter_forward_root == NULL &&
                  root[i]->root->all_gather_state.buffer == NULL,
              "after both forwards model %d has a buffer that is still to be freed", i);
        fsdp_unwrap(model[i]);
        module_destroy(model[i]);
    }
    need(fsdp_context_destroy(&ctx));
}

// Two models on one context that have made as many steps: what one of them has waited for says
// nothing of the other's shards.
static void as_many_steps_body(const Rank *r, void *arg)
{
    Spec spec = spec_mlp(3);
    FsdpContext ctx;
    Module *model[2];
    make_context(&ctx, r);
    for (int i = 0; i < 2; i++) {
        model[i] = spec_create(&spec);
        need(fully_shard(model[i], &ctx, &TEST_OPTIONS));
    }
    need_cuda(cudaDeviceSynchronize());
    uint64_t log = gpulog_length();
    for (int step = 0; step < 3; step++) {
        for (int i = 0; i < 2; i++) {
            need(fsdp_sgd_step(model[i], &ctx, 0.5f, 0.25f));
            begin_forward(model[i]);
            end_forward(model[i]);
            need(fsdp_reshard_all(model[i]));
        }
    }
    check_no_race(log);
    for (int i = 0; i < 2; i++) {
        fsdp_unwrap(model[i]);
        module_destroy(model[i]);
    }
    need(fsdp_context_destroy(&ctx));
}

void rule_order_is_of_this_iteration(void)
{
    run_sharded(spec_mlp(4), orders_body, 2);
    run_ranks(2, two_models_body, NULL);
    run_ranks(2, as_many_steps_body, NULL);
}

// ---- fsdp_reshard_all ----

static void check_all_idle(const Sharded *s, int units, const char *when)
{
    for (int i = 0; i <= units; i++) {
        const FsdpUnit *unit = i < units ? unit_of(s, i) : fsdp_unit(s->model);
        check(unit->flat.state == FLAT_SHARDED && unit->flat.layout.params[0]->data.data == NULL &&
                  unit->phase == FSDP_IDLE,
              "after fsdp_reshard_all%s unit %s, one of %d, is not sharded and idle", when,
              unit->flat.name, units + 1);
    }
}

static void check_rests(const Sharded *s, int units, const char *when)
{
    bool recorded = s->root->n_post_forward != 0;
    check_all_idle(s, units, when);
    for (int i = 0; i < units; i++) recorded |= unit_of(s, i)->n_indices != 0;
    check(!recorded && s->root->all_gather_state.buffer == NULL,
          "after fsdp_reshard_all%s forwards are still recorded, or a buffer is left to free",
          when);
    check(s->root->iter_forward_root == NULL && s->root->iter_backward_root == NULL,
          "after fsdp_reshard_all%s a forward or a backward counts as running", when);
}

// What the pre-forward hooks of the root and two units say: whoever gathers ahead finds out
// earlier.
static Status begin_three(Sharded *s)
{
    Module *first = s->model->children[0], *second = s->model->children[1];
    TRY(fsdp_pre_forward(s->model, fsdp_unit(s->model)));
    TRY(fsdp_pre_forward(first, fsdp_unit(first)));
    TRY(fsdp_post_forward(first, fsdp_unit(first)));
    return fsdp_pre_forward(second, fsdp_unit(second));
}

// A forward that breaks off in a unit whose all-gather fails, and a backward that nobody ends.
static void broken_body(Sharded *s, const Rank *r, void *arg)
{
    FsdpUnit *unit = unit_of(s, 1), *root = fsdp_unit(s->model);
    need_cuda(cudaDeviceSynchronize());
    failing_status = ERR_MEMORY;
    for (int round = 0; round < 2; round++) {
        unit->all_gather = failing_collective;
        check(fsdp_unshard(unit) == ERR_MEMORY,
              "unit->all_gather failed with ERR_MEMORY: fsdp_unshard must return that");
        need(fsdp_reshard_all(s->model));
        check(begin_three(s) == ERR_MEMORY,
              "unit->all_gather failed with ERR_MEMORY: fsdp_pre_forward must return that");
        unit->all_gather = fsdp_all_gather;
        need(fsdp_reshard_all(s->model));
        check_rests(s, 3, ", called where a forward broke off,");

        forward_by_hooks(s, (int[]){0, 1, 2}, 3);
        check(s->root->n_post_forward >= 4,
              "the forward after one that broke off recorded %d forwards, 4 have ended: does "
              "fsdp_post_forward call fsdp_record_post_forward for each?",
              s->root->n_post_forward);
        check(
            s->root->n_post_forward == 4,
            "the forward after one that broke off has %d forwards in its list, 4 have ended: does "
            "fsdp_pre_forward call fsdp_begin_forward for the outermost, and for that alone?",
            s->root->n_post_forward);
        need(fsdp_pre_backward(s->model, root));
        need(fsdp_reshard_all(s->model));
        check(root->flat.unsharded_grad.data == NULL,
              "fsdp_reshard_all, called where a backward broke off, left its unsharded gradient: "
              "does it call fsdp_end_iteration?");
        check_rests(s, 3, ", called where a backward broke off,");
    }
}

// Twenty units and the root, in all three states.
static void all_body(const Rank *r, void *arg)
{
    enum { UNITS = 20 };
    Spec spec = spec_mlp(UNITS + 1);
    Sharded s;
    FsdpOptions keep = TEST_OPTIONS;
    keep.reshard_after_forward = FSDP_RESHARD_NEVER;
    sharded_create(&s, &spec, &keep, NULL, r);
    Batch batch = batch_create(&spec, 1);
    size_t live = gpulog_live_bytes(r->device);
    for (int round = 0; round < 2; round++) {
        forward_batch(&spec, &s.run, s.model, &batch); // an evaluation
        for (int i = 0; i < UNITS; i += 3) need(fsdp_reshard(unit_of(&s, i)));
        for (int i = 0; i < UNITS; i += 6) need(fsdp_unshard(unit_of(&s, i))); // nobody waits
        uint64_t log = gpulog_length();
        int unsharding = 0, unsharded = 0;
        for (int i = 0; i <= UNITS; i++) {
            unsharding += s.root->units[i]->flat.state == FLAT_UNSHARDING;
            unsharded += s.root->units[i]->flat.state == FLAT_UNSHARDED;
        }
        count_entries(&s);
        need(fsdp_reshard_all(s.model));
        check_no_host_wait(log, "in fsdp_reshard_all");
        check_all_idle(&s, UNITS, "");
        check_entry_asked(ASKED_WAIT, unsharding, "fsdp_reshard_all");
        check_entry_asked(ASKED_RESHARD, unsharding + unsharded, "fsdp_reshard_all");
        check(gpulog_live_bytes(r->device) == live,
              "after fsdp_reshard_all the device holds %zu bytes more than before the evaluation",
              gpulog_live_bytes(r->device) - live);
        check_rests(&s, UNITS, "");
        log = gpulog_length();
        need(fsdp_free_all_gather(s.root));
        check(gpulog_length() == log, "no buffer is left, and fsdp_free_all_gather queues work");
    }
    batch_destroy(&batch);
    sharded_destroy(&s);
}

void rule_reshard_all_reaches_every_unit(void)
{
    run_worlds(all_body, NULL, 1, 2);
    run_sharded(spec_mlp(4), broken_body, 2, 3);
}
