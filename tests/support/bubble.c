/* bubble.c: the bubble of a pipeline, by the logs of its ranks. See bubble.h.
 *
 * On this machine a product of matrices takes time and hardly anything else does, so a stage of
 * equal layers takes as long as any other.
 */
#include "bubble.h"

#include <stdio.h>
#include <stdlib.h>

#include "harness.h"
#include "machine_file.h"
#include "strategies.h"
#include "times.h"

enum { MOST_STAGES = 4, MOST_BATCHES = 16, DIM = 128, ROWS = 64 };

static const char MACHINE[] = SLOW_MACHINE "hbm 100000 GB/s\n"
                                           "nvlink 1000000 GB/s\n"
                                           "pcie 1000000 GB/s\n"
                                           "nic 1000000 GB/s\n"
                                           "kernel 0 ns\n"
                                           "copy 0 ns\n"
                                           "launch 0 ns\n"
                                           "collective 0 ns\n"
                                           "enqueue 0 ns\n"
                                           "allocate 0 ns\n"
                                           "free 0 ns\n"
                                           "pin 0 ns\n"
                                           "sync 0 ns\n"
                                           "query 0 ns\n"
                                           "wake 0 ns\n"
                                           "latency 0 ns\n";

typedef struct Job {
    BubbleModel model;
    PipelineKind kind;
    int n;
    struct Run {
        int begin, end; // entries of the step
        TimesLog log;
    } run[MOST_STAGES];
} Job;

// Four equal layers on each stage.
static Module *equal_layers(const Spec *spec)
{
    Module *children[4 * MOST_STAGES];
    for (int i = 0; i < spec->layers; i++) {
        char name[16];
        snprintf(name, sizeof name, "l.%d", i);
        children[i] = linear_create(name, DIM, DIM, false, 0.1f);
    }
    return sequence_create("equal", spec->layers, children);
}

static Spec spec_of(BubbleModel model, int stages)
{
    if (model == BUBBLE_GPT2)
        return (Spec){
            .gpt2 = true, .layers = 8, .B = 2, .T = 16, .dim = 32, .heads = 2, .vocab = 96};
    return (Spec){.layers = 4 * stages,
                  .B = ROWS,
                  .T = 1,
                  .in_dim = DIM,
                  .dim = DIM,
                  .vocab = DIM,
                  .create = equal_layers};
}

static void body(const Rank *r, void *arg)
{
    Job *job = arg;
    Case c = case_of(spec_of(job->model, r->world), STRATEGY_ZERO3, r->world, 1, job->n);
    Wrapped w;
    MicroBatch batches[MOST_BATCHES];
    Batch batch = batch_create(&c.spec, 1);
    c.stages = r->world;
    c.kind = job->kind;
    case_wrap(&w, &c, r);
    for (int k = 0; k < job->n; k++) batches[k] = (MicroBatch){batch.in, batch.targets, c.spec.B};
    job->run[r->rank].begin = (int)gpulog_length();
    need(pipeline_step(w.pipeline, &w.run, batches, 1.0f, NULL));
    need_cuda(cudaDeviceSynchronize());
    job->run[r->rank].end = (int)gpulog_length();
    times_copy(&job->run[r->rank].log);
    batch_destroy(&batch);
    case_unwrap(&w, r);
}

// The idle share, from the times of all entries.
static double judge(const Job *job, int stages, const Times *times)
{
    int64_t first = INT64_MAX, last = 0, busy = 0;
    for (int i = 0; i < stages; i++) {
        const struct Run *run = &job->run[i];
        for (int k = run->begin; k < run->end && k < run->log.n; k++) {
            GpuOp op = run->log.entry[k].op;
            const Times *t = &times[(size_t)i * TIMES_MOST + (size_t)k];
            if (op != GPU_BLAS && op != GPU_KERNEL) continue;
            if (t->begin < first) first = t->begin;
            if (t->end > last) last = t->end;
            busy += t->end - t->begin;
        }
    }
    return 1.0 - (double)busy / ((double)stages * (double)(last - first));
}

double bubble_ideal(int stages, int n)
{
    return (double)(stages - 1) / (double)(n + stages - 1);
}

bool bubble_of(BubbleModel model, PipelineKind kind, int stages, int n, double *idle)
{
    if (!ranks_fit(stages)) return false;
    Job *job = shared_alloc(sizeof *job);
    Times *times = calloc((size_t)MOST_STAGES * TIMES_MOST, sizeof *times);
    TimesLog *logs = calloc(MOST_STAGES, sizeof *logs);
    assert_true(times != NULL && logs != NULL);
    assert_true(stages <= MOST_STAGES && n <= MOST_BATCHES);
    job->model = model; // not as a whole: 32 MB would lie on the stack first
    job->kind = kind;
    job->n = n;
    run_ranks(stages, body, job);
    for (int i = 0; i < stages; i++) logs[i] = job->run[i].log;
    const char *wrong = times_replay(machine_file(MACHINE), logs, stages, times);
    if (wrong != NULL && times_are_known()) fail_msg("the ranks' logs cannot be timed: %s", wrong);
    if (wrong == NULL) *idle = judge(job, stages, times);
    free(times);
    free(logs);
    return wrong == NULL;
}
