/* gpulog_order.h: the order of the operations in the log.
 *
 * Operations on different streams run in any order that events, the default stream and the host's
 * waits allow. The log tells which orders those are, on simulated GPUs and on real ones, where a
 * missing wait rarely shows in a result. Order comes from
 *
 *   - a stream: its operations follow each other;
 *   - an event: a wait follows what the event had captured when the wait was queued, so a later
 *     record does not change an earlier wait;
 *   - the legacy default stream: its operations follow all work queued on the device's blocking
 *     streams, and all work queued on those later follows them;
 *   - the host: work that it has waited for is before all work that it queues afterwards.
 *
 * Two operations race when they touch the same bytes of the same allocation, one of them writes,
 * and neither is before the other. An allocation and its free write its bytes. The same address
 * after a free and a new allocation is another allocation: the allocator ensures that order. Host
 * memory is not checked, as its addresses come and go without a trace in the log.
 *
 * simgpu's checker applies the same rules and finds races while a program runs. This is a second
 * engine, which shares no code with it, so that tests can compare the two.
 */
#ifndef GPULOG_ORDER_H
#define GPULOG_ORDER_H

#include "gpulog.h"

#ifdef __cplusplus
extern "C" {
#endif

// Whether operation a is done before operation b begins in every order that the streams allow. Also
// false if the log does not have both (not yet, or no longer): ask gpulog_has_order.
bool gpulog_ordered(uint64_t a, uint64_t b);
bool gpulog_has_order(uint64_t index);

// Finds two operations from `first` on that touch the same bytes, at least one of them writing, and
// have no order, and describes them in text: "kernel_gelu at main.c:8 (f) on stream A reads 16
// bytes that cudaMemsetAsync at … writes: nothing orders the two". False: there are none.
bool gpulog_race(uint64_t first, char *text, size_t size);

// The first operation of a kind at or after `from`, with that name unless it is NULL; -1: none.
int64_t gpulog_find(GpuOp op, const char *name, uint64_t from);
uint64_t gpulog_count(GpuOp op, uint64_t from);

#ifdef __cplusplus
}
#endif
#endif
