/* Lab 6, first half: per-parameter shards. Each parameter is cut by itself.
 *
 * A flat parameter is gathered in place: that is quickest, and takes the least memory. But a rank's
 * shard is an arbitrary piece, which has one type and one optimizer, and trains as a whole. FSDP2
 * gives that up: it cuts dimension 0 of each parameter, and a rank owns rows.
 *
 *                        rank 0        rank 1
 *     shards          [ a0 | b0 ]   [ a1 | b1 ]
 *     all-gather   →  [ a0 | b0 | a1 | b1 ]          the gather buffer, rank by rank
 *     copy-out     →  [ a0 | a1 ] [ b0 | b1 ]        the unsharded parameters
 *
 * [Note: chunks] All chunks have the first one's size, and only the last ranks' are padded. So when
 * a parameter's chunks are contiguous, in rank order, its elements are, too, with the padding at
 * the end: there is no gap to close.
 *
 * [Note: two gather buffers] Copy-out is on the compute stream, which needs the parameters, so that
 * the next all-gather can run meanwhile. If this unit's gather buffer were freed at once, the
 * all-gather stream would wait for the copy before it gathers again. So in a forward it stays for
 * one unit longer. A backward gathers ahead: there the next all-gather has been queued already.
 *
 * [Note: frozen] Parameters that train come first in a shard, so that their gradients are the first
 * grad_numel elements of an array with the same layout. Code for gradients uses only those.
 *
 * Interface:
 *   per_parameter_chunk, per_parameter_layout     the arithmetic
 *   PER_PARAMETER_OPS                             which elements a rank owns; copy-out and copy-in
 *   param_groups_apply                            learning rates by parameter
 */
#include "per_parameter.h"

#include <stdlib.h>
#include <string.h>

#include "kernels.h"
#include "not_yet.h"

int64_t per_parameter_chunk(const Param *param, int world)
{
    //[L6.1] The result is the number of elements in the first of the parameter's `world` chunks.
    //? 5 rows on 4 ranks: how many has each rank? And the fourth?
    int64_t rows = param->shape[0];
    return (rows + world - 1) / world * (meta_numel(param) / rows);
    //[end L6.1]
}

// Refuses what flat_layout refuses, except frozen parameters.
static Status check_layout(const char *name, Param **params, int n, int rank, int world, bool align)
{
    if (world < 1) return fail(ERR_ARGUMENT, "%s: a world of %d ranks", name, world);
    if (rank < 0 || rank >= world)
        return fail(ERR_ARGUMENT, "%s: rank %d is none of 0 to %d", name, rank, world - 1);
    if (n < 1) return fail(ERR_ARGUMENT, "%s: no parameters to shard", name);
    if (align)
        return fail(ERR_ARGUMENT,
                    "%s: align_shards is for flat parameters: chunks are as long as rows make them",
                    name);
    for (int i = 0; i < n; i++) {
        if (params[i]->dtype != DTYPE_F32)
            return fail(ERR_ARGUMENT, "%s: %s is not float", name, params[i]->name);
        if (params[i]->owner != NULL)
            return fail(ERR_ARGUMENT, "%s: %s belongs to another unit", name, params[i]->name);
    }
    return OK;
}

Status per_parameter_layout(FlatLayout *layout, const char *name, Param **params, int n, int rank,
                            int world, bool align)
{
    memset(layout, 0, sizeof *layout);
    TRY(check_layout(name, params, n, rank, world, align));
    layout->rank = rank;
    layout->world = world;
    layout->ops = &PER_PARAMETER_OPS;
    layout->params = malloc((size_t)n * sizeof(Param *));
    layout->offset = malloc((size_t)n * sizeof(int64_t));
    if (layout->params == NULL || layout->offset == NULL) {
        flat_layout_destroy(layout);
        return fail(ERR_MEMORY, "%s: no host memory for %d parameters", name, n);
    }
    //[L6.2] The layout has the n parameters, first those that train, then the frozen ones, both in
    //  the order of `params`; offset, numel, padded, shard_numel and grad_numel are as
    //  per_parameter.h says.
    //? Why would a frozen parameter in between disturb a reduction?
    for (int frozen = 0; frozen < 2; frozen++)
        for (int i = 0; i < n; i++) {
            if (params[i]->frozen != (frozen == 1)) continue;
            layout->params[layout->n] = params[i];
            layout->offset[layout->n++] = world * layout->shard_numel;
            layout->numel += meta_numel(params[i]);
            layout->shard_numel += per_parameter_chunk(params[i], world);
            if (frozen == 0) layout->grad_numel = layout->shard_numel;
        }
    layout->padded = world * layout->shard_numel;
    //[end L6.2]
    return OK;
}

// ---- Which elements a rank owns ----

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

// Where parameter i's chunk begins in every shard.
static int64_t chunk_begin(const FlatLayout *layout, int i)
{
    return layout->offset[i] / layout->world;
}

static void param_range(const FlatLayout *layout, int i, int rank, int64_t *begin, int64_t *end,
                        int64_t *at)
{
    //[L6.3] As flat_param_range_in_shard says, for this layout. *at is where the rank's chunk
    //  begins, even if the rank has no element of the parameter.
    //? Which row is the first of rank 3's chunk, and what if the parameter has no such row?
    int64_t chunk = per_parameter_chunk(layout->params[i], layout->world);
    int64_t numel = meta_numel(layout->params[i]);
    *begin = min64(rank * chunk, numel);
    *end = min64(*begin + chunk, numel);
    *at = chunk_begin(layout, i);
    //[end L6.3]
}

static int64_t valid_numel(const FlatLayout *layout, int rank)
{
    int64_t valid = 0;
    //[[L6.3a] The result is where the last valid element of the rank's shard ends; 0 if it has
    //  none.
    for (int i = 0; i < layout->n; i++) {
        int64_t begin, end, at;
        param_range(layout, i, rank, &begin, &end, &at);
        if (begin < end) valid = at + end - begin;
    }
    //[end L6.3a]
    return valid;
}

static Status zero_padding(const FlatParam *flat, const Buffer *sharded, cudaStream_t stream)
{
    const FlatLayout *layout = &flat->layout;
    // A gradient's padding is a sum of zeros; and another stream may be adding the replicas' sums.
    if (sharded->data == flat->sharded_grad.data) return OK;
    //[L6.4] When `stream` has run what is queued, the padding of every chunk of this rank is zero;
    //  no other byte was touched.
    //? How many pieces of padding can a shard have here, and where is each?
    for (int i = 0; i < layout->n; i++) {
        int64_t begin, end, at, chunk = per_parameter_chunk(layout->params[i], layout->world);
        param_range(layout, i, layout->rank, &begin, &end, &at);
        Buffer padding = buffer_range(sharded, at + end - begin, chunk - (end - begin));
        if (padding.numel > 0)
            CUDA_TRY(cudaMemsetAsync(padding.data, 0, buffer_bytes(&padding), stream));
    }
    return OK;
    //[end L6.4]
}

// ---- Copies ----

static Status copy_out(FsdpUnit *unit)
{
    FlatParam *flat = &unit->flat;
    const FlatLayout *layout = &flat->layout;
    FsdpRoot *root = unit->root;
    cudaStream_t stream = unit->ctx->compute_stream;
    Buffer gathered = flat->unsharded_param;
    if (layout->world == 1) return OK; // the two orders are the same
    //[L6.5] unsharded_param is a new buffer of the same size and type (layout_alloc_param), which
    //  the compute stream fills: parameter i from offset[i] on. The views are set.
    //  root->extensions->copied_out holds the gather buffer, even if a copy fails, and its event is
    //  recorded after the copy. The buffer that it held before was freed, before any memory was
    //  allocated. Outside of a forward this one is freed, too.
    //? All pieces of a parameter have the same length and are equally far apart. How many
    //  copies is that?
    size_t element = (size_t)dtype_bytes(gathered.dtype);
    size_t shard = (size_t)layout->shard_numel * element;
    TRY(layout_free_copied_out(root));
    TRY(layout_alloc_param(unit, &flat->unsharded_param));
    root->extensions->copied_out.buffer = gathered.data;
    for (int i = 0; i < layout->n; i++) {
        size_t chunk = (size_t)per_parameter_chunk(layout->params[i], layout->world) * element;
        Buffer to = buffer_range(&flat->unsharded_param, layout->offset[i], 0);
        Buffer from = buffer_range(&gathered, chunk_begin(layout, i), 0);
        CUDA_TRY(cudaMemcpy2DAsync(to.data, chunk, from.data, shard, chunk, (size_t)layout->world,
                                   cudaMemcpyDeviceToDevice, stream));
    }
    CUDA_TRY(cudaEventRecord(root->extensions->copied_out.event, stream));
    flat_set_views(flat);
    return unit->phase == FSDP_FORWARD ? OK : layout_free_copied_out(root);
    //[end L6.5]
}

static Status copy_in(FsdpUnit *unit)
{
    FlatParam *flat = &unit->flat;
    const FlatLayout *layout = &flat->layout;
    cudaStream_t stream = unit->ctx->compute_stream;
    Buffer grad = flat->unsharded_grad;
    if (layout->world == 1 || grad.data == NULL) return OK;
    //[L6.6] unsharded_grad is a new buffer of the same size and type (layout_alloc_grad), which the
    //  compute stream fills: the shards of all ranks in rank order, padding included. The buffer
    //  that was there is freed after the copy, even if a copy fails. The gradient that was being
    //  reduced is freed before memory is allocated.
    //? A frozen parameter has no gradient. Where does your loop end?
    size_t element = (size_t)dtype_bytes(grad.dtype);
    size_t shard = (size_t)layout->grad_numel * element;
    cudaError_t copied = cudaSuccess;
    TRY(fsdp_free_reduce_scatter(unit->root));
    TRY(layout_alloc_grad(unit, &flat->unsharded_grad));
    for (int i = 0; i < layout->n && !layout->params[i]->frozen && copied == cudaSuccess; i++) {
        size_t chunk = (size_t)per_parameter_chunk(layout->params[i], layout->world) * element;
        Buffer to = buffer_range(&flat->unsharded_grad, chunk_begin(layout, i), 0);
        Buffer from = buffer_range(&grad, layout->offset[i], 0);
        copied = cudaMemcpy2DAsync(to.data, shard, from.data, chunk, chunk, (size_t)layout->world,
                                   cudaMemcpyDeviceToDevice, stream);
    }
    CUDA_TRY(cudaFreeAsync(grad.data, stream));
    CUDA_TRY(copied);
    return OK;
    //[end L6.6]
}

static Status wait_for_unshard(FsdpUnit *unit)
{
    if (unit->flat.state == FLAT_UNSHARDED) return OK;
    TRY(fsdp_wait_for_unshard_default(unit));
    return copy_out(unit);
}

static Status reduce_grad(FsdpUnit *unit)
{
    TRY(copy_in(unit));
    return fsdp_reduce_grad_default(unit);
}

// Frees the last gather buffer at the end of the outermost forward.
static Status post_forward(Module *module, void *arg)
{
    FsdpRoot *root = ((FsdpUnit *)arg)->root;
    TRY(fsdp_post_forward_default(module, arg));
    return root->iter_forward_root == NULL ? layout_free_copied_out(root) : OK;
}

const FlatLayoutOps PER_PARAMETER_OPS = {
    .valid_numel = valid_numel,
    .param_range_in_shard = param_range,
    .zero_padding = zero_padding,
    .wait_for_unshard = wait_for_unshard,
    .reshard = fsdp_reshard_default,
    .reduce_grad = reduce_grad,
    .post_forward = post_forward,
};

// ---- Learning rates by parameter ----

// opt->step: one step of AdamW by groups. Another lab's step handles the groups itself.
static Status step_by_groups(FsdpAdamW *opt)
{
    const ParamGroups *groups = opt->step_arg;
    if (opt->root->ops.adamw_step != fsdp_adamw_step_default) return opt->root->ops.adamw_step(opt);
    TRY(extension_check_sharded(opt->root));
    opt->t++;
    for (int u = 0; u < opt->n; u++) {
        FlatParam *flat = &opt->root->units[u]->flat;
        float *values = flat->sharded_param.data, *grads = flat->sharded_grad.data;
        //[L6.7] Step opt->t of AdamW has run on what this rank owns of each trainable
        //  parameter of the unit, with opt->config as groups->choose changes it for that parameter.
        //  No other element was touched.
        //? The configuration belongs to the optimizer. Whose copy may `choose` change?
        for (int i = 0; i < flat->layout.n; i++) {
            const Param *param = flat->layout.params[i];
            AdamWConfig c = opt->config;
            int64_t begin, end, at;
            flat_param_range_in_shard(&flat->layout, i, flat->layout.rank, &begin, &end, &at);
            if (param->frozen || begin == end) continue;
            groups->choose(param, &c, groups->arg);
            CUDA_TRY(kernel_adamw(values + at, grads + at, opt->m[u] + at, opt->v[u] + at,
                                  (size_t)(end - begin), c.lr, c.beta1, c.beta2, c.eps,
                                  c.weight_decay, opt->t, opt->ctx->compute_stream));
        }
        //[end L6.7]
    }
    return OK;
}

void param_groups_apply(FsdpAdamW *opt, const ParamGroups *groups)
{
    opt->step_arg = groups;
    opt->step = groups != NULL ? step_by_groups : fsdp_adamw_step_by_root;
}

const ParamGroups *param_groups_of(const FsdpAdamW *opt)
{
    return opt->step == step_by_groups ? opt->step_arg : NULL;
}
