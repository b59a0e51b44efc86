/* heap.h: the allocator of an arena. It handles offsets alone and touches no memory.
 *
 * An arena consists of blocks: in use, free, or waiting (freed a moment ago and not reused yet, so
 * that a use after the free is found and does not hit the next owner's data). The caller holds the
 * device's lock.
 */
#ifndef SIMGPU_HEAP_H
#define SIMGPU_HEAP_H

#include <stdbool.h>
#include <stddef.h>

#include "core/tree.h"

struct SimOwed;   // memory/owed.h
struct SimShadow; // memory/shadow.h

// cudaMalloc promises an alignment of 256 bytes, and today's drivers give 512. simgpu gives what is
// promised, so that a program that relies on more fails here.
#define SIM_ALIGN ((size_t)256)

// The first bytes of an arena, which are never allocated: so an address a little before the first
// allocation is still the device's, and not host memory.
#define SIM_GUARD ((size_t)2 << 20)

typedef enum SimBlockState {
    BLOCK_FREE,
    BLOCK_LIVE,
    BLOCK_WAITING,
    BLOCK_KEPT, // a graph's, which uses it again at its next launch
    BLOCK_GUARD
} SimBlockState;

typedef struct SimBlock {
    SimTreeNode by_place;         // key: offset
    SimTreeNode by_size;          // free blocks; key: size, tie: offset
    struct SimBlock *prev, *next; // neighbours in the arena; waiting blocks keep them too
    struct SimBlock *next_waiting;
    size_t offset, size; // in the arena, multiples of SIM_ALIGN
    size_t asked;        // live: the bytes that were asked for
    const void *site;    // live: who asked
    SimBlockState state;
    bool apart;                      // free: not joined with free neighbours
    struct CUmemPoolHandle_st *pool; // live: its pool (pool.c); NULL: not of cudaMallocAsync
    bool kept;                       // live: of a graph, which keeps its address when it is freed
    bool of_nccl;                    // from ncclMemAlloc
    bool managed;                    // the program may touch it: it has whole pages (managed.c)
    size_t fresh;                    // live: from here on it was never touched
    struct SimOwed *owed;            // live: values that its bytes are still to get
    int n_owed, owed_room;
    struct SimShadow *shadow; // live: accesses to it (shadow.h); NULL: they are not recorded
} SimBlock;

// The record of a freed allocation.
typedef struct SimFreed {
    size_t offset, asked;
    const void *made, *freed; // call sites
} SimFreed;

typedef struct SimHeap SimHeap;
SimHeap *sim_heap_create(size_t arena); // larger than SIM_GUARD
// A block for `bytes` bytes, which begins and ends at multiples of `unit`, a power of two from
// SIM_ALIGN on; NULL: the address space is used up.
SimBlock *sim_heap_take_whole(SimHeap *heap, size_t bytes, size_t unit, const void *site);
// Frees a live block, and remembers it.
void sim_heap_give(SimHeap *heap, SimBlock *block, const void *site);
// For a block whose address must stay the same: sim_heap_keep frees it and keeps its place,
// sim_heap_take_kept allocates it there again, any number of times, and sim_heap_keep_no_more gives
// the place up, whether or not the block is live.
void sim_heap_keep(SimHeap *heap, SimBlock *block);
void sim_heap_take_kept(SimHeap *heap, SimBlock *block, const void *site);
void sim_heap_keep_no_more(SimHeap *heap, SimBlock *block);
// The block that holds the offset, in use or not.
SimBlock *sim_heap_find(SimHeap *heap, size_t offset);
// The last freed allocation that had the offset; NULL: none is remembered.
const SimFreed *sim_heap_freed(const SimHeap *heap, size_t offset);
SimBlock *sim_heap_first(SimHeap *heap);

#endif
