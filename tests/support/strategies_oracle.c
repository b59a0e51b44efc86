/* strategies_oracle.c: see strategies_oracle.h. */
#include "strategies_oracle.h"

#include "fp8_numbers.h"

#include <stdlib.h>
#include <string.h>

// The model's head and its embedding, where they share a parameter and are on two stages; else
// NULL.
static Module *tied_head(const Case *c, const Module *model)
{
    if (c->stages < 2 || !c->spec.gpt2) return NULL;
    const Param *wte = model->children[0]->params[0];
    for (int i = 1; i < model->n_children; i++)
        for (int k = 0; k < model->children[i]->n_params; k++)
            if (model->children[i]->params[k] == wte) return model->children[i];
    return NULL;
}

Module *oracle_model(const Case *c)
{
    Module *model = case_model(c), *head = tied_head(c, model);
    if (head == NULL) return model;
    Param *copy = malloc(sizeof *copy);
    check(copy != NULL, "no memory for the oracle");
    *copy = *head->params[0];
    head->params[0] = copy;
    return model;
}

static float factor_of(const Case *c, int world)
{
    return c->options.divide_factor > 0.0f ? c->options.divide_factor : (float)world;
}

Sum oracle_sum(const Case *c, int world)
{
    return (Sum){factor_of(c, world), 0, c->rounds - 1, -1, false};
}

// g[0][i] + g[1][i] + …, n of them, in a collective's order: a balanced tree.
static float tree(float *const *g, int n, size_t i)
{
    if (n == 1) return g[0][i];
    int half = 1;
    while (2 * half < n) half *= 2;
    return tree(g, half, i) + tree(g + half, n - half, i);
}

DType oracle_type(const Case *c, int world)
{
    return c->policy == NULL || world == 1 ? DTYPE_F32 : c->policy->reduce_dtype;
}

static float rounded(const Case *c, int world, float x)
{
    return half_float(oracle_type(c, world), x);
}

// What a rank's gradient is divided by before the sum.
static float before_of(const Case *c, int world)
{
    int factor = (int)factor_of(c, world), before = 1;
    if (oracle_type(c, world) != DTYPE_F16) return 1.0f;
    while (factor % before == 0 && factor / before > before) before *= 2;
    return (float)before;
}

// Whether each micro-batch reduces.
static bool each_reduces(const Case *c)
{
    return c->options.reduce_every_time || c->partial;
}

// Whether each backward begins a gradient of its own type, which is cast afterwards.
static bool casts(const Case *c, int world)
{
    return c->policy != NULL && c->policy->param_dtype != oracle_type(c, world);
}

// Whether each micro-batch's gradient is apart from the others', as the ranks have made them.
static bool apart(const Case *c, int world)
{
    return (world > 1 && each_reduces(c)) || casts(c, world);
}

// What a rank gives to the reduction after micro-batch k.
static float given(const Case *c, int world, int rank, const Sum *sum, int k, size_t i)
{
    float *const *grads = c->grads + (size_t)rank * CASE_ROUNDS;
    int first = casts(c, world) && !each_reduces(c) ? sum->first : k;
    float all = rounded(c, world, grads[first][i]), before = before_of(c, world);
    for (int j = first + 1; j <= k; j++)
        all = rounded(c, world, all + grads[j][i] / (sum->last_apart && j == k ? before : 1.0f));
    return sum->last_apart && first < k ? all : rounded(c, world, all / before);
}

// x[0] + x[1] + …, as one collective leaves it.
static float sum_up(const Case *c, int world, float *x, int n)
{
    float *place[CASE_RANKS];
    for (int i = 0; i < n; i++) place[i] = &x[i];
    return rounded(c, world, tree(place, n, 0));
}

// Of micro-batch k: the sum over the shards of each replica.
static float within(const Case *c, int world, int replica, const Sum *sum, int k, size_t i)
{
    int shards = world / c->replicas;
    float of[CASE_RANKS];
    for (int s = 0; s < shards; s++) of[s] = given(c, world, replica * shards + s, sum, k, i);
    return sum_up(c, world, of, shards);
}

float oracle_gradient(const Case *c, int world, const Sum *sum, size_t i)
{
    float grad = 0.0f, sums[CASE_RANKS] = {0.0f}, after = sum->factor / before_of(c, world);
    for (int k = sum->first; k <= sum->last && world == 1 && casts(c, 1); k++)
        grad += c->grads[k][i];
    if (world == 1) return casts(c, 1) ? grad : c->grads[sum->last][i]; // the backwards have added
    for (int k = each_reduces(c) ? sum->first : sum->last; k <= sum->last; k++) {
        for (int p = 0; p < c->replicas; p++) {
            float one = within(c, world, p, sum, k, i);
            sums[p] = c->partial && k > sum->first ? rounded(c, world, sums[p] + one) : one;
        }
        if (c->partial && k < sum->last) continue;
        float all = sum->replica < 0 ? sum_up(c, world, sums, c->replicas) : sums[sum->replica];
        grad += all / after;
    }
    return grad;
}

// What a token's loss counts for: counted here, by the batches of all ranks.
static float scale_of(const Case *c, int world, int step)
{
    int total = 0;
    if (!c->uneven) return 1.0f / (float)(c->spec.B * c->spec.T);
    for (int rank = 0; rank < world; rank++)
        for (int k = 0; k < c->rounds; k++) total += case_rows(c, step, rank, k) * c->spec.T;
    return (float)((double)factor_of(c, world) / total);
}

Rank oracle_place(const Case *c, const Rank *r)
{
    Rank mine = *r;
    if (c->stages > 0) mine.world = r->world / c->stages;
    mine.rank = r->rank % mine.world;
    return mine;
}

// Has the parameters that are chosen be what a gather in FP8 makes of them.
static void quantise(const Fp8Options *fp8, const Plain *p, float *params)
{
    static Layout all;
    layout_module(&all, p->model, false, 1, LAYOUT_WHOLE);
    for (int i = 0; i < all.n; i++) {
        bool chosen = fp8->chosen != NULL ? fp8->chosen(all.param[i]) : all.param[i]->ndim > 1;
        if (chosen) fp8_param(params + all.begin[i], all.begin[i + 1] - all.begin[i]);
    }
}

static void load_params(const Plain *p, const float *params)
{
    static Layout all;
    layout_module(&all, p->model, false, 1, LAYOUT_WHOLE);
    for (int i = 0; i < all.n; i++)
        send_to(all.param[i]->data.data, params + all.begin[i], all.begin[i + 1] - all.begin[i]);
}

void oracle_grads(Plain *p, const Case *c, const Rank *all, int step, float *losses)
{
    Rank mine = oracle_place(c, all), *r = &mine;
    size_t n = (size_t)model_numel(p->model);
    float *masters = plain_params(p), *rounded = plain_params(p);
    if (c->fp8 != NULL) quantise(c->fp8, p, rounded);
    load_params(p, rounded);
    need(plain_adamw_zero_grad(p->adamw));
    for (int k = 0; k < c->rounds; k++) {
        losses[k] = case_pass(c, &p->run, p->model, step, r->rank, k, scale_of(c, r->world, step));
        float *grads = plain_grads(p);
        if (all->rank == r->rank)
            memcpy(c->grads[r->rank * CASE_ROUNDS + k], grads, n * sizeof *grads);
        free(grads);
        if (apart(c, r->world)) need(plain_adamw_zero_grad(p->adamw));
    }
    load_params(p, masters);
    free(masters);
    free(rounded);
    ranks_meet(all);
}

void oracle_narrow_grads(Narrow *w, Plain *p, const Case *c, const Rank *all, int step)
{
    Rank mine = oracle_place(c, all), *r = &mine;
    float *masters = plain_params(p);
    Spec spec = c->spec;
    if (c->fp8 != NULL) quantise(c->fp8, p, masters);
    narrow_load(w, masters);
    narrow_zero(w);
    free(masters);
    for (int k = 0; k < c->rounds; k++) {
        Batch batch = case_batch(c, step, r->rank, k);
        spec.B = case_rows(c, step, r->rank, k);
        narrow_pass(w, &p->run, &spec, &batch, scale_of(c, r->world, step));
        float *grads = narrow_grads(w);
        if (all->rank == r->rank)
            memcpy(c->grads[r->rank * CASE_ROUNDS + k], grads, w->n * sizeof *grads);
        free(grads);
        batch_destroy(&batch);
        if (apart(c, r->world)) narrow_zero(w);
    }
    ranks_meet(all);
}

// ---- The mistakes that a wrong gradient can come from ----

static void add_cause(Causes *causes, Sum sum, const char *text)
{
    causes->sum[causes->n] = sum;
    causes->text[causes->n++] = text;
}

// Under a policy, where lab 1's functions are right.
static Causes policy_causes(const Case *c, int world)
{
    Causes causes = {0};
    Sum wrong = oracle_sum(c, world);
    wrong.factor = factor_of(c, world) / before_of(c, world);
    if (before_of(c, world) != 1.0f)
        add_cause(&causes, wrong,
                  "fp16 is not divided before the sum: precision_reduce_input divides by "
                  "divided_before");
    wrong = oracle_sum(c, world);
    wrong.last_apart = true;
    if (c->rounds > 1 && !each_reduces(c) && casts(c, world) && before_of(c, world) != 1.0f)
        add_cause(&causes, wrong,
                  "what earlier micro-batches have added is not divided before the sum: "
                  "precision_reduce_input divides all that has accumulated, when it is reduced");
    wrong = oracle_sum(c, world);
    wrong.first = wrong.last;
    if (c->rounds > 1 && !each_reduces(c) && casts(c, world))
        add_cause(&causes, wrong,
                  "the last micro-batch alone is in it: precision_reduce_input adds to what has "
                  "accumulated (own->adds)");
    return causes;
}

Causes oracle_causes(const Case *c, int world)
{
    Causes causes = {0};
    if (c->policy != NULL) return policy_causes(c, world);
    Sum right = oracle_sum(c, world), wrong = right;
    bool ddp = c->options.strategy == STRATEGY_DDP, replicas = !ddp && c->replicas > 1;
    wrong.factor = (float)(world / c->replicas);
    if (replicas)
        add_cause(&causes, wrong,
                  "it is divided by the ranks that shard alone: reduce_between divides by "
                  "options.divide_factor, all ranks of the mesh unless it was set");
    wrong.factor = (float)world;
    add_cause(&causes, wrong,
              ddp ? "it is divided by the ranks, and not by options.divide_factor: in send_bucket"
              : replicas ? "it is divided by the ranks, not by options.divide_factor: in "
                           "reduce_between"
                         : "it is divided by the ranks, not by options.divide_factor: in "
                           "strategy_reduce");
    wrong.factor = 1.0f;
    add_cause(&causes, wrong,
              ddp        ? "the sum is not divided: in send_bucket"
              : replicas ? "the sum is not divided: in reduce_between"
                         : "the sum is not divided: in strategy_reduce");
    wrong = right;
    wrong.first = wrong.last;
    if (c->partial)
        add_cause(&causes, wrong,
                  "the last micro-batch alone is in it: without an all-reduce reduce_within adds "
                  "to what *partial has");
    else if (c->rounds > 1 && c->options.reduce_every_time)
        add_cause(&causes, wrong,
                  "the last micro-batch alone is in it: each reduction adds to sharded_grad");
    wrong = right;
    for (wrong.replica = 0; wrong.replica < c->replicas && replicas; wrong.replica++)
        add_cause(&causes, wrong,
                  "the sum of one replica alone is in it: the sum over the replicas is "
                  "reduce_between's");
    return causes;
}

const char *oracle_otherwise(const Case *c)
{
    if (c->policy != NULL) return NULL;
    if (c->rounds > 1) return NULL;
    if (c->options.strategy == STRATEGY_DDP)
        return "of DDP each element is in one bucket, which send_bucket sums over the replicas "
               "when ddp_post_backward has counted the last backward that writes it: is one sent "
               "too early, or its range another one's?";
    if (c->options.reshard_ranks > 0)
        return "with reshard_ranks the backward must have the same parameters as the forward: "
               "which slice does keep_slice keep, and when does strategy_all_gather take it?";
    return NULL;
}
