/* embedding.c: looks tokens and positions up in their tables, and adds gradients back to them.
 *
 * A token outside the table is what a real GPU would read far-away memory for; here the kernel says
 * which token it was, touches nothing and fails as an illegal address.
 *
 * Interface: kernel_embedding_forward, kernel_embedding_backward.
 */
#include <stdbool.h>
#include <stdio.h>

#include "kernels.h"
#include "simgpu.h"

// Whether all tokens (B,T) are in [0, vocab); says which is not.
static bool tokens_fit(SimgpuOp *op, const int32_t *tokens, int B, int T, int vocab)
{
    for (int i = 0; i < B * T; i++) {
        if (tokens[i] >= 0 && tokens[i] < vocab) continue;
        fprintf(stderr, "%s: token %d at sequence %d, position %d, but the vocabulary has %d\n",
                op->entry.name, tokens[i], i / T, i % T, vocab);
        op->error = cudaErrorIllegalAddress;
        return false;
    }
    return true;
}

cudaError_t kernel_embedding_forward(float *out, const int32_t *tokens, const float *wte,
                                     const float *wpe, int B, int T, int C, int vocab,
                                     cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_embedding_forward", stream);
    size_t rows = (size_t)B * (size_t)T, width = (size_t)C;
    float *to = simgpu_write(&op, out, rows * width * sizeof *out);
    const int32_t *token = simgpu_read(&op, tokens, rows * sizeof *tokens);
    const float *words = simgpu_read(&op, wte, (size_t)vocab * width * sizeof *wte);
    const float *places = simgpu_read(&op, wpe, (size_t)T * width * sizeof *wpe);
    simgpu_cost(&op, rows * width, GPU_F32);
    if (simgpu_ready(&op) && tokens_fit(&op, token, B, T, vocab)) {
        for (size_t r = 0; r < rows; r++) {
            float *restrict y = to + r * width;
            const float *restrict word = words + (size_t)token[r] * width;
            const float *restrict place = places + r % (size_t)T * width;
#pragma omp simd
            for (size_t c = 0; c < width; c++) y[c] = word[c] + place[c];
        }
    }
    return simgpu_end(&op);
}

cudaError_t kernel_embedding_backward(float *dwte, float *dwpe, const float *dout,
                                      const int32_t *tokens, int B, int T, int C, int vocab,
                                      cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_embedding_backward", stream);
    size_t rows = (size_t)B * (size_t)T, width = (size_t)C;
    float *words = simgpu_update(&op, dwte, (size_t)vocab * width * sizeof *dwte);
    float *places = simgpu_update(&op, dwpe, (size_t)T * width * sizeof *dwpe);
    const float *from = simgpu_read(&op, dout, rows * width * sizeof *dout);
    const int32_t *token = simgpu_read(&op, tokens, rows * sizeof *tokens);
    simgpu_cost(&op, 2 * rows * width, GPU_F32);
    if (simgpu_ready(&op) && tokens_fit(&op, token, B, T, vocab)) {
        for (size_t r = 0; r < rows; r++) {
            const float *restrict dy = from + r * width;
            float *restrict word = words + (size_t)token[r] * width;
            float *restrict place = places + r % (size_t)T * width;
#pragma omp simd
            for (size_t c = 0; c < width; c++) {
                word[c] += dy[c];
                place[c] += dy[c];
            }
        }
    }
    return simgpu_end(&op);
}
