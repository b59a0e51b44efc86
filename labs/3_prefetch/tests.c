/* Lab 3, prefetch: who is gathered when, and in how many bytes.
 *
 * The hooks of a model are run by hand, in the order of a training, and the units' states compared
 * with a calculation (tests/support/prefetch_plan.h).
 */
#include <stdio.h>
#include <string.h>

#include "draw_model.h"
#include "harness.h"
#include "prefetch_plan.h"
#include "schedule.h"
#include "snapshot.h"
#include "strategies.h"
#include "tests.h"

// ---- A model whose hooks are run by hand ----

// Units of other sizes than their neighbours', below the root; which of them runs when.
typedef struct Walk {
    int widths[PLAN_UNITS], n_units; // unit i > 0 is a linear layer, widths[i - 1] → widths[i]
    int nested;                      // this unit is within unit nested - 1, which has a layer too
    int runs[PLAN_UNITS], n_runs;    // below the root, of each forward; n_runs 0: one after another
    PrefetchOptions options;
    int limit_units; // the limit is what the largest so many have, less one byte where `short_of`
    bool short_of;
    PlanList forward[PLAN_UNITS], backward[PLAN_UNITS]; // lists of units
    Strategy strategy;
    bool evaluates;      // no pass has a backward
    bool backward_alone; // forwards are not prefetch's: its hooks take them for recomputed ones
    int shorter;         // the second step leaves out so many units at the end
} Walk;

static const Walk UNEVEN = {
    .widths = {7, 13, 40, 5, 30, 6, 21}, .n_units = 7, .strategy = STRATEGY_ZERO3};

typedef struct Model {
    Mesh mesh;
    FsdpContext ctx;
    Module *root, *of[PLAN_UNITS]; // the units' modules
    Plan plan;
    int shorter; // so many units at the end do not run
} Model;

static Module *layer(const Walk *k, int i)
{
    char name[16];
    snprintf(name, sizeof name, "u.%d", i);
    Module *m = linear_create(name, k->widths[i - 1], k->widths[i], true, 0.02f);
    check(m != NULL, "no memory for a layer");
    return m;
}

// The root has a layer of its own, after all others.
static Module *build(const Walk *k, Module **of)
{
    Module *children[PLAN_UNITS];
    int n = 0;
    for (int i = 1; i < k->n_units; i++) {
        of[i] = layer(k, i);
        if (k->nested != i + 1) {
            children[n++] = of[i];
            continue;
        }
        of[i + 1] = layer(k, i + 1); // within unit i, after its own layer
        Module *inner[] = {of[i], of[i + 1]};
        of[i] = children[n++] = sequence_create("outer", 2, inner);
        i++;
    }
    children[n++] = linear_create("last", k->widths[k->n_units - 1], 3, true, 0.02f);
    return of[0] = sequence_create("model", n, children);
}

static void model_create(Model *m, const Walk *k, const Rank *r)
{
    FsdpOptions fsdp = {.seed = 42};
    StrategyOptions strategy = {.strategy = k->strategy};
    memset(m, 0, sizeof *m);
    need(mesh_2d(&m->mesh, r->comm, 1));
    need(fsdp_context_create(&m->ctx, &m->mesh, r->stream));
    m->root = build(k, m->of);
    for (int i = k->n_units - 1; i >= 0; i--) need(fully_shard(m->of[i], &m->ctx, &fsdp));
    need(strategy_apply(m->root, &strategy));
    Plan *p = &m->plan;
    p->n = k->n_units;
    p->options = k->options;
    p->keeps_all = k->strategy == STRATEGY_ZERO2;
    int64_t limit = -(int64_t)k->short_of;
    for (int i = 0; i < p->n; i++) {
        p->bytes[i] = r->world == 1 ? 0 : 4 * fsdp_unit(m->of[i])->flat.layout.padded;
        if (i > 0 && i <= k->limit_units) limit += p->bytes[i];
    }
    if (k->limit_units > 0 && limit > 0) p->options.limit_bytes = limit;
    memcpy(p->forward, k->forward, sizeof p->forward);
    memcpy(p->backward, k->backward, sizeof p->backward);
    plan_begin(p);
    need(prefetch_apply(m->root, &p->options));
    need_cuda(cudaDeviceSynchronize());
}

// That the library has the list that it was given.
static void check_list_of(const Model *m, const PrefetchList *got, const PlanList *want, int unit)
{
    bool same = got->n == want->n;
    for (int j = 0; same && j < want->n; j++)
        same = got->units[j] == fsdp_unit(m->of[want->unit[j]]);
    check(same,
          "set_list has not made unit %d's list the %d modules that were given, in their order",
          unit, want->n);
}

static void set_lists(Model *m)
{
    const PrefetchState *state = fsdp_unit(m->root)->root->extensions->prefetch;
    for (int i = 0; i < m->plan.n; i++) {
        Module *listed[PLAN_UNITS];
        const PlanList *list = &m->plan.forward[i];
        for (int j = 0; j < list->n; j++) listed[j] = m->of[list->unit[j]];
        if (list->n > 0 || state->forward[i].n > 0)
            need(fsdp_set_modules_to_forward_prefetch(m->of[i], listed, list->n));
        check_list_of(m, &state->forward[i], list, i);
        list = &m->plan.backward[i];
        for (int j = 0; j < list->n; j++) listed[j] = m->of[list->unit[j]];
        if (list->n > 0 || state->backward[i].n > 0)
            need(fsdp_set_modules_to_backward_prefetch(m->of[i], listed, list->n));
        check_list_of(m, &state->backward[i], list, i);
        memset(listed, 0, sizeof listed); // the library has its own
    }
}

// That prefetch_in_flight counts what is in flight, whoever has queued it.
static void check_bytes(const Model *m, const char *when, int unit)
{
    int64_t got = prefetch_in_flight(fsdp_unit(m->root)->root), want = 0;
    for (int i = 0; i < m->plan.n; i++)
        if (fsdp_unit(m->of[i])->flat.state == FLAT_UNSHARDING) want += m->plan.bytes[i];
    check(got == want, "%s of unit %d prefetch_in_flight says %lld bytes, want %lld", when, unit,
          (long long)got, (long long)want);
}

// The hooks' parts by themselves, so that a message names the one that is wrong: units are asked
// for one after the other.
static void check_asked(Model *m)
{
    int64_t limit = m->plan.options.limit_bytes, bytes = 0;
    for (int i = 1; i < m->plan.n; i++)
        for (int again = 0; again < 2; again++) {
            const FlatParam *flat = &fsdp_unit(m->of[i])->flat;
            bool there = flat->state != FLAT_SHARDED, fits = false;
            bool want = limit == 0 || there || bytes + m->plan.bytes[i] <= limit;
            check_bytes(m, "before prefetch_unit", i);
            need(prefetch_unit(fsdp_unit(m->of[i]), &fits));
            check(fits == want,
                  "prefetch_unit says that unit %d %s: it has %lld bytes, %lld are in flight, and "
                  "the limit is %lld (0: none)",
                  i, fits ? "fits" : "does not fit", (long long)m->plan.bytes[i], (long long)bytes,
                  (long long)limit);
            check(flat->state == (want ? FLAT_UNSHARDING : FLAT_SHARDED),
                  "prefetch_unit leaves unit %d %s", i, want ? "not in flight" : "not sharded");
            if (want && !there) bytes += m->plan.bytes[i];
        }
    need(fsdp_reshard_all(m->root));
    need_cuda(cudaDeviceSynchronize());
}

// And cleared, those that are in flight; the root has been waited for, and stays.
static void check_cleared(Model *m)
{
    static const char *const NAME[] = {"sharded", "in flight", "unsharded"};
    FsdpRoot *root = fsdp_unit(m->root)->root;
    for (int i = 0; i < m->plan.n; i += 1 + i % 2) need(fsdp_unshard(fsdp_unit(m->of[i])));
    need(fsdp_wait_for_unshard(root->units[0]));
    need(prefetch_clear(root));
    for (int i = 0; i < m->plan.n; i++) {
        FlatState got = fsdp_unit(m->of[i])->flat.state;
        FlatState want = i == 0 ? FLAT_UNSHARDED : FLAT_SHARDED;
        check(got == want, "prefetch_clear leaves unit %d %s, which was %s: want it %s", i,
              NAME[got], i == 0 ? "unsharded" : "in flight or sharded", NAME[want]);
    }
    check(root->all_gather_state.buffer == NULL, "prefetch_clear leaves a buffer to free");
    need(fsdp_reshard_all(m->root));
    need_cuda(cudaDeviceSynchronize());
}

static void check_parts(Model *m)
{
    check_asked(m);
    check_cleared(m);
}

static void model_destroy(Model *m, const Rank *r)
{
    need_cuda(cudaDeviceSynchronize());
    if (fsdp_unit(m->root)->root->extensions->prefetch != NULL) need(prefetch_remove(m->root));
    need(strategy_remove(m->root));
    fsdp_unwrap(m->root);
    module_destroy(m->root);
    need(fsdp_context_destroy(&m->ctx));
    need(mesh_destroy(&m->mesh, r->comm));
}

// What the root knows of the order of forwards.
static void check_order(const Model *m, const char *when, int unit, HookPoint point)
{
    const PrefetchState *state = fsdp_unit(m->root)->root->extensions->prefetch;
    const Plan *p = &m->plan;
    bool same = state->begun.n == p->n_begun;
    for (int i = 0; same && i < p->n_begun; i++)
        same = state->begun.units[i] == fsdp_unit(m->of[p->begun[i]]);
    if (point == HOOK_PRE_FORWARD)
        check(same && state->follows == p->follows,
              "%s of unit %d, record_begin has %d units in `begun`, and `follows` is %s: want %d "
              "in the order in which they began, and %s%s",
              when, unit, state->begun.n, state->follows ? "true" : "false", p->n_begun,
              p->follows ? "true" : "false",
              p->n_begun == 1 && state->begun.n > 1
                  ? ": it must empty `begun` where this forward is the outermost"
                  : "");
    same = state->order.n == p->order.n;
    for (int i = 0; same && i < p->order.n; i++)
        same = state->order.units[i] == fsdp_unit(m->of[p->order.unit[i]]);
    if (point == HOOK_POST_FORWARD)
        check(same,
              "%s of unit %d `order` is not the order in which units began: in "
              "prefetch_post_forward the outermost forward's is the next one's",
              when, unit);
}

// That the hooks have queued all-gathers in the plan's order. `whose`: who orders them.
static void check_gathers(const Model *m, uint64_t first, const char *when, int unit,
                          const char *whose)
{
    const PlanList *want = &m->plan.gathered;
    char got[80] = "", wanted[80] = "";
    for (uint64_t i = first; i < gpulog_length(); i++) {
        GpuLogEntry entry;
        if (!gpulog_get(i, &entry) || entry.op != GPU_ALL_GATHER) continue;
        for (int u = 0; u < m->plan.n; u++)
            for (int k = 0; k < entry.n_ranges; k++)
                if (entry.range[k].access == GPU_WRITE &&
                    entry.range[k].ptr == fsdp_unit(m->of[u])->flat.unsharded_param.data)
                    snprintf(got + strlen(got), sizeof got - strlen(got), " %d", u);
    }
    for (int i = 0; i < want->n; i++)
        snprintf(wanted + strlen(wanted), sizeof wanted - strlen(wanted), " %d", want->unit[i]);
    check(m->mesh.shard.size == 1 || strcmp(got, wanted) == 0,
          "%s of unit %d the all-gathers are of units%s, in this order, want%s%s%s%s", when, unit,
          got, wanted, whose != NULL ? LIKELY : "", whose != NULL ? whose : "",
          whose != NULL ? " prefetches them in another order" : "");
}

// All hooks of the unit at this point; then the states must be those of the plan.
static void hook(Model *m, int unit, HookPoint point)
{
    static const char *const NAME[] = {"sharded", "in flight", "unsharded"};
    static const char *const WHEN[] = {"before the forward", "after the forward",
                                       "before the backward", "after the backward"};
    static const char *const WHOSE[] = {"prefetch_pre_forward", "prefetch_post_forward",
                                        "prefetch_pre_backward", "prefetch_post_backward"};
    Module *module = m->of[unit];
    const PrefetchState *kept = fsdp_unit(m->root)->root->extensions->prefetch;
    const PrefetchList old = kept->order;
    bool sure = m->plan.options.limit_bytes == 0; // else the limit may not have been kept
    uint64_t first = gpulog_length();
    for (Hook *h = module->hooks[point]; h != NULL; h = h->next) need(h->fn(module, h->arg));
    check(kept->begun.units != old.units || old.units == NULL || kept->max_begun <= old.n,
          "%s of unit %d `begun` has the memory of the old `order`, %d units, and max_begun is %d: "
          "prefetch_post_forward says how much room there is",
          WHEN[point], unit, old.n, kept->max_begun);
    plan_hook(&m->plan, unit, point);
    check_bytes(m, WHEN[point], unit);
    if (!fsdp_unit(m->root)->root->extensions->recomputes) check_order(m, WHEN[point], unit, point);
    for (int i = 0; i < m->plan.n; i++) {
        const FlatParam *flat = &fsdp_unit(m->of[i])->flat;
        int state = flat->state == FLAT_SHARDED      ? AWAY
                    : flat->state == FLAT_UNSHARDING ? COMING
                                                     : HERE;
        check(state == (int)m->plan.state[i], "%s of unit %d, unit %d is %s, must be %s%s%s%s%s",
              WHEN[point], unit, i, NAME[state], NAME[m->plan.state[i]], sure ? LIKELY : "",
              sure ? WHOSE[point] : "", sure ? " leaves it " : "", sure ? NAME[state] : "");
    }
    check_gathers(m, first, WHEN[point], unit, sure ? WHOSE[point] : NULL);
}

static void run_unit(Model *m, const Walk *k, int unit, HookPoint before)
{
    hook(m, unit, before);
    if (k->nested == unit + 1) run_unit(m, k, unit + 1, before);
    hook(m, unit, before + 1);
}

// Each unit of a pass below the root, as `runs` says or one after the other.
static void run_pass(Model *m, const Walk *k, HookPoint before)
{
    int n = 0, runs[PLAN_UNITS];
    for (int i = 1; i < k->n_units && k->n_runs == 0; i++)
        if (k->nested != i) runs[n++] = i;
    for (int i = 0; i < k->n_runs; i++) runs[n++] = k->runs[i];
    n -= m->shorter;
    hook(m, 0, before);
    for (int i = 0; i < n; i++)
        run_unit(m, k, runs[before == HOOK_PRE_FORWARD ? i : n - 1 - i], before);
    hook(m, 0, before + 1);
}

// A pass, or two of a training, with what they made.
static void check_passes(Model *m, const Walk *k, const Rank *r)
{
    uint64_t first = gpulog_length();
    int before = m->plan.gathers;
    m->plan.peak = 0;
    bool *recomputes = &fsdp_unit(m->root)->root->extensions->recomputes;
    *recomputes = k->backward_alone;
    run_pass(m, k, HOOK_PRE_FORWARD);
    *recomputes = false;
    if (!m->plan.evaluates) run_pass(m, k, HOOK_PRE_BACKWARD);
    check_no_host_wait(first, "in a forward or backward");
    need_cuda(cudaDeviceSynchronize());
    check_no_race(first);
    uint64_t gathers = gpulog_count(GPU_ALL_GATHER, first);
    uint64_t want = r->world == 1 ? 0 : (uint64_t)(m->plan.gathers - before);
    check(gathers == want, "the passes made %llu all-gathers, want %llu",
          (unsigned long long)gathers, (unsigned long long)want);
    size_t peak = case_peak(first, GPU_UNSHARDED_PARAM);
    check(peak == (size_t)m->plan.peak,
          "at most %zu bytes of parameters are unsharded at a time, want %lld", peak,
          (long long)m->plan.peak);
    need(fsdp_sgd_step(m->root, &m->ctx, 0.125f, 0.0f));
}

// A forward up to the root's last hook: its order is kept by nobody.
static void first_body(const Rank *r, void *arg)
{
    const Walk *k = arg;
    Model m;
    model_create(&m, k, r);
    check_asked(&m);
    uint64_t first = gpulog_length();
    hook(&m, 0, HOOK_PRE_FORWARD);
    for (int i = 0; i < k->n_runs; i++) run_unit(&m, k, k->runs[i], HOOK_PRE_FORWARD);
    check_no_host_wait(first, "in a forward");
    need_cuda(cudaDeviceSynchronize());
    check_no_race(first);
    need(fsdp_reshard_all(m.root));
    model_destroy(&m, r);
}

// Two steps, the second by the order of the first; an evaluation; and another step.
static void walk_body(const Rank *r, void *arg)
{
    const Walk *k = arg;
    Model m;
    model_create(&m, k, r);
    check_parts(&m);
    set_lists(&m);
    for (int i = 0; i < 4; i++) {
        m.plan.evaluates = i == 2 || k->evaluates;
        m.shorter = i == 1 ? k->shorter : 0;
        need(fsdp_set_training(m.root, !m.plan.evaluates));
        check_passes(&m, k, r);
    }
    model_destroy(&m, r);
}

static void walk(int world, const Walk *k)
{
    Walk copy = *k;
    run_ranks(world, walk_body, &copy);
}

// Units of drawn sizes; some orders that are not the registry's.
static Walk draw_walk(int *world)
{
    Walk k = UNEVEN;
    *world = draw(2, 8);
    k.n_units = draw(4, 8);
    for (int i = 0; i < k.n_units; i++) k.widths[i] = draw(3, 40);
    k.nested = draw_chance(50) ? draw(3, k.n_units - 1) : 0;
    drawn("%d ranks, %d units, nested %d", *world, k.n_units, k.nested);
    return k;
}

// ---- The tests ----

static const int IN_ORDER[] = {1, 2, 3, 4, 5, 6};
static const int SWAPPED[] = {2, 1, 3, 4, 5, 6};
static const int TWICE[] = {1, 2, 1, 3, 2, 4, 5, 6};

static Walk with_runs(const int *runs, int n)
{
    Walk k = UNEVEN;
    memcpy(k.runs, runs, (size_t)n * sizeof *runs);
    k.n_runs = n;
    return k;
}

static void asked_body(const Rank *r, void *arg)
{
    Walk k = UNEVEN;
    for (int i = 0; i < 10; i++) {
        Model m;
        k.limit_units = i / 2;
        k.short_of = i % 2 == 1;
        model_create(&m, &k, r);
        check_asked(&m);
        model_destroy(&m, r);
    }
}

// What is counted, of each unit: before its all-gather, after it, and when it was waited for.
static void counted_body(const Rank *r, void *arg)
{
    Walk k = UNEVEN;
    Model m;
    model_create(&m, &k, r);
    for (int i = 0; i < m.plan.n; i++) {
        check_bytes(&m, "before the all-gather", i);
        need(fsdp_unshard(fsdp_unit(m.of[i])));
        check_bytes(&m, "after the all-gather", i);
        if (i % 2 == 1) need(fsdp_wait_for_unshard(fsdp_unit(m.of[i])));
    }
    check_bytes(&m, "after the wait", m.plan.n - 1);
    need(fsdp_reshard_all(m.root));
    model_destroy(&m, r);
}

static void cleared_body(const Rank *r, void *arg)
{
    Walk k = UNEVEN;
    Model m;
    model_create(&m, &k, r);
    check_cleared(&m);
    model_destroy(&m, r);
}

TEST(bytes_in_flight_are_counted)
{
    run_worlds(counted_body, NULL, 2, 1);
    RULE(bytes_beyond_32_bits);
}

TEST(units_are_asked_for)
{
    run_ranks(2, asked_body, NULL);
    RULE(prefetch_beyond_32_bits);
}

TEST(what_is_in_flight_is_cleared)
{
    run_worlds(cleared_body, NULL, 2, 1);
}

// A unit below the root runs by itself, and an error ends that; then once more.
static void alone_body(const Rank *r, void *arg)
{
    Model m;
    model_create(&m, arg, r);
    const PrefetchState *state = fsdp_unit(m.root)->root->extensions->prefetch;
    for (int i = 0; i < 2; i++) {
        for (Hook *h = m.of[1]->hooks[HOOK_PRE_FORWARD]; h != NULL; h = h->next)
            need(h->fn(m.of[1], h->arg));
        check(state->begun.n == 1,
              "forward %d of unit 1, which is the outermost, has %d units in `begun`: record_begin "
              "must empty it where root->iter_forward_root is this unit, the root's own or not",
              i + 1, state->begun.n);
        need(fsdp_reshard_all(m.root));
    }
    model_destroy(&m, r);
}

TEST(the_first_forward)
{
    Walk k = with_runs(IN_ORDER, 6), swapped = with_runs(SWAPPED, 6);
    for (int depth = 0; depth <= 4; depth++) {
        k.options.forward_depth = swapped.options.forward_depth = depth;
        run_ranks(2, first_body, &k);
        run_ranks(2, first_body, &swapped);
    }
    run_ranks(2, alone_body, &k);
}

TEST(depth_in_the_forward)
{
    Walk k = UNEVEN, swapped = with_runs(SWAPPED, 6), twice = with_runs(TWICE, 8);
    k.evaluates = swapped.evaluates = twice.evaluates = true;
    for (int depth = 0; depth <= 4; depth++) {
        k.options.forward_depth = depth;
        k.shorter = depth == 1 ? 3 : 0;
        k.nested = 0;
        walk(2, &k);
        if (depth == 2) walk(1, &k);
        k.nested = 4;
        walk(3, &k);
    }
    swapped.options.forward_depth = twice.options.forward_depth = 2;
    walk(2, &swapped);
    walk(2, &twice);
    k.nested = 0;
    k.options.forward_depth = 100;
    walk(2, &k);
    int world;
    k = draw_walk(&world);
    k.options.forward_depth = draw(1, 5);
    k.evaluates = true;
    walk(world, &k);
}

TEST(depth_in_the_backward)
{
    Walk swapped = with_runs(SWAPPED, 6), twice = with_runs(TWICE, 8), k = UNEVEN;
    k.backward_alone = swapped.backward_alone = twice.backward_alone = true;
    swapped.options.backward_depth = twice.options.backward_depth = 3;
    for (int depth = 0; depth <= 4; depth++) {
        k.options.backward_depth = depth;
        k.nested = 0;
        walk(2, &k);
        k.nested = 4;
        walk(3, &k);
    }
    walk(2, &swapped);
    walk(2, &twice);
}

// The passes of one training.
TEST(depth_in_both_passes)
{
    for (int depth = 0; depth <= 4; depth++) {
        Walk k = UNEVEN;
        k.options.backward_depth = depth;
        walk(2, &k);
        k.options.forward_depth = depth;
        k.nested = 4;
        walk(3, &k);
    }
    Walk k = with_runs(SWAPPED, 6), twice = with_runs(TWICE, 8);
    k.options.backward_depth = twice.options.backward_depth = 3;
    k.options.forward_depth = twice.options.forward_depth = 2;
    walk(2, &k);
    walk(2, &twice);
    int world;
    k = draw_walk(&world);
    k.options.backward_depth = draw(1, 5);
    walk(world, &k);
}

static void replaced_body(const Rank *r, void *arg)
{
    const Walk *k = arg;
    Model m;
    model_create(&m, k, r);
    PlanList list = {2, {3, 4}};
    m.plan.forward[1] = m.plan.backward[6] = list;
    set_lists(&m);
    check_passes(&m, k, r);
    m.plan.forward[1] = (PlanList){1, {5}};
    m.plan.backward[6].n = 0;
    set_lists(&m);
    check_passes(&m, k, r);
    model_destroy(&m, r);
}

TEST(lists_in_the_forward)
{
    Walk k = UNEVEN;
    k.evaluates = true;
    k.options.forward_depth = 1;
    k.forward[0] = (PlanList){3, {2, 5, 3}};
    k.forward[3] = (PlanList){2, {2, 4}}; // 2 has run: it is a stray
    walk(2, &k);
    k.nested = 5;
    k.forward[4] = (PlanList){2, {0, 6}}; // the root is there
    walk(3, &k);
    Walk other = with_runs(SWAPPED, 6); // a list holds in any order of forwards
    other.evaluates = true;
    other.options.forward_depth = 1;
    other.forward[1] = other.forward[3] = (PlanList){2, {5, 6}};
    walk(2, &other);
}

TEST(lists_go_before_depth)
{
    Walk k = UNEVEN;
    k.options = (PrefetchOptions){.forward_depth = 1, .backward_depth = 2};
    k.forward[0] = (PlanList){3, {2, 5, 3}};
    k.forward[3] = (PlanList){2, {2, 4}}; // 2 has run: it is a stray
    k.backward[0] = (PlanList){2, {6, 4}};
    k.backward[5] = (PlanList){1, {2}};
    walk(2, &k);
    walk(1, &k);
    k.nested = 5;
    k.forward[4] = (PlanList){2, {0, 6}}; // the root is there
    walk(3, &k);
    k.options = (PrefetchOptions){.forward_depth = 0, .backward_depth = 0};
    k.limit_units = 2;
    walk(2, &k);
    k = UNEVEN;
    k.options = (PrefetchOptions){.forward_depth = 2, .backward_depth = 2};
    run_ranks(2, replaced_body, &k);
    RULE(failed_lists_are_told);
}

// That a list can be set, set again and taken away.
static void lists_body(const Rank *r, void *arg)
{
    Model m;
    model_create(&m, arg, r);
    for (int i = 0; i < 3; i++) {
        m.plan.forward[1] = (PlanList){2 - i, {3 + i, 4}};
        m.plan.backward[6] = (PlanList){i, {5, 1}};
        set_lists(&m);
    }
    model_destroy(&m, r);
}

TEST(a_list_is_replaced)
{
    Walk k = UNEVEN;
    run_ranks(2, lists_body, &k);
    RULE(lists_are_replaced);
}

TEST(a_limit_in_the_forward)
{
    Walk k = UNEVEN;
    k.evaluates = true;
    k.options.forward_depth = 3;
    for (k.limit_units = 1; k.limit_units <= 4; k.limit_units++)
        for (int less = 0; less < 2; less++) {
            k.short_of = less == 1;
            walk(2, &k);
        }
}

TEST(a_limit_bounds_what_is_in_flight)
{
    Walk k = UNEVEN;
    k.options = (PrefetchOptions){.forward_depth = 3, .backward_depth = 3};
    for (k.limit_units = 1; k.limit_units <= 4; k.limit_units++)
        for (int less = 0; less < 2; less++) {
            k.short_of = less == 1;
            walk(2, &k);
        }
    k.nested = 4;
    walk(4, &k);
    RULE(failed_prefetches_are_told);
    int world;
    k = draw_walk(&world);
    k.options = (PrefetchOptions){.forward_depth = draw(1, 4), .backward_depth = draw(1, 4)};
    k.limit_units = draw(1, 4);
    k.short_of = draw_chance(50);
    walk(world, &k);
}

// ---- What outlives its pass ----

// A forward that an error ends in the middle; then steps as ever.
static void broken_body(const Rank *r, void *arg)
{
    const Walk *k = arg;
    Model m;
    model_create(&m, k, r);
    hook(&m, 0, HOOK_PRE_FORWARD);
    hook(&m, 1, HOOK_PRE_FORWARD);
    need(fsdp_reshard_all(m.root));
    memset(m.plan.state, 0, sizeof m.plan.state);
    m.plan.open = 0;
    m.plan.live = m.plan.retired = 0;
    for (int i = 0; i < 2; i++) check_passes(&m, k, r);
    model_destroy(&m, r);
}

// A forward leaves out the units at its end, and several micro-batches have one step.
static void stray_body(const Rank *r, void *arg)
{
    const Walk *k = arg;
    Model m;
    model_create(&m, k, r);
    check_parts(&m);
    set_lists(&m);
    for (int i = 0; i < 3; i++) {
        need(strategy_micro_batch(m.root, i, 3));
        run_pass(&m, k, HOOK_PRE_FORWARD);
        run_pass(&m, k, HOOK_PRE_BACKWARD);
        check(fsdp_unit(m.root)->root->all_gather_state.buffer == NULL,
              "after micro-batch %d a buffer is left to free", i);
    }
    need_cuda(cudaDeviceSynchronize());
    need(fsdp_sgd_step(m.root, &m.ctx, 0.125f, 0.0f));
    model_destroy(&m, r);
}

TEST(nothing_outlives_its_pass)
{
    static const int FEW[] = {1, 2, 3};
    Walk k = with_runs(FEW, 3);
    k.options = (PrefetchOptions){.forward_depth = 3, .backward_depth = 3};
    k.backward[1] = (PlanList){2, {3, 6}};
    walk(2, &k);
    run_worlds(stray_body, &k, 2, 1);
    k = UNEVEN;
    k.options.forward_depth = 3;
    run_ranks(2, broken_body, &k);
    RULE(prefetches_grow_nothing);
    RULE(prefetch_is_removed);
}

// ---- What is refused ----

static Module *bare(const char *name)
{
    return linear_create(name, 3, 3, true, 0.02f);
}

static void refused_body(const Rank *r, void *arg)
{
    const Walk *k = arg;
    FsdpOptions fsdp = {.seed = 42};
    PrefetchOptions ok = {1, 1, 0}, bad;
    Model m;
    model_create(&m, k, r);
    Module *plain = bare("plain"), *other = bare("other");
    need(fully_shard(other, &m.ctx, &fsdp));
    Module *const lists[] = {plain, other, m.of[2]};
    Status (*const set[])(Module *, Module *const *, int) = {fsdp_set_modules_to_forward_prefetch,
                                                             fsdp_set_modules_to_backward_prefetch};
    PrefetchState *state = fsdp_unit(m.root)->root->extensions->prefetch;
    for (int i = 0; i < 2; i++) {
        PrefetchList *of = i == 0 ? &state->forward[2] : &state->backward[2];
        need(set[i](m.of[2], &m.of[3], 2));
        need_refused_whole(m.root, NULL, set[i](plain, &m.of[1], 1),
                           "plain is not a unit, and prefetches nothing");
        need_refused_whole(m.root, NULL, set[i](other, &m.of[1], 1), "other has no prefetch");
        need_refused_whole(m.root, NULL, set[i](m.of[2], &m.of[1], -1), "a list of -1 modules");
        need_refused_whole(m.root, NULL, set[i](m.of[2], &lists[0], 3),
                           "plain is not a unit, and u.2 cannot prefetch");
        need_refused_whole(m.root, NULL, set[i](m.of[2], &lists[1], 1),
                           "other is a unit of another root");
        need_refused_whole(m.root, NULL, set[i](m.of[2], &lists[2], 1),
                           "u.2 cannot prefetch itself");
        check(of->n == 2 && of->units[0] == fsdp_unit(m.of[3]) &&
                  of->units[1] == fsdp_unit(m.of[4]),
              "a list that was refused has taken the place of the one before");
    }
    need_refused_whole(m.root, NULL, prefetch_apply(m.root, &ok), "has a prefetch already");
    need_refused_whole(m.root, NULL, prefetch_apply(m.of[1], &ok), "is below the root");
    need_refused_whole(m.root, NULL, strategy_remove(m.root), "call prefetch_remove first");
    need(prefetch_remove(m.root));
    need_refused_whole(m.root, NULL, prefetch_remove(m.root), "has no prefetch");
    need_refused_whole(m.root, NULL, prefetch_apply(plain, &ok), "plain is not sharded");
    bad = (PrefetchOptions){.forward_depth = -1};
    need_refused_whole(m.root, NULL, prefetch_apply(m.root, &bad), "a prefetch of -1 units ahead");
    bad = (PrefetchOptions){.backward_depth = -2};
    need_refused_whole(m.root, NULL, prefetch_apply(m.root, &bad), "a prefetch of -2 units ahead");
    bad = (PrefetchOptions){.limit_bytes = -5};
    need_refused_whole(m.root, NULL, prefetch_apply(m.root, &bad), "a limit of -5 bytes in flight");
    need_refused_whole(m.root, NULL, prefetch_apply(other, &ok), "other has no strategy");
    check(fsdp_unit(m.root)->root->extensions->prefetch == NULL,
          "what was refused has left something");
    fsdp_unwrap(other);
    module_destroy(other);
    module_destroy(plain);
    model_destroy(&m, r);
}

TEST(what_does_not_fit_is_refused)
{
    Walk k = UNEVEN;
    run_ranks(2, refused_body, &k);
}

SUITE_MAIN("prefetch")
