/* chunks_by_remainder.c: Chunks by a division and a remainder; ranges rank by rank; the padding of
 * a shard is what lies between the end of a range and the next chunk, from the last to the first.
 */
// ==== per_parameter.c
int64_t per_parameter_chunk(const Param *param, int world)
{
    int64_t each = param->shape[0] / world, row = 1;
    if (param->shape[0] % world != 0) each++;
    for (int d = 1; d < param->ndim; d++) row *= param->shape[d];
    return each * row;
}

static void param_range(const FlatLayout *layout, int i, int rank, int64_t *begin, int64_t *end,
                        int64_t *at)
{
    const Param *param = layout->params[i];
    int64_t chunk = per_parameter_chunk(param, layout->world), left = meta_numel(param);
    *at = layout->offset[i] / layout->world;
    *begin = 0;
    for (int r = 0; r < rank; r++) {
        int64_t his = left < chunk ? left : chunk;
        *begin += his;
        left -= his;
    }
    *end = *begin + (left < chunk ? left : chunk);
}

static int64_t valid_numel(const FlatLayout *layout, int rank)
{
    for (int i = layout->n - 1; i >= 0; i--) {
        int64_t begin, end, at;
        param_range(layout, i, rank, &begin, &end, &at);
        if (begin != end) return at + end - begin;
    }
    return 0;
}

static Status zero_padding(const FlatParam *flat, const Buffer *sharded, cudaStream_t stream)
{
    const FlatLayout *layout = &flat->layout;
    if (sharded->data == flat->sharded_grad.data) return OK;
    float *data = sharded->data;
    int64_t next = layout->shard_numel;
    for (int i = layout->n - 1; i >= 0; i--) {
        int64_t begin, end, at;
        param_range(layout, i, layout->rank, &begin, &end, &at);
        int64_t first = at + end - begin;
        if (first != next)
            CUDA_TRY(
                cudaMemsetAsync(data + first, 0, (size_t)(next - first) * sizeof *data, stream));
        next = at;
    }
    return OK;
}
