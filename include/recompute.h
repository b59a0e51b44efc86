/* recompute.h: activations that are computed again instead of kept. The first half of the contract
 * that lab 4 implements; the second is offload.h.
 *
 *   file        half                main functions
 *   memory.c    recomputation       recompute_modules, recompute_block_backward
 *
 * The word is Megatron's; PyTorch calls it activation checkpointing. A forward keeps what its
 * backward will read. Where memory is short, a module keeps its input and its output alone, frees
 * the rest at the end of its forward, and runs its forward again at the start of its backward. Its
 * dropouts have no state, and every kernel gives the same bits each time: all results are bitwise
 * those without recomputation.
 *
 * Hooks of the module itself run once per pass, as ever: its forward runs again between its own
 * pre-backward and post-backward hooks. Those of modules below it run again. Where one of these is
 * a unit, it is unsharded and resharded once more: an all-gather more where its strategy reshards
 * after the forward, and none for a module without units below it.
 *
 * Every function that returns a Status prints one line where it fails.
 */
#ifndef SHARDLAB_RECOMPUTE_H
#define SHARDLAB_RECOMPUTE_H

#include "extensions.h"

#define Status CHECKED_STATUS // as check.h says

typedef enum RecomputeKind {
    RECOMPUTE_NONE,
    RECOMPUTE_BLOCKS,    // each block keeps its input and output
    RECOMPUTE_ATTENTION, // each attention frees its weights, (B, heads, T, T), and keeps the rest
} RecomputeKind;

// A module that computes something again.
typedef struct RecomputeModule {
    Module *module;
    FsdpRoot *root;
    // What the module's forward and backward were.
    Status (*forward)(Module *self, NnRun *run, const void *in, void *out);
    Status (*backward)(Module *self, NnRun *run, const void *dout, void *din);
} RecomputeModule;

// What recomputation has changed in a root (FsdpExtensions.recompute).
typedef struct RecomputeState {
    RecomputeKind kind;
    int n;
    RecomputeModule *modules; // (n)
} RecomputeState;

// Which modules compute again. RECOMPUTE_BLOCKS: the model's children that have children.
// RECOMPUTE_ATTENTION: all modules below the model that have a part to free (nn.h's free_part).
// Returns how many there are; writes at most `max` of them to out, in the order of a walk that
// takes a module before its children (out may be NULL for max = 0).
int recompute_modules(const Module *model, RecomputeKind kind, Module **out, int max);

// Has those modules of the root compute again, from the next forward on. Given code
// (lib/fsdp/recompute_switch.c). ERR_ARGUMENT, and nothing has changed, where it is on already,
// where the kind is RECOMPUTE_NONE, in the middle of a pass, or where the model has no such module.
Status recompute_apply(Module *root, RecomputeKind kind);
// Takes it off, between passes. Before fsdp_unwrap. ERR_ARGUMENT under what was put on later. Given
// code.
Status recompute_remove(Module *root);
// What recompute_apply knows of a module. Given code.
RecomputeModule *recompute_of(const Module *module);

// In the place of a block's forward and backward. The forward is the block's own, after which what
// it saved is freed. The backward first runs the block's own forward again, from its input into its
// output, then its own backward. While a forward runs again root->extensions->recomputes
// is set: it is not recorded (root->ops.record_post_forward); and no unit below takes it for the
// outermost forward (root->iter_forward_root is the root's).
Status recompute_block_forward(Module *self, NnRun *run, const void *in, void *out);
Status recompute_block_backward(Module *self, NnRun *run, const void *dout, void *din);

// The same of an attention's weights: no forward runs again, only the part that was freed is made.
Status recompute_attention_forward(Module *self, NnRun *run, const void *in, void *out);
Status recompute_attention_backward(Module *self, NnRun *run, const void *dout, void *din);

#undef Status

#endif
