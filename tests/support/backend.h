/* backend.h: what the harness has to ask of the backend it runs on. tests/support/simgpu/backend.c
 * answers for simulated GPUs, tests/support/cuda/backend.c for real ones.
 */
#ifndef SHARDLAB_BACKEND_H
#define SHARDLAB_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Sets, in the parent, what the ranks are to find in their environment.
void backend_prepare(void);
// Hooks the backend's own reports up to this rank's trouble (run.h).
void backend_listen(void);
// From here to the next backend_listen a misuse is no trouble: calls return their errors.
void backend_ignore_reports(void);
// From here on what this process still holds at its end (memory, events, streams) is its trouble,
// where the backend can tell.
void backend_count_leaks(void);
// What the backend said when a device was full, for the message of a check that fails afterwards;
// "": nothing.
const char *backend_memory_report(void);

// The largest world a test can have here. Asked in the parent, which must not touch a device
// itself: on real GPUs a process that has cannot fork ranks any more.
int backend_max_world(void);
// Why there can be none larger, for the result of a test that was left out.
const char *backend_world_limit(void);

// Sets how many bytes of pinned host memory this process has now; false where the backend cannot
// tell.
bool backend_pinned_bytes(size_t *bytes);

// Whether the memory of the host that a process has is its own, apart from *library bytes: a
// library may take what it likes.
bool backend_counts_host_memory(int64_t *library);

// The environment variable that says how many bytes a device of a rank holds, for tests that fill
// one.
const char *backend_memory_variable(void);

// How much longer than on simgpu a run of `world` ranks may take: on real GPUs every rank first
// makes a context and its share of a communicator.
double backend_time_factor(int world);

// Whether a collective over `world` ranks adds bitwise as tree_average does. simgpu always does.
// NCCL promises no order; the sum of two numbers has but one.
bool backend_sums_in_tree_order(int world);

// Whether a rank that leaves out a collective ends the test with a report that says which; else it
// hangs until its limit.
bool backend_names_missing_calls(void);

// What is to be true of the backend when a rank has done its body; false, with the reason in text.
bool backend_agrees(char *text, unsigned long size);

#endif
