/* strategies_run.c: run_case: a training, and what it leaves compared with the oracle. See
 * strategies.h.
 */
#include "strategies_oracle.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// A rank's part of all the values (padded with zeros), as unit u's shard has them.
static float *shard_of(const FlatParam *flat, const Layout *all, const float *values)
{
    float *shard = calloc((size_t)flat->layout.shard_numel + 1, sizeof *shard);
    check(shard != NULL, "no memory for the oracle");
    for (int j = 0; j < flat->layout.n; j++) {
        int64_t begin, end, at;
        int i = 0;
        while (i < all->n && strcmp(all->param[i]->name, flat->layout.params[j]->name) != 0) i++;
        flat_param_range_in_shard(&flat->layout, j, flat->layout.rank, &begin, &end, &at);
        memcpy(shard + at, values + all->begin[i] + begin, (size_t)(end - begin) * sizeof *shard);
    }
    return shard;
}

static float *values_of(const Case *c, int world, const Sum *sum, size_t n)
{
    float *values = malloc((n + 1) * sizeof *values);
    check(values != NULL, "no memory for the oracle");
    for (size_t i = 0; i < n; i++) values[i] = oracle_gradient(c, world, sum, i);
    return values;
}

// The gradients that are wanted; and with either copy of a parameter that two stages share as its
// own stage has it.
typedef struct Wanted {
    Layout layout;
    float *values;   // with the sum of the two
    float *alone[2]; // NULL: no parameter is shared
} Wanted;

// The gradients of a unit's shard against the oracle's.
static void check_unit(const Wrapped *w, const FsdpUnit *unit, const Case *c, const Rank *r,
                       int step, const Wanted *wanted)
{
    const FlatParam *flat = &unit->flat;
    const Layout *all = &wanted->layout;
    size_t numel = (size_t)flat->sharded_grad.numel, n = all->begin[all->n];
    if (numel == 0) return; // all of it is frozen
    float *got = fetch(flat->sharded_grad.data, numel), *want = shard_of(flat, all, wanted->values);
    if (memcmp(got, want, numel * sizeof *got) == 0) {
        free(got);
        free(want);
        return;
    }
    static Layout layout;
    char what[900], where[80] = "";
    Causes causes = oracle_causes(c, r->world);
    Clues clues = {.layout = c->layout == NULL ? &layout : NULL, .otherwise = oracle_otherwise(c)};
    layout_module(&layout, unit->module, true, flat->layout.world, flat->layout.rank);
    for (int i = 0; i < 2 && wanted->alone[i] != NULL; i++)
        clues.clue[clues.n++] = (Clue){shard_of(flat, all, wanted->alone[i]),
                                       "of a tied parameter it is one stage's part alone: "
                                       "pipeline_step calls pipeline_sum_ties, which adds the "
                                       "other's, after the last reduction"};
    for (int i = 0; i < causes.n; i++) {
        float *all_of_it = values_of(c, r->world, &causes.sum[i], n);
        clues.clue[clues.n++] = (Clue){shard_of(flat, all, all_of_it), causes.text[i]};
        free(all_of_it);
    }
    if (w->pipeline != NULL)
        snprintf(where, sizeof where, "%s, %d micro-batches, stage %d of %d, ",
                 c->kind == PIPELINE_1F1B ? "1F1B" : "GPipe", c->rounds, w->ranks.stage, c->stages);
    snprintf(what, sizeof what,
             "%s%s%sstep %d, the gradient of %s (over the ranks that shard, then over the "
             "replicas, divided once)",
             c->name != NULL ? c->name : "", c->name != NULL ? ": " : "", where, step, flat->name);
    check_equal_in(&clues, what, got, want, numel);
    check(false, "%s: zeros of another sign", what);
}

// Shard groups of neighbours, a power of two in size, add in the order of all ranks: the same sums.
static void check_order(const Case *c, int world, const float *want, size_t n)
{
    Case flat = *c;
    int shards = world / c->replicas;
    flat.replicas = 1;
    if (c->options.strategy == STRATEGY_DDP || c->partial || (shards & (shards - 1)) != 0) return;
    if (oracle_type(c, world) != DTYPE_F32) return; // two collectives round twice
    Sum sum = oracle_sum(&flat, world);
    float *other = values_of(&flat, world, &sum, n);
    check(memcmp(other, want, n * sizeof *want) == 0,
          "%d replicas of %d shards do not add in the order of all ranks", c->replicas, shards);
    free(other);
}

// The gradients of a parameter that two stages share are added, one to the other, and both have the
// sum. Returns where the second copy begins, at the end of `values`, or where they end.
static size_t add_ties(const Case *c, Module *model, Wanted *wanted)
{
    const Layout *all = &wanted->layout;
    float *values = wanted->values;
    size_t n = all->begin[all->n], wte = all->begin[1], copy = n - wte;
    const Module *head = model->children[model->n_children - 1];
    if (c->stages < 2 || !c->spec.gpt2 || head->n_params != 1 ||
        strcmp(head->params[0]->name, all->param[0]->name) != 0)
        return n;
    for (int i = 0; i < 2; i++) {
        wanted->alone[i] = malloc(n * sizeof *values);
        check(wanted->alone[i] != NULL, "no memory for the oracle");
        memcpy(wanted->alone[i], values, n * sizeof *values);
    }
    memcpy(wanted->alone[1], values + copy, wte * sizeof *values);
    for (size_t i = 0; i < wte; i++) values[i] = values[copy + i] = values[i] + values[copy + i];
    return copy;
}

static double squares_of(const float *values, size_t n)
{
    double squares = 0.0;
    for (size_t i = 0; i < n; i++) squares += (double)values[i] * (double)values[i];
    return squares;
}

// twice: where a parameter that two stages share is counted twice.
static void check_norm(Wrapped *w, double squares, double twice, int step)
{
    float norm;
    need(w->pipeline != NULL ? pipeline_grad_norm(w->pipeline, &norm)
                             : fsdp_grad_norm(w->model, &w->ctx, &norm));
    float root = (float)sqrt(squares);
    check(
        fabsf(norm - root) <= nextafterf(root, INFINITY) - root,
        "step %d, the gradient's norm is %.9g, want %.9g: all ranks that shard add their squares, "
        "and each replica counts once%s",
        step, (double)norm, sqrt(squares),
        w->pipeline == NULL && w->root->extensions->offload == NULL ? ""
        : w->pipeline == NULL                                       ? LIKELY
            "offload_sum_squares gives the sum of the host's gradients, on one rank too"
        : twice > squares && fabs((double)norm - sqrt(twice)) <= 1e-6 * sqrt(twice)
            ? LIKELY "a parameter that two stages share is counted twice: in counts"
            : LIKELY "sum_all sums over all stages, and a replica once");
}

// All gradients of this rank, and their norm; then the oracle's own step with them.
static void check_shards(Wrapped *w, Plain *p, const Case *c, const Rank *world, int step)
{
    Rank mine = oracle_place(c, world), *r = &mine;
    static Wanted wanted;
    const Layout *all = &wanted.layout;
    size_t n = (size_t)model_numel(p->model);
    Sum sum = oracle_sum(c, r->world);
    float *want = wanted.values = values_of(c, r->world, &sum, n);
    layout_module(&wanted.layout, p->model, false, 1, LAYOUT_WHOLE);
    check_order(c, r->world, want, n);
    size_t copy = add_ties(c, p->model, &wanted);
    double squares = squares_of(want, copy);
    float root = (float)sqrt(squares);
    if (c->clip == 0.0f || step == 0) {
        for (int u = 0; u < w->root->n_units; u++)
            check_unit(w, w->root->units[u], c, r, step, &wanted);
        if (!c->without_norm)
            check_norm(w, squares, squares + squares_of(want + copy, n - copy), step);
    }
    for (size_t i = 0; i < n && c->clip > 0.0f && root > c->clip; i++) want[i] *= c->clip / root;
    // By parameter, with its gradient.
    for (int i = 0; i < all->n; i++)
        send_to(all->param[i]->grad.data, want + all->begin[i], all->begin[i + 1] - all->begin[i]);
    free(want);
    for (int i = 0; i < 2; i++) free(wanted.alone[i]);
    need(plain_adamw_step(p->adamw));
}

static bool *case_ended; // in shared memory

bool case_overflowed(void)
{
    return *case_ended;
}

// Whether a gradient of the oracle's is not finite: the model has overflowed, and which NaN comes
// out of that is nobody's promise. All ranks see the same.
static bool overflowed(const Case *c, const Rank *r, size_t n)
{
    int ranks = c->stages > 0 ? r->world / c->stages : r->world;
    for (int k = 0; k < ranks * CASE_ROUNDS; k++)
        for (size_t i = 0; i < n && k % CASE_ROUNDS < c->rounds; i++)
            if (!isfinite(c->grads[k][i])) return *case_ended = true;
    return false;
}

typedef struct Compared {
    const Plain *plain;
    bool near;       // to 1e-6; else bitwise
    const char *how; // it is gathered
} Compared;

static Status compare_param(const Param *param, const float *values, void *arg)
{
    const Compared *compared = arg;
    const Plain *p = compared->plain;
    static Layout all;
    layout_module(&all, p->model, false, 1, LAYOUT_WHOLE);
    for (int i = 0; i < all.n; i++) {
        size_t n = all.begin[i + 1] - all.begin[i];
        if (strcmp(all.param[i]->name, param->name) != 0) continue;
        float *want = fetch(all.param[i]->data.data, n);
        float most = 0.0f;
        for (size_t e = 0; e < n && compared->near; e++)
            most = fmaxf(most, fabsf(values[e] - want[e]));
        check(compared->near ? most <= 1e-6f : memcmp(values, want, n * sizeof *want) == 0,
              "after the steps %s is not what one process makes of the same gradients%s",
              param->name, compared->how);
        free(want);
    }
    return OK;
}

static void case_body(const Rank *r, void *arg)
{
    const Case *c = arg;
    Plain plain;
    Narrow narrow;
    Wrapped w;
    float norm, losses[CASE_ROUNDS];
    memset(&plain, 0, sizeof plain);
    plain.spec = c->spec;
    plain.model = oracle_model(c);
    need(nn_run_create(&plain.run, r->stream));
    need(meta_materialize(plain.model, 42, r->stream));
    need(plain_adamw_create(&plain.adamw, plain.model, &TEST_ADAMW, &plain.run));
    if (c->policy != NULL) narrow_create(&narrow, oracle_model(c), c->policy->param_dtype);
    case_wrap(&w, c, r);
    uint64_t first = gpulog_length();
    for (int step = 0; step < c->steps; step++) {
        if (step > 0 && c->between != NULL) c->between(&w, c, r, step);
        if (c->policy != NULL)
            oracle_narrow_grads(&narrow, &plain, c, r, step);
        else
            oracle_grads(&plain, c, r, step, losses);
        if (overflowed(c, r, (size_t)model_numel(plain.model))) break;
        case_train(&w, c, r, step);
        need_cuda(cudaDeviceSynchronize());
        for (int k = 0; k < c->rounds && c->policy == NULL && c->stages > 0; k++)
            check(w.ranks.stage < c->stages - 1 || w.losses[k] == losses[k],
                  "the loss of micro-batch %d is %.9g, must be %.9g", k, (double)w.losses[k],
                  (double)losses[k]);
        check_shards(&w, &plain, c, r, step);
        if (c->before_update != NULL) c->before_update(&w, c, r, step);
        if (c->clip > 0.0f)
            need(w.pipeline != NULL ? pipeline_clip_grad_norm(w.pipeline, c->clip, &norm)
                                    : fsdp_clip_grad_norm(w.model, &w.ctx, c->clip, &norm));
        need(fsdp_adamw_step(&w.adamw));
        ranks_meet(r); // before the shared gradients are written again
    }
    check_no_race(first);
    bool casts = c->policy != NULL && !c->bare_state;
    Compared compared = {&plain, c->clip > 0.0f,
                         casts ? LIKELY "it is gathered in the policy's type, and not in float"
                               : ""};
    if (c->bare_state) need(precision_remove(w.model));
    need(fsdp_full_state(w.model, compare_param, &compared));
    case_unwrap(&w, r);
    if (c->policy != NULL) narrow_destroy(&narrow);
    plain_destroy(&plain);
}

// The ranks' gradients, in memory that all of them see.
static void share_grads(Case *c)
{
    static float *grads[CASE_RANKS * CASE_ROUNDS];
    static float *memory;
    enum { MOST_NUMEL = 1 << 16 };
    if (memory == NULL) memory = shared_alloc(sizeof grads / sizeof *grads * MOST_NUMEL * 4);
    if (case_ended == NULL) case_ended = shared_alloc(sizeof *case_ended);
    *case_ended = false;
    for (int i = 0; i < CASE_RANKS * CASE_ROUNDS; i++) grads[i] = memory + (size_t)i * MOST_NUMEL;
    c->grads = grads;
}

void run_case(int world, Case *c)
{
    share_grads(c);
    run_ranks(world, case_body, c);
}

char *run_case_message(int world, Case *c)
{
    share_grads(c);
    return run_ranks_message(world, RANKS_LIMIT, case_body, c);
}
