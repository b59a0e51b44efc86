// tests.h: what the files of this suite share.
#ifndef LAB_MEMORY_TESTS_H
#define LAB_MEMORY_TESTS_H

#include "harness.h"
#include "strategies.h"

static const Strategy ALL[] = {STRATEGY_DDP, STRATEGY_ZERO1, STRATEGY_ZERO2, STRATEGY_ZERO3};

static inline size_t larger(size_t x, size_t y)
{
    return x > y ? x : y;
}

// Two steps under offload.
Case offloaded(Spec spec, Strategy strategy, int world);
// Whether the operation copies to the device, or to the host.
bool is_copy(const GpuLogEntry *entry, bool to_device);
// The places of the operations since `first` that are such copies, or else are `what`; how many.
int find_entries(uint64_t first, GpuOp what, bool to_device, uint64_t *out, int max);

// tests_failures.c
void rule_micro_batches_add_up(void);
void rule_nothing_is_in_flight(void);
void rule_copies_beyond_32_bits(void);
void rule_offload_leaves_nothing(void);
void rule_a_failed_pass_is_over(RecomputeKind kind, bool offload);
// Functions number [from, to) of a list: 0 to 2 gather, 3 to 8 are of gradients, 9 sums.

#endif
