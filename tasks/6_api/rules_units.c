/* rules_units.c: sentences of fsdp.h on units that are refused, listed, unwrapped below a root that
 * stays, or cannot be gathered. See rules.h.
 */
#include "rules.h"

#include "figures.h"
#include "fsdp.h"
#include "harness.h"
#include "host_memory.h"
#include "layout.h"
#include "training.h"

#include <stdlib.h>
#include <string.h>

// ---- Refused, and refused again ----

// A parameter of the first block's, used in the model's last child, or two levels down in another
// block that is no unit.
static void ties_body(const Rank *r, void *arg)
{
    Spec spec = spec_mlp(4);
    FsdpContext ctx;
    make_context(&ctx, r);
    for (int round = 0; round < 4; round++) {
        Module *model = spec_create(&spec);
        Module *user =
            round < 2 ? model->children[2]->children[0] : model->children[model->n_children - 1];
        while (user->n_params == 0) user = user->children[0];
        Param *tied = model->children[0]->children[0]->params[0];
        Param **place = &user->params[0], *own = *place;
        need(fully_shard(model->children[0], &ctx, &TEST_OPTIONS));
        need(fully_shard(model->children[1], &ctx, &TEST_OPTIONS));
        size_t live = gpulog_live_bytes(r->device);
        *place = tied;
        check(
            fully_shard(model, &ctx, &TEST_OPTIONS) == ERR_ARGUMENT &&
                strstr(last_error(), tied->name) != NULL,
            "attempt %d: %s is in an inner unit and used in %s outside of it: fully_shard must be "
            "ERR_ARGUMENT, with a line that names it",
            round + 1, tied->name, round < 2 ? "a module two levels down" : "the last child");
        check(fsdp_unit(model) == NULL && !module_has_hooks(model) &&
                  gpulog_live_bytes(r->device) == live,
              "attempt %d: a refused fully_shard must leave the model as it was", round + 1);
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
    size_t live = gpulog_live_bytes(r->device);
    for (int attempt = 1; attempt <= 2; attempt++) {
        check(fully_shard(model, &ctx[1], &TEST_OPTIONS) == ERR_ARGUMENT,
              "attempt %d: an inner unit of another context must be ERR_ARGUMENT", attempt);
        check(fsdp_unit(model) == NULL && !module_has_hooks(model) &&
                  gpulog_live_bytes(r->device) == live,
              "attempt %d: a refused fully_shard must leave the model as it was, without hooks",
              attempt);
    }
    fsdp_unwrap(model);
    for (int i = 0; i < 2; i++) need(fsdp_context_destroy(&ctx[i]));
    module_destroy(model);
}

// So many parameters that a list of them needs more memory than the host has for a while.
static void list_body(const Rank *r, void *arg)
{
    enum { N = 2500 };
    Param *params = calloc(N, sizeof *params), **list = calloc(N, sizeof *list);
    Module model = {.name = "many", .n_params = N, .params = list};
    FsdpContext ctx;
    check(params != NULL && list != NULL, "no memory");
    make_context(&ctx, r);
    for (int i = 0; i < N; i++) {
        list[i] = &params[i];
        params[i] = (Param){.id = (uint32_t)i, .ndim = 1, .shape = {1}, .init = INIT_ONE};
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
        fsdp_unwrap(&model);
        check(!module_has_hooks(&model) && fsdp_unit(&model) == NULL,
              "after fsdp_unwrap the module of %d parameters is not as it was", N);
    }
    need(fsdp_context_destroy(&ctx));
    free(list);
    free(params);
}

// Many inner units, of another context, or one of whose parameters is used outside of it: the lists
// that a refused call made of them are freed.
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
    Module tied = {.name = "tied", .n_params = 1, .params = list, .n_children = N};
    tied.children = children;
    for (int attempt = 0; attempt < TIMES; attempt++) {
        if (attempt == 2) host = host_bytes();
        check(fully_shard(&root, &ctx[1], &TEST_OPTIONS) == ERR_ARGUMENT,
              "inner units of another context must be ERR_ARGUMENT");
        check(fully_shard(&tied, &ctx[0], &TEST_OPTIONS) == ERR_ARGUMENT,
              "a parameter of an inner unit that is also used outside of it must be ERR_ARGUMENT");
    }
    // A list of them takes 2,400 bytes.
    check(
        host_bytes() <= host + (TIMES - 2) * 100,
        "%d calls of fully_shard that were refused leave %zu bytes of host memory: what frees the "
        "lists of %d parameters and of %d units that each of them makes?",
        TIMES - 2, host_bytes() - host, N + 1, N + 1);
    fsdp_unwrap(&root);
    for (int i = 0; i < 2; i++) need(fsdp_context_destroy(&ctx[i]));
}

void rule_refuses_each_time(void)
{
    run_ranks(1, crowd_body, NULL);
    run_ranks(1, list_body, NULL);
    run_worlds(ties_body, NULL, 1, 2);
    run_ranks(2, context_body, NULL);
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
    return fail(ERR_MEMORY, "%s: the test's all-gather fails, as it is meant to", unit->flat.name);
}

static Status count_params(const Param *param, const float *values, void *arg)
{
    ++*(int *)arg;
    return OK;
}

static void failing_body(Sharded *s, const Rank *r, void *arg)
{
    int seen = 0;
    for (int i = 0; i < 3; i++) { // two units, and the root
        FsdpUnit *unit = fsdp_unit(i < 2 ? s->model->children[i] : s->model);
        unit->all_gather = refuse;
        refused = 0;
        Status status = fsdp_full_state(s->model, count_params, &seen);
        // There are other ways to have a state than to unshard a unit.
        check(refused > 0 ? status == ERR_MEMORY : status == OK,
              "the all-gather of unit %s failed with ERR_MEMORY: fsdp_full_state must return that, "
              "and gave status %d",
              unit->flat.name, (int)status);
        unit->all_gather = fsdp_all_gather;
        if (unit->flat.state == FLAT_SHARDED && unit->flat.unsharded_param.data != NULL) {
            need_cuda(cudaDeviceSynchronize()); // on whichever stream it was made
            need_cuda(cudaFreeAsync(unit->flat.unsharded_param.data, s->ctx.all_gather_stream));
            unit->flat.unsharded_param.data = NULL;
        }
        need(fsdp_reshard_all(s->model));
    }
}

// Three meshes of the same four ranks, one after the other: the full state is shown on the rank
// that is 0 in both groups of its model's mesh, once.
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
        need(fsdp_full_state(model, count_params, &seen));
        check(
            seen == want,
            "fsdp_full_state of a model whose mesh has rank %d of %d that shard and %d of %d that "
            "replicate here: the visitor is called %d times, want %d",
            meshes[i].shard.rank, meshes[i].shard.size, meshes[i].replicate.rank,
            meshes[i].replicate.size, seen, want);
        fsdp_unwrap(model);
        need(fsdp_context_destroy(&ctx));
        module_destroy(model);
    }
    need_nccl(ncclCommDestroy(across));
    need_nccl(ncclCommDestroy(pair));
    need_nccl(ncclCommDestroy(reversed));
}

// A parameter of 9 MB, where the host may take 4: either there is a way, or a status.
static void large_body(const Rank *r, void *arg)
{
    Spec spec = spec_mlp(3);
    Sharded s;
    int before = 0, seen = 0;
    spec.dim = 1500;
    spec.init_std = 0.0f;
    sharded_create(&s, &spec, &TEST_OPTIONS, NULL, r);
    Spec small = spec_mlp(2);
    Sharded first; // the libraries take what they need first
    sharded_create(&first, &small, &TEST_OPTIONS, NULL, r);
    need(fsdp_full_state(first.model, count_params, &before));
    sharded_destroy(&first);
    host_limit((size_t)4 << 20);
    Status status = fsdp_full_state(s.model, count_params, &seen);
    host_limit(0);
    check((status == OK && seen == 6) || (status == ERR_MEMORY && seen < 6),
          "fsdp_full_state of a parameter of 9 MB, where the host may take 4 MB, gives status %d "
          "after %d of 6 parameters: it must be ERR_MEMORY, or work all the same",
          (int)status, seen);
    for (int i = 0; i < 3; i++)
        check(fsdp_unit(i < 2 ? s.model->children[i] : s.model)->flat.state == FLAT_SHARDED,
              "fsdp_full_state ran out of host memory and left unit %d unsharded", i);
    sharded_destroy(&s);
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
    check(
        seen == want,
        "fsdp_full_state of a module that is no unit, above one that is, shows %d parameters of %d",
        seen, want);
    fsdp_unwrap(model->children[0]);
    need(fsdp_context_destroy(&ctx));
    module_destroy(model);
}

void rule_full_state_says_what_failed(void)
{
    run_sharded(spec_mlp(3), failing_body, 2, 3);
    run_ranks(1, large_body, NULL);
}
