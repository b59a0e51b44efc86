/* codes_from_the_end.c: Places by one pass with two counters; a part is zeroed first and then
 * filled, from the last parameter to the first; the amax of a chunk counts its padding.
 */
// ==== fp8.c
int64_t fp8_place(const FlatLayout *layout, const int *slot, int64_t wide_bytes, int64_t *at)
{
    int64_t numbers = 0, codes = 0;
    for (int i = 0; i < layout->n; i++) {
        int64_t *count = slot[i] < 0 ? &numbers : &codes;
        at[i] = slot[i] < 0 ? numbers * wide_bytes : codes;
        *count += per_parameter_chunk(layout->params[i], layout->world);
    }
    for (int i = 0; i < layout->n; i++)
        if (slot[i] >= 0) at[i] += numbers * wide_bytes;
    while (numbers > 0 && codes % wide_bytes != 0) codes++;
    return numbers * wide_bytes + codes;
}

Status fp8_update_scales(FsdpRoot *root)
{
    Fp8State *state = root->extensions->fp8;
    FsdpContext *ctx = root->ctx;
    if (!state->stale) return OK;
    size_t bytes = sizeof *state->amax * (size_t)state->n;
    CUDA_TRY(cudaMemsetAsync(state->amax, 0, bytes, ctx->all_gather_stream));
    for (int u = root->n_units; u-- > 0;) {
        const FlatParam *flat = &root->units[u]->flat;
        for (int i = flat->layout.n; i-- > 0;) {
            // The padding is zero, and no amax is smaller.
            int64_t n = per_parameter_chunk(flat->layout.params[i], flat->layout.world);
            Buffer chunk =
                buffer_range(&flat->sharded_param, flat->layout.offset[i] / flat->layout.world, n);
            if (state->units[u].slot[i] == -1) continue;
            CUDA_TRY(kernel_amax(&state->amax[state->units[u].slot[i]], chunk.data, (size_t)n,
                                 ctx->all_gather_stream));
        }
    }
    if (ctx->mesh.shard.size > 1)
        NCCL_TRY(ncclAllReduce(state->amax, state->amax, (size_t)state->n, ncclUint32, ncclMax,
                               ctx->mesh.shard.comm, ctx->all_gather_stream));
    state->stale = false;
    return OK;
}

static Status fill_part(FsdpUnit *unit, char *part)
{
    const FlatParam *flat = &unit->flat;
    const Fp8Unit *own = fp8_of(unit);
    cudaStream_t stream = unit->ctx->all_gather_stream;
    CUDA_TRY(cudaMemsetAsync(part, 0, (size_t)own->shard_bytes, stream));
    for (int i = flat->layout.n; i-- > 0;) {
        int64_t n = per_parameter_chunk(flat->layout.params[i], flat->layout.world);
        Buffer chunk =
            buffer_range(&flat->sharded_param, flat->layout.offset[i] / flat->layout.world, n);
        void *to = part + own->at[i];
        if (own->slot[i] == -1)
            CUDA_TRY(kernel_cast(own->wide.dtype, to, DTYPE_F32, chunk.data, (size_t)n, stream));
        else
            CUDA_TRY(kernel_quantize_e4m3(to, chunk.data,
                                          &unit->root->extensions->fp8->amax[own->slot[i]],
                                          (size_t)n, stream));
    }
    return OK;
}
