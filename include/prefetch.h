/* prefetch.h: whose all-gather is queued while another unit computes: depth, lists and a limit. The
 * contract that lab 3 implements (prefetch.c).
 *
 * The words are PyTorch's (set_modules_to_forward_prefetch). To *prefetch* a unit is to queue its
 * all-gather before its own hook would; that hook then finds it FLAT_UNSHARDING, and waits alone. A
 * unit is *in flight* from its all-gather until the compute stream waits for it. What is computed
 * does not change: the same collectives are made, earlier.
 *
 * A model is made units (fully_shard) and gets a strategy; then a prefetch. It is taken off before
 * the strategy. All of strategy.h and precision.h works under it.
 *
 * Who is prefetched by the hooks of a unit, when it has its own parameters:
 *
 *   forward    the units of its list for the forward; without one, those of the next forward_depth
 *              forwards: as they began in the last forward of the root; before there was one, in
 *              the order of the registry (root->units). Once a forward begins another unit than
 *              that one did, it prefetches no more, and those that come after it go by the new
 *              order.
 *   backward   the units of its list for the backward; without one, those of the backward_depth
 *              forwards that ended just before its own (root->post_forward_order)
 *
 * They are taken in order. One that is not sharded counts, and nothing is queued. The first that
 * does not fit below the limit ends it: no later one overtakes, because collectives of one
 * communicator run in the order in which they are queued.
 *
 * A prefetch lives as long as its pass: when the outermost forward or backward has ended, nothing
 * is in flight, and what was, is resharded. Every function that returns a Status prints one line
 * if it fails.
 */
#ifndef SHARDLAB_PREFETCH_H
#define SHARDLAB_PREFETCH_H

#include "strategy.h"

#define Status CHECKED_STATUS // as check.h says

typedef struct PrefetchOptions {
    // Forwards ahead, or backwards. In the forward 0 and 1 are what happens without a prefetch: the
    // host runs ahead of the GPU and queues a unit's all-gather while the one before it computes.
    // In the backward 1 is that, and 0 gathers none ahead.
    int forward_depth, backward_depth;
    int64_t limit_bytes; // at most so many are in flight by prefetching; 0: no limit
} PrefetchOptions;

// Units in the order in which they are prefetched.
typedef struct PrefetchList {
    int n;
    FsdpUnit **units; // (n)
} PrefetchList;

// What a prefetch has added to a root (FsdpExtensions.prefetch).
typedef struct PrefetchState {
    PrefetchOptions options;
    FsdpRoot *root;
    PrefetchList *forward, *backward; // (root->n_units) of each unit its lists; n is 0 without one
    PrefetchList order;               // as the units of the last forward began
    PrefetchList begun;               // those of this forward, so far
    int max_begun;                    // room in it
    bool follows;                     // this forward has begun its units as `order` has them
    Hook **hooks;                     // (root->n_units · HOOK_POINTS) the handles
} PrefetchState;

// Puts a prefetch on the root, which must have a strategy. ERR_ARGUMENT, and nothing has changed,
// if it has none, has a prefetch already, or is not sharded; or if a depth or the limit is
// negative.
Status prefetch_apply(Module *root, const PrefetchOptions *options);
// Removes it and its lists, between steps. ERR_ARGUMENT if a later extension is still on.
Status prefetch_remove(Module *root);

// Makes the n modules, in this order, the module's list: its hook prefetches these, whatever the
// depth. n = 0: no list. The next call replaces the list. ERR_ARGUMENT, and the list stays, if the
// module or one of the list is not a unit, if one is the module itself or a unit of another root,
// or if that root has no prefetch.
Status fsdp_set_modules_to_forward_prefetch(Module *module, Module *const *modules, int n);
Status fsdp_set_modules_to_backward_prefetch(Module *module, Module *const *modules, int n);

// Bytes in flight: of the unsharded parameters whose all-gather is queued and that nobody has
// waited for. A rank that shards alone, in one type, gathers nothing.
int64_t prefetch_in_flight(const FsdpRoot *root);
// Queues the unit's all-gather, if it is sharded and fits: what is in flight and its own bytes
// are at most limit_bytes. Nobody waits. *fits is false if it does not, and nothing is queued.
Status prefetch_unit(FsdpUnit *unit, bool *fits);
// Waits for all units that are in flight, reshards them, and frees their buffers.
Status prefetch_clear(FsdpRoot *root);

// Behind the unit's own hooks. After the forward and the backward: if it was the outermost,
// nothing stays in flight; after a forward its order is the last one's. arg is the FsdpUnit.
Status prefetch_pre_forward(Module *module, void *unit);
Status prefetch_post_forward(Module *module, void *unit);
Status prefetch_pre_backward(Module *module, void *unit);
Status prefetch_post_backward(Module *module, void *unit);

// Given code (lib/fsdp/prefetch_lists.c): the state of the root that the module is; the state with
// its tables and hooks, and without them; the unit at the end of `begun`.
Status prefetch_find(const Module *root, PrefetchState **state);
Status prefetch_create(FsdpRoot *root, const PrefetchOptions *options);
void prefetch_destroy(PrefetchState *state);
Status prefetch_append(PrefetchState *state, FsdpUnit *unit);

#undef Status

#endif
