/* A small GPT-2 learns in bf16, reduced in float or in bf16, and in fp16 with a loss scale, as it
 * does in float: after 200 steps the loss is within 1 %.
 */
#include <math.h>

#include "half_numbers.h"
#include "harness.h"
#include "precision.h"
#include "strategies.h"

enum { STEPS = 200, LAST = 50, MOST_TOKENS = 64 };

typedef struct Training {
    Case c;
    MixedPrecisionPolicy policy;
    float *losses; // shared memory (STEPS): rank 0's
} Training;

// A batch in which a token mostly says which one comes next.
static Batch learnable(const Case *c, int step, int rank)
{
    Batch batch = case_batch(c, step, rank, 0);
    int n = c->spec.B * c->spec.T;
    int32_t tokens[MOST_TOKENS], targets[MOST_TOKENS];
    need_cuda(cudaMemcpy(tokens, batch.in, (size_t)n * 4, cudaMemcpyDeviceToHost));
    need_cuda(cudaMemcpy(targets, batch.targets, (size_t)n * 4, cudaMemcpyDeviceToHost));
    for (int i = 0; i < n; i++)
        if ((i + step) % 4 != 0) targets[i] = (3 * tokens[i] + 1) % c->spec.vocab;
    need_cuda(cudaMemcpy(batch.targets, targets, (size_t)n * 4, cudaMemcpyHostToDevice));
    need_cuda(cudaDeviceSynchronize());
    return batch;
}

static void body(const Rank *r, void *arg)
{
    const Training *t = arg;
    const Case *c = &t->c;
    Wrapped w;
    LossScaler scaler = LOSS_SCALER_DEFAULTS;
    int rows = c->spec.B * c->spec.T;
    case_wrap(&w, c, r);
    need(precision_apply(w.model, &t->policy));
    need(loss_scaler_create(&scaler, w.model));
    w.adamw.config.lr = 5e-3f;
    w.run.B = c->spec.B;
    w.run.T = c->spec.T;
    for (int step = 0; step < STEPS; step++) {
        float *logits, *dlogits, loss;
        Batch batch = learnable(c, step, r->rank);
        need(fsdp_zero_grad(w.model, &w.ctx));
        need(module_forward(w.model, &w.run, batch.in, &logits));
        need(cross_entropy(&w.run, logits, batch.targets, rows, c->spec.vocab, &loss, &dlogits));
        if (r->rank == 0) t->losses[step] = loss;
        need(loss_scaler_scale(&scaler, dlogits, (size_t)(rows * c->spec.vocab), r->stream));
        need(module_backward(w.model, &w.run, dlogits, NULL));
        need_cuda(cudaFreeAsync(dlogits, r->stream));
        need(loss_scaler_step(&scaler, &w.adamw));
        need(loss_scaler_update(&scaler));
        batch_destroy(&batch);
    }
    loss_scaler_destroy(&scaler);
    need(precision_remove(w.model));
    case_unwrap(&w, r);
}

static float mean_of_last(const float *losses)
{
    float sum = 0.0f;
    for (int i = STEPS - LAST; i < STEPS; i++) sum += losses[i];
    return sum / LAST;
}

TEST(the_loss_follows_that_of_floats)
{
    needs_ranks(2);
    static const DType TYPES[][2] = {{DTYPE_F32, DTYPE_F32},
                                     {DTYPE_BF16, DTYPE_F32},
                                     {DTYPE_BF16, DTYPE_BF16},
                                     {DTYPE_F32, DTYPE_BF16},
                                     {DTYPE_F16, DTYPE_F16}};
    Training t = {.c = case_of(spec_gpt2(1), STRATEGY_ZERO3, 2, 1, 1),
                  .losses = shared_alloc(STEPS * sizeof(float))};
    float floats = 0.0f;
    for (size_t i = 0; i < sizeof TYPES / sizeof TYPES[0]; i++) {
        t.policy = (MixedPrecisionPolicy){TYPES[i][0], TYPES[i][1], DTYPE_F32, true};
        run_ranks_limit(2, 2 * RANKS_LIMIT, body, &t);
        float loss = mean_of_last(t.losses);
        if (i == 0) floats = loss;
        if (!(floats < 0.7f * t.losses[0]))
            fail_msg("in float the loss goes from %g to %g alone in %d steps", (double)t.losses[0],
                     (double)floats, STEPS);
        if (!(fabsf(loss - floats) <= 0.01f * floats))
            fail_msg("after %d steps the loss in %s and %s is %g, and in float %g: more than 1 %% "
                     "apart",
                     STEPS, type_name(TYPES[i][0]), type_name(TYPES[i][1]), (double)loss,
                     (double)floats);
    }
}

SUITE_MAIN("loss_curve")
