/* tests.h: what the files of this suite share, and the tests that tests_fp8.c has. tests.c has the
 * others, and the list.
 */
#ifndef LAB_PER_PARAMETER_TESTS_H
#define LAB_PER_PARAMETER_TESTS_H

#include "strategies.h"

// Rows of the first chunk of a parameter, dealt out row by row.
int64_t most_rows(int64_t rows, int world);
// What all else builds on: a test whose shards are cut in another way would look for it elsewhere.
void need_layout(void);
// case_of with layout per_parameter.
Case by_parameter(Spec spec, Strategy strategy, int world, int replicas, int rounds);
// The library refuses the case, with case_refusal's line.
void check_case_refused(int world, Case *c);
bool every_third(int i);
// A parameter's initial values.
float *values_of_param(const Param *param, int64_t numel);
// How many entries of the log have this operation (copies: on the device), and their bytes.
size_t count_since(uint64_t first, GpuOp op, size_t *bytes);

// tests_fp8.c
void codes_and_floats_share_a_message(void **state);
void one_all_reduce_finds_all_scales(void **state);
void what_is_unsharded_was_rounded(void **state);
void the_payload_is_a_quarter(void **state);
void training_in_fp8_follows_the_oracle(void **state);
void the_masters_are_saved(void **state);

#endif
