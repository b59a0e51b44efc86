/* settings.h: NAME=VALUE on the command line, before the values get a meaning. */
#ifndef PLAN_SETTINGS_H
#define PLAN_SETTINGS_H

#include "plan.h"

#define PLAN_SETTINGS(X)                                                                           \
    X(MODEL), X(CONFIG), X(GPUS), X(MACHINE), X(BATCH), X(SEQ), X(STRATEGY), X(DTYPE),             \
        X(REDUCE_DTYPE), X(REPLICAS), X(ACCUMULATE), X(ATTENTION), X(CLIP), X(LAYERS), X(HEADS),   \
        X(DIM), X(VOCAB), X(KV_HEADS), X(HIDDEN), X(RESHARD_RANKS), X(REDUCE), X(RECOMPUTE),       \
        X(RECOMPUTE_EVERY), X(PREFETCH), X(OFFLOAD), X(LAYOUT), X(GATHER), X(STAGES), X(SCHEDULE), \
        X(SLOW), X(JSON), X(RANKS), X(RUN), X(INIT), X(FIT), X(TIMELINE), X(ADVICE), X(V),         \
        X(EFFICIENCY), X(COMPILE), X(PRODUCTS), X(LOSS), X(GRAPH), X(REGROUP)
#define PLAN_SETTING(name) name
typedef enum PlanSetting { PLAN_SETTINGS(PLAN_SETTING), SETTINGS } PlanSetting;

// The value of each setting; NULL: not given.
typedef const char *PlanValues[SETTINGS];

// Prints one line on stderr; returns ERR_ARGUMENT.
Status plan_refuse(const char *format, ...) __attribute__((format(printf, 1, 2)));
Status plan_read(int argc, char **argv, PlanValues value);
// A whole number, from 1 or another least one; `otherwise` if it is not set.
Status plan_number(const PlanValues value, PlanSetting which, int otherwise, int *number);
Status plan_number_from(const PlanValues value, PlanSetting which, int least, int otherwise,
                        int *number);
// The index of the value among `n` words; 0 if it is not set.
Status plan_word(const PlanValues value, PlanSetting which, const char *const *words, int n,
                 int *found);

// Whether it is the second of two words; the first is the default.
Status plan_choice(const PlanValues value, PlanSetting which, const char *first, const char *second,
                   bool *is_second);

// ---- config.c ---- Sizes and name from Hugging Face's config.json; o->seq: SEQ, or 0.
Status plan_read_config(const char *path, PlanOptions *o);

// ---- lab_options.c ---- The labs' settings, and which of them exclude each other.
Status plan_read_stages(const PlanValues value, PlanOptions *o);
Status plan_read_labs(const PlanValues value, PlanOptions *o);

#endif
