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
    check_equal("a clipped gradient", got, was, n);
    need(pipeline_grad_norm(w->pipeline, &after));
    check(fabsf(after - norm / 4.0f) <= 1e-6f * norm,
          "after clipping to %g the norm is %g: pipeline_clip_grad_norm scales all units",
          (double)(norm / 4.0f), (double)after);
    free(was);
    free(same);
    free(got);
}

TEST(norm_counts_once)
{
    Case c = cut_of(spec_gpt2(3), 3, 2, PIPELINE_1F1B);
    run_wrapped(6, clip_body, &c);
    c = cut_of(spec_gpt2(2), 2, 2, PIPELINE_GPIPE);
    c.replicas = 2;
    run_wrapped(8, clip_body, &c);
    c = cut_of(spec_gpt2(2), 2, 3, PIPELINE_1F1B);
    c.options.strategy = STRATEGY_DDP;
    c.replicas = 2;
    run_cut(4, &c);
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
