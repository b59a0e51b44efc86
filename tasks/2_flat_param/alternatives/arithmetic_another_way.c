/* arithmetic_another_way.c: Padding by a remainder, slices by clamping both ends, views by pointer
 * arithmetic, and the padding filled by a kernel.
 */
// ==== flat_param.c
#include "kernels.h"

Status flat_layout_default(FlatLayout *layout, const char *name, Param **params, int n, int rank,
                           int world, bool align)
{
    memset(layout, 0, sizeof *layout);
    TRY(check_layout(name, params, n, rank, world));
    TRY(check_trains(name, params, n));
    *layout = (FlatLayout){.n = n,
                           .params = calloc((size_t)n, sizeof *layout->params),
                           .offset = calloc((size_t)n, sizeof *layout->offset),
                           .rank = rank,
                           .world = world};
    if (layout->params == NULL || layout->offset == NULL) {
        flat_layout_destroy(layout);
        return fail(ERR_MEMORY, "%s: no host memory for %d parameters", name, n);
    }
    memcpy(layout->params, params, (size_t)n * sizeof *params);
    for (int i = 1; i < n; i++)
        layout->offset[i] = layout->offset[i - 1] + meta_numel(params[i - 1]);
    layout->numel = layout->offset[n - 1] + meta_numel(params[n - 1]);
    layout->shard_numel = layout->numel / world + (layout->numel % world != 0);
    if (align && layout->shard_numel % 4 != 0) layout->shard_numel += 4 - layout->shard_numel % 4;
    layout->padded = layout->shard_numel * world;
    return OK;
}

static int64_t clamp(int64_t x, int64_t low, int64_t high)
{
    return x < low ? low : x > high ? high : x;
}

int64_t flat_valid_numel_default(const FlatLayout *layout, int rank)
{
    return clamp(layout->numel - rank * layout->shard_numel, 0, layout->shard_numel);
}

void flat_param_range_in_shard_default(const FlatLayout *layout, int i, int rank, int64_t *begin,
                                       int64_t *end, int64_t *at)
{
    int64_t shift =
        rank * layout->shard_numel - layout->offset[i]; // of the shard, in the parameter
    int64_t numel = meta_numel(layout->params[i]);
    *begin = clamp(shift, 0, numel);
    *end = clamp(shift + layout->shard_numel, 0, numel);
    *at = *begin - shift;
    if (*begin == *end)
        *begin = *end = *at = -rank - 1; // any number will do, as no element is meant
}

Status flat_zero_padding_default(const FlatParam *flat, const Buffer *sharded, cudaStream_t stream)
{
    const FlatLayout *layout = &flat->layout;
    int64_t valid = flat_valid_numel(layout, layout->rank);
    size_t padding = (size_t)(layout->shard_numel - valid),
           width = (size_t)dtype_bytes(sharded->dtype);
    char *from = (char *)sharded->data + (size_t)valid * width;
    if (padding > 0 && sharded->dtype == DTYPE_F32)
        CUDA_TRY(kernel_fill((float *)from, 0.0f, padding, stream));
    else if (padding > 0)
        CUDA_TRY(cudaMemsetAsync(from, 0, padding * width, stream));
    return OK;
}

void flat_set_views(FlatParam *flat)
{
    char *unsharded = flat->unsharded_param.data;
    int64_t width = dtype_bytes(flat->unsharded_param.dtype);
    for (int i = flat->layout.n; i-- > 0;) {
        Param *param = flat->layout.params[i];
        param->data.dtype = flat->unsharded_param.dtype;
        param->data.numel = meta_numel(param);
        param->data.data = unsharded == NULL ? NULL : unsharded + width * flat->layout.offset[i];
    }
}
