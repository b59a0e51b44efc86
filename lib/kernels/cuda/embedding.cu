/* embedding.cu: looks tokens and positions up in their tables, and adds gradients to the tables.
 *
 * A token outside the table would read far-away memory; the kernel instead prints the token and
 * traps: the launch fails, and the program sees it at its next synchronisation.
 *
 * Several positions may hold the same token, and their gradients go to the same row. The usual
 * atomicAdd adds in the order of arrival; here the first position of a token adds all of them, in
 * the order of lib/kernels/embedding.c, so that the bits are the same too.
 */
#include <stdio.h>

#include "block.cuh"
#include "row.cuh"

static __device__ void check_token(const char *name, int token, size_t i, int T, int vocab)
{
    if (token >= 0 && token < vocab) return;
    if (threadIdx.x == 0)
        printf("%s: token %d at sequence %d, position %d, but the vocabulary has %d\n", name, token,
               (int)(i / T), (int)(i % T), vocab);
    __syncthreads(); // the trap may stop the block at once
    __trap();
}

#define EMBEDDING_THREADS 256

// out (rows, C), tokens (rows), wte (vocab, C), wpe (T, C) or NULL; one block per row
template <class Number>
static __global__ void __launch_bounds__(EMBEDDING_THREADS)
    embedding_forward(Number *out, const int32_t *tokens, const Number *wte, const Number *wpe,
                      size_t rows, int T, unsigned C, int vocab)
{
    for (size_t r = blockIdx.x; r < rows; r += gridDim.x) {
        int token = tokens[r];
        check_token("kernel_embedding_forward", token, r, T, vocab);
        const Number *word = wte + (size_t)token * C, *place = wpe != NULL ? wpe + r % T * C : NULL;
        for (unsigned c = threadIdx.x; c < C; c += blockDim.x)
            out[r * C + c] = place != NULL ? (float)word[c] + (float)place[c] : (float)word[c];
    }
}

// Shared memory for find_token.
static __device__ unsigned *found_words()
{
    __shared__ unsigned found[EMBEDDING_THREADS / WARP];
    return found;
}

// Finds which of the tokens [first, first + blockDim.x) are `token`: one bit each, a word of
// `found` per warp. All threads of the block call it together.
static __device__ void find_token(unsigned *found, const int32_t *tokens, size_t first, size_t end,
                                  int token)
{
    size_t i = first + threadIdx.x;
    unsigned bits = __ballot_sync(ALL_LANES, i < end && tokens[i] == token);
    __syncthreads(); // until here a thread may read the words of the call before
    if (threadIdx.x % WARP == 0) found[threadIdx.x / WARP] = bits;
    __syncthreads();
}

// Whether `token` is at a position before `end`.
static __device__ bool token_before(unsigned *found, const int32_t *tokens, size_t end, int token)
{
    for (size_t first = 0; first < end; first += blockDim.x) {
        find_token(found, tokens, first, end, token);
        for (unsigned w = 0; w < blockDim.x / WARP; w++)
            if (found[w] != 0) return true;
    }
    return false;
}

// word (C) += dout[i,:] of each position i in [begin, rows) that holds the token, in order.
static __device__ void add_word(float *word, unsigned *found, const float *dout,
                                const int32_t *tokens, size_t begin, size_t rows, unsigned C,
                                int token)
{
    for (size_t first = begin; first < rows; first += blockDim.x) {
        find_token(found, tokens, first, rows, token);
        for (unsigned w = 0; w < blockDim.x / WARP; w++)
            for (unsigned bits = found[w]; bits != 0; bits &= bits - 1) {
                size_t i = first + w * WARP + __ffs((int)bits) - 1; // the lowest bit set
                for (unsigned c = threadIdx.x; c < C; c += blockDim.x) word[c] += dout[i * C + c];
            }
    }
}

// The same for other types: a column's sum is a float in a register until the end, so the positions
// are looked up once more for each blockDim.x columns.
template <class Half>
static __device__ void add_word(Half *word, unsigned *found, const Half *dout,
                                const int32_t *tokens, size_t begin, size_t rows, unsigned C,
                                int token)
{
    for (unsigned left = 0; left < C; left += blockDim.x) {
        unsigned c = left + threadIdx.x;
        float sum = c < C ? (float)word[c] : 0.0f;
        for (size_t first = begin; first < rows; first += blockDim.x) {
            find_token(found, tokens, first, rows, token);
            for (unsigned w = 0; w < blockDim.x / WARP && c < C; w++)
                for (unsigned bits = found[w]; bits != 0; bits &= bits - 1)
                    sum += dout[(first + w * WARP + __ffs((int)bits) - 1) * C + c];
        }
        if (c < C) word[c] = sum;
    }
}

// place (C) += dout[b,t,:] of all sequences, in order; dout begins at [0,t,:].
template <class Number>
static __device__ void add_place(Number *place, const Number *dout, int B, int T, unsigned C)
{
    for (unsigned c = threadIdx.x; c < C; c += blockDim.x) {
        float sum = place[c];
        for (int b = 0; b < B; b++) sum += dout[(size_t)b * T * C + c];
        place[c] = sum;
    }
}

// dwte (vocab, C), dwpe (T, C) or NULL, dout (B,T,C), tokens (B,T). The work has B·T pieces for the
// words and T for the places. A column belongs to one thread, so no two add to the same number.
template <class Number>
static __global__ void __launch_bounds__(EMBEDDING_THREADS)
    embedding_backward(Number *dwte, Number *dwpe, const Number *dout, const int32_t *tokens, int B,
                       int T, unsigned C, int vocab)
{
    unsigned *found = found_words();
    size_t rows = (size_t)B * T;
    for (size_t i = blockIdx.x; i < rows + (dwpe != NULL ? T : 0); i += gridDim.x) {
        if (i >= rows) {
            size_t t = i - rows;
            add_place(dwpe + t * C, dout + t * C, B, T, C);
            continue;
        }
        int token = tokens[i];
        check_token("kernel_embedding_backward", token, i, T, vocab);
        if (!token_before(found, tokens, i, token))
            add_word(dwte + (size_t)token * C, found, dout, tokens, i, rows, C, token);
    }
}

static unsigned threads_for(int cols)
{
    return cols <= 64 ? 64 : EMBEDDING_THREADS;
}

template <class Number>
static cudaError_t embedding_forward_of(Launch launch, Number *out, const int32_t *tokens,
                                        const Number *wte, const Number *wpe, int B, int T, int C,
                                        int vocab)
{
    size_t rows = (size_t)B * (size_t)T, width = (size_t)C;
    launch_write(&launch, out, rows * width * sizeof *out);
    launch_read(&launch, tokens, rows * sizeof *tokens);
    launch_read(&launch, wte, (size_t)vocab * width * sizeof *wte);
    if (wpe != NULL) launch_read(&launch, wpe, (size_t)T * width * sizeof *wpe);
    if (rows > 0 && C > 0)
        launch_grid(&launch, embedding_forward<Number>, blocks_of(rows, 1), threads_for(C), out,
                    tokens, wte, wpe, rows, T, (unsigned)C, vocab);
    return launch_end(&launch);
}

extern "C" cudaError_t kernel_embedding_forward(float *out, const int32_t *tokens, const float *wte,
                                                const float *wpe, int B, int T, int C, int vocab,
                                                cudaStream_t stream)
{
    return embedding_forward_of(LAUNCH_BEGIN("kernel_embedding_forward", stream), out, tokens, wte,
                                wpe, B, T, C, vocab);
}

extern "C" cudaError_t kernel_embedding_forward_ex(DType type, void *out, const int32_t *tokens,
                                                   const void *wte, const void *wpe, int B,
                                                   int length, int C, int vocab,
                                                   cudaStream_t stream)
{
    Launch launch = TYPED_BEGIN("kernel_embedding_forward", type, stream);
    BY_TYPE(type, embedding_forward_of(launch, (T *)out, tokens, (const T *)wte, (const T *)wpe, B,
                                       length, C, vocab));
}

template <class Number>
static cudaError_t embedding_backward_of(Launch launch, Number *dwte, Number *dwpe,
                                         const Number *dout, const int32_t *tokens, int B, int T,
                                         int C, int vocab)
{
    size_t rows = (size_t)B * (size_t)T, width = (size_t)C;
    launch_update(&launch, dwte, (size_t)vocab * width * sizeof *dwte);
    if (dwpe != NULL) launch_update(&launch, dwpe, (size_t)T * width * sizeof *dwpe);
    launch_read(&launch, dout, rows * width * sizeof *dout);
    launch_read(&launch, tokens, rows * sizeof *tokens);
    if (rows > 0 && C > 0)
        launch_grid(&launch, embedding_backward<Number>, blocks_of(rows + (size_t)T, 1),
                    threads_for(C), dwte, dwpe, dout, tokens, B, T, (unsigned)C, vocab);
    return launch_end(&launch);
}

extern "C" cudaError_t kernel_embedding_backward(float *dwte, float *dwpe, const float *dout,
                                                 const int32_t *tokens, int B, int T, int C,
                                                 int vocab, cudaStream_t stream)
{
    return embedding_backward_of(LAUNCH_BEGIN("kernel_embedding_backward", stream), dwte, dwpe,
                                 dout, tokens, B, T, C, vocab);
}

extern "C" cudaError_t kernel_embedding_backward_ex(DType type, void *dwte, void *dwpe,
                                                    const void *dout, const int32_t *tokens, int B,
                                                    int length, int C, int vocab,
                                                    cudaStream_t stream)
{
    Launch launch = TYPED_BEGIN("kernel_embedding_backward", type, stream);
    BY_TYPE(type, embedding_backward_of(launch, (T *)dwte, (T *)dwpe, (const T *)dout, tokens, B,
                                        length, C, vocab));
}
