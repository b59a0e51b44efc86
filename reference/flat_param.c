/* Task 2: flat parameter. Many parameters in one buffer, cut into equal shards.
 *
 * One all-gather of a megabyte is far quicker than twenty of fifty kilobytes, and a collective
 * wants the same count from every rank. So the parameters of a unit are laid one behind the other
 * in a flat buffer, in float elements, and zeros are put behind the last until the length is a
 * multiple of the world size W. Every rank then owns one W-th of the buffer. A shard's border pays
 * no heed to where a parameter ends: ten elements on three ranks are
 *
 *      rank 0           rank 1           rank 2
 *     [0 1 2 3]        [4 5 6 7]        [8 9 . .]         shard 4, padded 12, 2 of padding
 *
 * The padding must be zero always: it is summed into gradient norms, it goes through the optimizer
 * like everything else, and a NaN in it is a NaN in the norm.
 *
 * Interface:
 *   flat_layout                              the arithmetic: offsets, padding, shard length
 *   flat_valid_numel, flat_param_range_in_shard                    which elements a rank owns
 *   flat_create, flat_destroy                the shard of this rank and its gradient
 *   flat_set_views, flat_set_grad_views            the parameters as views into the gathered buffer
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

Status flat_layout(FlatParam *flat, const char *name, Param **params, int n, int rank, int world,
                   bool align)
{
    memset(flat, 0, sizeof *flat);
    snprintf(flat->name, sizeof flat->name, "%s", name);
    TRY(check_layout(name, params, n, rank, world));
    flat->rank = rank;
    flat->world = world;
    flat->state = FLAT_SHARDED;
    flat->params = malloc((size_t)n * sizeof(Param *));
    flat->offset = malloc((size_t)n * sizeof(int64_t));
    if (flat->params == NULL || flat->offset == NULL) {
        flat_destroy(flat);
        return fail(ERR_MEMORY, "%s: no host memory for %d parameters", name, n);
    }

    //[2.1] flat->n, params and offset: each parameter begins where the one before it ends, with no
    //  gap. flat->numel: where the last one ends. flat->padded: numel rounded up to a multiple of
    //  world, or of 4·world when `align` asks for shards of whole 16 bytes. flat->shard_numel:
    //  padded / world.
    //? 10 elements on 3 ranks pad to 12. To what do 10 aligned elements pad? And 12, not aligned?
    flat->n = n;
    for (int i = 0; i < n; i++) {
        flat->params[i] = params[i];
        flat->offset[i] = flat->numel;
        flat->numel += meta_numel(params[i]);
    }
    int64_t multiple = align ? 4 * (int64_t)world : world;
    flat->padded = (flat->numel + multiple - 1) / multiple * multiple;
    flat->shard_numel = flat->padded / world;
    //[end 2.1]
    return OK;
}

int64_t flat_valid_numel(const FlatParam *flat, int rank)
{
    //[2.2] Rank's shard is [rank·shard_numel, (rank+1)·shard_numel) of the flat buffer, of which
    //  only what lies below numel is real. Mind a unit with fewer elements than there are ranks: a
    //  shard may hold nothing but padding.
    //? 5 elements on 4 ranks: shards of 2. What does rank 3 hold?
    int64_t begin = rank * flat->shard_numel;
    return max64(0, min64(flat->numel - begin, flat->shard_numel));
    //[end 2.2]
}

void flat_param_range_in_shard(const FlatParam *flat, int i, int rank, int64_t *begin, int64_t *end, int64_t *at)
{
    //[2.3] The parameter is [offset, offset + its elements) of the flat buffer, the shard is
    //  [rank·shard_numel, (rank+1)·shard_numel). What they share, counted from the parameter's
    //  beginning, is [*begin, *end); counted from the shard's beginning it starts at *at. Where
    //  they share nothing, set all three to 0.
    int64_t param_begin = flat->offset[i];
    int64_t param_end = param_begin + meta_numel(flat->params[i]);
    int64_t shard_begin = rank * flat->shard_numel;
    int64_t shard_end = shard_begin + flat->shard_numel;

    int64_t both_begin = max64(param_begin, shard_begin);
    int64_t both_end = min64(param_end, shard_end);
    *begin = *end = *at = 0;
    if (both_begin >= both_end) return;
    *begin = both_begin - param_begin;
    *end = both_end - param_begin;
    *at = both_begin - shard_begin;
    //[end 2.3]
}

Status flat_zero_padding(const FlatParam *flat, float *shard_buffer, cudaStream_t stream)
{
    //[2.4] cudaMemsetAsync from the first element of this rank's shard that is not real to its end.
    //  There is nothing to do where all are real.
    int64_t real = flat_valid_numel(flat, flat->rank);
    int64_t padding = flat->shard_numel - real;
    if (padding == 0) return OK;
    CUDA_TRY(cudaMemsetAsync(shard_buffer + real, 0, (size_t)padding * sizeof(float), stream));
    return OK;
    //[end 2.4]
}

// Allocates the two shards and gives them their values.
static Status fill_shards(FlatParam *flat, uint64_t seed, cudaStream_t stream)
{
    //[2.5] cudaMalloc shard and sharded_grad, shard_numel elements each. The gradient is zero. Of
    //  every parameter, the slice that lies in this rank's shard (flat_param_range_in_shard) is made by
    //  meta_init_device where it belongs; the padding behind the last is zeroed. Fresh device
    //  memory holds anything, even NaN. Create the event flat->all_gather_done too
    //  (cudaEventDisableTiming), which task 3 records.
    //? How much of the model may be on this device while you build it?
    size_t bytes = (size_t)flat->shard_numel * sizeof(float);
    CUDA_TRY(cudaEventCreateWithFlags(&flat->all_gather_done, cudaEventDisableTiming));
    CUDA_TRY(cudaMalloc((void **)&flat->sharded_param, bytes));
    CUDA_TRY(cudaMalloc((void **)&flat->sharded_grad, bytes));
    CUDA_TRY(cudaMemsetAsync(flat->sharded_grad, 0, bytes, stream));
    for (int i = 0; i < flat->n; i++) {
        int64_t begin, end, at;
        flat_param_range_in_shard(flat, i, flat->rank, &begin, &end, &at);
        if (begin < end)
            TRY(meta_init_device(flat->params[i], seed, begin, end, flat->sharded_param + at, stream));
    }
    TRY(flat_zero_padding(flat, flat->sharded_param, stream));
    return OK;
    //[end 2.5]
}

Status flat_create(FlatParam *flat, uint64_t seed, cudaStream_t stream)
{
    Status status = OK;
    for (int i = 0; i < flat->n && status == OK; i++)
        if (flat->params[i]->data != NULL)
            status = fail(ERR_ARGUMENT, "%s: %s is not on meta: it has storage of its own",
                          flat->name, flat->params[i]->name);
    if (status == OK) status = fill_shards(flat, seed, stream);
    for (int i = 0; i < flat->n && status == OK; i++) flat->params[i]->owner = flat;
    if (status != OK) flat_destroy(flat);
    return status;
}

void flat_set_views(FlatParam *flat, float *full)
{
    //[2.6] params[i]->data is `full` plus the parameter's offset; all NULL where full is NULL. No
    //  byte is copied: the parameters become views.
    for (int i = 0; i < flat->n; i++)
        flat->params[i]->data = full == NULL ? NULL : full + flat->offset[i];
    //[end 2.6]
}

void flat_set_grad_views(FlatParam *flat, float *unsharded_grad)
{
    for (int i = 0; i < flat->n; i++)
        flat->params[i]->grad = unsharded_grad == NULL ? NULL : unsharded_grad + flat->offset[i];
}

void flat_destroy(FlatParam *flat)
{
    for (int i = 0; i < flat->n; i++) {
        if (flat->params[i]->owner != flat) continue;
        flat->params[i]->owner = NULL;
        flat->params[i]->data = NULL;
        flat->params[i]->grad = NULL;
    }
    cudaFree(flat->sharded_param);
    cudaFree(flat->sharded_grad);
    if (flat->all_gather_done != NULL) cudaEventDestroy(flat->all_gather_done);
    free(flat->params);
    free(flat->offset);
    memset(flat, 0, sizeof *flat);
}
