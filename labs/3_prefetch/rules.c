/* rules.c: sentences of prefetch.h that no other body of this suite reads: what is taken off again,
 * a list or a gather that fails, sizes beyond 2^31. See rules.h of tests/support.
 */
#include "rules.h"

#include "host_memory.h"
#include "strategies.h"
#include "tests.h"

static const PrefetchOptions TWO = {2, 2, 0};

// ---- Taken off, and a long training ----

static Status put(Wrapped *w, const Case *c)
{
    Module *const listed[] = {w->root->units[w->root->n_units - 1]->module};
    TRY(prefetch_apply(w->model, &TWO));
    if (w->root->n_units == 1) return OK;
    TRY(fsdp_set_modules_to_forward_prefetch(w->model, listed, 1));
    return fsdp_set_modules_to_backward_prefetch(w->model, listed, 1);
}

void rule_prefetch_is_removed(void)
{
    static const Removal removal = {"prefetch_remove", put, prefetch_remove, true};
    static const int SHAPES[][5] = {// strategy, ranks, replicas, reshard_ranks, layers
                                    {STRATEGY_ZERO3, 4, 2, 0, 3},
                                    {STRATEGY_ZERO3, 4, 1, 2, 3},
                                    {STRATEGY_ZERO1, 2, 1, 0, 3},
                                    {STRATEGY_ZERO3, 2, 1, 0, 1},
                                    {STRATEGY_DDP, 2, 2, 0, 3}};
    for (size_t i = 0; i < sizeof SHAPES / sizeof SHAPES[0]; i++) {
        Case c =
            case_of(spec_mlp(SHAPES[i][4]), (Strategy)SHAPES[i][0], SHAPES[i][1], SHAPES[i][2], 1);
        c.options.reshard_ranks = SHAPES[i][3];
        run_removed(SHAPES[i][1], &c, &removal);
    }
}

void rule_prefetches_grow_nothing(void)
{
    Case c = case_of(spec_mlp(3), STRATEGY_ZERO3, 2, 1, 1);
    c.prefetch = &TWO;
    run_growth(2, &c);
}

// ---- Failed ----

// A list that is set again and again, or finds no memory.
static void replaced_body(Wrapped *w, const Case *c, const Rank *r)
{
    enum { MOST = 4096, TIMES = 300, FEW = 8 };
    static Module *many[MOST];
    Module *first = w->root->units[1]->module;
    const PrefetchList *list = &w->root->extensions->prefetch->forward[1];
    for (int i = 0; i < MOST; i++) many[i] = w->root->units[2 + i % 2]->module;
    size_t before = 0;
    for (int i = 0; i < TIMES; i++) {
        if (i == TIMES / 2) before = host_bytes();
        need(fsdp_set_modules_to_forward_prefetch(first, many, FEW));
    }
    check(host_bytes() <= before + 1024,
          "a list of %d modules is replaced %d times, and %zu bytes of host memory are left: "
          "set_list frees the list that was there",
          FEW, TIMES / 2, host_bytes() - before);
    const PrefetchList was = *list;
    host_exhaust(8192);
    check_set_silent(true);
    Status status = fsdp_set_modules_to_forward_prefetch(first, many, MOST);
    check_set_silent(false);
    host_exhaust(0);
    if (status == OK) return; // where memory cannot be held back
    check(status == ERR_MEMORY, "set_list finds no memory, and its status is %d", (int)status);
    check(list->n == was.n && list->units == was.units && list->units[0] == w->root->units[2],
          "set_list finds no memory for the new list, and the old one is gone: it stays");
}

static Status (*gather_before)(FsdpUnit *unit);

static Status fails_once(FsdpUnit *unit)
{
    unit->all_gather = gather_before;
    return failing_collective(unit);
}

// Lists alone have the hooks gather ahead, and the first that does meets the failure.
static void failed_list_body(Wrapped *w, const Case *c, const Rank *r)
{
    FsdpUnit *ahead = w->root->units[2];
    Module *const listed[] = {ahead->module};
    Batch batch = case_batch(c, 0, r->rank, 0);
    float *out;
    w->run.B = c->spec.B;
    gather_before = ahead->all_gather;
    failing_status = ERR_NCCL;
    need(fsdp_set_modules_to_forward_prefetch(w->model, listed, 1));
    for (int i = 0; i < 2; i++) {
        ahead->all_gather = fails_once;
        check_set_silent(true);
        Status status = module_forward(w->model, &w->run, batch.in, &out);
        check_set_silent(false);
        check(status == ERR_NCCL,
              "the all-gather that prefetch_pre_forward queues has failed, and the forward's "
              "status is %d",
              (int)status);
        need(module_discard(w->model, &w->run));
        need(fsdp_reshard_all(w->model));
        need(fsdp_set_modules_to_forward_prefetch(w->model, listed, 0));
        w->root->extensions->prefetch->options.forward_depth = 2; // the second time by depth
    }
    batch_destroy(&batch);
}

// From here on of four layers, under a prefetch.
static Case prefetched(const PrefetchOptions *options)
{
    Case c = case_of(spec_mlp(4), STRATEGY_ZERO3, 2, 1, 1);
    c.prefetch = options;
    return c;
}

void rule_lists_are_replaced(void)
{
    Case c = prefetched(&TWO);
    run_wrapped(2, replaced_body, &c);
}

void rule_failed_prefetches_are_told(void)
{
    Case c = prefetched(&TWO);
    run_failing_calls(2, &c);
}

void rule_failed_lists_are_told(void)
{
    static const PrefetchOptions NONE = {0, 0, 0};
    Case c = prefetched(&NONE);
    run_wrapped(2, failed_list_body, &c);
}

// ---- Larger than 32 bits can count ----

// The units' figures are changed by hand, and changed back: nothing is gathered.
static void large_body(Wrapped *w, bool asks)
{
    const int64_t numel = (INT64_C(1) << 31) + 3, bytes = 4 * numel;
    FlatParam *flat[] = {&w->root->units[1]->flat, &w->root->units[2]->flat};
    int64_t *limit = &w->root->extensions->prefetch->options.limit_bytes;
    const int64_t usual[] = {flat[0]->unsharded_param.numel, flat[1]->unsharded_param.numel};
    bool fits = true;
    for (int i = 0; i < 2; i++) flat[i]->unsharded_param.numel = numel;
    flat[0]->state = FLAT_UNSHARDING;
    check(prefetch_in_flight(w->root) == bytes,
          "a unit of %lld bytes is in flight, and prefetch_in_flight says %lld" LIKELY
          "bytes are counted in int64_t",
          (long long)bytes, (long long)prefetch_in_flight(w->root));
    if (asks) {
        *limit = 2 * bytes - 1;
        need(prefetch_unit(w->root->units[2], &fits));
        check(!fits && flat[1]->state == FLAT_SHARDED,
              "of a limit of %lld bytes %lld are in flight, and a unit of as many fits",
              (long long)*limit, (long long)bytes);
        *limit = 0;
    }
    flat[1]->state = FLAT_UNSHARDING;
    check(prefetch_in_flight(w->root) == 2 * bytes,
          "two units of %lld bytes are in flight, and prefetch_in_flight says %lld",
          (long long)bytes, (long long)prefetch_in_flight(w->root));
    for (int i = 0; i < 2; i++) flat[i]->unsharded_param.numel = usual[i];
    for (int i = 0; i < 2; i++) flat[i]->state = FLAT_SHARDED;
}

static void counts_body(Wrapped *w, const Case *c, const Rank *r)
{
    large_body(w, false);
}

static void asks_body(Wrapped *w, const Case *c, const Rank *r)
{
    large_body(w, true);
}

void rule_bytes_beyond_32_bits(void)
{
    Case c = prefetched(&TWO);
    run_wrapped(2, counts_body, &c);
}

void rule_prefetch_beyond_32_bits(void)
{
    Case c = prefetched(&TWO);
    run_wrapped(2, asks_body, &c);
}
