/* Lab 4, first half: recomputation. Activations are computed twice, so that few are kept.
 *
 * A backward reads what its forward has saved. In a model of L blocks that is L times what one
 * block saves, and unlike parameters FSDP shards none of it. But what a block saves follows from
 * its input. So a block keeps its input and frees the rest; when its backward comes, it runs its
 * forward again and has everything for as long as its own backward takes:
 *
 *     kept        in 0   in 1   in 2   in 3 …            of each block
 *     saved                            all of block 2    of one block at a time
 *
 * [Note: whose hooks] The forward that runs again is the block's own function, called from within
 * its backward: after its pre-backward hooks, before its post-backward hooks. So a unit that is the
 * block is unsharded already, and none of its hooks runs twice. Units below the block have forward
 * hooks, which run: their parameters were resharded long ago. Those forwards do not count: they
 * have no backward of their own in the order of the iteration, and they are not the outermost.
 *
 * [Note: a part] An attention's weights are T numbers for each of the T·heads rows, the largest
 * part of what a block saves where T is long, and cheap to compute again from the queries and keys.
 * Freeing them alone costs no second product with a parameter.
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

// Adds a module to the *n that were found.
static void add_module(Module *module, Module **out, int max, int *n)
{
    if (*n < max) out[*n] = module;
    ++*n;
}

// The modules below this one that have a part to free.
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

// The block's forward once more.
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
