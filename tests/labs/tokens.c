/* The gradient is that of the mean over all tokens, whatever number of them a rank or a micro-batch
 * has: on data whose sums are exact, against whole numbers that are counted here.
 *
 * The model is one linear layer of zeros with two classes: each class has probability 1/2, so a
 * token's gradient is its input times 1/2 or -1/2. Inputs are small whole numbers, and a step has
 * 64 tokens, on however many ranks. So every sum is exact. Where each micro-batch reduces, the
 * factor is a power of two, so that each quotient is exact too.
 */
#include <stdlib.h>

#include "harness.h"
#include "strategies.h"

enum { IN = 5, CLASSES = 2, ROUNDS = 3, TOKENS = 64 };

typedef struct Setting {
    StrategyOptions options;
    int replicas;
    bool partial;
} Setting;

// Tokens of a rank's micro-batch: 1 or 2, and those that are left over are the last one's.
static int tokens_of(int world, int rank, int round)
{
    if (rank != world - 1 || round != ROUNDS - 1) return 1 + (rank + round) % 2;
    int others = 0;
    for (int r = 0; r < world; r++)
        for (int k = 0; k < ROUNDS; k++)
            if (r != rank || k != round) others += tokens_of(world, r, k);
    return TOKENS - others;
}

static int input_of(int rank, int round, int token, int i)
{
    return (7 * rank + 5 * round + 3 * token + 2 * i) % 9 - 4;
}

static int target_of(int rank, int round, int token)
{
    return (rank + round + token) % CLASSES;
}

// Twice the sum of all tokens' gradients by weight [class][i], or by the class's bias (i = IN).
static int sum_of(int world, int class, int i)
{
    int sum = 0;
    for (int r = 0; r < world; r++)
        for (int k = 0; k < ROUNDS; k++)
            for (int t = 0; t < tokens_of(world, r, k); t++)
                sum += (i < IN ? input_of(r, k, t, i) : 1) * (target_of(r, k, t) == class ? -1 : 1);
    return sum;
}

// A forward and a backward of the rank's micro-batch.
static void pass(NnRun *run, Module *model, const Rank *r, int round, float scale)
{
    int rows = tokens_of(r->world, r->rank, round);
    float *in, *logits, *dlogits, *din, loss, host[TOKENS * IN];
    int32_t *targets, classes[TOKENS];
    for (int t = 0; t < rows; t++) classes[t] = target_of(r->rank, round, t);
    for (int t = 0; t < rows; t++)
        for (int i = 0; i < IN; i++) host[t * IN + i] = (float)input_of(r->rank, round, t, i);
    need_cuda(cudaMalloc((void **)&in, sizeof host));
    need_cuda(cudaMalloc((void **)&targets, sizeof classes));
    send_to(in, host, (size_t)(rows * IN));
    need_cuda(cudaMemcpy(targets, classes, (size_t)rows * 4, cudaMemcpyHostToDevice));
    need_cuda(cudaDeviceSynchronize());
    run->B = rows;
    run->T = 1;
    need(module_forward(model, run, in, &logits));
    need(cross_entropy_scaled(run, logits, targets, rows, CLASSES, scale, &loss, &dlogits));
    need(module_backward(model, run, dlogits, &din));
    need_cuda(cudaFreeAsync(dlogits, run->stream));
    need_cuda(cudaFreeAsync(din, run->stream));
    need_cuda(cudaStreamSynchronize(run->stream));
    need_cuda(cudaFree(in));
    need_cuda(cudaFree(targets));
}

static void check_gradients(const FlatParam *flat, const Rank *r)
{
    const FlatLayout *layout = &flat->layout;
    float *got = fetch(flat->sharded_grad.data, (size_t)layout->shard_numel);
    for (int p = 0; p < layout->n; p++) {
        int64_t begin, end, at;
        flat_param_range_in_shard(layout, p, layout->rank, &begin, &end, &at);
        for (int64_t e = begin; e < end; e++) {
            bool bias = layout->params[p]->ndim == 1;
            int class = (int)(bias ? e : e / IN), i = bias ? IN : (int)(e % IN);
            float want = (float)sum_of(r->world, class, i) / (float)(2 * TOKENS);
            check(got[at + e - begin] == want,
                  "%s[%lld] has gradient %.9g, want %.9g: the mean over the %d tokens of all ranks "
                  "and micro-batches",
                  layout->params[p]->name, (long long)e, (double)got[at + e - begin], (double)want,
                  TOKENS);
        }
    }
    free(got);
}

static void body(const Rank *r, void *arg)
{
    const Setting *s = arg;
    FsdpOptions fsdp = {.seed = 42};
    NnRun run;
    Mesh mesh;
    FsdpContext ctx;
    int64_t mine = 0, total = 0;
    float scale;
    Module *model = linear_create("model", IN, CLASSES, true, 0.0f);
    for (int i = 0; i < model->n_params; i++) model->params[i]->init = INIT_ZERO;
    need(nn_run_create(&run, r->stream));
    need(mesh_2d(&mesh, r->comm, s->replicas));
    need(fsdp_context_create(&ctx, &mesh, r->stream));
    need(fully_shard(model, &ctx, &fsdp));
    for (int k = 0; k < ROUNDS; k++) mine += tokens_of(r->world, r->rank, k);
    need(fsdp_token_scale(model, mine, &total, &scale));
    check(total == TOKENS, "without a strategy fsdp_token_scale counts %lld tokens, want %d",
          (long long)total, TOKENS);
    check(scale == (float)r->world / TOKENS,
          "without a strategy a token counts for %.9g, want %d / %d", (double)scale, r->world,
          TOKENS);
    need(strategy_apply(model, &s->options));
    need_cuda(cudaDeviceSynchronize());
    need(fsdp_token_scale(model, mine, &total, &scale));
    check(total == TOKENS, "fsdp_token_scale counts %lld tokens, want %d", (long long)total,
          TOKENS);
    for (int k = 0; k < ROUNDS; k++) {
        need(strategy_micro_batch(model, k, ROUNDS));
        if (s->partial) need(fsdp_set_requires_gradient_sync(model, true));
        if (s->partial) need(fsdp_set_requires_all_reduce(model, k == ROUNDS - 1));
        pass(&run, model, r, k, scale);
    }
    need_cuda(cudaDeviceSynchronize());
    check_gradients(&fsdp_unit(model)->flat, r);
    check(fsdp_token_scale(model, 0, &total, &scale) == ERR_ARGUMENT,
          "a step without a token was taken");
    need(strategy_remove(model));
    fsdp_unwrap(model);
    module_destroy(model);
    need(fsdp_context_destroy(&ctx));
    need(mesh_destroy(&mesh, r->comm));
    need(nn_run_destroy(&run));
}

TEST(averages_by_tokens)
{
    int trained = 0;
    for (int world = 1; world <= 8; world++)
        for (int replicas = 1; replicas <= world; replicas++)
            for (int strategy = 0; strategy < 4 && world % replicas == 0; strategy++)
                for (int mode = 0; mode < 3; mode++) {
                    Setting s = {
                        .options = {.strategy = (Strategy)strategy, .reduce_every_time = mode == 1},
                        .replicas = replicas,
                        .partial = mode == 2};
                    // Each mode with every fourth mesh and strategy; pairs.c has the others.
                    if (mode > 0 && (world + replicas + strategy + mode) % 4 != 0) continue;
                    if (mode == 1 && world > 1) s.options.divide_factor = 8.0f;
                    Case c = {.options = s.options, .replicas = replicas, .partial = s.partial};
                    if (case_refusal(&c, world)[0] != '\0') continue;
                    run_ranks(world, body, &s);
                    trained++;
                }
    if (trained < 50) fail_msg("%d settings were trained, all others refused", trained);
}

// What would pass with means of means says nothing.
TEST(a_mean_of_means_differs)
{
    double means = 0.0;
    for (int r = 0; r < 3; r++)
        for (int k = 0; k < ROUNDS; k++) {
            double sum = 0.0;
            int n = tokens_of(3, r, k);
            for (int t = 0; t < n; t++)
                sum += 0.5 * input_of(r, k, t, 0) * (target_of(r, k, t) == 0 ? -1 : 1);
            means += sum / n / (3 * ROUNDS);
        }
    if (means == (double)sum_of(3, 0, 0) / (2 * TOKENS)) fail_msg("the data tell nothing apart");
}

SUITE_MAIN("tokens")
