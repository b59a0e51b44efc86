// tests.h: what the files of this suite share.
#ifndef LAB_PIPELINE_TESTS_H
#define LAB_PIPELINE_TESTS_H

#include "harness.h"
#include "pipeline.h"
#include "strategies.h"

static const PipelineKind KINDS[] = {PIPELINE_GPIPE, PIPELINE_1F1B};

const char *kind_name(PipelineKind kind);
// ZeRO-3 within each of the stages, n micro-batches, two steps.
Case cut_of(Spec spec, int stages, int n, PipelineKind kind);
// run_case, and what is sent of tied parameters.
void run_cut(int world, Case *c);

// tests_costs.c
void check_tied_bytes(Wrapped *w, const Case *c, const Rank *r, int step);

// tests_failures.c
double sum_of_ranks(const Rank *r, double own);
void rule_sizes_beyond_32_bits(void);
void rule_received_buffers_go_first(void);
void rule_a_failed_step_is_told(void);
void rule_without_a_world(void);
void rule_norms_of_ties_and_nans(void);

#endif
