/* heap.c: the allocator of an arena. See heap.h.
 *
 * Best fit; free neighbours are joined. An arena's address space is several times the device's
 * memory, so there is a free block even if memory is fragmented: only the bytes in use decide
 * whether the device is full (allocation.c), never their places.
 */
#include "memory/heap.h"
#include "core/tree.h"

#include <stdlib.h>
#include <sys/mman.h>

// How many bytes wait after a free, at most. A large block does not wait: the next owner can use
// its pages.
#define WAITING_BLOCKS 64
#define WAITING_BYTES ((size_t)16 << 20)
#define LARGE ((size_t)4 << 20)
#define FREED_REMEMBERED 4096
// Freed blocks of this size and more stay apart, for requests of exactly their size: then a
// program's steps have the same addresses each time, and its peers have mapped their pages already.
// A large request joins them all. So does any request if more than so many bytes are apart, or more
// than twice what was ever live at once: else a program whose sizes never recur would touch new
// pages each time.
#define JOINED_BELOW ((size_t)64 << 10)
#define APART_BYTES ((size_t)64 << 20)

struct SimHeap {
    SimTreeNode *places; // every block, by offset
    SimTreeNode *sizes;  // the free ones, by size, …
    SimTreeNode *apart;  // … and those that stay apart
    size_t apart_bytes;
    size_t live_bytes, most_live; // now; ever
    SimBlock *first;
    SimBlock *oldest, *newest; // waiting
    size_t waiting_bytes;
    int waiting;
    size_t high;      // from here on nothing was ever allocated
    SimBlock *recent; // found last: accesses come in runs
    uint64_t n_freed;
    SimFreed *freed; // FREED_REMEMBERED of them, of which only what is used becomes memory
};

static void list_free(SimTreeNode **list, SimBlock *block, bool apart)
{
    block->state = BLOCK_FREE;
    block->apart = apart;
    block->by_size.key = block->size;
    block->by_size.tie = block->offset;
    sim_tree_insert(list, &block->by_size);
}

static void mark_free(SimHeap *heap, SimBlock *block)
{
    list_free(&heap->sizes, block, false);
}

static void keep_apart(SimHeap *heap, SimBlock *block)
{
    list_free(&heap->apart, block, true);
    heap->apart_bytes += block->size;
}

static void take_apart(SimHeap *heap, SimBlock *block)
{
    sim_tree_remove(&heap->apart, &block->by_size);
    heap->apart_bytes -= block->size;
}

static SimBlock *add_block(SimHeap *heap, size_t offset, size_t size, SimBlock *prev)
{
    SimBlock *block = calloc(1, sizeof *block);
    if (!block) return NULL;
    block->offset = block->by_place.key = offset;
    block->size = size;
    block->prev = prev;
    if (prev) {
        block->next = prev->next;
        prev->next = block;
    } else {
        heap->first = block;
    }
    if (block->next) block->next->prev = block;
    sim_tree_insert(&heap->places, &block->by_place);
    return block;
}

SimHeap *sim_heap_create(size_t arena)
{
    SimHeap *heap = calloc(1, sizeof *heap);
    // From the system, since calloc would touch what it clears.
    void *freed = mmap(NULL, FREED_REMEMBERED * sizeof(SimFreed), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!heap || freed == MAP_FAILED) return NULL;
    heap->freed = freed;
    heap->high = SIM_GUARD;
    SimBlock *guard = add_block(heap, 0, SIM_GUARD, NULL);
    SimBlock *rest = guard ? add_block(heap, SIM_GUARD, arena - SIM_GUARD, guard) : NULL;
    if (!rest) return NULL; // no memory at all: the caller ends the process
    guard->state = BLOCK_GUARD;
    mark_free(heap, rest);
    return heap;
}

// Joins `next` to the block in front of it.
static void swallow(SimHeap *heap, SimBlock *block, SimBlock *next)
{
    sim_tree_remove(&heap->places, &next->by_place);
    block->size += next->size;
    block->next = next->next;
    if (block->next) block->next->prev = block;
    if (heap->recent == next) heap->recent = NULL;
    free(next);
}

static bool is_joinable(const SimBlock *block)
{
    return block && block->state == BLOCK_FREE && !block->apart;
}

static void make_available(SimHeap *heap, SimBlock *block)
{
    SimBlock *next = block->next, *prev = block->prev;
    if (is_joinable(next)) {
        sim_tree_remove(&heap->sizes, &next->by_size);
        swallow(heap, block, next);
    }
    if (is_joinable(prev)) {
        sim_tree_remove(&heap->sizes, &prev->by_size);
        swallow(heap, prev, block);
        block = prev;
    }
    mark_free(heap, block);
}

// Joins all free neighbours: none stays apart.
static void join_all(SimHeap *heap)
{
    while (heap->apart) {
        SimBlock *block = SIM_TREE_OWNER(heap->apart, SimBlock, by_size);
        take_apart(heap, block);
        make_available(heap, block);
    }
}

static void release_oldest(SimHeap *heap)
{
    SimBlock *block = heap->oldest;
    heap->oldest = block->next_waiting;
    if (!heap->oldest) heap->newest = NULL;
    heap->waiting--;
    heap->waiting_bytes -= block->size;
    if (block->size < JOINED_BELOW)
        make_available(heap, block);
    else
        keep_apart(heap, block);
}

static SimBlock *best_fit(SimTreeNode *list, size_t size)
{
    SimTreeNode *node = sim_tree_ceiling(list, size);
    return node ? SIM_TREE_OWNER(node, SimBlock, by_size) : NULL;
}

static bool too_much_apart(const SimHeap *heap)
{
    return heap->apart_bytes > APART_BYTES || heap->apart_bytes > 2 * heap->most_live;
}

// Removes a block of at least `size` bytes from the free ones.
static SimBlock *find_room(SimHeap *heap, size_t size)
{
    SimBlock *block = best_fit(heap->apart, size);
    if (block && block->size == size) {
        take_apart(heap, block);
        return block;
    }
    if (size > LARGE || too_much_apart(heap)) join_all(heap);
    if (!best_fit(heap->sizes, size)) join_all(heap);
    while (!(block = best_fit(heap->sizes, size)) && heap->oldest) {
        release_oldest(heap);
        join_all(heap);
    }
    if (block) sim_tree_remove(&heap->sizes, &block->by_size);
    return block;
}

// Cuts a block that is in no list after `size` bytes and returns the rest; NULL: there is none.
static SimBlock *cut(SimHeap *heap, SimBlock *block, size_t size)
{
    if (block->size == size) return NULL;
    SimBlock *rest = add_block(heap, block->offset + size, block->size - size, block);
    if (rest) block->size = size;
    return rest;
}

SimBlock *sim_heap_take_whole(SimHeap *heap, size_t bytes, size_t unit, const void *site)
{
    if (bytes > SIZE_MAX - 2 * unit) return NULL;
    size_t size = (bytes + unit - 1) & ~(unit - 1);
    SimBlock *block = find_room(heap, size + unit - SIM_ALIGN);
    if (!block) return NULL;
    size_t front = -block->offset & (unit - 1);
    if (front) {
        SimBlock *whole = cut(heap, block, front);
        mark_free(heap, block);
        if (!whole) return NULL;
        block = whole;
    }
    SimBlock *rest = cut(heap, block, size);
    if (rest) mark_free(heap, rest);
    block->state = BLOCK_LIVE;
    heap->live_bytes += block->size;
    if (heap->most_live < heap->live_bytes) heap->most_live = heap->live_bytes;
    block->asked = bytes;
    block->site = site;
    block->pool = NULL;
    block->managed = block->kept = false;
    block->shadow = NULL;
    size_t end = block->offset + block->size;
    block->fresh = heap->high > block->offset ? heap->high - block->offset : 0;
    if (heap->high < end) heap->high = end;
    return block;
}

// Makes a freed block available to the next request.
static void hand_back(SimHeap *heap, SimBlock *block)
{
    if (block->size > LARGE) {
        make_available(heap, block);
        return;
    }
    block->state = BLOCK_WAITING;
    block->next_waiting = NULL;
    if (heap->newest)
        heap->newest->next_waiting = block;
    else
        heap->oldest = block;
    heap->newest = block;
    heap->waiting++;
    heap->waiting_bytes += block->size;
    while (heap->waiting > WAITING_BLOCKS || heap->waiting_bytes > WAITING_BYTES)
        release_oldest(heap);
}

// Takes back a block that was never freed: it is not remembered.
void sim_heap_keep(SimHeap *heap, SimBlock *block)
{
    heap->live_bytes -= block->size;
    block->kept = true;
    block->state = BLOCK_KEPT;
}

void sim_heap_take_kept(SimHeap *heap, SimBlock *block, const void *site)
{
    heap->live_bytes += block->size;
    if (heap->most_live < heap->live_bytes) heap->most_live = heap->live_bytes;
    block->site = site;
    block->state = BLOCK_LIVE;
}

void sim_heap_keep_no_more(SimHeap *heap, SimBlock *block)
{
    block->kept = false;
    if (block->state == BLOCK_KEPT) hand_back(heap, block);
}

void sim_heap_give(SimHeap *heap, SimBlock *block, const void *site)
{
    heap->freed[heap->n_freed++ % FREED_REMEMBERED] =
        (SimFreed){block->offset, block->asked, block->site, site};
    heap->live_bytes -= block->size;
    block->fresh = block->size; // the next launch takes a kept block again
    if (block->kept)
        block->state = BLOCK_KEPT;
    else
        hand_back(heap, block);
}

SimBlock *sim_heap_find(SimHeap *heap, size_t offset)
{
    SimBlock *recent = heap->recent;
    if (recent && offset >= recent->offset && offset - recent->offset < recent->size) return recent;
    SimTreeNode *node = sim_tree_floor(heap->places, offset);
    if (!node) return NULL;
    heap->recent = SIM_TREE_OWNER(node, SimBlock, by_place);
    return heap->recent;
}

const SimFreed *sim_heap_freed(const SimHeap *heap, size_t offset)
{
    uint64_t kept = heap->n_freed < FREED_REMEMBERED ? heap->n_freed : FREED_REMEMBERED;
    for (uint64_t back = 1; back <= kept; back++) {
        const SimFreed *freed = &heap->freed[(heap->n_freed - back) % FREED_REMEMBERED];
        if (offset >= freed->offset && offset - freed->offset < freed->asked) return freed;
    }
    return NULL;
}

SimBlock *sim_heap_first(SimHeap *heap)
{
    return heap->first;
}
