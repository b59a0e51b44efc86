/* Lab 3, prefetch: what a second unit ahead hides on a modelled machine.
 */
#include <stdio.h>
#include <stdlib.h>

#include "harness.h"
#include "machine_file.h"
#include "schedule.h"
#include "strategies.h"

// ---- What a second unit ahead hides ----

// Nothing but products and collectives takes time, and nothing slows anything.
static const char MACHINE[] = SLOW_MACHINE "hbm 20000 GB/s\n"
                                           "nvlink 0.8 GB/s\n"
                                           "pcie 50 GB/s\n"
                                           "nic 0.8 GB/s\n"
                                           "kernel 2 ns\n"
                                           "copy 2 ns\n"
                                           "launch 1 ns\n"
                                           "collective 1 ns\n"
                                           "enqueue 1 ns\n"
                                           "allocate 1 ns\n"
                                           "free 1 ns\n"
                                           "pin 20 ns\n"
                                           "sync 2 ns\n"
                                           "query 2 ns\n"
                                           "wake 20 ns\n"
                                           "latency 2 ns\n";

enum { BLOCKS = 6, WIDTH = 32, ROWS = 16, CLOCK_WORLD = 4 };
static const int LAYERS[BLOCKS] = {1, 4, 1, 4, 1, 4}; // of each block, of one size

typedef struct Timed {
    PrefetchOptions options;
    int begin, loss, end; // entries: of the forward, between the passes, of the end
    TimesLog log;
} Timed;

static Module *stack(void)
{
    Module *blocks[BLOCKS + 1];
    char name[32];
    for (int i = 0; i < BLOCKS; i++) {
        Module *layers[4];
        for (int j = 0; j < LAYERS[i]; j++) {
            snprintf(name, sizeof name, "l.%d.%d", i, j);
            layers[j] = linear_create(name, WIDTH, WIDTH, false, 0.02f);
        }
        snprintf(name, sizeof name, "l.%d", i);
        blocks[i] = sequence_create(name, LAYERS[i], layers);
    }
    blocks[BLOCKS] = linear_create("last", WIDTH, WIDTH, false, 0.02f);
    return sequence_create("model", BLOCKS + 1, blocks);
}

static void timed_body(const Rank *r, void *arg)
{
    Timed *t = (Timed *)arg + r->rank;
    FsdpOptions fsdp = {.seed = 42};
    StrategyOptions strategy = {.strategy = STRATEGY_ZERO3};
    Spec spec = {.B = ROWS, .T = 1, .in_dim = WIDTH, .dim = WIDTH, .vocab = WIDTH};
    NnRun run;
    Mesh mesh;
    FsdpContext ctx;
    Module *model = stack();
    need(nn_run_create(&run, r->stream));
    need(mesh_2d(&mesh, r->comm, 1));
    need(fsdp_context_create(&ctx, &mesh, r->stream));
    for (int i = 0; i < BLOCKS; i++) need(fully_shard(model->children[i], &ctx, &fsdp));
    need(fully_shard(model, &ctx, &fsdp));
    need(strategy_apply(model, &strategy));
    need(prefetch_apply(model, &t->options));
    Batch batch = batch_create(&spec, 1);
    need_cuda(cudaDeviceSynchronize());
    t->begin = (int)gpulog_length();
    train_batch(&spec, &run, model, &batch);
    need_cuda(cudaDeviceSynchronize());
    t->end = (int)gpulog_length();
    t->loss = (int)gpulog_find(GPU_KERNEL, "kernel_cross_entropy", (uint64_t)t->begin);
    times_copy(&t->log);
    batch_destroy(&batch);
    need(prefetch_remove(model));
    need(strategy_remove(model));
    fsdp_unwrap(model);
    module_destroy(model);
    need(fsdp_context_destroy(&ctx));
    need(mesh_destroy(&mesh, r->comm));
    need(nn_run_destroy(&run));
}

static double later(double a, double b)
{
    return a > b ? a : b;
}

// By hand, in a layer's all-gather (g) as the unit: a layer's forward takes `c`, its backward twice
// that, its reduce-scatter as long as its all-gather. What is exposed of a pass.
static double forward_by_hand(double c, int depth)
{
    double gathered = 1, done[BLOCKS + 1], computed = 0, all = 0; // the root's own layer first
    for (int i = 0; i < BLOCKS; i++) {
        int freed = i - 1 - (depth > 0 ? depth : 1); // whose buffer is freed before this all-gather
        gathered = later(gathered, freed >= 0 ? done[freed] : 0) + LAYERS[i];
        computed = done[i] = later(computed, gathered) + c * LAYERS[i];
        all += c * LAYERS[i];
    }
    return computed - all;
}

static double backward_by_hand(double c, int depth)
{
    double there[BLOCKS] = {0}, wire = 0, at = 0, all = 2 * c; // the root's backward begins
    for (int i = BLOCKS - 1; i >= BLOCKS - depth && i >= 0; i--) there[i] = wire += LAYERS[i];
    at = 2 * c; // the root's own layer
    for (int i = BLOCKS - 1; i >= 0; i--) {
        if (there[i] == 0) there[i] = wire = later(wire, at) + LAYERS[i];
        double begins = later(at, there[i]);
        if (depth > 0 && i - depth >= 0)
            there[i - depth] = wire = later(wire, at) + LAYERS[i - depth];
        at = begins + 2 * c * LAYERS[i];
        all += 2 * c * LAYERS[i];
        wire = later(wire, at) + LAYERS[i];
    }
    return later(wire + 1, at) - all; // the root's reduction is the last
}

// Exposed of the ranks' passes, in microseconds, at most. False: this backend has no times.
static bool measure(PrefetchOptions options, double exposed[2], double *layer, double *c)
{
    Timed *t = shared_alloc(CLOCK_WORLD * sizeof *t);
    Times *times = calloc((size_t)CLOCK_WORLD * TIMES_MOST, sizeof *times);
    TimesLog *logs = calloc(CLOCK_WORLD, sizeof *logs);
    assert_true(times != NULL && logs != NULL);
    for (int i = 0; i < CLOCK_WORLD; i++) t[i].options = options;
    run_ranks(CLOCK_WORLD, timed_body, t);
    for (int i = 0; i < CLOCK_WORLD; i++) logs[i] = t[i].log;
    const char *wrong = times_replay(machine_file(MACHINE), logs, CLOCK_WORLD, times);
    if (wrong != NULL && times_are_known()) fail_msg("the ranks' logs cannot be timed: %s", wrong);
    exposed[0] = exposed[1] = 0;
    for (int i = 0; i < CLOCK_WORLD && wrong == NULL; i++) {
        const Times *own = times + (size_t)i * TIMES_MOST;
        Schedule s[2] = {schedule_of(&logs[i], own, t[i].begin, t[i].loss),
                         schedule_of(&logs[i], own, t[i].loss, t[i].end)};
        int layers = 1;
        for (int b = 0; b < BLOCKS; b++) layers += LAYERS[b];
        *layer = (double)s[0].communication / 1e6 / layers;
        *c = (double)s[0].compute / (double)s[0].communication;
        for (int p = 0; p < 2; p++) exposed[p] = later(exposed[p], (double)s[p].exposed / 1e6);
    }
    free(times);
    free(logs);
    return wrong == NULL;
}

TEST(two_ahead_hide_what_one_cannot)
{
    needs_ranks(CLOCK_WORLD);
    static const char *const PASS[] = {"forward", "backward"};
    static const double HANDOUT[4][2] = {{8, 31}, {8, 10}, {4, 2}, {4, 2}}; // ms, its table
    double hand[4][2];
    for (int depth = 0; depth < 4; depth++)
        if (forward_by_hand(2, depth) != HANDOUT[depth][0] ||
            backward_by_hand(2, depth) != HANDOUT[depth][1])
            fail_msg("%d units ahead: by hand %g and %g ms, in the handout %g and %g", depth,
                     forward_by_hand(2, depth), backward_by_hand(2, depth), HANDOUT[depth][0],
                     HANDOUT[depth][1]);
    for (int depth = 1; depth <= 3; depth++) {
        double got[2], layer = 0, c = 0;
        PrefetchOptions o = {depth, depth, 0};
        if (!measure(o, got, &layer, &c)) skip();
        hand[depth][0] = layer * forward_by_hand(c, depth);
        hand[depth][1] = layer * backward_by_hand(c, depth);
        for (int p = 0; p < 2; p++)
            if (got[p] > 1.05 * hand[depth][p])
                fail_msg("%d units ahead, in the %s %s of communication are exposed on a "
                         "modelled machine, by hand %s: large units follow small ones, and what "
                         "is queued %s ahead can be hidden by the large one before",
                         depth, PASS[p], time_words(got[p]), time_words(hand[depth][p]),
                         depth > 1 ? "two" : "one");
    }
    for (int p = 0; p < 2; p++) assert_true(hand[2][p] < 0.6 * hand[1][p]);
}
