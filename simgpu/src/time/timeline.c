/* timeline.c: a binary heap. See timeline.h. */
#include "time/timeline.h"

#include "time/tables.h"

static bool before(const SimHeapEntry *a, const SimHeapEntry *b)
{
    if (a->time != b->time) return a->time < b->time;
    if (a->key != b->key) return a->key < b->key;
    return a->item < b->item;
}

void sim_heap_push(SimHeap *heap, SimHeapEntry entry)
{
    if (heap->n == heap->room) {
        int room = heap->room ? 2 * heap->room : 16;
        heap->entry = sim_table_grow(heap->entry, (size_t)room, sizeof *heap->entry);
        heap->room = room;
    }
    int at = heap->n++;
    while (at > 0 && before(&entry, &heap->entry[(at - 1) / 2])) {
        heap->entry[at] = heap->entry[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap->entry[at] = entry;
}

bool sim_heap_top(const SimHeap *heap, SimHeapEntry *entry)
{
    if (heap->n) *entry = heap->entry[0];
    return heap->n > 0;
}

void sim_heap_pop(SimHeap *heap)
{
    SimHeapEntry last = heap->entry[--heap->n];
    int at = 0;
    for (;;) {
        int child = 2 * at + 1;
        if (child >= heap->n) break;
        if (child + 1 < heap->n && before(&heap->entry[child + 1], &heap->entry[child])) child++;
        if (!before(&heap->entry[child], &last)) break;
        heap->entry[at] = heap->entry[child];
        at = child;
    }
    if (heap->n) heap->entry[at] = last;
}
