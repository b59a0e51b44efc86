/* time/timeline.h: a binary heap of future events, by time, then by key, then by item.
 *
 * All zero: an empty heap; sim_table_free its entries.
 */
#ifndef SIMGPU_TIMELINE_H
#define SIMGPU_TIMELINE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct SimHeapEntry {
    uint64_t time, key, item;
    uint32_t version; // for the owner
} SimHeapEntry;

typedef struct SimHeap {
    SimHeapEntry *entry; // (room)
    int n, room;
} SimHeap;

void sim_heap_push(SimHeap *heap, SimHeapEntry entry);
bool sim_heap_top(const SimHeap *heap, SimHeapEntry *entry); // false: it is empty
void sim_heap_pop(SimHeap *heap);

#endif
