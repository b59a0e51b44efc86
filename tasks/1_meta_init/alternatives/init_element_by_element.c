/* init_element_by_element.c: Every element makes its own block of random words, and values travel
 * to the device through two pinned buffers in turn.
 */
// ==== meta_init.c
void philox4x32_10(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    static const uint32_t factor[2] = {0xD2511F53, 0xCD9E8D57}, step[2] = {0x9E3779B9, 0xBB67AE85};
    for (int i = 0; i < 4; i++) out[i] = counter[i];
    for (uint32_t round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)factor[0] * out[0], p1 = (uint64_t)factor[1] * out[2];
        out[0] = (uint32_t)(p1 >> 32) ^ out[1] ^ (key[0] + round * step[0]);
        out[2] = (uint32_t)(p0 >> 32) ^ out[3] ^ (key[1] + round * step[1]);
        out[1] = (uint32_t)p1;
        out[3] = (uint32_t)p0;
    }
}

void meta_init_slice(const Param *param, uint64_t seed, int64_t begin, int64_t end, float *out)
{
    for (int64_t i = begin; i < end; i++) {
        float normal[4] = {0.0f};
        if (param->init == INIT_NORMAL) normal_blocks(param, seed, (uint64_t)i >> 2, 1, normal);
        out[i - begin] = param->init == INIT_ONE ? 1.0f : param->init_std * normal[i & 3];
    }
}

Status meta_init_device(const Param *param, uint64_t seed, int64_t begin, int64_t end, float *dst,
                        cudaStream_t stream)
{
    if (param->init == INIT_NONE) return OK; // nn.h: nothing is written
    enum { PART = 64 * 1024 };
    float *buffer[2] = {NULL, NULL};
    cudaEvent_t left[2];
    for (int k = 0; k < 2; k++) {
        CUDA_TRY(cudaMallocHost((void **)&buffer[k], PART * sizeof(float)));
        CUDA_TRY(cudaEventCreateWithFlags(&left[k], cudaEventDisableTiming));
    }
    int turn = 0;
    for (int64_t i = begin; i < end; i += PART, turn = 1 - turn) {
        int64_t n = end - i < PART ? end - i : PART;
        CUDA_TRY(cudaEventSynchronize(left[turn]));
        meta_init_slice(param, seed, i, i + n, buffer[turn]);
        CUDA_TRY(cudaMemcpyAsync(dst + (i - begin), buffer[turn], (size_t)n * sizeof(float),
                                 cudaMemcpyHostToDevice, stream));
        CUDA_TRY(cudaEventRecord(left[turn], stream));
    }
    CUDA_TRY(cudaStreamSynchronize(stream));
    for (int k = 0; k < 2; k++) {
        CUDA_TRY(cudaEventDestroy(left[k]));
        CUDA_TRY(cudaFreeHost(buffer[k]));
    }
    return OK;
}
