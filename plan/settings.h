/* settings.h: NAME=VALUE on the command line, before it is known what the values mean. */
#ifndef PLAN_SETTINGS_H
#define PLAN_SETTINGS_H

#include "plan.h"

typedef enum PlanSetting {
    MODEL,
    CONFIG,
    GPUS,
    MACHINE,
    BATCH,
    SEQ,
    STRATEGY,
    DTYPE,
    REDUCE_DTYPE,
    REPLICAS,
    ACCUMULATE,
    ATTENTION,
    CLIP,
    LAYERS,
    HEADS,
    DIM,
    VOCAB,
    KV_HEADS,
    HIDDEN,
    RESHARD_RANKS,
    REDUCE,
    RECOMPUTE,
    PREFETCH,
    OFFLOAD,
    LAYOUT,
    GATHER,
    STAGES,
    SCHEDULE,
    SLOW,
    JSON,
    RANKS,
    RUN,
    INIT,
    FIT,
    TIMELINE,
    ADVICE,
    V,
    EFFICIENCY,
    COMPILE,
    PRODUCTS,
    LOSS,
    GRAPH,
    REGROUP,
    SETTINGS
} PlanSetting;

// Of each setting what it was given; NULL: nothing.
typedef const char *PlanValues[SETTINGS];

// One line on stderr; ERR_ARGUMENT.
Status plan_refuse(const char *format, ...) __attribute__((format(printf, 1, 2)));
Status plan_read(int argc, char **argv, PlanValues value);
// A whole number, from 1 on or from another; `otherwise` where it is not set.
Status plan_number(const PlanValues value, PlanSetting which, int otherwise, int *number);
Status plan_number_from(const PlanValues value, PlanSetting which, int least, int otherwise,
                        int *number);
// The place of the value among `n` words; 0 where it is not set.
Status plan_word(const PlanValues value, PlanSetting which, const char *const *words, int n,
                 int *found);

// ---- config.c ---- Sizes and name from a config.json of Hugging Face's; o->seq: of SEQ, or 0.
Status plan_read_config(const char *path, PlanOptions *o);

// ---- lab_options.c ---- What the labs add, and what that does not go with.
Status plan_read_stages(const PlanValues value, PlanOptions *o);
Status plan_read_labs(const PlanValues value, PlanOptions *o);

#endif
