// tests.h: what the files of this suite share.
#ifndef LAB_CHECKPOINTS_TESTS_H
#define LAB_CHECKPOINTS_TESTS_H

#include "checkpoints.h"
#include "disk.h"
#include "files.h"
#include "harness.h"
#include "strategies.h"

extern char dir[PATH_BYTES + 16]; // the checkpoint of the test that runs
int dir_begin(void **state);      // makes the folder above it

// What a body is told.
typedef struct Job {
    Spec spec;
    int step;
    bool align, one_unit, without_optimizer;
    int turned; // the first parameter's shape: 1: the other way round, 2: a dimension less, 3: one
                // more, 4: a column more
    bool saves, loads;
    bool failed; // the save before this load has failed, on one rank
    Disk *disk;
} Job;
void make_model(Sharded *s, const Job *job, const Rank *r);
const FsdpAdamW *optimizer(const Sharded *s);
void save_or_load(const Rank *r, void *job);

// tests_calls.c
void rule_a_failing_call_changes_nothing(void);
void rule_each_reads_what_it_owns(void);
void rule_trainings_resume(void);

#endif
