/* Lab 7, pipeline: what is refused, clipping by the norm of all stages, evaluation.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "snapshot.h"
#include "tests.h"

// ---- What does not go with a pipeline ----

static void refused_body(Wrapped *w, const Case *c, const Rank *r)
{
    LossScaler scaler = LOSS_SCALER_DEFAULTS;
    Pipeline *second = NULL;
    PipelineTies none = {0};
    MicroBatch batch = {0};
    need_refused_whole(w->model, &w->adamw, loss_scaler_create(&scaler, w->model),
                       "is a stage: a loss scale");
    need_refused_whole(w->model, &w->adamw,
                       pipeline_create(&second, w->model, &w->ranks, &none, c->kind, 1),
                       "is in a pipeline already");
    check(second == NULL, "a pipeline that was refused was made");
    need_refused_whole(w->model, &w->adamw,
                       pipeline_evaluate(w->pipeline, &w->run, &batch, c->rounds + 1, NULL),
                       "a step has 3");
    need(pipeline_destroy(w->pipeline));
    w->pipeline = NULL;
    Snapshot *before = snapshot_take(w->model, &w->adamw);
    need(pipeline_create(&second, w->model, &w->ranks, &none, c->kind, 2));
    need(pipeline_destroy(second));
    snapshot_check_at(__FILE__, __LINE__, before, w->model, &w->adamw,
                      "pipeline_create and pipeline_destroy");
    need_refused_whole(w->model, &w->adamw,
                       pipeline_create(&second, w->model, &w->ranks, &none, c->kind, 0),
                       "a step of 0 micro-batches");
    need(strategy_remove(w->model));
    need_refused_whole(w->model, &w->adamw,
                       pipeline_create(&second, w->model, &w->ranks, &none, c->kind, 1),
                       "has no strategy");
}

// ---- Clipping and evaluation ----

// The gradients are numbers of each element's: one added to the other, the same on both stages of a
// tied parameter.
static float number_of(const Param *param, int64_t element, int stage)
{
    return (float)((param->id + (uint64_t)element) % 7 + 1 + 16 * (uint64_t)stage);
}

// Runs over this rank's elements. fill: writes the numbers, of stage 0 where `same`; else compares,
// where a tied parameter's is the sum of both stages'. Returns the squares, and in `again` those of
// second copies.
static double numbers(const Wrapped *w, bool fill, bool same, double *again)
{
    const Pipeline *p = w->pipeline;
    double squares = 0.0;
    *again = 0.0;
    for (int u = 0; u < w->root->n_units; u++) {
        const FlatParam *flat = &w->root->units[u]->flat;
        float *grad = fetch(flat->sharded_grad.data, (size_t)flat->layout.shard_numel);
        for (int i = 0; i < flat->layout.n; i++) {
            const Param *const param = flat->layout.params[i];
            int64_t begin, end, at;
            int other = -1, own = same ? 0 : w->ranks.stage;
            for (int k = 0; k < p->n_shared; k++)
                if (p->shared[k].param == param) other = p->shared[k].other;
            flat_param_range_in_shard(&flat->layout, i, flat->layout.rank, &begin, &end, &at);
            for (int64_t k = begin; k < end; k++) {
                float *got = &grad[at + k - begin], want = number_of(param, k, own);
                bool second = other >= 0 && other < w->ranks.stage;
                if (w->mesh.replicate.rank == 0)
                    *(second ? again : &squares) += (double)want * (double)want;
                if (fill) *got = want;
                if (!fill && other >= 0) want += number_of(param, k, other);
                check(*got == want,
                      "pipeline_sum_ties: element %lld of %s, %s, is %g, want %g: of a tied "
                      "parameter the sum of the two stages', of another its own",
                      (long long)k, param->name, other < 0 ? "not tied" : "tied", (double)*got,
                      (double)want);
            }
        }
        if (fill) send_to(flat->sharded_grad.data, grad, (size_t)flat->layout.shard_numel);
        free(grad);
    }
    return squares;
}

static void ties_body(Wrapped *w, const Case *c, const Rank *r)
{
    double again;
    numbers(w, true, false, &again);
    size_t live = gpulog_live_bytes(r->device);
    uint64_t first = gpulog_length();
    need(pipeline_sum_ties(w->pipeline));
    need_cuda(cudaDeviceSynchronize());
    check_no_race(first);
    check(gpulog_live_bytes(r->device) == live,
          "pipeline_sum_ties leaves %zd bytes: the other stage's gradient is freed",
          (ssize_t)(gpulog_live_bytes(r->device) - live));
    numbers(w, false, false, &again);
}

TEST(ties_are_summed)
{
    Case c = cut_of(spec_gpt2(3), 3, 2, PIPELINE_1F1B);
    run_wrapped(6, ties_body, &c);
    c = cut_of(spec_gpt2(2), 2, 2, PIPELINE_GPIPE);
    run_wrapped(2, ties_body, &c);
}

static void norm_body(Wrapped *w, const Case *c, const Rank *r)
{
    float norm;
    double again, squares = sum_of_ranks(r, numbers(w, true, true, &again));
    double twice = sqrt(squares + sum_of_ranks(r, again));
    need(pipeline_grad_norm(w->pipeline, &norm));
    check(fabs((double)norm - sqrt(squares)) <= 1e-6 * sqrt(squares),
          "the norm of %d stages of %d ranks and %d replicas is %.9g, want %.9g: %s", c->stages,
          w->ranks.group.size, c->replicas, (double)norm, sqrt(squares),
          fabs((double)norm - twice) <= 1e-6 * twice
              ? "a parameter that two stages share is counted twice: in counts"
              : "in sum_all all stages and ranks add, also those of one stage, a replica once");
}

TEST(norm_counts_once)
{
    Case alone = cut_of(spec_mlp(3), 1, 1, PIPELINE_1F1B);
    run_wrapped(2, norm_body, &alone);
    Case c = cut_of(spec_gpt2(3), 3, 2, PIPELINE_1F1B);
    run_wrapped(6, norm_body, &c);
    c = cut_of(spec_gpt2(2), 2, 2, PIPELINE_GPIPE);
    c.replicas = 2;
    run_wrapped(8, norm_body, &c);
}

static void clip_body(Wrapped *w, const Case *c, const Rank *r)
{
    float norm, after;
    case_train(w, c, r, 0);
    need_cuda(cudaDeviceSynchronize());
    FlatParam *flat = &w->root->units[0]->flat;
    size_t n = (size_t)flat->layout.shard_numel;
    float *was = fetch(flat->sharded_grad.data, n);
    need(pipeline_grad_norm(w->pipeline, &norm));
    check(norm > 0, "the gradient of a step is zero" LIKELY "pipeline_backward reduces it");
    need(pipeline_clip_grad_norm(w->pipeline, 2.0f * norm, &after));
    float *same = fetch(flat->sharded_grad.data, n);
    check(memcmp(was, same, n * sizeof *was) == 0 && after == norm,
          "a gradient whose norm is below the most was changed: in pipeline_clip_grad_norm");
    need(pipeline_clip_grad_norm(w->pipeline, norm / 4.0f, &after));
    check(after == norm, "the norm before clipping is %g, must be %g", (double)after, (double)norm);
    float *got = fetch(flat->sharded_grad.data, n);
    for (size_t i = 0; i < n; i++) was[i] *= norm / 4.0f / norm;
    check_equal("a gradient after pipeline_clip_grad_norm, which scales all of this stage's, also "
                "one that an earlier stage counts",
                got, was, n);
    need(pipeline_grad_norm(w->pipeline, &after));
    check(fabsf(after - norm / 4.0f) <= 1e-6f * norm,
          "after clipping to %g the norm is %g: pipeline_clip_grad_norm scales all units",
          (double)(norm / 4.0f), (double)after);
    free(was);
    free(same);
    free(got);
}

TEST(clipping_is_by_one_norm)
{
    Case c = cut_of(spec_gpt2(3), 3, 2, PIPELINE_1F1B);
    run_wrapped(6, clip_body, &c);
    c = cut_of(spec_gpt2(2), 2, 2, PIPELINE_GPIPE);
    c.replicas = 2;
    run_wrapped(8, clip_body, &c);
    c = cut_of(spec_gpt2(2), 2, 3, PIPELINE_1F1B);
    c.options.strategy = STRATEGY_DDP;
    c.replicas = 2;
    c.without_norm = false;
    run_cut(4, &c);
    c = cut_of(spec_mlp(5), 3, 2, PIPELINE_1F1B);
    c.without_norm = false;
    run_cut(3, &c);
    RULE(norms_of_ties_and_nans);
}

static void evaluation_body(Wrapped *w, const Case *c, const Rank *r)
{
    StageBatches batches;
    float trained[CASE_ROUNDS], losses[CASE_ROUNDS], scale = 0.25f;
    stage_batches_create(&batches, w, c, 0);
    need(fsdp_zero_grad(w->model, &w->ctx));
    need(pipeline_step(w->pipeline, &w->run, batches.batch, scale, trained));
    need_cuda(cudaDeviceSynchronize());
    size_t before = gpulog_live_bytes(r->device);
    uint64_t first = gpulog_length();
    need(pipeline_evaluate(w->pipeline, &w->run, batches.batch, c->rounds, losses));
    need_cuda(cudaDeviceSynchronize());
    check_no_race(first);
    check(gpulog_live_bytes(r->device) == before, "an evaluation has left memory");
    for (int u = 0; u < w->root->n_units; u++)
        check(w->root->units[u]->flat.state == FLAT_SHARDED,
              "an evaluation has left a unit unsharded");
    if (w->ranks.stage == c->stages - 1)
        for (int k = 0; k < c->rounds; k++)
            check(losses[k] == trained[k], "the loss of batch %d is %.9g, must be %.9g", k,
                  (double)losses[k], (double)trained[k]);
    need(pipeline_step(w->pipeline, &w->run, batches.batch, scale, losses)); // training goes on
    if (w->ranks.stage == c->stages - 1)
        check(losses[0] == trained[0], "after an evaluation a loss is %.9g, must be %.9g",
              (double)losses[0], (double)trained[0]);
    need_cuda(cudaDeviceSynchronize());
    stage_batches_destroy(&batches);
}

TEST(an_evaluation_is_forwards)
{
    Case c = cut_of(spec_mlp(4), 2, 3, PIPELINE_1F1B);
    run_wrapped(4, evaluation_body, &c);
    run_wrapped(2, refused_body, &c);
}
