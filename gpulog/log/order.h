/* order.h: what order.c and unordered.c share: the replay of the log. */
#ifndef GPULOG_ORDER_INTERNAL_H
#define GPULOG_ORDER_INTERNAL_H

#include "gpulog.h"
#include "gpulog_order.h"

#define ORDER_HOST 0 // line 0 of every clock: what the host does itself and waits for

// Where an operation is: number `seq` of its line, after what the snapshot of a clock says.
typedef struct OrderPlace {
    uint32_t line, snapshot;
    uint64_t seq;
} OrderPlace;

void gpulog_order_lock(void);
void gpulog_order_unlock(void);

// All that follow are called with the lock held.

// Replays what the log has got since the last call. The replay has operations [first, end).
void gpulog_order_catch_up(void);
uint64_t gpulog_order_first(void);
uint64_t gpulog_order_end(void);
const OrderPlace *gpulog_order_place(uint64_t index); // NULL: it has not got the operation
bool gpulog_order_before(const OrderPlace *a, const OrderPlace *b);
bool gpulog_order_is_default(uint32_t line); // the legacy default stream of a device

// Memory for a growing table; the process ends where there is none.
void *gpulog_order_grow(void *table, size_t count, size_t size);

#endif
