/* Lab 4, first half: recomputation. Activations are computed twice, so that few are kept.
 *
 * A backward reads the activations that its forward has saved. L blocks save L times as many as one
 * block, and FSDP does not shard them. But they follow from the block's input. So a block keeps its
 * input and frees the rest; in its backward it runs its forward again, and has all activations
 * until its own backward ends:
 *
 *     kept        in 0   in 1   in 2   in 3 …            of each block
 *     saved                            all of block 2    of one block at a time
 *
 * [Note: whose hooks] The forward that runs again is the block's own function, called from within
 * its backward: after its pre-backward hooks, before its post-backward hooks. So if the block is a
 * unit, it is unsharded already, and none of its hooks runs twice. Units below the block were
 * resharded long ago, so their forward hooks must run. Those forwards do not count: they have no
 * backward of their own in the order of the iteration, and they are not the outermost.
 *
 * [Note: a part] An attention's weights are T numbers for each of the T·heads rows. If T is long,
 * they are most of what a block saves, and they are cheap to compute again from queries and keys.
 * Freeing only them costs no second product with a parameter.
 *
 * Interface:
 *   recompute_modules                                   which modules compute again
 *   recompute_block_forward, recompute_block_backward   blocks: everything but input and output
 *   recompute_attention_forward, recompute_attention_backward   attention: the weights alone
 */
// Lab 4. Each TODO says what must hold afterwards and asks a question. Write
// the code that makes it hold.
// The handout is labs/4_memory/handout.md; `make grade LAB=4` says how far you are.
#include "recompute.h"

// Adds a module to the *n modules found so far.
static void add_module(Module *module, Module **out, int max, int *n)
{
    if (*n < max) out[*n] = module;
    ++*n;
}

// Finds the modules below this one that have a part to free.
static void find_parts(const Module *module, Module **out, int max, int *n)
{
    for (int i = 0; i < module->n_children; i++) {
        Module *child = module->children[i];
        if (child->free_part != NULL) add_module(child, out, max, n);
        find_parts(child, out, max, n);
    }
}

int recompute_modules(const Module *model, RecomputeKind kind, Module **out, int max)
{
    int n = 0;
    // TODO L4.1: The modules that recompute.h names are found (add_module, find_parts), and n is
    // their number.
    // Hint: A model is embed, h.0, h.1, ln_f and head. What do only the blocks have?
    NOT_YET("L4.1");
    return n;
}

// ---- Blocks ----

Status recompute_block_forward(Module *self, NnRun *run, const void *in, void *out)
{
    const RecomputeModule *own = recompute_of(self);
    // TODO L4.2: The block's output is there; everything else that its forward has saved, in it and
    // below it, is freed.
    // Hint: Who needs the block's output, and who its input? Which module owns each?
    NOT_YET("L4.2");
}

// Runs the block's forward again.
static Status run_again(const RecomputeModule *own, NnRun *run)
{
    FsdpRoot *root = own->root;
    Module *m = own->module;
    Status status = OK;
    // TODO L4.3: What the backward reads is saved again; the output is bitwise what it was. During
    // this forward root->extensions->recomputes is true and root->iter_forward_root is the root's
    // unit; afterwards, even after a failure, false and NULL.
    // Hint: A unit below runs its pre-forward hook. What does that do if no forward is running, and
    // what does the post-forward hook append?
    NOT_YET("L4.3");
    return status;
}

Status recompute_block_backward(Module *self, NnRun *run, const void *dout, void *din)
{
    const RecomputeModule *own = recompute_of(self);
    // TODO L4.4: The block's own backward has run, with everything that it reads.
    // Hint: What frees the activations that were saved again?
    NOT_YET("L4.4");
}

// ---- Attention ----

Status recompute_attention_forward(Module *self, NnRun *run, const void *in, void *out)
{
    const RecomputeModule *own = recompute_of(self);
    // TODO L4.5: The output is there, and everything that the forward saves except the part that
    // can be computed again.
    // Hint: Which of the two functions of nn.h's Module do you call, and when has every reader read
    // the weights?
    NOT_YET("L4.5");
}

Status recompute_attention_backward(Module *self, NnRun *run, const void *dout, void *din)
{
    const RecomputeModule *own = recompute_of(self);
    // TODO L4.6: The attention's own backward has run, with the weights that it reads.
    // Hint: From what are they computed, and is that still there?
    NOT_YET("L4.6");
}
