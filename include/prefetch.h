/* prefetch.h: which units are gathered while another one computes: depth, lists and a limit. The
 * contract of lab 3 (prefetch.c).
 *
 * The words are PyTorch's (set_modules_to_forward_prefetch). To *prefetch* a unit is to queue its
 * all-gather before its own hook would; that hook then finds it FLAT_UNSHARDING, and only waits. A
 * unit is *in flight* from its all-gather until the compute stream waits for it. Results do not
 * change: the same collectives are made, only earlier.
 *
 * Call fully_shard, then strategy_apply, then prefetch_apply; remove the prefetch before the
 * strategy. All of strategy.h and precision.h works under it.
 *
 * When a unit has its own parameters, its hooks prefetch:
 *
 *   forward    the units of its list for the forward; without one, the units of the next
 *              forward_depth forwards, in the order in which they began in the root's last forward
 *              (in its first, in the order of the registry, root->units). Once a forward begins
 *              another unit than the last one did, it prefetches no more; the next forward follows
 *              the new order.
 *   backward   the units of its list for the backward; without one, those of the backward_depth
 *              forwards that ended just before its own (root->post_forward_order)
 *
 * The hooks go through them in order. A unit that is not sharded counts, but nothing is queued. The
 * first unit that does not fit below the limit ends the list: no later one overtakes it, because
 * collectives of one communicator run in the order in which they are queued.
 *
 * A prefetch ends with its pass: after the outermost forward or backward nothing is in flight, and
 * units that were are resharded. Every function that returns a Status prints one line if it fails.
 */
#ifndef SHARDLAB_PREFETCH_H
#define SHARDLAB_PREFETCH_H

#include "strategy.h"

#define Status CHECKED_STATUS // as check.h says

typedef struct PrefetchOptions {
    // How many units to gather ahead. In the forward 0 and 1 are as without a prefetch: the host
    // runs ahead of the GPU and queues a unit's all-gather while the one before it computes. In the
    // backward 1 is as without a prefetch, and 0 gathers none ahead.
    int forward_depth, backward_depth;
    int64_t limit_bytes; // the most that prefetching may put in flight; 0: no limit
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
    PrefetchList *forward, *backward; // (root->n_units) each unit's lists; n is 0 without one
    PrefetchList order;               // the last forward's units, as they began
    PrefetchList begun;               // this forward's units, so far
    int max_begun;                    // the room in begun.units
    bool follows;                     // `begun` is the beginning of `order`
    Hook **hooks;                     // (root->n_units · HOOK_POINTS) the handles
} PrefetchState;

// Applies a prefetch to the root, which has a strategy. ERR_ARGUMENT, and nothing has changed, if
// it has none, has a prefetch already, or is not sharded; or if a depth or the limit is negative.
Status prefetch_apply(Module *root, const PrefetchOptions *options);
// Removes it, with its lists. Call it between steps. ERR_ARGUMENT if another extension was applied
// later and is still there.
Status prefetch_remove(Module *root);

// Makes the n modules, in this order, the module's list, which its hook prefetches at any depth (n
// 0: no list). The next call replaces it. ERR_ARGUMENT, and the list stays, if the module or one of
// the list is not a unit, if one is the module itself or a unit of another root, or if the root has
// no prefetch.
Status fsdp_set_modules_to_forward_prefetch(Module *module, Module *const *modules, int n);
Status fsdp_set_modules_to_backward_prefetch(Module *module, Module *const *modules, int n);

// Bytes of the unsharded parameters that are in flight. A rank that shards alone, in one type,
// gathers nothing.
int64_t prefetch_in_flight(const FsdpRoot *root);
// Queues the unit's all-gather if it is sharded and fits: the bytes in flight and its own are
// together at most limit_bytes. No stream waits. If it does not fit, *fits is false, and nothing is
// queued.
Status prefetch_unit(FsdpUnit *unit, bool *fits);
// Waits for all units that are in flight, reshards them, and frees their buffers.
Status prefetch_clear(FsdpRoot *root);

// The hooks that run after the unit's own. After the outermost forward or backward nothing stays in
// flight; the outermost forward's order becomes that of the last forward. arg is the FsdpUnit.
Status prefetch_pre_forward(Module *module, void *unit);
Status prefetch_post_forward(Module *module, void *unit);
Status prefetch_pre_backward(Module *module, void *unit);
Status prefetch_post_backward(Module *module, void *unit);

// Given code (lib/fsdp/prefetch_lists.c): finds the state of the root that the module is; makes and
// frees a state with its tables and hooks; appends the unit to `begun`.
Status prefetch_find(const Module *root, PrefetchState **state);
Status prefetch_create(FsdpRoot *root, const PrefetchOptions *options);
void prefetch_destroy(PrefetchState *state);
Status prefetch_append(PrefetchState *state, FsdpUnit *unit);

#undef Status

#endif
