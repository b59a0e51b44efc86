// tests.h: what the files of this suite share.
#ifndef LAB_PER_PARAMETER_TESTS_H
#define LAB_PER_PARAMETER_TESTS_H

#include "strategies.h"

enum { MOST_WORLD = 8 };

// Rows of the first chunk of a parameter, dealt out row by row.
int64_t most_rows(int64_t rows, int world);
// What all else builds on: a test whose shards are cut in another way would look for it elsewhere.
void need_chunks(void);
void need_layout(bool frozen);
// case_of with layout per_parameter.
Case by_parameter(Spec spec, Strategy strategy, int world, int replicas, int rounds);
// The library refuses the case, with case_refusal's line.
void check_case_refused(int world, Case *c);
// A parameter's initial values.
float *values_of_param(const Param *param, int64_t numel);
// How many entries of the log have this operation (copies: on the device), and their bytes.
size_t count_since(uint64_t first, GpuOp op, size_t *bytes);

// tests_failures.c
void rule_the_handouts_examples(void);
void rule_layout_beyond_32_bits(void);
void rule_copies_that_fail(void);
void rule_places_beyond_32_bits(void);
void rule_scales_of_any_number_of_units(void);
void rule_one_launch_for_each(void);
void rule_saving_changes_nothing(void);

#endif
