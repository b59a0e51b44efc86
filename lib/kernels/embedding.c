/* embedding.c: looks tokens and positions up in their tables, and adds gradients back to them.
 *
 * For a token outside the table a real GPU would read memory somewhere else. Here the kernel prints
 * the token, touches nothing and fails as an illegal address.
 */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "kernels.h"
#include "pieces.h"
#include "rows.h"
#include "typed.h"

// Whether all tokens (B,T) are in [0, vocab); prints the first that is not.
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

// ---- Forward ----

// y = word + place (n each); place may be NULL
static void add_embeddings(float *restrict y, const float *restrict word,
                           const float *restrict place, size_t n)
{
    if (place == NULL) {
        memcpy(y, word, n * sizeof *y);
        return;
    }
#pragma omp simd
    for (size_t c = 0; c < n; c++) y[c] = word[c] + place[c];
}

typedef struct Lookup {
    DType type;
    void *to;
    const void *words, *places; // places: NULL for none
    const int32_t *token;
    size_t T, C;
    atomic_bool failed; // for want of memory
} Lookup;

static void look_up_rows(void *arg, size_t begin, size_t end)
{
    Lookup *l = arg;
    DType type = l->type;
    size_t width = l->C;
    float *copy = NULL;
    if (!typed_room(type, &copy, 3 * width, &l->failed)) return;
    for (size_t r = begin; r < end; r++) {
        float *y = typed_place(type, copy, l->to, r * width);
        size_t word = (size_t)l->token[r] * width, at = r % l->T * width;
        const float *place = NULL;
        if (l->places != NULL)
            place = typed_load(type, typed_part(copy, 2 * width), l->places, at, width);
        add_embeddings(y, typed_load(type, typed_part(copy, width), l->words, word, width), place,
                       width);
        typed_store(type, l->to, r * width, y, width);
    }
    free(copy);
}

static cudaError_t embedding_forward_of(SimgpuOp *op, DType type, void *out, const int32_t *tokens,
                                        const void *wte, const void *wpe, int B, int T, int C,
                                        int vocab)
{
    size_t rows = (size_t)B * (size_t)T, width = (size_t)C;
    Lookup l = {.type = type, .T = (size_t)T, .C = width};
    l.to = typed_write(op, type, out, rows * width);
    l.token = simgpu_read(op, tokens, rows * sizeof *tokens);
    l.words = typed_read(op, type, wte, (size_t)vocab * width);
    if (wpe != NULL) l.places = typed_read(op, type, wpe, (size_t)T * width);
    simgpu_cost(op, wpe != NULL ? rows * width : 0, GPU_F32);
    if (simgpu_ready(op) && tokens_fit(op, l.token, B, T, vocab)) {
        simgpu_parallel(rows, piece_rows(width), look_up_rows, &l);
        typed_check_room(op, &l.failed);
    }
    return simgpu_end(op);
}

cudaError_t kernel_embedding_forward(float *out, const int32_t *tokens, const float *wte,
                                     const float *wpe, int B, int T, int C, int vocab,
                                     cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_embedding_forward", stream, kernel_embedding_forward, out,
                               tokens, wte, wpe, B, T, C, vocab);
    return embedding_forward_of(&op, DTYPE_F32, out, tokens, wte, wpe, B, T, C, vocab);
}

cudaError_t kernel_embedding_forward_ex(DType type, void *out, const int32_t *tokens,
                                        const void *wte, const void *wpe, int B, int T, int C,
                                        int vocab, cudaStream_t stream)
{
    SimgpuOp op = TYPED_BEGIN("kernel_embedding_forward", type, stream, kernel_embedding_forward_ex,
                              type, out, tokens, wte, wpe, B, T, C, vocab);
    return embedding_forward_of(&op, type, out, tokens, wte, wpe, B, T, C, vocab);
}

// ---- Backward ----

// The arguments of a backward, which adds dy (B,T,C) to the rows of the tables.
typedef struct Gradients {
    void *words, *places; // (vocab, C), (T, C); places may be NULL
    const void *dy;
    const int32_t *token; // (B,T)
    size_t rows, T, C;
} Gradients;

// Of the columns from `begin` on: all rows, in their order.
static void add_float_columns(void *arg, size_t begin, size_t end)
{
    const Gradients *g = arg;
    size_t n = end - begin;
    for (size_t r = 0; r < g->rows; r++) {
        const float *restrict dy = (const float *)g->dy + r * g->C + begin;
        float *restrict word = (float *)g->words + (size_t)g->token[r] * g->C + begin;
        row_add(word, dy, n);
        if (g->places != NULL) row_add((float *)g->places + r % g->T * g->C + begin, dy, n);
    }
}

// Row number `to` of a table += dy's rows `row`, next[row], …, up to g->rows; every T-th where next
// is NULL. The sum is rounded once. `copies` has room for two rows.
static void add_rounded(const Gradients *g, DType type, void *table, size_t to, size_t row,
                        const size_t *next, float *copies)
{
    float *sum = typed_open(type, copies, table, to * g->C, g->C);
    for (; row < g->rows; row = next != NULL ? next[row] : row + g->T)
        row_add(sum, typed_load(type, copies + g->C, g->dy, row * g->C, g->C), g->C);
    typed_store(type, table, to * g->C, sum, g->C);
}

// The rows of each token are found first, in their order, so that its sum can stay a float until it
// is complete. False: there is no memory.
static bool add_typed(const Gradients *g, DType type, int vocab)
{
    size_t *next = malloc((g->rows + 1) * sizeof *next),
           *first = malloc((size_t)vocab * sizeof *first);
    float *copies = malloc(2 * g->C * sizeof *copies);
    bool room = next != NULL && first != NULL && copies != NULL;
    for (int v = 0; v < vocab && room; v++) first[v] = g->rows;
    for (size_t r = g->rows; r-- > 0 && room;) {
        next[r] = first[g->token[r]];
        first[g->token[r]] = r;
    }
    for (int v = 0; v < vocab && room; v++)
        if (first[v] < g->rows) add_rounded(g, type, g->words, (size_t)v, first[v], next, copies);
    for (size_t t = 0; t < g->T && g->rows > 0 && g->places != NULL && room; t++)
        add_rounded(g, type, g->places, t, t, NULL, copies);
    free(next);
    free(first);
    free(copies);
    return room;
}

static cudaError_t embedding_backward_of(SimgpuOp *op, DType type, void *dwte, void *dwpe,
                                         const void *dout, const int32_t *tokens, int B, int T,
                                         int C, int vocab)
{
    size_t rows = (size_t)B * (size_t)T, width = (size_t)C;
    Gradients g = {.rows = rows, .T = (size_t)T, .C = width};
    g.words = typed_update(op, type, dwte, (size_t)vocab * width);
    if (dwpe != NULL) g.places = typed_update(op, type, dwpe, (size_t)T * width);
    g.dy = typed_read(op, type, dout, rows * width);
    g.token = simgpu_read(op, tokens, rows * sizeof *tokens);
    simgpu_cost(op, (dwpe != NULL ? 2 : 1) * rows * width, GPU_F32);
    if (simgpu_ready(op) && tokens_fit(op, g.token, B, T, vocab)) {
        if (type == DTYPE_F32)
            simgpu_parallel(width, piece_cols(rows), add_float_columns, &g);
        else if (!add_typed(&g, type, vocab))
            op->error = cudaErrorMemoryAllocation;
    }
    return simgpu_end(op);
}

cudaError_t kernel_embedding_backward(float *dwte, float *dwpe, const float *dout,
                                      const int32_t *tokens, int B, int T, int C, int vocab,
                                      cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_embedding_backward", stream, kernel_embedding_backward, dwte,
                               dwpe, dout, tokens, B, T, C, vocab);
    return embedding_backward_of(&op, DTYPE_F32, dwte, dwpe, dout, tokens, B, T, C, vocab);
}

cudaError_t kernel_embedding_backward_ex(DType type, void *dwte, void *dwpe, const void *dout,
                                         const int32_t *tokens, int B, int T, int C, int vocab,
                                         cudaStream_t stream)
{
    SimgpuOp op =
        TYPED_BEGIN("kernel_embedding_backward", type, stream, kernel_embedding_backward_ex, type,
                    dwte, dwpe, dout, tokens, B, T, C, vocab);
    return embedding_backward_of(&op, type, dwte, dwpe, dout, tokens, B, T, C, vocab);
}
