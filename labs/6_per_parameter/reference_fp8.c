/* Lab 6, second half: FP8 all-gathers. A quarter of the bytes, with a scale per parameter.
 *
 * Eight bits have numbers from 2^-9 to 448, and a matrix of weights has elements around 0.02:
 * without a scale most of them would round to a few numbers, or to zero. So each parameter is first
 * multiplied by its own scale. A flat parameter cannot have that, because it does not know whose an
 * element is.
 *
 *     masters (float)   · scale → e4m3      all-gather      e4m3 / scale → float or bf16
 *     [ w | b ]        →  [ b | w8 ]    →  [ b | w8 | b | w8 ]   →   [ w w | b b ]
 *
 * [Note: one all-reduce] All ranks must quantise with the same scale, so they need a parameter's
 * largest element over all ranks. Unit by unit, each all-gather would wait for a message of a few
 * bytes. But parameters change once in a step, so the first all-gather after it finds the largest
 * elements of all units together.
 *
 * [Note: bits as numbers] A maximum of floats may lose a NaN, since each comparison with one is
 * false. Floats without a sign have the order of their bits, with infinity and NaN at the end. So
 * whole numbers are compared and reduced.
 *
 * [Note: two types, one buffer] Biases and norms travel unquantised, in the same message. A float
 * must be at a multiple of four bytes, a code may be anywhere: so the floats come first.
 *
 * Interface:
 *   fp8_apply, fp8_remove                 the switch
 *   fp8_place                             the places in a rank's part of the gather buffer
 *   fp8_update_scales                     the amax of all parameters
 *   fp8_all_gather, fp8_copy_out, fp8_reset   there and back
 *   fp8_full_state                        the masters
 *
 * Source of the scheme: torchao's float8 training with FSDP2
 * (precompute_float8_dynamic_scale_for_fsdp); there a scale is 448 / amax, and products are
 * computed in FP8 as well.
 */
#include "fp8_gather.h"

#include "kernels.h"
#include "not_yet.h"
#include "per_parameter.h"
#include "strategy.h"

int64_t fp8_place(const FlatLayout *layout, const int *slot, int64_t wide_bytes, int64_t *at)
{
    int64_t bytes = 0;
    //[L6.8] As fp8_gather.h says.
    //? A bias of 3 floats and a matrix of 5 codes: where would rank 1's floats begin without the
    //? bytes at the end?
    for (int i = 0; i < layout->n; i++) {
        if (slot[i] >= 0) continue;
        at[i] = bytes;
        bytes += per_parameter_chunk(layout->params[i], layout->world) * wide_bytes;
    }
    bool mixed = bytes > 0;
    for (int i = 0; i < layout->n; i++) {
        if (slot[i] < 0) continue;
        at[i] = bytes;
        bytes += per_parameter_chunk(layout->params[i], layout->world);
    }
    if (mixed) bytes = (bytes + wide_bytes - 1) / wide_bytes * wide_bytes;
    //[end L6.8]
    return bytes;
}

Status fp8_update_scales(FsdpRoot *root)
{
    Fp8State *state = root->extensions->fp8;
    const ProcessGroup *shard = &root->ctx->mesh.shard;
    cudaStream_t stream = root->ctx->all_gather_stream;
    if (!state->stale) return OK;
    //[L6.9] When the all-gather stream has run what is queued, amax[slot] is the largest |x| of the
    //  parameter with this number, over all ranks that shard. `stale` is false.
    //? What does kernel_amax do with the value that is in amax already?
    CUDA_TRY(cudaMemsetAsync(state->amax, 0, (size_t)state->n * sizeof *state->amax, stream));
    for (int u = 0; u < root->n_units; u++) {
        const FlatParam *cut = &root->units[u]->flat;
        const float *values = cut->sharded_param.data;
        for (int i = 0; i < cut->layout.n; i++) {
            int64_t begin, end, at;
            int slot = state->units[u].slot[i];
            flat_param_range_in_shard(&cut->layout, i, cut->layout.rank, &begin, &end, &at);
            if (slot < 0 || begin == end) continue;
            CUDA_TRY(kernel_amax(state->amax + slot, values + at, (size_t)(end - begin), stream));
        }
    }
    if (shard->size > 1)
        NCCL_TRY(ncclAllReduce(state->amax, state->amax, (size_t)state->n, ncclUint32, ncclMax,
                               shard->comm, stream));
    state->stale = false;
    return OK;
    //[end L6.9]
}

// Queues the kernels that fill this rank's part of the gather buffer.
static Status fill_part(FsdpUnit *unit, char *part)
{
    const FlatParam *flat = &unit->flat;
    const FlatLayout *layout = &flat->layout;
    const Fp8Unit *own = fp8_of(unit);
    const uint32_t *amax = unit->root->extensions->fp8->amax;
    cudaStream_t stream = unit->ctx->all_gather_stream;
    //[L6.10] When the all-gather stream has run what is queued, all shard_bytes of the part are
    //  written: each parameter's chunk, padding included, at own->at[i], quantised or in the type
    //  of own->wide; zeros after the last one.
    //? Where in the shard does a chunk begin, and where does its range end?
    int64_t end = 0;
    for (int i = 0; i < layout->n; i++) {
        int64_t n = per_parameter_chunk(layout->params[i], layout->world), bytes = n;
        Buffer from = buffer_range(&flat->sharded_param, layout->offset[i] / layout->world, n);
        char *to = part + own->at[i];
        if (own->slot[i] >= 0) {
            CUDA_TRY(kernel_quantize_e4m3((uint8_t *)to, from.data, amax + own->slot[i], (size_t)n,
                                          stream));
        } else {
            CUDA_TRY(kernel_cast(own->wide.dtype, to, from.dtype, from.data, (size_t)n, stream));
            bytes *= dtype_bytes(own->wide.dtype);
        }
        if (own->at[i] + bytes > end) end = own->at[i] + bytes;
    }
    if (end < own->shard_bytes)
        CUDA_TRY(cudaMemsetAsync(part + end, 0, (size_t)(own->shard_bytes - end), stream));
    return OK;
    //[end L6.10]
}

Status fp8_all_gather(FsdpUnit *unit)
{
    FlatParam *flat = &unit->flat;
    size_t bytes = (size_t)fp8_of(unit)->shard_bytes;
    //[L6.11] As fp8_gather.h says.
    //? One rank has no other to gather from. Is there still something for it to do?
    char *part = (char *)flat->unsharded_param.data + (size_t)flat->layout.rank * bytes;
    TRY(fp8_update_scales(unit->root));
    TRY(fill_part(unit, part));
    if (flat->layout.world > 1)
        NCCL_TRY(ncclAllGather(part, flat->unsharded_param.data, bytes, dtype_nccl(DTYPE_BYTE),
                               unit->ctx->mesh.shard.comm, unit->ctx->all_gather_stream));
    return OK;
    //[end L6.11]
}

// Queues the copy of parameter i from the gather buffer to the unsharded parameter.
static Status copy_param(FsdpUnit *unit, int i, const char *gathered)
{
    const FlatLayout *layout = &unit->flat.layout;
    const Fp8Unit *own = fp8_of(unit);
    cudaStream_t stream = unit->ctx->compute_stream;
    size_t world = (size_t)layout->world, part = (size_t)own->shard_bytes;
    size_t n = (size_t)per_parameter_chunk(layout->params[i], layout->world);
    Buffer to = buffer_range(&unit->flat.unsharded_param, layout->offset[i], (int64_t)(world * n));
    const char *from = gathered + own->at[i];
    //[L6.12] The chunks of all ranks are contiguous in `to`, as numbers of its type.
    //? In the gather buffer, how far apart are two ranks' chunks, and in bytes or elements?
    if (own->slot[i] >= 0) {
        CUDA_TRY(kernel_dequantize_e4m3(to.dtype, to.data, (const uint8_t *)from, part,
                                        unit->root->extensions->fp8->amax + own->slot[i], world, n,
                                        stream));
        return OK;
    }
    size_t chunk = n * (size_t)dtype_bytes(to.dtype);
    CUDA_TRY(cudaMemcpy2DAsync(to.data, chunk, from, part, chunk, world, cudaMemcpyDeviceToDevice,
                               stream));
    return OK;
    //[end L6.12]
}

Status fp8_copy_out(FsdpUnit *unit)
{
    FlatParam *flat = &unit->flat;
    FsdpRoot *root = unit->root;
    void *gathered = flat->unsharded_param.data;
    TRY(layout_free_copied_out(root));
    flat->unsharded_param.dtype = fp8_of(unit)->wide.dtype;
    flat->unsharded_param.numel = fp8_of(unit)->wide.numel;
    TRY(layout_alloc_param(unit, &flat->unsharded_param));
    root->extensions->copied_out.buffer = gathered;
    Status status = OK;
    for (int i = 0; i < flat->layout.n && status == OK; i++) status = copy_param(unit, i, gathered);
    CUDA_TRY(cudaEventRecord(root->extensions->copied_out.event, unit->ctx->compute_stream));
    if (status != OK) return status;
    flat_set_views(flat);
    if (unit->phase != FSDP_FORWARD) TRY(layout_free_copied_out(root));
    return OK;
}

void fp8_reset(FsdpUnit *unit)
{
    Buffer *buffer = &unit->flat.unsharded_param;
    //[L6.13] As fp8_gather.h says.
    //? fsdp_unshard allocates as many bytes as unsharded_param has. What would it allocate
    //? otherwise?
    buffer->dtype = DTYPE_BYTE;
    buffer->numel = unit->flat.layout.world * fp8_of(unit)->shard_bytes;
    //[end L6.13]
}

// ---- The switch ----

static Status check_sharded(const FsdpRoot *root)
{
    for (int i = 0; i < root->n_units; i++) {
        const FlatParam *flat = &root->units[i]->flat;
        if (flat->state != FLAT_SHARDED)
            return fail(ERR_ARGUMENT, "%s is unsharded: call fsdp_reshard_all(root) first",
                        flat->name);
    }
    return OK;
}

// Whether the root can gather in FP8.
static Status check_root(const FsdpRoot *root)
{
    const char *name = root->units[0]->flat.name;
    if (root->extensions->fp8 != NULL) return fail(ERR_ARGUMENT, "%s gathers in FP8 already", name);
    if (root->extensions->strategy != NULL &&
        root->extensions->strategy->options.strategy == STRATEGY_DDP)
        return fail(ERR_ARGUMENT, "%s: DDP gathers nothing, so nothing in FP8: take ZeRO", name);
    if (root->extensions->offload != NULL)
        return fail(ERR_ARGUMENT,
                    "%s: FP8 finds its scales in shards on the device, not on the host", name);
    for (int i = 0; i < root->n_units; i++)
        if (root->units[i]->flat.layout.ops != &PER_PARAMETER_OPS)
            return fail(ERR_ARGUMENT,
                        "%s: FP8 has a scale for each parameter, which a flat shard does not tell "
                        "apart: take layout per_parameter",
                        root->units[i]->flat.name);
    return check_sharded(root);
}

// Makes all units gather in FP8, or as without it.
static void gather_in_fp8(FsdpRoot *root, bool on)
{
    Fp8State *state = root->extensions->fp8;
    //[L6.14] Each unit has the all-gather and the layout's functions (layout.ops) of the
    //  chosen way. In FP8 a group of one rank also gathers into a copy (flat.gathers_alone).
    //  unsharded_param, without memory, says what its all-gather fills.
    //? extension_before has what the unit had. Which of the fields are not in it?
    for (int i = 0; i < root->n_units; i++) {
        FsdpUnit *unit = root->units[i];
        const UnitFunctions *before = extension_before(unit, EXTENSION_FP8);
        unit->flat.gathers_alone = on;
        unit->flat.layout.ops = on ? &state->layout_ops : before->layout_ops;
        unit->all_gather = on ? fp8_all_gather : before->all_gather;
        unit->flat.unsharded_param = state->units[i].wide;
        if (on) fp8_reset(unit);
    }
    //[end L6.14]
}

static Status wait_for_unshard(FsdpUnit *unit)
{
    if (unit->flat.state == FLAT_UNSHARDED) return OK;
    TRY(fsdp_wait_for_unshard_default(unit));
    return fp8_copy_out(unit);
}

static Status reshard(FsdpUnit *unit)
{
    if (unit->flat.state == FLAT_SHARDED) return OK;
    fp8_reset(unit);
    return fsdp_reshard_default(unit);
}

Status fp8_apply(Module *module, const Fp8Options *options)
{
    FsdpRoot *root = NULL;
    TRY(fsdp_find_root(module, &root));
    TRY(check_root(root));
    TRY(fp8_create(root, options));
    FlatLayoutOps *ops = &root->extensions->fp8->layout_ops;
    *ops = PER_PARAMETER_OPS;
    ops->wait_for_unshard = wait_for_unshard;
    ops->reshard = reshard;
    root->ops.full_state = fp8_full_state;
    gather_in_fp8(root, true);
    return OK;
}

Status fp8_remove(Module *module)
{
    FsdpRoot *root = NULL;
    TRY(fsdp_find_root(module, &root));
    TRY(extension_check_last(root, EXTENSION_FP8));
    TRY(check_sharded(root));
    gather_in_fp8(root, false);
    fp8_destroy(root);
    return OK;
}

Status fp8_full_state(Module *module, StateVisitor visit, void *arg)
{
    FsdpRoot *root = fsdp_unit(module)->root;
    const FsdpRootOps *before = extension_ops_before(root, EXTENSION_FP8);
    TRY(check_sharded(root));
    //[L6.15] The visitor has received the masters, from before->full_state; afterwards the
    //  units gather in FP8 as before. If before->full_state fails, fsdp_reshard_all frees what is
    //  left, before the units gather in FP8 again.
    //? Which function does fsdp_full_state call under FP8?
    gather_in_fp8(root, false);
    Status status = before->full_state(module, visit, arg);
    if (status != OK) IGNORE_STATUS(fsdp_reshard_all(module));
    gather_in_fp8(root, true);
    return status;
    //[end L6.15]
}
