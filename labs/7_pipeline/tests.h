// tests.h: what the files of this suite share.
#ifndef LAB_PIPELINE_TESTS_H
#define LAB_PIPELINE_TESTS_H

#include "harness.h"
#include "pipeline.h"
#include "strategies.h"

enum { MOST_RANKS = 8, MOST_BATCHES = 8, MOST_NUMEL = 1 << 15, MOST_PARAMS = 64 };

static const PipelineKind KINDS[] = {PIPELINE_GPIPE, PIPELINE_1F1B};

typedef struct Cut {
    const char *name;
    Spec spec;
    Strategy strategy;
    int stages, replicas, n, steps;
    PipelineKind kind;
    bool uneven;   // each place and micro-batch has another number of sequences
    bool tied;     // two stages share a parameter
    float clip;    // 0: gradients are not clipped
    float **grads; // shared memory: of each place
} Cut;

// One rank's part of it.
typedef struct Stage {
    NnRun run;
    PipelineMesh ranks;
    PipelineTies ties;
    Mesh mesh;
    FsdpContext ctx;
    Module *model;
    FsdpRoot *root;
    Pipeline *pipeline;
    FsdpAdamW adamw;
    MicroBatch batches[MOST_BATCHES];
    Batch memory[MOST_BATCHES];
} Stage;

// What they do is said where they are, in tests.c.
const char *kind_name(PipelineKind kind);
Cut cut_of(Spec spec, int stages, int n, PipelineKind kind);
void stage_create(Stage *s, const Cut *c, const Rank *r);
void stage_destroy(Stage *s);
float scale_of(const Cut *c);
void stage_batches(Stage *s, const Cut *c, int step);
void free_batches(Stage *s, const Cut *c);
void stage_step(Stage *s, const Cut *c, int step, float *losses);
void run_cut(int world, Cut *c);

// tests_costs.c
void check_tied_bytes(const Stage *s, uint64_t first);

#endif
