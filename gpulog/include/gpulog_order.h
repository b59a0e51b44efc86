/* gpulog_order.h: what the log says about order.
 *
 * Operations on different streams run in any order that events, the default stream and the host's
 * waits allow. From the log follows which orders those are, on simulated GPUs as on real ones,
 * where a missing wait shows in no result but on a bad day. Order comes from
 *
 *   - a stream: its operations follow each other;
 *   - an event: what a wait follows is what the event had captured when the wait was queued, so a
 *     later record moves no earlier wait;
 *   - the legacy default stream: its operations follow everything queued on the device's blocking
 *     streams, and everything queued on those later follows them;
 *   - the host: what it has waited for is before everything that it queues afterwards.
 *
 * Two operations race when they touch the same bytes of the same allocation, one of them writes,
 * and neither is before the other. An allocation and its release write its bytes. The same address
 * after a release and a new allocation is another allocation: whoever hands out memory again
 * ensures that order. Host memory is not looked at, as its addresses come and go without a trace in
 * the log.
 *
 * simgpu's checker knows the same rules and finds races while a program runs. This is a second
 * engine, which shares no code with it, so that each can be held against the other.
 */
#ifndef GPULOG_ORDER_H
#define GPULOG_ORDER_H

#include "gpulog.h"

#ifdef __cplusplus
extern "C" {
#endif

// Whether operation a is done before operation b begins, in every order the streams allow. False
// also where the log has not got one of them (not yet, or not any more): gpulog_has_order says.
bool gpulog_ordered(uint64_t a, uint64_t b);
bool gpulog_has_order(uint64_t index);

// Two operations from `first` on that touch the same bytes, at least one of them writing, and
// neither ordered before the other. False: there are none. What it finds is described in text:
// "kernel_gelu at main.c:8 (f) on stream A reads 16 bytes that cudaMemsetAsync at … writes: nothing
// orders the two".
bool gpulog_race(uint64_t first, char *text, size_t size);

// First operation of a kind at or after `from` (and, where name is given, of that name); -1: none.
int64_t gpulog_find(GpuOp op, const char *name, uint64_t from);
uint64_t gpulog_count(GpuOp op, uint64_t from);

#ifdef __cplusplus
}
#endif
#endif
