// tests.h: what the files of this suite share.
#ifndef LAB_MIXED_PRECISION_TESTS_H
#define LAB_MIXED_PRECISION_TESTS_H

#include "harness.h"
#include "narrow.h"
#include "precision.h"
#include "strategies.h"

static const DType F32 = DTYPE_F32, BF16 = DTYPE_BF16, F16 = DTYPE_F16;

static const Strategy ALL[] = {STRATEGY_DDP, STRATEGY_ZERO1, STRATEGY_ZERO2, STRATEGY_ZERO3};
static const DType PAIRS[][2] = {{DTYPE_BF16, DTYPE_F32}, {DTYPE_BF16, DTYPE_BF16},
                                 {DTYPE_F16, DTYPE_F32},  {DTYPE_F16, DTYPE_F16},
                                 {DTYPE_F32, DTYPE_BF16}, {DTYPE_F32, DTYPE_F32}};
enum { N_PAIRS = sizeof PAIRS / sizeof PAIRS[0] };

// The policy of these types; floats go in and come out.
static inline const MixedPrecisionPolicy *policy_of(DType param, DType reduce)
{
    static MixedPrecisionPolicy all[3][3];
    all[param][reduce] = (MixedPrecisionPolicy){param, reduce, DTYPE_F32, true};
    return &all[param][reduce];
}

static inline Case typed(Spec spec, DType param, DType reduce, Strategy strategy, int world)
{
    Case c = case_of(spec, strategy, world, 1, 1);
    c.policy = policy_of(param, reduce);
    c.bare_state = true; // precision_full_state has a test of its own
    return c;
}

// rules.c
void rule_precision_is_removed(void);
void rule_policies_grow_nothing(void);
void rule_failed_policies_are_told(void);
void rule_scaler_refusals(void);
void rule_masters_after_a_failure(void);
void rule_gradients_between_micro_batches(void);
void rule_scales_any_gradient(void);
void rule_policies_beyond_32_bits(void);

#endif
