/* tests.h: what the files of this suite share, and the tests that each of them has. tests.c has
 * those of recomputation, and the list.
 */
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

// tests_offload.c: where shards are, and what the host does.
void offloaded_training_follows_the_oracle(void **state);
void replicas_are_added_before_the_copy(void **state);
void shards_are_copied_in_front_of_the_gather(void **state);
void the_host_steps_and_clips(void **state);
void offload_suits_the_strategy(void **state);

// tests_offload_costs.c: bytes, waits, and times on the clock.
void bytes_of_offload_are_the_formula(void **state);
void the_host_waits_once(void **state);
void copies_overlap_on_the_clock(void **state);

#endif
