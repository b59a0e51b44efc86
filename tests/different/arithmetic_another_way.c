/* arithmetic_another_way.c: Padding by a remainder, slices by clamping both ends, views set one by
 * one, and the padding filled by a kernel.
 */
// ==== flat_param.c
#include "kernels.h"

Status flat_layout(FlatParam *flat, const char *name, Param **params, int n, int rank, int world,
                   bool align)
{
    memset(flat, 0, sizeof *flat);
    TRY(check_layout(name, params, n, rank, world));
    snprintf(flat->name, sizeof flat->name, "%s", name);
    flat->layout.params = calloc((size_t)n, sizeof *flat->layout.params);
    flat->layout.offset = calloc((size_t)n, sizeof *flat->layout.offset);
    if (flat->layout.params == NULL || flat->layout.offset == NULL) {
        flat_destroy(flat);
        return fail(ERR_MEMORY, "%s: no host memory for %d parameters", name, n);
    }
    flat->layout.n = n;
    flat->layout.rank = rank;
    flat->layout.world = world;
    for (int i = 0; i < n; i++) flat->layout.params[i] = params[i];
    for (int i = 1; i < n; i++) flat->layout.offset[i] = flat->layout.offset[i - 1] + meta_numel(params[i - 1]);
    flat->layout.numel = flat->layout.offset[n - 1] + meta_numel(params[n - 1]);
    flat->layout.shard_numel = flat->layout.numel / world + (flat->layout.numel % world != 0);
    if (align && flat->layout.shard_numel % 4 != 0) flat->layout.shard_numel += 4 - flat->layout.shard_numel % 4;
    flat->layout.padded = flat->layout.shard_numel * world;
    return OK;
}

int64_t flat_valid_numel(const FlatParam *flat, int rank)
{
    int64_t left = flat->layout.numel - rank * flat->layout.shard_numel;
    if (left < 0) return 0;
    return left < flat->layout.shard_numel ? left : flat->layout.shard_numel;
}

static int64_t clamp(int64_t x, int64_t low, int64_t high)
{
    return x < low ? low : x > high ? high : x;
}

void flat_param_range_in_shard(const FlatParam *flat, int i, int rank, int64_t *begin, int64_t *end, int64_t *at)
{
    int64_t shift = rank * flat->layout.shard_numel - flat->layout.offset[i]; // of the shard, in the parameter
    int64_t numel = meta_numel(flat->layout.params[i]);
    *begin = clamp(shift, 0, numel);
    *end = clamp(shift + flat->layout.shard_numel, 0, numel);
    *at = *begin < *end ? *begin - shift : 0;
}

Status flat_zero_padding(const FlatParam *flat, float *shard_buffer, cudaStream_t stream)
{
    int64_t real = flat_valid_numel(flat, flat->layout.rank);
    if (real < flat->layout.shard_numel)
        CUDA_TRY(kernel_fill(shard_buffer + real, 0.0f, (size_t)(flat->layout.shard_numel - real),
                             stream));
    return OK;
}
