/* rules_units.c: sentences of fsdp.h on units that are refused, listed, unwrapped below a root that
 * stays, or cannot be gathered. See rules.h.
 */
#include "rules.h"

#include "backend.h"
#include "figures.h"
#include "fsdp.h"
#include "harness.h"
#include "host_memory.h"
#include "huge.h"
#include "layout.h"
#include "oracle.h"
#include "snapshot.h"
#include "training.h"

#include <stdlib.h>
#include <string.h>

static Status count_params(const Param *param, const float *values, void *arg)
{
    ++*(int *)arg;
    return OK;
}

// Counts parameters as long as none is left out.
static Status count_in_order(const Param *param, const float *values, void *arg)
{
    int *next = arg;
    *next += (int)param->id == *next;
    return OK;
}

// ---- Refused, and refused again ----

// A parameter of the first block's, used in the model's last child, or two levels down in another
// block that is not a unit.
static void ties_body(const Rank *r, void *arg)
{
    Spec spec = spec_mlp(4);
    FsdpContext ctx;
    make_context(&ctx, r);
    for (int round = 0; round < 2; round++) {
        Module *model = spec_create(&spec);
        Module *user =
            round < 1 ? model->children[2]->children[0] : model->children[model->n_children - 1];
        while (user->n_params == 0) user = user->children[0];
        Param *tied = model->children[0]->children[0]->params[0];
        Param **place = &user->params[0], *own = *place;
        need(fully_shard(model->children[0], &ctx, &TEST_OPTIONS));
        need(fully_shard(model->children[1], &ctx, &TEST_OPTIONS));
        *place = tied; // in the last child, or two levels down
        check_set_silent(true);
        check(fully_shard(model, &ctx, &TEST_OPTIONS) != OK,
              "collect_unowned_params must refuse %s: %s uses it", tied->name, user->name);
        check_set_silent(false);
        for (int attempt = 0; attempt < 2; attempt++)
            need_refused_whole(model, NULL, fully_shard(model, &ctx, &TEST_OPTIONS), tied->name);
        *place = own;
        fsdp_unwrap(model);
        module_destroy(model);
    }
    need(fsdp_context_destroy(&ctx));
}

// The last step of fully_shard fails, for its inner unit's context; each time.
static void context_body(const Rank *r, void *arg)
{
    Spec spec = spec_mlp(3);
    Module *model = spec_create(&spec);
    FsdpContext ctx[2];
    check_leaks();
    for (int i = 0; i < 2; i++) make_context(&ctx[i], r);
    need(fully_shard(model->children[0], &ctx[0], &TEST_OPTIONS));
    for (int attempt = 0; attempt < 2; attempt++)
        need_refused_whole(model, NULL, fully_shard(model, &ctx[1], &TEST_OPTIONS),
                           model->children[0]->name);
    fsdp_unwrap(model);
    for (int i = 0; i < 2; i++) need(fsdp_context_destroy(&ctx[i]));
    module_destroy(model);
}

static int laid_out;
static Status lay_out_nothing(FlatLayout *layout, const char *name, Param **params, int n, int rank,
                              int world, bool align)
{
    laid_out++;
    return fail(failing_status, "%s: the test's layout fails, as it is meant to", name);
}

// All that a module is refused for, of a model whose units have run: they keep the roots that they
// have, and what those know. Another model of the same context sees nothing of it.
static void left_body(const Rank *r, void *arg)
{
    static const Status FAILURES[] = {ERR_CUDA, ERR_MEMORY, ERR_IO};
    Spec spec = spec_mlp(3);
    Module *model = spec_create(&spec), *other = spec_create(&spec);
    FsdpContext ctx;
    FsdpOptions options = TEST_OPTIONS;
    make_context(&ctx, r);
    need(fully_shard(other, &ctx, &TEST_OPTIONS));
    for (int i = 0; i < model->n_children; i++) {
        Module *m = model->children[i];
        need(fully_shard(m, &ctx, &TEST_OPTIONS));
        need(fsdp_pre_forward(m, m->unit));
        need(fsdp_post_forward(m, m->unit)); // each is a root, and stays unsharded
        need_refused_whole(model, NULL, fully_shard(m, &ctx, &TEST_OPTIONS), m->name);
    }
    for (int attempt = 0; attempt < 2; attempt++) // nothing is left to take
        need_refused_whole(model, NULL, fully_shard(model, &ctx, &TEST_OPTIONS), model->name);
    Module *last = model->children[model->n_children - 1];
    fsdp_unwrap(last);
    while (last->n_params == 0) last = last->children[0];
    Param *left = last->params[0];
    left->frozen = true;
    need_refused_whole(model, NULL, fully_shard(model, &ctx, &TEST_OPTIONS), left->name);
    left->frozen = false;
    left->dtype = DTYPE_BF16;
    need_refused_whole(model, NULL, fully_shard(model, &ctx, &TEST_OPTIONS), left->name);
    left->dtype = DTYPE_F32;
    options.layout = lay_out_nothing;
    failing_status = ERR_IO;
    check_set_silent(true);
    IGNORE_STATUS(fully_shard(model, &ctx, &options));
    check_set_silent(false);
    check(laid_out > 0, "make_flat does not call options->layout, which says how a unit is cut: it "
                        "has it in lay_out");
    for (int i = 0; i < 3; i++) {
        failing_status = FAILURES[i];
        need_unchanged(
            model, NULL,
            need_failure(fully_shard(model, &ctx, &options), failing_status, "as it is meant to"));
    }
    need_unchanged(
        other, NULL,
        need_failure(fully_shard(model, &ctx, &options), failing_status, "as it is meant to"));
    need(fully_shard(model, &ctx, &TEST_OPTIONS));
    fsdp_unwrap(model);
    fsdp_unwrap(other);
    need(fsdp_context_destroy(&ctx));
    module_destroy(model);
    module_destroy(other);
}

// So many parameters that a list of them needs more memory than the host has for a while.
static void list_body(const Rank *r, void *arg)
{
    enum { N = 2500, EMPTY = 7 };
    Param *params = calloc(N, sizeof *params), **list = calloc(N, sizeof *list);
    Module model = {.name = "many", .n_params = N, .params = list};
    FsdpContext ctx;
    check(params != NULL && list != NULL, "no memory");
    make_context(&ctx, r);
    for (int i = 0; i < N; i++) {
        list[i] = &params[i];
        params[i] = (Param){.id = (uint32_t)i, .ndim = 1, .shape = {i != EMPTY}, .init = INIT_ONE};
    }
    size_t live = gpulog_live_bytes(r->device);
    for (int round = 0; round < 2; round++) {
        host_exhaust(8192);
        Status status = fully_shard(&model, &ctx, &TEST_OPTIONS);
        host_exhaust(0);
        check(status == OK || (status == ERR_MEMORY && gpulog_live_bytes(r->device) == live &&
                               fsdp_unit(&model) == NULL && !module_has_hooks(&model) &&
                               params[0].owner == NULL),
              "fully_shard of %d parameters without host memory gives status %d: it must be "
              "ERR_MEMORY and leave the module as it was, or work all the same",
              N, (int)status);
        if (status != OK) need(fully_shard(&model, &ctx, &TEST_OPTIONS));
        int seen = 0;
        check(fsdp_unit(&model)->flat.layout.n == N,
              "collect_unowned_params took %d parameters of a module of %d",
              fsdp_unit(&model)->flat.layout.n, N);
        need(fsdp_full_state(&model, count_in_order, &seen));
        check(seen == N,
              "gather_unit must give the visitor each of %d parameters, in order, and leaves out "
              "number %d%s",
              N, seen, seen == EMPTY ? ", which has no elements" : "");
        fsdp_unwrap(&model);
        check(!module_has_hooks(&model) && fsdp_unit(&model) == NULL,
              "after fsdp_unwrap the module of %d parameters is not as it was", N);
    }
    need(fsdp_context_destroy(&ctx));
    free(list);
    free(params);
}

// Many inner units: the lists that a refused call made of them are freed.
static void crowd_body(const Rank *r, void *arg)
{
    enum { N = 300, TIMES = 22 };
    static Param params[N + 1], *list[N + 1];
    static Module child[N], *children[N];
    Module root = {.name = "crowd", .n_params = 1, .params = &list[N], .n_children = N};
    FsdpContext ctx[2];
    size_t host = 0;
    for (int i = 0; i < 2; i++) make_context(&ctx[i], r);
    for (int i = 0; i <= N; i++) {
        list[i] = &params[i];
        params[i] = (Param){.id = (uint32_t)i, .ndim = 1, .shape = {1}, .init = INIT_ONE};
        if (i == N) break;
        child[i] = (Module){.name = "one", .n_params = 1, .params = &list[i]};
        children[i] = &child[i];
        need(fully_shard(children[i], &ctx[0], &TEST_OPTIONS));
    }
    root.children = children;
    for (int kind = 0; kind < 3; kind++) { // used twice; frozen; of another context
        Param *own[] = {&params[N], &params[0]};
        root.params = own;
        root.n_params = kind == 0 ? 2 : 1;
        params[N].frozen = kind == 1;
        for (int attempt = 0; attempt < TIMES; attempt++) {
            if (attempt == 2) host = host_bytes();
            need_refused(fully_shard(&root, &ctx[kind == 2], &TEST_OPTIONS), "");
        }
        // A list of them takes 2,400 bytes, a unit less.
        size_t now = host_bytes(), kept = now > host ? (now - host) / (TIMES - 2) : 0;
        check(kept <= 100 || kept >= N * sizeof(Param *),
              "fully_shard: %d calls that were refused leave %zu bytes each of host memory, less "
              "than a list of %d takes: is it the unit? destroy_unit frees it where make_flat "
              "fails, too",
              TIMES - 2, kept, N + 1);
        check(kept <= 100,
              "%s: %d calls that were refused leave %zu bytes of host memory: what frees the lists "
              "of %d parameters and of %d units that each of them makes?",
              kind < 2 ? "make_flat" : "clear_descendant_roots", TIMES - 2, now - host, N + 1,
              N + 1);
    }
    fsdp_unwrap(&root);
    for (int i = 0; i < 2; i++) need(fsdp_context_destroy(&ctx[i]));
}

void rule_refuses_each_time(void)
{
    run_ranks(1, crowd_body, NULL);
    run_ranks(1, list_body, NULL);
    run_worlds(ties_body, NULL, 1, 2);
    run_ranks(2, context_body, NULL);
    run_ranks(2, left_body, NULL);
}

// ---- Lists with too few places ----

enum { PLACES = 12 };

// The units of a walk that takes a module before its children, by the modules' own pointers.
static void walk_units(const Module *m, FsdpUnit **out, int *n)
{
    if (m->unit != NULL) out[(*n)++] = m->unit;
    for (int i = 0; i < m->n_children; i++) walk_units(m->children[i], out, n);
}

static void check_places(const Module *m)
{
    FsdpUnit *want[PLACES], *got[PLACES + 4], *const untouched = (FsdpUnit *)&got;
    int n = 0;
    walk_units(m, want, &n);
    for (int max = 0; max <= n + 2; max++) {
        for (int i = 0; i < PLACES + 4; i++) got[i] = untouched;
        int count = fsdp_units(m, got, max);
        check(count == n, "%s has %d units, and fsdp_units with %d places returns %d", m->name, n,
              max, count);
        for (int i = 0; i < PLACES + 4; i++)
            check(got[i] == (i < max && i < n ? want[i] : untouched),
                  "of the %d units of %s fsdp_units with %d places wrote something else than the "
                  "walk's at place %d: it writes the first ones, and none past its places",
                  n, m->name, max, i);
    }
    check(fsdp_units(m, NULL, 0) == n, "fsdp_units without any places must count all the same");
}

RANK_RULE(lists_no_more_than_its_places, 1)
{
    Spec spec = spec_gpt2(4);
    Module *model = spec_create(&spec);
    FsdpContext ctx;
    make_context(&ctx, r);
    check_places(model);
    for (int i = 1; i <= 3; i++) {
        Module *block = model->children[i];
        if (i != 2) need(fully_shard(block->children[0], &ctx, &TEST_OPTIONS));
        need(fully_shard(block->children[block->n_children - 1], &ctx, &TEST_OPTIONS));
        if (i != 1) need(fully_shard(block, &ctx, &TEST_OPTIONS));
        check_places(model);
        check_places(block);
    }
    need(fully_shard(model, &ctx, &TEST_OPTIONS));
    check_places(model);
    // Two are modules again, of which one becomes a unit with a root of its own: the root of the
    // model lists neither.
    fsdp_unwrap(model->children[2]);
    check_places(model);
    need(fully_shard(model->children[2], &ctx, &TEST_OPTIONS));
    check_places(model);
    check_places(model->children[2]);
    fsdp_unwrap(model);
    need(fsdp_context_destroy(&ctx));
    module_destroy(model);
}

// ---- Unwrapped while they are unsharded, below a root that stays ----

RANK_RULE(unwraps_below_a_root, 1, 3)
{
    Spec spec = spec_mlp(5);
    Sharded s;
    check_leaks();
    sharded_create(&s, &spec, &TEST_OPTIONS, NULL, r);
    figures_forget(s.model);
    need_cuda(cudaDeviceSynchronize());
    for (int i = 0; i < 4; i++) {
        Module *m = s.model->children[i];
        FsdpUnit *unit = fsdp_unit(m);
        size_t live = gpulog_live_bytes(r->device);
        size_t shards = 8 * (size_t)unit->flat.layout.shard_numel;
        Param *param = unit->flat.layout.params[0];
        if (i > 0) need(fsdp_unshard(unit));
        if (i > 1) need(fsdp_wait_for_unshard(unit));
        if (i > 2) need(fsdp_reshard(unit)); // its buffer is left to free
        fsdp_unwrap(m);
        need_cuda(cudaDeviceSynchronize());
        check(gpulog_live_bytes(r->device) == live - shards,
              "fsdp_unwrap of unit %s, %s, below a root that stays: %zu bytes on the device are "
              "left of it",
              m->name,
              i == 0   ? "sharded"
              : i == 1 ? "unsharding"
              : i == 2 ? "unsharded"
                       : "just resharded",
              gpulog_live_bytes(r->device) - (live - shards));
        check(fsdp_unit(m) == NULL && param->owner == NULL && param->data.data == NULL &&
                  s.root->n_units == 4 - i,
              "after fsdp_unwrap of unit %s its parameters have an owner or storage, or the root "
              "lists it",
              m->name);
    }
    fsdp_unwrap(s.model);
    need(fsdp_context_destroy(&s.ctx));
    module_destroy(s.model);
    need(nn_run_destroy(&s.run));
}

// ---- A full state that cannot be had ----

static int refused;

static Status refuse(FsdpUnit *unit)
{
    refused++;
    return failing_collective(unit);
}

static Status state_without(Sharded *s, FsdpUnit *unit)
{
    int seen = 0;
    unit->all_gather = refuse;
    Status status = fsdp_full_state(s->model, count_params, &seen);
    unit->all_gather = fsdp_all_gather;
    need(fsdp_reshard_all(s->model));
    return status;
}

// Of two models one fails, and the other sees nothing of it.
static void failing_body(Sharded *s, const Rank *r, void *arg)
{
    static const Status FAILURES[] = {ERR_NCCL, ERR_MEMORY, ERR_IO};
    OneUnit other;
    one_unit_create(&other, &s->ctx.mesh, r);
    for (int i = 0; i < 3; i++) { // two units, and the root
        FsdpUnit *unit = fsdp_unit(i < 2 ? s->model->children[i] : s->model);
        Status status = OK;
        refused = 0;
        failing_status = FAILURES[i];
        need_unchanged(other.model, NULL, status = state_without(s, unit));
        // There are other ways to have a state than to unshard a unit.
        check(refused > 0 ? status == failing_status : status == OK,
              "the all-gather of unit %s failed with status %d: fsdp_full_state must return that, "
              "and gave status %d",
              unit->flat.name, (int)failing_status, (int)status);
    }
    one_unit_destroy(&other);
}

static size_t bytes_copied_to_host(uint64_t from)
{
    size_t bytes = 0;
    GpuLogEntry entry;
    for (; gpulog_get(from, &entry); from++)
        if (entry.op == GPU_COPY && entry.to == GPULOG_HOST) bytes += entry.bytes;
    return bytes;
}

// Three meshes of the same four ranks, one after the other: the full state is shown on the rank
// that is 0 in both groups of its model's mesh, once, and costs no more than that.
RANK_RULE(full_state_is_shown_to_one, 4)
{
    const int rank = r->rank, last = r->world - 1;
    ncclComm_t reversed, pair, across;
    need_nccl(ncclCommSplit(r->comm, 0, last - rank, &reversed, NULL));
    need_nccl(ncclCommSplit(r->comm, rank / 2, rank, &pair, NULL));
    need_nccl(ncclCommSplit(r->comm, rank % 2, rank, &across, NULL));
    const Mesh meshes[] = {
        {.shard = {reversed, last - rank, 4}, .replicate = {NULL, 0, 1}},
        {.shard = {pair, rank % 2, 2}, .replicate = {across, rank / 2, 2}},
        {.shard = {r->comm, rank, 4}, .replicate = {NULL, 0, 1}},
    };
    for (int i = 0; i < 3; i++) {
        Spec spec = spec_mlp(3);
        Module *model = spec_create(&spec);
        FsdpContext ctx;
        int seen = 0, want = rank == (i == 0 ? last : 0) ? 6 : 0;
        need(fsdp_context_create(&ctx, &meshes[i], r->stream));
        need(fully_shard(model->children[model->n_children - 1], &ctx, &TEST_OPTIONS));
        need(fully_shard(model, &ctx, &TEST_OPTIONS));
        need_cuda(cudaDeviceSynchronize());
        const FlatLayout *layout = &fsdp_unit(model)->flat.layout;
        check(
            layout->rank == meshes[i].shard.rank && layout->world == meshes[i].shard.size,
            "make_flat: a unit is laid out for rank %d of %d, this is rank %d of the %d that shard "
            "(mesh.shard)",
            layout->rank, layout->world, meshes[i].shard.rank, meshes[i].shard.size);
        uint64_t log = gpulog_length();
        need(fsdp_full_state(model, count_params, &seen));
        check(
            seen == want,
            "fsdp_full_state of a model whose mesh has rank %d of %d that shard and %d of %d that "
            "replicate here: the visitor is called %d times, want %d",
            meshes[i].shard.rank, meshes[i].shard.size, meshes[i].replicate.rank,
            meshes[i].replicate.size, seen, want);
        check(gpulog_count(GPU_ALL_GATHER, log) <= 2,
              "fsdp_full_state of a model of 2 units makes %d all-gathers: one for each unit has "
              "all of its parameters",
              (int)gpulog_count(GPU_ALL_GATHER, log));
        size_t copied = bytes_copied_to_host(log);
        size_t shown = meshes[i].shard.rank == 0 ? meta_bytes(model) : 0; // replicas may do alike
        check(copied <= shown,
              "fsdp_full_state copies %zu bytes to the host, on rank %d of %d that shard, want no "
              "more than %zu: each parameter is copied once, and only for the visitor",
              copied, meshes[i].shard.rank, meshes[i].shard.size, shown);
        fsdp_unwrap(model);
        need(fsdp_context_destroy(&ctx));
        module_destroy(model);
    }
    need_nccl(ncclCommDestroy(across));
    need_nccl(ncclCommDestroy(pair));
    need_nccl(ncclCommDestroy(reversed));
}

// Three parameters of 2 MB each. Where the host may take 1, there is a way, or a status; where it
// may take 3, the model as a whole has no room, and a parameter has.
static void large_body(const Rank *r, void *arg)
{
    Spec spec = spec_mlp(5);
    Sharded s;
    int before = 0, seen = 0, all = 0;
    spec.dim = 700;
    spec.init_std = 0.0f;
    sharded_create(&s, &spec, &TEST_OPTIONS, NULL, r);
    Spec small = spec_mlp(2);
    Sharded first; // the libraries take what they need first
    sharded_create(&first, &small, &TEST_OPTIONS, NULL, r);
    need(fsdp_full_state(first.model, count_params, &before));
    sharded_destroy(&first);
    host_trim();
    host_limit((size_t)1 << 20);
    Status status = fsdp_full_state(s.model, count_params, &seen);
    host_limit(0);
    check((status == OK && seen == 10) || (status == ERR_MEMORY && seen < 10),
          "fsdp_full_state of a parameter of 2 MB, where the host may take 1 MB, gives status %d "
          "after %d of 10 parameters: it must be ERR_MEMORY, or work all the same",
          (int)status, seen);
    for (int i = 0; i < 5; i++)
        check(s.root->units[i]->flat.state == FLAT_SHARDED,
              "fsdp_full_state ran out of host memory and left unit %d unsharded", i);
    host_limit((size_t)3 << 20);
    status = fsdp_full_state(s.model, count_params, &all);
    host_limit(0);
    check(status == OK && all == 10,
          "fsdp_full_state of a model of 6 MB, none of whose parameters is larger than 2 MB, gives "
          "status %d after %d of 10 parameters where the host may take 3 MB: does it keep what the "
          "visitor has had?",
          (int)status, all);
    // All of it in one unit.
    figures_forget(s.model);
    fsdp_unwrap(s.model);
    need(fully_shard(s.model, &s.ctx, &TEST_OPTIONS));
    all = 0;
    host_limit((size_t)3 << 20);
    status = fsdp_full_state(s.model, count_params, &all);
    host_limit(0);
    check(status == OK && all == 10,
          "fsdp_full_state of a unit of 6 MB, none of whose parameters is larger than 2 MB, gives "
          "status %d after %d of 10 parameters where the host may take 3 MB: it needs room for one "
          "parameter at a time",
          (int)status, all);
    sharded_destroy(&s);
}

// A visitor that fails, or a copy: nothing stays of either, however often.
static Status visit_failing(const Param *param, const float *values, void *arg)
{
    if (oracle_numel(param) < 1000) return OK; // what of it is left would not be seen
    return fail(failing_status, "%s: the test's visitor fails, as it is meant to", param->name);
}

static void visitor_body(const Rank *r, void *arg)
{
    static const Status FAILURES[] = {ERR_CUDA, ERR_MEMORY, ERR_NCCL, ERR_IO, ERR_ARGUMENT};
    enum { TIMES = 15, WARM = 5 };
    Spec spec = spec_mlp(3);
    Sharded s;
    size_t host = 0;
    spec.dim = 80; // parameters of 25,600 bytes
    sharded_create(&s, &spec, &TEST_OPTIONS, NULL, r);
    for (int i = 0; i < TIMES; i++) {
        failing_status = FAILURES[i % 5];
        if (i == WARM) host = host_bytes();
        need_unchanged(s.model, NULL,
                       need_failure(fsdp_full_state(s.model, visit_failing, NULL), failing_status,
                                    "as it is meant to"));
    }
    check(host_bytes() <= host + 20000,
          "%d calls of fsdp_full_state whose visitor failed leave %zu bytes of host memory: what "
          "frees the values then?",
          TIMES - WARM, host_bytes() - host);
    // A parameter that says that it is larger than it is: the copy to the host runs past the end.
    Param *param = unit_of(&s, 1)->flat.layout.params[0];
    const int64_t shape = param->shape[0];
    int seen = 0;
    int64_t library;
    param->shape[0] *= 40;
    for (int i = 0; i < TIMES && backend_counts_host_memory(&library); i++) {
        if (i == WARM) host = host_bytes();
        backend_ignore_reports();
        check_set_silent(true);
        Status status = fsdp_full_state(s.model, count_params, &seen);
        check_set_silent(false);
        backend_listen();
        check(status == ERR_CUDA || status == OK,
              "a copy to the host failed: fsdp_full_state gives status %d, want ERR_CUDA",
              (int)status);
    }
    check(host_bytes() <= host + 400000,
          "%d calls of fsdp_full_state in which a copy of 1 MB failed leave %zu bytes of host "
          "memory: what frees the values then?",
          TIMES - WARM, host_bytes() - host);
    param->shape[0] = shape;
    need(fsdp_reshard_all(s.model));
    sharded_destroy(&s);
}

static Status count_huge(const Param *param, const float *values, void *arg)
{
    *(int *)arg += oracle_numel(param) > UINT32_MAX;
    return OK;
}

// A parameter of 2³⁴ bytes, for which the host has no room: the visitor is not given fewer of them.
static void huge_body(OneUnit *u, const Rank *r)
{
    int seen = 0;
    host_limit((size_t)64 << 20);
    check_set_silent(true);
    Status status = host_is_short() ? fsdp_full_state(u->model, count_huge, &seen) : ERR_MEMORY;
    check_set_silent(false);
    host_limit(0);
    check(status == ERR_MEMORY && seen == 0,
          "fsdp_full_state of a parameter of %lld elements, for which the host has no room, gives "
          "status %d, and the visitor has had %d such: it must be ERR_MEMORY" LIKELY
          "elements are counted in int64_t, bytes in size_t",
          (long long)u->unit->flat.layout.params[0]->shape[0], (int)status, seen);
}

// A module above all units has no root, and gathers what is below.
RANK_RULE(full_state_of_what_is_below, 1, 2)
{
    Spec spec = spec_mlp(3);
    int seen = 0;
    FsdpContext ctx;
    Module *model = spec_create(&spec);
    make_context(&ctx, r);
    need(fully_shard(model->children[0], &ctx, &TEST_OPTIONS));
    need(fsdp_full_state(model, count_params, &seen));
    int want = r->rank == 0 ? meta_params(model->children[0], NULL, 0) : 0;
    check(seen == want,
          "fsdp_full_state of a module that is not a unit, above one that is, shows %d parameters "
          "of %d",
          seen, want);
    fsdp_unwrap(model->children[0]);
    need(fsdp_context_destroy(&ctx));
    module_destroy(model);
}

void rule_full_state_says_what_failed(void)
{
    run_sharded(spec_mlp(3), failing_body, 2, 3);
    run_ranks(1, visitor_body, NULL);
    run_ranks(1, large_body, NULL);
    run_huge(huge_body, 1);
}
