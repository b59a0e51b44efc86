/* Checkpoints under mixed precision: masters are what is saved. A training in fp16 that is stopped
 * and resumed is bitwise one that was not, loss scale and all; what was saved loads under any other
 * precision.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint.h"
#include "files.h"
#include "harness.h"
#include "precision.h"
#include "strategies.h"

enum { STEPS = 6, STOP = 3 };

static const MixedPrecisionPolicy FP16 = {DTYPE_F16, DTYPE_F16, DTYPE_F32, true};
static const MixedPrecisionPolicy BF16 = {DTYPE_BF16, DTYPE_F32, DTYPE_F32, true};

static char dir[PATH_BYTES + 16];

// A training from step `first` on, with a loss scale that grows every two steps.
typedef struct Training {
    Wrapped w;
    LossScaler scaler;
} Training;

static void begin(Training *t, const Case *c, const Rank *r)
{
    t->scaler = LOSS_SCALER_DEFAULTS;
    t->scaler.scale = 256.0f;
    t->scaler.growth_interval = 2;
    case_wrap(&t->w, c, r);
    need(loss_scaler_create(&t->scaler, t->w.model));
}

static void end(Training *t, const Rank *r)
{
    loss_scaler_destroy(&t->scaler);
    case_unwrap(&t->w, r);
}

static void step(Training *t, const Case *c, const Rank *r, int number)
{
    float *logits, *dlogits, loss;
    Batch batch = case_batch(c, number, r->rank, 0);
    int rows = c->spec.B * c->spec.T;
    t->w.run.B = c->spec.B;
    t->w.run.T = c->spec.T;
    need(fsdp_zero_grad(t->w.model, &t->w.ctx));
    need(module_forward(t->w.model, &t->w.run, batch.in, &logits));
    need(cross_entropy(&t->w.run, logits, batch.targets, rows, c->spec.vocab, &loss, &dlogits));
    need(loss_scaler_scale(&t->scaler, dlogits, (size_t)(rows * c->spec.vocab), r->stream));
    need(module_backward(t->w.model, &t->w.run, dlogits, NULL));
    need_cuda(cudaFreeAsync(dlogits, r->stream));
    need(loss_scaler_step(&t->scaler, &t->w.adamw));
    need(loss_scaler_update(&t->scaler));
    batch_destroy(&batch);
}

// Shards and moments of all units, against those of another training.
static void check_same(const Training *got, const Training *want, const char *when)
{
    for (int u = 0; u < want->w.root->n_units; u++) {
        const FlatParam *flat = &want->w.root->units[u]->flat;
        size_t n = (size_t)flat->layout.shard_numel;
        const float *parts[][2] = {
            {got->w.root->units[u]->flat.sharded_param.data, flat->sharded_param.data},
            {got->w.adamw.m[u], want->w.adamw.m[u]},
            {got->w.adamw.v[u], want->w.adamw.v[u]}};
        for (int i = 0; i < 3; i++) {
            float *have = fetch(parts[i][0], n), *due = fetch(parts[i][1], n);
            check_equal(when, have, due, n);
            free(have);
            free(due);
        }
    }
    check(got->w.adamw.t == want->w.adamw.t, "%s: t is %d, want %d", when, got->w.adamw.t,
          want->w.adamw.t);
}

static void resume_body(const Rank *r, void *arg)
{
    const Case *c = arg;
    Training whole, stopped, resumed, other;
    CheckpointPosition position = {.step = STOP, .data_seed = 7};
    Case bf16 = *c;
    bf16.policy = &BF16;
    begin(&whole, c, r);
    begin(&stopped, c, r);
    for (int i = 0; i < STEPS; i++) step(&whole, c, r, i);
    for (int i = 0; i < STOP; i++) step(&stopped, c, r, i);
    position.loss_scale = stopped.scaler.scale;
    position.growth_tracker = stopped.scaler.growth_tracker;
    check(position.loss_scale == 512.0f && position.growth_tracker == 1, "the test's scale is %g",
          (double)position.loss_scale);
    need(checkpoint_save(dir, stopped.w.model, &stopped.w.adamw, &position));

    begin(&resumed, c, r);
    position = (CheckpointPosition){.step = 0};
    need(checkpoint_load(dir, resumed.w.model, &resumed.w.adamw, &position));
    check(position.loss_scale == 512.0f && position.growth_tracker == 1,
          "the loss scale 512 and the tracker 1 came back as %g and %d",
          (double)position.loss_scale, position.growth_tracker);
    resumed.scaler.scale = position.loss_scale;
    resumed.scaler.growth_tracker = position.growth_tracker;
    for (int i = STOP; i < STEPS; i++) step(&resumed, c, r, i);
    check(resumed.scaler.scale == whole.scaler.scale, "the scale is %g, want %g",
          (double)resumed.scaler.scale, (double)whole.scaler.scale);
    check_same(&resumed, &whole, "resumed in fp16");

    begin(&other, &bf16, r);
    need(checkpoint_load(dir, other.w.model, &other.w.adamw, &position));
    check_same(&other, &stopped, "loaded in bf16");
    end(&other, r);
    end(&resumed, r);
    end(&stopped, r);
    end(&whole, r);
}

TEST(a_resume_goes_on_as_if_nothing_was)
{
    char folder[PATH_BYTES];
    make_folder(folder);
    snprintf(dir, sizeof dir, "%s/model", folder);
    Case c = case_of(spec_mlp(3), STRATEGY_ZERO3, 3, 1, 1);
    c.policy = &FP16;
    run_ranks(3, resume_body, &c);
    remove_folder(folder);
}

static void no_scale_body(Wrapped *w, const Case *c, const Rank *r)
{
    CheckpointPosition position = {.step = 1};
    need(checkpoint_save(dir, w->model, NULL, &position));
    position = (CheckpointPosition){.step = 9, .loss_scale = 3.0f, .growth_tracker = 4};
    need(checkpoint_load(dir, w->model, NULL, &position));
    check(position.step == 1 && position.loss_scale == 0.0f && position.growth_tracker == 0,
          "without a loss scale the position has %g", (double)position.loss_scale);
}

TEST(without_a_scale_there_is_none)
{
    char folder[PATH_BYTES], path[PATH_BYTES + 32], text[512];
    make_folder(folder);
    snprintf(dir, sizeof dir, "%s/model", folder);
    Case c = case_of(spec_mlp(2), STRATEGY_ZERO3, 1, 1, 1);
    run_wrapped(1, no_scale_body, &c);
    snprintf(path, sizeof path, "%s/index.json", dir);
    FILE *file = fopen(path, "r");
    if (file == NULL) fail_msg("%s cannot be opened", path);
    size_t n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[n] = '\0';
    if (strstr(text, "loss_scale") != NULL) fail_msg("an index without a scale names one");
    remove_folder(folder);
}

SUITE_MAIN("precision")
