/* cost.c: what a step of training GPT-2 medium costs on eight H100s, for the line that `make grade`
 * ends with (grader/cost.py). It asserts nothing.
 *
 * The ranks run dry (simgpu/pages/dry.md): nothing is computed, and the clock is off. The cmocka
 * process, which never runs the code under test, plays their logs again on the machine. Its figures
 * go along with the test's result, where the code under test has no say: the step, compute,
 * communication, what of it is exposed, all in picoseconds of the slowest rank; then the machine's
 * peaks for floats and for TF32, in GFLOP/s.
 *
 * Interface: a test, "cost".
 */
#include <stdlib.h>
#include <string.h>

#include "schedule.h"
#include "training.h"

enum { WORLD = 8, STEPS = 2, BATCH = 8, CONTEXT = 1024, VOCAB = 50257 };
#define MACHINE "h100x8"

typedef struct Run {
    int first, end; // entries of the last step
    TimesLog log;
} Run;

// Nobody looks at the values: zeros are made fastest.
static void start_with_zeros(Module *m)
{
    for (int i = 0; i < m->n_params; i++) m->params[i]->init = INIT_ZERO;
    for (int i = 0; i < m->n_children; i++) start_with_zeros(m->children[i]);
}

static void shard(Module *model, FsdpContext *ctx)
{
    FsdpOptions options = TEST_OPTIONS;
    options.align_shards = true;
    start_with_zeros(model);
    for (int i = 0; i < model->n_children; i++)
        if (strncmp(model->children[i]->name, "h.", 2) == 0)
            need(fully_shard(model->children[i], ctx, &options));
    need(fully_shard(model, ctx, &options));
}

static void body(const Rank *r, void *arg)
{
    Run *run = (Run *)arg + r->rank;
    const Gpt2Config medium = {
        .vocab = VOCAB, .max_T = CONTEXT, .layers = 24, .heads = 16, .dim = 1024};
    const Spec spec = {.gpt2 = true, .B = BATCH, .T = CONTEXT, .vocab = VOCAB};
    FsdpContext ctx;
    FsdpAdamW adamw;
    NnRun nn;
    Module *model = gpt2_create(&medium);
    check(model != NULL, "GPT-2 medium cannot be made");
    need(nn_run_create(&nn, r->stream));
    make_context(&ctx, r);
    shard(model, &ctx);
    need(fsdp_adamw_create(&adamw, model, &ctx, &TEST_ADAMW));
    Batch batch = batch_create(&spec, 1 + (uint64_t)r->rank);
    for (int step = 0; step < STEPS; step++) {
        run->first = (int)gpulog_length();
        train_batch(&spec, &nn, model, &batch);
        need(fsdp_adamw_step(&adamw));
        need(fsdp_zero_grad(model, &ctx));
    }
    run->end = (int)gpulog_length();
    times_copy(&run->log);
    batch_destroy(&batch);
    fsdp_adamw_destroy(&adamw);
    fsdp_unwrap(model);
    need(fsdp_context_destroy(&ctx));
    need(nn_run_destroy(&nn));
    module_destroy(model);
}

static const char *find_slowest(const Run *runs, Schedule *slowest)
{
    TimesLog *logs = calloc(WORLD, sizeof *logs);
    Times *times = calloc((size_t)WORLD * TIMES_MOST, sizeof *times);
    const char *wrong = "no host memory for the logs";
    *slowest = (Schedule){0};
    if (logs != NULL && times != NULL) {
        for (int i = 0; i < WORLD; i++) logs[i] = runs[i].log;
        wrong = times_replay(MACHINE, logs, WORLD, times);
    }
    for (int i = 0; i < WORLD && wrong == NULL; i++) {
        Schedule s =
            schedule_of(&logs[i], times + (size_t)i * TIMES_MOST, runs[i].first, runs[i].end);
        if (s.step > slowest->step) *slowest = s;
    }
    free(logs);
    free(times);
    return wrong;
}

TEST(cost)
{
    Run *runs = shared_alloc(WORLD * sizeof *runs);
    Schedule s;
    int64_t peak[2];
    setenv("SIMGPU_DRY", "1", 1);
    setenv("SIMGPU_MACHINE", "none", 1);
    setenv("SIMGPU_THREADS", "1", 1);
    run_ranks(WORLD, body, runs);
    const char *wrong = find_slowest(runs, &s);
    if (wrong == NULL) wrong = times_peaks(MACHINE, peak);
    if (wrong != NULL) fail_msg("%s", wrong);
    tell_figures((const int64_t[]){s.step, s.compute, s.communication, s.exposed, peak[0], peak[1]},
                 6);
}

SUITE_MAIN("cost")
