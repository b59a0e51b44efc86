/* costs.c: the tables of lab 7's handout, computed again: what the strategies cost beside a
 * pipeline, and its bubble. Each line that is measured here must be in the handout.
 *
 * COSTS_PRINT=1 prints the lines.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bubble.h"
#include "harness.h"
#include "pipeline.h"
#include "strategies.h"

#define HANDOUT "labs/7_pipeline/handout.md"

enum { WORLD = 8, MICRO_BATCHES = 32, BLOCKS = 8 };

// A line of the table: 32 micro-batches on 8 ranks.
typedef struct Line {
    const char *name;
    Strategy strategy;
    int stages, replicas;
    PipelineKind kind;
} Line;

static const Line LINES[] = {
    {"DDP", STRATEGY_DDP, 1, 8, PIPELINE_GPIPE},
    {"ZeRO-1", STRATEGY_ZERO1, 1, 1, PIPELINE_GPIPE},
    {"ZeRO-2", STRATEGY_ZERO2, 1, 1, PIPELINE_GPIPE},
    {"ZeRO-3", STRATEGY_ZERO3, 1, 1, PIPELINE_GPIPE},
    {"HSDP, ZeRO-3", STRATEGY_ZERO3, 1, 2, PIPELINE_GPIPE},
    {"GPipe, ZeRO-1", STRATEGY_ZERO1, 2, 1, PIPELINE_GPIPE},
    {"1F1B, ZeRO-1", STRATEGY_ZERO1, 2, 1, PIPELINE_1F1B},
    {"1F1B, ZeRO-3", STRATEGY_ZERO3, 2, 1, PIPELINE_1F1B},
    {"1F1B, ZeRO-1", STRATEGY_ZERO1, 4, 1, PIPELINE_1F1B},
    {"1F1B, one rank each", STRATEGY_ZERO1, 8, 1, PIPELINE_1F1B},
};

// Of a rank.
typedef struct Cost {
    size_t held, params, grads, activations; // bytes
    uint64_t collectives, messages;          // calls
    uint64_t sent, sent_on;                  // bytes: in collectives, to other stages
} Cost;

typedef struct Job {
    const Line *line;
    Cost cost[WORLD];
} Job;

static Spec spec_of(void)
{
    return (Spec){
        .gpt2 = true, .layers = BLOCKS, .B = 1, .T = 8, .dim = 32, .heads = 2, .vocab = 64};
}

static void run_serial(const Spec *spec, NnRun *run, Module *model, const Batch *batch, int n)
{
    for (int k = 0; k < n; k++) {
        need(strategy_micro_batch(model, k, n));
        train_batch(spec, run, model, batch);
    }
}

static Cost cost_since(uint64_t first, int device)
{
    Cost cost = {.held = gpulog_live_bytes(device),
                 .params = case_peak(first, GPU_UNSHARDED_PARAM),
                 .grads = case_peak(first, GPU_UNSHARDED_GRAD),
                 .activations = case_peak(first, GPU_ACTIVATION)};
    for (uint64_t i = first; i < gpulog_length(); i++) {
        GpuLogEntry e;
        if (!gpulog_get(i, &e) || e.collective.comm == 0) continue;
        bool message = e.op == GPU_SEND || e.op == GPU_RECV;
        if (message)
            cost.messages += e.op == GPU_SEND;
        else
            cost.collectives++;
        if (message)
            cost.sent_on += e.sent;
        else
            cost.sent += e.sent;
    }
    return cost;
}

static void body(const Rank *r, void *arg)
{
    Job *job = arg;
    const Line *line = job->line;
    int n = MICRO_BATCHES * line->stages / r->world;
    Case c = case_of(spec_of(), line->strategy, r->world, line->replicas, n);
    Wrapped w;
    MicroBatch batches[MICRO_BATCHES];
    Batch batch = batch_create(&c.spec, 1);
    size_t before = gpulog_live_bytes(r->device);
    c.options = (StrategyOptions){.strategy = line->strategy};
    c.stages = line->stages > 1 ? line->stages : 0;
    c.kind = line->kind;
    case_wrap(&w, &c, r);
    for (int k = 0; k < n; k++) batches[k] = (MicroBatch){batch.in, batch.targets, c.spec.B};
    uint64_t first = gpulog_length();
    if (w.pipeline != NULL)
        need(pipeline_step(w.pipeline, &w.run, batches, 1.0f, NULL));
    else
        run_serial(&c.spec, &w.run, w.model, &batch, n);
    need_cuda(cudaDeviceSynchronize());
    job->cost[r->rank] = cost_since(first, r->device);
    job->cost[r->rank].held -= before;
    case_unwrap(&w, r);
    batch_destroy(&batch);
}

static char *handout(void)
{
    enum { MOST = 1 << 16 };
    char *text = calloc(MOST + 1, 1);
    FILE *file = fopen(HANDOUT, "r");
    assert_true(text != NULL && file != NULL);
    assert_true(fread(text, 1, MOST, file) > 0);
    fclose(file);
    return text;
}

static void must_be_there(const char *text, const char *line)
{
    if (getenv("COSTS_PRINT") != NULL) {
        print_message("%s\n", line);
        return;
    }
    if (strstr(text, line) == NULL)
        fail_msg(HANDOUT " has not the line that was measured: %s", line);
}

#define MAX(a, b) ((a) > (b) ? (a) : (b))

TEST(costs_are_the_handouts)
{
    needs_ranks(WORLD);
    char *text = handout();
    Job *job = shared_alloc(sizeof *job);
    for (size_t i = 0; i < sizeof LINES / sizeof LINES[0]; i++) {
        const Line *l = job->line = &LINES[i];
        Cost most = {0};
        char line[256];
        run_ranks(WORLD, body, job);
        for (int r = 0; r < WORLD; r++) {
            const Cost *c = &job->cost[r];
            most.held = MAX(most.held, c->held);
            most.params = MAX(most.params, c->params);
            most.grads = MAX(most.grads, c->grads);
            most.activations = MAX(most.activations, c->activations);
            most.collectives = MAX(most.collectives, c->collectives);
            most.messages = MAX(most.messages, c->messages);
            most.sent = MAX(most.sent, c->sent);
            most.sent_on = MAX(most.sent_on, c->sent_on);
        }
        int n = MICRO_BATCHES * l->stages / WORLD;
        snprintf(line, sizeof line,
                 "| %s | %d × %d × %d | %d | %zu | %zu | %zu | %zu | %llu, %llu | %llu, %llu |",
                 l->name, l->stages, WORLD / l->stages / l->replicas, l->replicas, n, most.held,
                 most.params, most.grads, most.activations, (unsigned long long)most.collectives,
                 (unsigned long long)most.sent, (unsigned long long)most.messages,
                 (unsigned long long)most.sent_on);
        must_be_there(text, line);
    }
    free(text);
}

TEST(bubbles_are_the_handouts)
{
    static const int SHAPES[][2] = {{2, 4}, {2, 16}, {4, 4}, {4, 8}, {4, 16}};
#ifdef BACKEND_CUDA
    skip(); // the log knows no FLOP of these kernels: their times are others
#endif
    char *text = handout();
    for (size_t i = 0; i < sizeof SHAPES / sizeof SHAPES[0]; i++) {
        int p = SHAPES[i][0], n = SHAPES[i][1];
        double gpipe, equal, gpt2;
        char line[128];
        if (!bubble_of(BUBBLE_EQUAL, PIPELINE_GPIPE, p, n, &gpipe)) break;
        if (!bubble_of(BUBBLE_EQUAL, PIPELINE_1F1B, p, n, &equal)) break;
        if (!bubble_of(BUBBLE_GPT2, PIPELINE_1F1B, p, n, &gpt2)) break;
        snprintf(line, sizeof line, "| %d | %d | %.1f %% | %.1f %% | %.1f %% | %.1f %% |", p, n,
                 100.0 * bubble_ideal(p, n), 100.0 * gpipe, 100.0 * equal, 100.0 * gpt2);
        must_be_there(text, line);
    }
    free(text);
}

SUITE_MAIN("costs")
