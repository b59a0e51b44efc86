/* Task 2: flat parameter. Many parameters in one buffer, cut into equal shards.
 *
 * One all-gather of a megabyte is far quicker than twenty of fifty kilobytes, and a collective
 * wants the same count from every rank. So the parameters of a unit are laid back to back in a flat
 * buffer, and zeros follow the last until the length is a multiple of the world size W. Every rank
 * then owns one W-th of the buffer. A shard's border ignores where a parameter ends: ten elements on
 * three ranks are
 *
 *      rank 0           rank 1           rank 2
 *     [0 1 2 3]        [4 5 6 7]        [8 9 . .]         shard 4, padded 12, 2 of padding
 *
 * The padding must always be zero: it is summed into gradient norms, it goes through the optimizer
 * like everything else, and a NaN in it is a NaN in the norm.
 *
 * Interface:
 *   flat_layout, flat_layout_destroy         the arithmetic: offsets, padding, shard length
 *   flat_valid_numel, flat_param_range_in_shard   which elements a rank owns
 *   flat_create, flat_destroy                the shard of this rank and its gradient
 *   flat_set_state                           sharded → unsharding → unsharded → sharded
 *   flat_set_views, flat_set_grad_views      the parameters as views into the unsharded buffer
 *   flat_zero_padding
 */
#include "fsdp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t max64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

// Whether the arguments of flat_layout make sense.
static Status check_layout(const char *name, Param **params, int n, int rank, int world)
{
    if (world < 1) return fail(ERR_ARGUMENT, "%s: a world of %d ranks", name, world);
    if (rank < 0 || rank >= world)
        return fail(ERR_ARGUMENT, "%s: rank %d is none of 0 to %d", name, rank, world - 1);
    if (n < 1) return fail(ERR_ARGUMENT, "%s: no parameters to shard", name);
    for (int i = 0; i < n; i++) {
        if (params[i]->dtype != DTYPE_F32)
            return fail(ERR_ARGUMENT, "%s: %s is not float", name, params[i]->name);
        if (params[i]->owner != NULL)
            return fail(ERR_ARGUMENT, "%s: %s belongs to another unit", name, params[i]->name);
    }
    return OK;
}

void flat_layout_destroy(FlatLayout *layout)
{
    free(layout->params);
    free(layout->offset);
    memset(layout, 0, sizeof *layout);
}

Status flat_layout(FlatLayout *layout, const char *name, Param **params, int n, int rank, int world,
                   bool align)
{
    memset(layout, 0, sizeof *layout);
    TRY(check_layout(name, params, n, rank, world));
    layout->rank = rank;
    layout->world = world;
    layout->params = malloc((size_t)n * sizeof(Param *));
    layout->offset = malloc((size_t)n * sizeof(int64_t));
    if (layout->params == NULL || layout->offset == NULL) {
        flat_layout_destroy(layout);
        return fail(ERR_MEMORY, "%s: no host memory for %d parameters", name, n);
    }

    //[2.1] n, params and offset: each parameter begins where the one before it ends, with no gap.
    //  numel: where the last one ends. padded: numel rounded up to a multiple of world, or of
    //  4·world when `align` asks for shards of whole 16 bytes. shard_numel: padded / world.
    //? 10 elements on 3 ranks pad to 12. To what do 10 aligned elements pad? And 12, not aligned?
    layout->n = n;
    for (int i = 0; i < n; i++) {
        layout->params[i] = params[i];
        layout->offset[i] = layout->numel;
        layout->numel += meta_numel(params[i]);
    }
    int64_t multiple = align ? 4 * (int64_t)world : world;
    layout->padded = (layout->numel + multiple - 1) / multiple * multiple;
    layout->shard_numel = layout->padded / world;
    //[end 2.1]
    return OK;
}

int64_t flat_valid_numel(const FlatLayout *layout, int rank)
{
    //[2.2] Rank's shard is [rank·shard_numel, (rank+1)·shard_numel) of the flat buffer, of which
    //  only what lies below numel is valid. Mind a unit with fewer elements than there are ranks: a
    //  shard may hold nothing but padding.
    //? 5 elements on 4 ranks: shards of 2. What does rank 3 hold?
    int64_t begin = rank * layout->shard_numel;
    return max64(0, min64(layout->numel - begin, layout->shard_numel));
    //[end 2.2]
}

void flat_param_range_in_shard(const FlatLayout *layout, int i, int rank, int64_t *begin,
                               int64_t *end, int64_t *at)
{
    //[2.3] The parameter is [offset, offset + its elements) of the flat buffer, the shard is
    //  [rank·shard_numel, (rank+1)·shard_numel). What they share, counted from the parameter's
    //  beginning, is [*begin, *end); counted from the shard's beginning it starts at *at. Where
    //  they share nothing, set all three to 0.
    int64_t param_begin = layout->offset[i];
    int64_t param_end = param_begin + meta_numel(layout->params[i]);
    int64_t shard_begin = rank * layout->shard_numel;
    int64_t shard_end = shard_begin + layout->shard_numel;

    int64_t both_begin = max64(param_begin, shard_begin);
    int64_t both_end = min64(param_end, shard_end);
    *begin = *end = *at = 0;
    if (both_begin >= both_end) return;
    *begin = both_begin - param_begin;
    *end = both_end - param_begin;
    *at = both_begin - shard_begin;
    //[end 2.3]
}

Status flat_zero_padding(const FlatParam *flat, const Buffer *sharded, cudaStream_t stream)
{
    //[2.4] cudaMemsetAsync from the first element of this rank's shard that is padding to its end.
    //  There is nothing to do where all are valid.
    int64_t valid = flat_valid_numel(&flat->layout, flat->layout.rank);
    Buffer padding = buffer_range(sharded, valid, flat->layout.shard_numel - valid);
    if (padding.numel == 0) return OK;
    CUDA_TRY(cudaMemsetAsync(padding.data, 0, buffer_bytes(&padding), stream));
    return OK;
    //[end 2.4]
}

// Allocates the two shards and gives them their values.
static Status fill_shards(FlatParam *flat, uint64_t seed, cudaStream_t stream)
{
    FlatLayout *layout = &flat->layout;
    flat->sharded_param = flat->sharded_grad = (Buffer){NULL, DTYPE_F32, layout->shard_numel};
    flat->unsharded_param = flat->unsharded_grad = (Buffer){NULL, DTYPE_F32, layout->padded};

    //[2.5] cudaMalloc the memory (data) of sharded_param and sharded_grad. The gradient is zero. Of
    //  every parameter, the slice that lies in this rank's shard (flat_param_range_in_shard) is made
    //  by meta_init_device where it belongs; the padding after the last is zeroed. Fresh device
    //  memory holds anything, even NaN. Create the event flat->all_gather_done too
    //  (cudaEventDisableTiming), which task 3 records.
    //? How much of the model may be on this device while you build it?
    size_t bytes = buffer_bytes(&flat->sharded_param);
    CUDA_TRY(cudaEventCreateWithFlags(&flat->all_gather_done, cudaEventDisableTiming));
    CUDA_TRY(cudaMalloc(&flat->sharded_param.data, bytes));
    CUDA_TRY(cudaMalloc(&flat->sharded_grad.data, bytes));
    CUDA_TRY(cudaMemsetAsync(flat->sharded_grad.data, 0, bytes, stream));
    for (int i = 0; i < layout->n; i++) {
        int64_t begin, end, at;
        flat_param_range_in_shard(layout, i, layout->rank, &begin, &end, &at);
        Buffer slice = buffer_range(&flat->sharded_param, at, end - begin);
        if (begin < end)
            TRY(meta_init_device(layout->params[i], seed, begin, end, slice.data, stream));
    }
    TRY(flat_zero_padding(flat, &flat->sharded_param, stream));
    return OK;
    //[end 2.5]
}

Status flat_create(FlatParam *flat, const char *name, const FlatLayout *layout, uint64_t seed,
                   cudaStream_t stream)
{
    Status status = OK;
    memset(flat, 0, sizeof *flat);
    snprintf(flat->name, sizeof flat->name, "%s", name);
    flat->layout = *layout;
    for (int i = 0; i < layout->n && status == OK; i++)
        if (layout->params[i]->data.data != NULL)
            status = fail(ERR_ARGUMENT, "%s: %s is not on meta: it has storage of its own", name,
                          layout->params[i]->name);
    if (status == OK) status = fill_shards(flat, seed, stream);
    for (int i = 0; i < layout->n && status == OK; i++) layout->params[i]->owner = flat;
    if (status != OK) flat_destroy(flat);
    return status;
}

Status flat_set_state(FlatParam *flat, FlatState to)
{
    static const char *const NAMES[] = {"sharded", "unsharding", "unsharded"};
    static const FlatState NEXT[] = {FLAT_UNSHARDING, FLAT_UNSHARDED, FLAT_SHARDED};
    if (to != NEXT[flat->state])
        return fail(ERR_ARGUMENT,
                    "%s is %s and cannot become %s: the order is unshard, wait for "
                    "it, reshard",
                    flat->name, NAMES[flat->state], NAMES[to]);
    flat->state = to;
    return OK;
}

void flat_set_views(FlatParam *flat)
{
    //[2.6] Of every parameter i, data is the range of flat->unsharded_param that begins at the
    //  parameter's offset (buffer_range). No byte is copied: the parameters become views. Where
    //  there is no memory, the range has none either.
    for (int i = 0; i < flat->layout.n; i++) {
        Param *param = flat->layout.params[i];
        param->data =
            buffer_range(&flat->unsharded_param, flat->layout.offset[i], meta_numel(param));
    }
    //[end 2.6]
}

void flat_set_grad_views(FlatParam *flat)
{
    for (int i = 0; i < flat->layout.n; i++) {
        Param *param = flat->layout.params[i];
        param->grad =
            buffer_range(&flat->unsharded_grad, flat->layout.offset[i], meta_numel(param));
    }
}

void flat_destroy(FlatParam *flat)
{
    for (int i = 0; i < flat->layout.n; i++) {
        Param *param = flat->layout.params[i];
        if (param->owner != flat) continue;
        param->owner = NULL;
        param->data.data = NULL;
        param->grad.data = NULL;
    }
    cudaFree(flat->sharded_param.data);
    cudaFree(flat->sharded_grad.data);
    if (flat->all_gather_done != NULL) cudaEventDestroy(flat->all_gather_done);
    flat_layout_destroy(&flat->layout);
    memset(flat, 0, sizeof *flat);
}
