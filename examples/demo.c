/* demo.c: what FSDP is for, to be watched: ranks that train one small GPT-2 together.
 *
 * Without a file it learns to add numbers of two digits, and shows how many of the sums that were
 * kept out of the training it gets right (include/sums.h). With files it learns their text, as
 * train_gpt2 does, and writes some at the end. Then it compares what FSDP did with what it should
 * have: the loss with an unsharded run's, memory and traffic with the formulas (demo/compare.h).
 * Where something differs the exit status is 1.
 *
 * Usage: build/bin/launch -n 4 build/bin/demo [options] [FILE…]. Every rank runs it. The same seed
 * gives the same training; `make demo` links it with the student's files.
 */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/generate.h"
#include "common/last_words.h"
#include "common/options.h"
#include "common/step_time.h"
#include "common/trainer.h"
#include "demo/compare.h"
#include "demo/screen.h"
#include "demo/source.h"

enum { SUMS_BATCH = 256, TEXT_BATCH = 8 }; // sequences per step, of all ranks together
enum { SCORES = 20 };

typedef struct Demo {
    Trainer trainer;
    Source source;
    Screen screen;
    Measured measured;
    StepTime step_time;    // of the last step
    int batch;             // sequences per step, of all ranks
    int sample;            // bytes of text to write at the end
    uint64_t seed;         // of weights and data
    int32_t *in, *targets; // host: (B·T) each
    char **files;
    int n_files;
} Demo;

// ---- Command line ----

static void usage(FILE *out, const char *program)
{
    fprintf(out,
            "usage: %s [options] [FILE…]   (start it with build/bin/launch -n RANKS)\n"
            "  --steps N   training steps (600 for sums, 700 for text)\n"
            "  --batch N   sequences per step, of all ranks together (256 for sums, 8 for text)\n"
            "  --lr X      largest learning rate (1e-3 for sums, 1.5e-3 for text)\n"
            "  --layers N  blocks (4, 6)      --heads N  attention heads (4, 8)\n"
            "  --dim N     width (128, 256)   --seed N   of weights and data (42)\n"
            "  --sample N  bytes to write at the end, where it learns text (240)\n",
            program);
}

// The models: a small one for sums; for text that of train_gpt2.
static void set_defaults(Demo *d, bool sums)
{
    d->trainer.opt = (TrainerOptions){
        .model = sums
                     ? (Gpt2Config){.vocab = SUMS_VOCAB,
                                    .max_T = SUMS_T,
                                    .layers = 4,
                                    .heads = 4,
                                    .dim = 128}
                     : (Gpt2Config){.vocab = 256, .max_T = 64, .layers = 6, .heads = 8, .dim = 256},
        .adamw = {.lr = sums ? 1e-3f : 1.5e-3f,
                  .beta1 = 0.9f,
                  .beta2 = sums ? 0.98f : 0.95f,
                  .eps = 1e-8f,
                  .weight_decay = sums ? 0.01f : 0.1f},
        .T = sums ? SUMS_T : 64,
        .steps = sums ? 600 : 700,
        .clip = 1.0f,
    };
    d->batch = sums ? SUMS_BATCH : TEXT_BATCH;
    d->sample = 240;
}

static Status parse_options(int argc, char **argv, Demo *d)
{
    int seed = 42, rest;
    bool help;
    TrainerOptions *o = &d->trainer.opt;
    const Option options[] = {
        {"steps", OPTION_INT, &o->steps, 1, NULL, NULL},
        {"batch", OPTION_INT, &d->batch, 1, NULL, NULL},
        {"lr", OPTION_FLOAT, &o->adamw.lr, 0, NULL, NULL},
        {"layers", OPTION_INT, &o->model.layers, 1, NULL, NULL},
        {"heads", OPTION_INT, &o->model.heads, 1, NULL, NULL},
        {"dim", OPTION_INT, &o->model.dim, 1, NULL, NULL},
        {"seed", OPTION_INT, &seed, 0, NULL, NULL},
        {"sample", OPTION_INT, &d->sample, 0, NULL, NULL},
    };
    const int n = sizeof options / sizeof options[0];
    // What the defaults are is known when all options have been passed over: the files come last.
    TRY(options_parse(options, n, argc, argv, &rest, &help));
    d->files = argv + rest;
    d->n_files = argc - rest;
    set_defaults(d, rest == argc);
    optind = 0; // once more, from the start
    TRY(options_parse(options, n, argc, argv, &rest, &help));
    if (help) {
        usage(stdout, argv[0]);
        exit(0);
    }
    d->seed = o->seed = (uint64_t)seed;
    return OK;
}

// What can be wrong with the input: the options, the text, the model's sizes. No device is touched.
static Status read_input(Demo *d, int argc, char **argv)
{
    Trainer *t = &d->trainer;
    TRY(parse_options(argc, argv, d));
    // Every rank has as many sequences; with 3 ranks the batch is a little larger.
    t->opt.B = (d->batch + t->world.size - 1) / t->world.size;
    TRY(d->n_files == 0 ? source_sums(&d->source)
                        : source_text(&d->source, d->files, d->n_files, t->opt.T));
    size_t rows = (size_t)t->opt.B * (size_t)t->opt.T;
    d->in = malloc(2 * rows * sizeof *d->in);
    d->targets = d->in + rows;
    if (d->in == NULL) return fail(ERR_MEMORY, "no host memory for a batch of %zu tokens", rows);
    t->model = gpt2_create(&t->opt.model);
    return t->model == NULL ? ERR_ARGUMENT : OK;
}

// ---- Training ----

static Status show_score(Demo *d, int step, float loss)
{
    const Source *source = &d->source;
    Score score;
    char summary[40], more[104];
    TRY(source_score(source, &d->trainer, &score));
    if (d->trainer.world.rank != 0) return OK;
    double value = source->sums ? (double)score.right / score.n : (double)score.loss;
    if (source->sums) {
        snprintf(summary, sizeof summary, "%4d of %d right", score.right, score.n);
        snprintf(more, sizeof more, "%s   %s   %s", score.example[0], score.example[1],
                 score.example[2]);
    } else {
        snprintf(summary, sizeof summary, "held-out loss %.4f", value);
        snprintf(more, sizeof more, "(from byte frequencies only: %.4f)",
                 text_frequency_loss(&source->text));
    }
    screen_score(&d->screen, step, loss, value, summary, more);
    return OK;
}

static Status train_step(Demo *d, int step, float *loss)
{
    Trainer *t = &d->trainer;
    source_batch(&d->source, d->seed, step, t->world.rank * t->opt.B, t->opt.B, t->opt.T, d->in,
                 d->targets);
    bool last = step == t->opt.steps;
    if (last) TRY(step_time_begin(&d->step_time, t->stream));
    measure_begin(t);
    TRY(trainer_step(t, step, d->in, d->targets, loss));
    measure_end(&d->measured, t);
    if (last) TRY(step_time_end(&d->step_time, t->stream));
    return OK;
}

static Status train(Demo *d)
{
    Trainer *t = &d->trainer;
    int steps = t->opt.steps, every = steps < SCORES ? 1 : steps / SCORES;
    float loss = 0.0f;
    if (t->world.rank == 0)
        screen_open(&d->screen,
                    d->source.sums ? "right answers to the sums that were kept out of the training"
                                   : "loss on held-out text, in nats per byte",
                    d->source.sums ? 0.0 : 6.0, steps);
    TRY(show_score(d, 0, loss));
    for (int step = 1; step <= steps; step++) {
        TRY(train_step(d, step, &loss));
        bool score = step % every == 0 || step == steps;
        // The mean costs a message, and is of use in the first steps and where it is shown.
        if (step <= COMPARE_STEPS || score) TRY(mean_over_ranks(t, &loss));
        if (step <= COMPARE_STEPS) d->measured.loss[step - 1] = loss;
        if (score)
            TRY(show_score(d, step, loss));
        else if (t->world.rank == 0)
            screen_step(&d->screen, step, loss);
    }
    return OK;
}

static void introduce(const Demo *d)
{
    const Trainer *t = &d->trainer;
    int W = t->world.size;
    printf("FSDP on %d GPU%s: a GPT-2 of %lld parameters, %d layer%s, width %d.\n", W,
           W == 1 ? "" : "s", (long long)meta_count(t->model), t->opt.model.layers,
           t->opt.model.layers == 1 ? "" : "s", t->opt.model.dim);
    if (d->source.sums)
        printf(
            "It learns to add two numbers of two digits. Its answers begin with the units, as\n"
            "one adds on paper. %d sums per step, %d per GPU; %d sums are kept out of the\n"
            "training. How many of those does it get right? (In brackets: the right answer.)\n\n",
            t->opt.B * W, t->opt.B, d->source.n_held);
    else
        printf(
            "It learns %zu bytes of text, of which the last tenth is held out; %d sequences of %d\n"
            "bytes per step, %d per GPU.\n\n",
            d->source.text.length, t->opt.B * W, t->opt.T, t->opt.B);
    fflush(stdout);
}

static Status run(Demo *d)
{
    Trainer *t = &d->trainer;
    TRY(world_connect(&t->world, &t->comm));
    TRY(trainer_create(t));
    if (t->world.rank == 0) introduce(d);
    TRY(train(d));
    if (!d->source.sums && d->sample > 0) TRY(sample_text(t, d->sample));
    TRY(compare_all(t, &d->source, d->seed, &d->measured));
    if (t->world.rank == 0) step_time_print(&d->step_time);
    TRY(trainer_destroy(t));
    return world_disconnect(t->comm);
}

int main(int argc, char **argv)
{
    static Demo demo;
    World *world = &demo.trainer.world;
    if (world_from_env(world) != OK) return 2;

    // Every rank reads the same input: what is wrong with it, rank 0 says for all.
    check_set_silent(world->rank != 0);
    opterr = world->rank == 0;
    if (read_input(&demo, argc, argv) != OK) return 2;
    check_set_silent(false);

    check_set_rank(world->size > 1 ? world->rank : -1);
    last_words_watch(world->rank);
    if (world->rank == 0) last_words_mark("started");
    Status status = run(&demo);
    if (world->rank == 0 && status == OK) last_words_mark("done");
    free(demo.in);
    source_free(&demo.source);
    return status == OK ? 0 : 1;
}
