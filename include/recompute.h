/* recompute.h: computes activations again instead of keeping them. The first half of lab 4's
 * contract; the second is offload.h.
 *
 *   file        half                main functions
 *   memory.c    recomputation       recompute_modules, recompute_block_backward
 *
 * The word is Megatron's; PyTorch calls it activation checkpointing. A forward keeps what its
 * backward will read. To save memory, a module keeps only its input and its output, frees the rest
 * at the end of its forward, and runs its forward again at the start of its backward. Its dropouts
 * have no state, and every kernel gives the same bits each time, so all results are bitwise those
 * without recomputation.
 *
 * Hooks of the module itself run once per pass, as always: its forward runs again between its own
 * pre-backward and post-backward hooks. Hooks of modules below it run again. If one of these is a
 * unit, it is unsharded and resharded again: one more all-gather if its strategy reshards after the
 * forward. A module without units below it gathers nothing again.
 *
 * Every function that returns a Status prints one line if it fails.
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
    // The module's own forward and backward.
    Status (*forward)(Module *self, NnRun *run, const void *in, void *out);
    Status (*backward)(Module *self, NnRun *run, const void *dout, void *din);
} RecomputeModule;

// What recomputation has changed in a root (FsdpExtensions.recompute).
typedef struct RecomputeState {
    RecomputeKind kind;
    int n;
    RecomputeModule *modules; // (n)
} RecomputeState;

// Lists the modules that compute again. RECOMPUTE_BLOCKS: the model's children that have children.
// RECOMPUTE_ATTENTION: all modules below the model that have a part to free (nn.h's free_part).
// Returns their number; writes at most `max` of them to out, in the order of a walk that takes a
// module before its children (out may be NULL for max = 0).
int recompute_modules(const Module *model, RecomputeKind kind, Module **out, int max);

// Makes those modules of the root compute again, from the next forward on. Given code
// (lib/fsdp/recompute_switch.c). ERR_ARGUMENT, and nothing has changed, if it is on already, if the
// kind is RECOMPUTE_NONE, in the middle of a pass, or if the model has no such module.
Status recompute_apply(Module *root, RecomputeKind kind);
// The same for the last of each `every` of the list, as torchtitan's selective recomputation of
// layers chooses them. ERR_ARGUMENT also if `every` is below 1 or the list is shorter. Given code.
Status recompute_apply_every(Module *root, RecomputeKind kind, int every);
// Removes it. Call it between passes, before fsdp_unwrap. ERR_ARGUMENT if an extension that was
// applied later is still there. Given code.
Status recompute_remove(Module *root);
// The entry that recompute_apply made for a module. Given code.
RecomputeModule *recompute_of(const Module *module);

// They replace a block's forward and backward. The forward runs the block's own and then frees what
// that saved. The backward first runs the block's own forward again, from its input into its
// output, then its own backward. While a forward runs again, root->extensions->recomputes is true,
// so that it is not recorded (root->ops.record_post_forward); and root->iter_forward_root is the
// root's, so that no unit below takes it for the outermost forward.
Status recompute_block_forward(Module *self, NnRun *run, const void *in, void *out);
Status recompute_block_backward(Module *self, NnRun *run, const void *dout, void *din);

// The same for an attention's weights: no forward runs again, only the freed part is computed.
Status recompute_attention_forward(Module *self, NnRun *run, const void *in, void *out);
Status recompute_attention_backward(Module *self, NnRun *run, const void *dout, void *din);

#undef Status

#endif
