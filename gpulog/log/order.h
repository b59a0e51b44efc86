/* order.h: what order.c and order_races.c share: the replay of the log. */
#ifndef GPULOG_ORDER_INTERNAL_H
#define GPULOG_ORDER_INTERNAL_H

#include "gpulog.h"
#include "gpulog_order.h"

#define ORDER_HOST 0 // line 0 of each clock: what the host does itself and waits for

// The place of an operation: number `seq` of its line, after the work that a clock's snapshot says.
typedef struct OrderPlace {
    uint32_t line, snapshot;
    uint64_t seq;
} OrderPlace;

void gpulog_order_lock(void);
void gpulog_order_unlock(void);

// Call all functions below with the lock held.

// Replays the operations logged since the last call. The replay has operations [first, end).
void gpulog_order_catch_up(void);
uint64_t gpulog_order_first(void);
uint64_t gpulog_order_end(void);
const OrderPlace *gpulog_order_place(uint64_t index); // NULL: not replayed
bool gpulog_order_before(const OrderPlace *a, const OrderPlace *b);
bool gpulog_order_is_default(uint32_t line); // the legacy default stream of a device

// Grows a table; ends the process if there is no memory.
void *gpulog_order_grow(void *table, size_t count, size_t size);

#endif
