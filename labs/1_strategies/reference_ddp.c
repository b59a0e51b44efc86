/* Lab 1, second file: DDP. Every rank has everything, and sums gradients in buckets.
 *
 * DDP gathers nothing: its unit needs one reduction, an all-reduce of the whole gradient. At the
 * end of the backward that would overlap with nothing. So the flat gradient is cut into buckets,
 * and each is sent as soon as the backward has completed it:
 *
 *     compute       backward h.2 | backward h.1 | backward h.0 | embed
 *     all-reduce                 | bucket 0     | bucket 1     | bucket 2 …
 *
 * The backward completes the last parameters first, so the buckets are filled from the end. The
 * first is small: nothing can be sent until it is full.
 *
 * [Note: bucket after bucket] A rank may leave a module out. If each rank sent its buckets as soon
 * as they were complete, ranks could send them in different orders, and an all-reduce would add
 * bucket 1 to bucket 2. So a bucket is sent after those before it. At the end of the backward a
 * rank also sends the buckets that it has not completed, with zeros, so that no rank waits forever;
 * then it names the parameter.
 *
 * Interface:
 *   ddp_buckets                               the arithmetic
 *   ddp_create, ddp_destroy                   hooks after every module that holds a parameter
 *   ddp_begin_backward, ddp_post_backward     which gradients are complete
 *   ddp_reduce                                unit->reduce_scatter
 */
#include <stdlib.h>
#include <string.h>

#include "kernels.h"
#include "strategy.h"

int ddp_buckets(const FlatLayout *layout, int64_t first_bytes, int64_t bytes, Bucket *out, int max)
{
    int n = 0;
    //[L1.10] out has the first `max` buckets in the order of sending, and each misses all its
    //  parameters. n counts all buckets.
    //? In which bucket is the first parameter of the model, and when is it complete?
    int64_t end = layout->numel;
    for (int last = layout->n; last > 0; n++) {
        int64_t size = n == 0 ? first_bytes : bytes;
        int first = last;
        do first--;
        while (first > 0 && (end - layout->offset[first]) * dtype_bytes(DTYPE_F32) < size);
        int64_t begin = layout->offset[first];
        if (n < max) out[n] = (Bucket){first, last, begin, end, last - first};
        last = first;
        end = begin;
    }
    //[end L1.10]
    return n;
}

// ---- Which modules hold which parameters ----

// The parameter's index in the layout.
static int place_of(const FlatLayout *layout, const Param *param)
{
    int i = 0;
    while (i < layout->n && layout->params[i] != param) i++;
    return i;
}

// Counts the modules that hold each parameter, and the modules that hold any; if `install`, adds a
// hook to each of these.
static Status walk(StrategyState *state, Module *module, bool install)
{
    Ddp *ddp = &state->ddp;
    const FlatLayout *layout = &state->root->units[0]->flat.layout;
    for (int i = 0; i < module->n_params && !install; i++)
        ddp->uses[place_of(layout, module->params[i])]++;
    if (module->n_params > 0 && install) {
        // First, because the root's own hook, which sends the remaining buckets, must come after.
        Hook *hook = module_add_first_hook(module, HOOK_POST_BACKWARD, ddp_post_backward, state);
        if (hook == NULL) return ERR_MEMORY;
        ddp->hooked[ddp->n_hooks] = module;
        ddp->hooks[ddp->n_hooks] = hook;
    }
    ddp->n_hooks += module->n_params > 0;
    for (int i = 0; i < module->n_children; i++) TRY(walk(state, module->children[i], install));
    return OK;
}

Status ddp_create(StrategyState *state)
{
    Ddp *ddp = &state->ddp;
    const StrategyOptions *o = &state->options;
    FsdpUnit *unit = state->root->units[0];
    const FlatLayout *layout = &unit->flat.layout;
    ddp->n_buckets = ddp_buckets(layout, o->first_bucket_bytes, o->bucket_bytes, NULL, 0);
    ddp->buckets = calloc((size_t)ddp->n_buckets, sizeof *ddp->buckets);
    ddp->uses = calloc((size_t)layout->n, sizeof *ddp->uses);
    ddp->done = calloc((size_t)layout->n, sizeof *ddp->done);
    if (ddp->buckets == NULL || ddp->uses == NULL || ddp->done == NULL)
        return fail(ERR_MEMORY, "no host memory for %d buckets", ddp->n_buckets);
    ddp_buckets(layout, o->first_bucket_bytes, o->bucket_bytes, ddp->buckets, ddp->n_buckets);
    TRY(walk(state, unit->module, false));
    ddp->hooked = calloc((size_t)ddp->n_hooks, sizeof *ddp->hooked);
    ddp->hooks = calloc((size_t)ddp->n_hooks, sizeof *ddp->hooks);
    ddp->n_hooks = 0;
    if (ddp->hooked == NULL || ddp->hooks == NULL)
        return fail(ERR_MEMORY, "no host memory for the hooks of DDP");
    return walk(state, unit->module, true);
}

void ddp_destroy(StrategyState *state)
{
    Ddp *ddp = &state->ddp;
    for (int i = 0; i < ddp->n_hooks && ddp->hooks != NULL; i++)
        module_remove_hook(ddp->hooked[i], ddp->hooks[i]);
    free(ddp->buckets);
    free(ddp->uses);
    free(ddp->done);
    free(ddp->hooked);
    free(ddp->hooks);
    memset(ddp, 0, sizeof *ddp);
}

// ---- Sending ----

void ddp_begin_backward(StrategyState *state)
{
    Ddp *ddp = &state->ddp;
    if (ddp->buckets == NULL) return; // not DDP
    //[[L1.11a] No parameter is complete and no bucket was sent.
    const FlatLayout *layout = &state->root->units[0]->flat.layout;
    memset(ddp->done, 0, (size_t)layout->n * sizeof *ddp->done);
    for (int i = 0; i < ddp->n_buckets; i++)
        ddp->buckets[i].missing = ddp->buckets[i].last - ddp->buckets[i].first;
    ddp->next = 0;
    //[end L1.11a]
}

// Sends the next bucket.
static Status send_bucket(StrategyState *state)
{
    FsdpUnit *unit = state->root->units[0];
    FlatParam *flat = &unit->flat;
    const Bucket *bucket = &state->ddp.buckets[state->ddp.next];
    cudaStream_t stream = state->all_reduce_stream;
    size_t n = (size_t)(bucket->end - bucket->begin);
    Buffer input;
    TRY(state->reduce_input(unit, bucket->begin, &input));
    //[L1.11] Queued on the all-reduce stream, after the kernels that write it: the sum of the
    //  bucket's range of `input` over the replicas, in place, and the addition of the quotient
    //  (strategy_divisor) to the same range of sharded_grad. state->ddp.next is the next bucket.
    //? For what must the all-reduce stream wait? And does the host wait?
    Buffer sum = buffer_range(&input, bucket->begin, (int64_t)n);
    Buffer grad = buffer_range(&flat->sharded_grad, bucket->begin, (int64_t)n);
    CUDA_TRY(cudaEventRecord(state->reduced, unit->ctx->compute_stream));
    CUDA_TRY(cudaStreamWaitEvent(stream, state->reduced, 0));
    NCCL_TRY(ncclAllReduce(sum.data, sum.data, n, dtype_nccl(sum.dtype), ncclSum,
                           unit->ctx->mesh.replicate.comm, stream));
    CUDA_TRY(kernel_add_divided_ex(DTYPE_F32, grad.data, sum.dtype, sum.data,
                                   strategy_divisor(state), n, stream));
    state->ddp.next++;
    return OK;
    //[end L1.11]
}

Status ddp_post_backward(Module *module, void *arg)
{
    StrategyState *state = arg;
    Ddp *ddp = &state->ddp;
    const FlatLayout *layout = &state->root->units[0]->flat.layout;
    if (mesh_size(&state->root->ctx->mesh) == 1) return OK;
    //[L1.12] ddp->done counts this backward for each parameter of the module, and `missing` of
    //  their buckets is right. If gradients synchronise, every bucket that may be sent has been
    //  sent (see [Note: bucket after bucket]).
    //? The embedding's weight is tied to the head's. After which backward is its gradient complete?
    for (int i = 0; i < module->n_params; i++) {
        int place = place_of(layout, module->params[i]), b = 0;
        if (++ddp->done[place] != ddp->uses[place]) continue;
        while (place < ddp->buckets[b].first) b++;
        ddp->buckets[b].missing--;
    }
    while (state->requires_gradient_sync && ddp->next < ddp->n_buckets &&
           ddp->buckets[ddp->next].missing == 0)
        TRY(send_bucket(state));
    return OK;
    //[end L1.12]
}

Status ddp_reduce(FsdpUnit *unit)
{
    StrategyState *state = unit->root->extensions->strategy;
    Ddp *ddp = &state->ddp;
    const FlatLayout *layout = &unit->flat.layout;
    //[L1.13] Every bucket has been sent, and later work on the reduce-scatter stream runs after all
    //  of them. ERR_ARGUMENT, with a line that names it, for the first parameter whose gradient is
    //  not complete: a module that holds it has had no backward.
    //? What do the other ranks do if this one returns before it has sent its last bucket?
    while (ddp->next < ddp->n_buckets) TRY(send_bucket(state));
    CUDA_TRY(cudaEventRecord(state->reduced, state->all_reduce_stream));
    CUDA_TRY(cudaStreamWaitEvent(unit->ctx->reduce_scatter_stream, state->reduced, 0));
    for (int p = 0; p < layout->n; p++)
        if (ddp->done[p] < ddp->uses[p])
            return fail(ERR_ARGUMENT,
                        "%s has no gradient: a module that holds it has had no backward; every "
                        "rank waits for it in each step, so use it, or leave it out of the model",
                        layout->params[p]->name);
    return OK;
    //[end L1.13]
}
