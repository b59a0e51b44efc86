/* rules.c: sentences of fsdp.h on api.c that no other body of its suite reads. See rules.h. */
#include "rules.h"

#include "draw.h"
#include "fsdp.h"
#include "harness.h"
#include "host_memory.h"
#include "layout.h"
#include "oracle.h"
#include "pattern.h"
#include "snapshot.h"
#include "training.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MANY = 20, MOST_PARAMS = 64 };

static bool any_hooks(const Module *m)
{
    bool any = module_has_hooks(m);
    for (int i = 0; i < m->n_children; i++) any |= any_hooks(m->children[i]);
    return any;
}

// ---- The context ----

static void context_body(const Rank *r, void *arg)
{
    FsdpContext ctx;
    Mesh mesh;
    int least, greatest, priority;
    unsigned int flags;
    check_leaks();
    need(mesh_1d(&mesh, r->comm));
    for (int round = 0; round < 3; round++) {
        memset(&ctx, 0x5A, sizeof ctx); // whatever was in it
        need(fsdp_context_create(&ctx, &mesh, r->stream));
        need_cuda(cudaDeviceGetStreamPriorityRange(&least, &greatest));
        const cudaStream_t streams[] = {ctx.all_gather_stream, ctx.reduce_scatter_stream};
        for (int i = 0; i < 2; i++) {
            if (streams[i] == r->stream) continue; // the caller's: who hides nothing may take it
            need_cuda(cudaStreamGetPriority(streams[i], &priority));
            check(priority == greatest,
                  "fsdp_context_create: the %s stream has priority %d, want the highest, %d" LIKELY
                  "the stream was made without a priority, or with the least: the highest is the "
                  "smallest number",
                  i == 0 ? "all-gather" : "reduce-scatter", priority, greatest);
            need_cuda(cudaStreamGetFlags(streams[i], &flags));
            check(flags == cudaStreamNonBlocking,
                  "fsdp_context_create: the %s stream waits for the default stream, want a "
                  "non-blocking one",
                  i == 0 ? "all-gather" : "reduce-scatter");
        }
        check(ctx.compute_stream == r->stream &&
                  (streams[0] != streams[1] || streams[0] == r->stream),
              "fsdp_context_create: three streams, and the compute stream is the caller's");
        struct cudaPointerAttributes scalar;
        need_cuda(cudaPointerGetAttributes(&scalar, ctx.host_scalar));
        check(scalar.type == cudaMemoryTypeHost,
              "fsdp_context_create: host_scalar is not pinned host memory");
        check(ctx.mesh.shard.comm == mesh.shard.comm && ctx.mesh.shard.rank == r->rank &&
                  ctx.mesh.shard.size == r->world && ctx.mesh.replicate.size == 1,
              "fsdp_context_create: the context's mesh is not the caller's");
        need(fsdp_context_destroy(&ctx));
    }
}

// ---- Options ----

static void options_body(const Rank *r, void *arg)
{
    static const FsdpReshard OF[] = {FSDP_RESHARD_NEVER, FSDP_RESHARD_ALWAYS, FSDP_RESHARD_AUTO};
    Spec spec = spec_mlp(4);
    Module *model = spec_create(&spec);
    FsdpContext ctx;
    make_context(&ctx, r);
    for (int i = 0; i < 4; i++) { // the root last
        FsdpOptions options = {OF[i % 3], i % 2 == 0, 100 + (uint64_t)i, NULL};
        need(fully_shard(i < 3 ? model->children[i] : model, &ctx, &options));
    }
    for (int i = 0; i < 4; i++) {
        const Module *m = i < 3 ? model->children[i] : model;
        const FsdpUnit *unit = fsdp_unit(m);
        int64_t multiple = i % 2 == 0 ? 4 : 1, numel = 0;
        Layout layout;
        layout_module(&layout, m, true, 1, LAYOUT_WHOLE);
        numel = (int64_t)layout.begin[layout.n];
        int64_t want = (numel + multiple * r->world - 1) / (multiple * r->world) * multiple;
        check(unit->reshard_after_forward == OF[i % 3] && unit->flat.layout.shard_numel == want,
              "fully_shard: unit %s does not go by the options of its own call" LIKELY
              "they are those of another unit, or were kept from another call",
              m->name);
        // The first elements of the shard, by the unit's own seed.
        need_cuda(cudaDeviceSynchronize());
        int64_t begin = 0, end = 0, at = 0;
        flat_param_range_in_shard(&unit->flat.layout, 0, r->rank, &begin, &end, &at);
        if (begin == end) continue;
        float *got = fetch(unit->flat.sharded_param.data, (size_t)want);
        float *values = malloc((size_t)(end - begin) * sizeof *values);
        oracle_init(layout.param[0], 100 + (uint64_t)i, begin, end - begin, values);
        check_near("make_flat: the first parameter of a unit, by the seed of its own options",
                   got + at, values, (size_t)(end - begin), 2e-6);
        free(values);
        free(got);
    }
    fsdp_unwrap(model);
    need(fsdp_context_destroy(&ctx));
    module_destroy(model);
}

void rule_options_are_the_units_own(void)
{
    run_ranks(1, context_body, NULL);
    run_worlds(options_body, NULL, 1, 2);
}

// ---- Other people's hooks, and what is left of ours ----

static int foreign_calls;
static Status foreign(Module *m, void *arg)
{
    foreign_calls++;
    return OK;
}

// A unit in the middle is unwrapped, the others stay; hooks that somebody else installed stay too.
RANK_RULE(unwrap_leaves_what_is_not_its_own, 2)
{
    Spec spec = spec_gpt2(3);
    Module *model = spec_create(&spec);
    FsdpContext ctx;
    FsdpUnit *units[8] = {NULL};
    check_leaks();
    make_context(&ctx, r);
    Module *block = model->children[2], *inner = block->children[block->n_children - 1];
    Hook *own = module_add_hook(block, HOOK_PRE_FORWARD, foreign, NULL);
    need(fully_shard(inner, &ctx, &TEST_OPTIONS));
    need(fully_shard(block, &ctx, &TEST_OPTIONS));
    need(fully_shard(model->children[1], &ctx, &TEST_OPTIONS));
    need(fully_shard(model, &ctx, &TEST_OPTIONS));
    check(block->hooks[HOOK_PRE_FORWARD] == own && own->next != NULL &&
              own->next == fsdp_unit(block)->hooks[0],
          "install_hooks must append to the hooks that a module has already, and keep the handle");
    FsdpUnit *root = fsdp_unit(model);
    check(root->root->n_units == 4 && root->root->units[0] == root &&
              fsdp_unit(inner)->root == root->root && fsdp_unit(block)->root == root->root,
          "the units below share the root of the last fully_shard, which lists all four");
    check(root->all_gather == fsdp_all_gather && root->reduce_scatter == fsdp_reduce_scatter,
          "fully_shard sets a unit's two functions to fsdp_all_gather and fsdp_reduce_scatter");
    fsdp_unwrap(block);
    check(fsdp_unit(block) == NULL && fsdp_unit(inner) == NULL && fsdp_unit(model) == root &&
              fsdp_units(model, units, 8) == 2,
          "fsdp_unwrap of a module takes the units at and below it away, and leaves those above");
    check(root->root->n_units == 2,
          "after fsdp_unwrap of a block the root lists %d units, want 2: does destroy_unit take "
          "each out (fsdp_root_remove)?",
          root->root->n_units);
    check(block->hooks[HOOK_PRE_FORWARD] == own && own->next == NULL && !any_hooks(inner),
          "after fsdp_unwrap of block %s a hook of FSDP's is left in it or below it, or another's "
          "is gone",
          block->name);
    check(model->hooks[HOOK_PRE_FORWARD] != NULL, "fsdp_unwrap took the hooks of the unit above");
    module_remove_hook(block, own);
    fsdp_unwrap(model);
    check(!any_hooks(model), "after fsdp_unwrap a module below the root still has a hook");
    need(fsdp_context_destroy(&ctx));
    module_destroy(model);
}

// ---- Many units, again and again ----

// Twenty units in an MLP, wrapped and unwrapped several times: nothing grows.
RANK_RULE(any_number_of_units, 1, 2)
{
    Spec spec = spec_mlp(MANY + 1);
    spec.in_dim = spec.dim = spec.vocab = 2;
    FsdpContext ctx;
    FsdpUnit *units[MANY + 2] = {NULL};
    size_t host = 0, live = 0;
    check_leaks();
    make_context(&ctx, r);
    for (int round = 0; round < 6; round++) {
        Module *model = spec_create(&spec);
        for (int i = 0; i < MANY; i++) need(fully_shard(model->children[i], &ctx, &TEST_OPTIONS));
        need(fully_shard(model, &ctx, &TEST_OPTIONS));
        FsdpRoot *root = fsdp_unit(model)->root;
        check(fsdp_units(model, units, MANY + 2) == MANY + 1,
              "of a model of %d units fsdp_units gives %d", MANY + 1, fsdp_units(model, NULL, 0));
        check(root->n_units == MANY + 1,
              "fully_shard of a model of %d units: the root lists %d of them", MANY + 1,
              root->n_units);
        for (int i = 0; i < MANY; i++)
            check(units[1 + i] == fsdp_unit(model->children[i]) && units[1 + i]->root == root &&
                      !fsdp_is_root(units[1 + i]),
                  "unit %s, number %d of %d, is not below the root", model->children[i]->name,
                  1 + i, MANY + 1);
        // A forward records every unit, in memory that fsdp_unwrap must free.
        for (int i = 0; i < MANY * 100; i++) need(fsdp_record_post_forward(units[1 + i % MANY]));
        fsdp_unwrap(model);
        module_destroy(model);
        if (round == 1) {
            host = host_bytes();
            live = gpulog_live_bytes(r->device);
        }
    }
    check(gpulog_live_bytes(r->device) == live, "fsdp_unwrap left %zu bytes on the device",
          gpulog_live_bytes(r->device) - live);
    // A unit takes about 500 bytes and its stack as many; simgpu keeps less than 100 of each.
    size_t simgpus = 4 * (MANY + 1) * 200;
    check(host_bytes() <= host + simgpus,
          "fsdp_unwrap of %d units, four times, leaves %zu bytes of host memory: does destroy_unit "
          "take the unit out of its root, and free it and its stack of indices?",
          MANY + 1, host_bytes() - host);
    need(fsdp_context_destroy(&ctx));
}

// ---- Refusals and failures ----

// Once a unit has its shards, the host has memory for `room` hooks and nothing else, until the line
// of the failure is written.
static int room;
static bool is_short;
static Status zero_and_exhaust(const FlatParam *flat, const Buffer *sharded, cudaStream_t stream)
{
    void *hook[HOOK_POINTS];
    Status status = flat_zero_padding_default(flat, sharded, stream);
    for (int i = 0; i < room; i++) hook[i] = malloc(sizeof(Hook));
    host_exhaust(sizeof(Hook));
    for (int i = 0; i < room; i++) free(hook[i]);
    is_short = host_is_short();
    return status;
}

static void give_back(int sigpipe)
{
    host_exhaust(0);
}

static Status lay_out_short(FlatLayout *layout, const char *name, Param **params, int n, int rank,
                            int world, bool align)
{
    static FlatLayoutOps ops;
    ops = FLAT_LAYOUT_OPS;
    ops.zero_padding = zero_and_exhaust;
    TRY(flat_layout(layout, name, params, n, rank, world, align));
    layout->ops = &ops;
    return OK;
}

static Status shard_short(Module *model, FsdpContext *ctx)
{
    FsdpOptions options = TEST_OPTIONS;
    options.layout = lay_out_short;
    int ends[2], own = dup(STDERR_FILENO);
    void (*before)(int) = signal(SIGPIPE, give_back);
    check(pipe(ends) == 0 && dup2(ends[1], STDERR_FILENO) >= 0, "the test has no pipe");
    close(ends[0]); // so that a line raises SIGPIPE
    close(ends[1]);
    Status status = fully_shard(model, ctx, &options);
    host_exhaust(0);
    dup2(own, STDERR_FILENO);
    close(own);
    signal(SIGPIPE, before);
    return status;
}

static void refuse_body(const Rank *r, void *arg)
{
    Spec spec = spec_mlp(4);
    Module *model = spec_create(&spec), *block = model->children[1];
    FsdpContext ctx, other;
    size_t free_bytes = 0, total = 0;
    void *ballast = NULL;
    check_leaks();
    make_context(&ctx, r);
    make_context(&other, r);
    need(fully_shard(block, &other, &TEST_OPTIONS));
    need_refused_whole(model, NULL, fully_shard(model, &ctx, &TEST_OPTIONS), block->name);
    need(fully_shard(model, &other, &TEST_OPTIONS));
    fsdp_unwrap(model);
    module_destroy(model);

    model = spec_create(&spec);
    size_t live = gpulog_live_bytes(r->device);
    for (room = 0; room < HOOK_POINTS; room++) {
        Status status = shard_short(model, &ctx);
        check(!is_short || status == ERR_MEMORY,
              "there is host memory for %d hooks, and none for the next: install_hooks must give "
              "ERR_MEMORY where module_add_hook gives NULL, at any point; the status is %d",
              room, (int)status);
        check(
            !is_short || (fsdp_unit(model) == NULL && !any_hooks(model) &&
                          gpulog_live_bytes(r->device) == live),
            "fully_shard had no memory for hook %d, and the module has a unit, hooks or memory all "
            "the same: does it call destroy_unit?",
            room);
        fsdp_unwrap(model); // where nobody can hold the host to it
    }
    need_cuda(cudaMemGetInfo(&free_bytes, &total));
    need_cuda(cudaMalloc(&ballast, free_bytes - 256));
    live = gpulog_live_bytes(r->device);
    check(fully_shard(model, &ctx, &TEST_OPTIONS) == ERR_MEMORY,
          "flat_create fails on a full device: make_flat and fully_shard must give ERR_MEMORY");
    check(gpulog_live_bytes(r->device) == live && fsdp_unit(model) == NULL && !any_hooks(model) &&
              model->children[0]->children[0]->params[0]->owner == NULL,
          "fully_shard ran out of memory and left hooks, an owner or %zu bytes behind%s",
          gpulog_live_bytes(r->device) - live,
          LIKELY "this test fills the device, so running out of memory is right: is what was made "
                 "before that taken back on the way out?");
    need_cuda(cudaFree(ballast));
    need(fully_shard(model, &ctx, &TEST_OPTIONS));
    fsdp_unwrap(model);
    need(fsdp_context_destroy(&ctx));
    need(fsdp_context_destroy(&other));
    module_destroy(model);
}

void rule_a_refused_module_is_as_it_was(void)
{
    run_ranks_small(1, refuse_body, NULL);
}

// ---- The full state ----

typedef struct Seen {
    int n;
    double off; // the largest difference from the initial values
} Seen;

static Status compare_with_init(const Param *param, const float *values, void *arg)
{
    Seen *seen = arg;
    int64_t numel = oracle_numel(param);
    float *want = malloc((size_t)numel * sizeof *want);
    if (want == NULL) return ERR_MEMORY;
    oracle_init(param, TEST_OPTIONS.seed, 0, numel, want);
    for (int64_t i = 0; i < numel; i++) {
        double off = (double)values[i] - (double)want[i];
        if (!(off <= seen->off && -off <= seen->off)) seen->off = off < 0 ? -off : off;
    }
    seen->n++;
    free(want);
    return OK;
}

static void check_state(const Sharded *s, const Rank *r)
{
    Seen seen = {0, 0.0};
    need(fsdp_full_state(s->model, compare_with_init, &seen));
    check(seen.n == (r->rank == 0 ? 10 : 0) && seen.off < 5e-6,
          "fsdp_full_state with some units unsharded: %d parameters, and values that differ by %g "
          "from the initial ones",
          seen.n, seen.off);
}

// Any of the units may be unsharded, and stays so; nothing is gathered twice. One is being
// gathered at first. Several times, because what a call leaves adds up.
static void state_body(const Rank *r, void *arg)
{
    Spec spec = spec_mlp(5);
    Sharded s;
    size_t host = 0;
    check_leaks();
    spec.dim = 40; // parameters of 6400 bytes
    sharded_create(&s, &spec, &TEST_OPTIONS, NULL, r);
    need_cuda(cudaDeviceSynchronize());
    need(fsdp_unshard(unit_of(&s, 2)));
    check_state(&s, r);
    check(unit_of(&s, 2)->flat.state != FLAT_SHARDED,
          "unit %s was being gathered before fsdp_full_state, and is sharded after it: gather_unit "
          "must leave each unit as it was",
          unit_of(&s, 2)->flat.name);
    need(fsdp_reshard_all(s.model));
    for (int mask = 0; mask < 1 << 5; mask += mask < 8 ? 1 : 5) {
        for (int k = 0; k < 5; k++) {
            if (!(mask >> k & 1)) continue;
            need(fsdp_unshard(s.root->units[k]));
            need(fsdp_wait_for_unshard(s.root->units[k]));
        }
        need_unchanged(s.model, NULL, check_state(&s, r));
        need(fsdp_reshard_all(s.model));
        if (mask == 3) host = host_bytes();
    }
    check(host_bytes() <= host + 20000,
          "nine calls of fsdp_full_state left %zu bytes of host memory: what frees the values when "
          "the visitor has had them?",
          host_bytes() - host);
    sharded_destroy(&s);
}

static Status pass_over(const Param *param, const float *values, void *arg)
{
    return OK;
}

// The state of a part: nobody but gather_below has waited for what the optimizer wrote.
static void part_body(Sharded *s, const Rank *r, void *arg)
{
    need_cuda(cudaDeviceSynchronize());
    uint64_t log = gpulog_length();
    for (int i = 0; i < 2; i++) {
        need(fsdp_sgd_step(s->model, &s->ctx, 0.5f, 0.25f));
        need(fsdp_full_state(s->model->children[i], pass_over, NULL));
    }
    check_no_race(log);
}

void rule_full_state_leaves_units_as_they_were(void)
{
    run_worlds(state_body, NULL, 1, 2);
    run_sharded(spec_mlp(4), part_body, 2);
}
