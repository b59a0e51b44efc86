/* half_table.h: every kernel of bf16 and fp16, for half_kernels.c: its operands and their shapes,
 * and what it is compared with.
 */
#ifndef TESTS_NN_HALF_TABLE_H
#define TESTS_NN_HALF_TABLE_H

#include "halves.h"
#include "kernels.h"

typedef struct Sizes {
    int rows, cols, T, heads, vocab; // rows = B·T
} Sizes;

typedef enum Shape {
    NONE,
    ALL,
    ROWS,
    COLS,
    QKV,
    SQUARES,
    OF_HEADS,
    STATS,
    WORDS,
    PLACES,
    HALVES_OF_ALL,
    GROUPED_QKV
} Shape;

// Heads of keys and values: each shared by several of queries where that goes.
static int kv_heads(const Sizes *s)
{
    return s->heads % 2 == 0 ? s->heads / 2 : 1;
}

static size_t numel(Shape shape, const Sizes *s)
{
    size_t rows = (size_t)s->rows, cols = (size_t)s->cols, T = (size_t)s->T;
    size_t of[] = {0,
                   rows * cols,
                   rows,
                   cols,
                   rows * 3 * cols,
                   rows * T,
                   rows * (size_t)s->heads,
                   2 * rows * (size_t)s->heads,
                   (size_t)s->vocab * cols,
                   T * cols,
                   rows * 2 * cols,
                   rows * (cols + 2 * (size_t)kv_heads(s) * (cols / (size_t)s->heads))};
    return of[shape];
}

typedef enum Kind { TYPED, FLOAT, POSITIVE, TOKENS } Kind;
typedef struct Operand {
    const char *name;
    Shape shape;
    Kind kind;
    bool out;
} Operand;

#define OPERANDS 9
// The kernel of `type` on x[0], x[1] …
typedef cudaError_t (*Run)(DType type, void *const *x, const Sizes *s, cudaStream_t stream);
typedef struct Kernel {
    const char *name;
    Run run;     // the kernel of any type, also of floats
    Run several; // those whose work it does, in their order; NULL: compared with that of floats
    Operand operand[OPERANDS];
} Kernel;

#define N ((size_t)s->rows * (size_t)s->cols)
#define RC s->rows, s->cols, stream
#define RUN(name)                                                                                  \
    static cudaError_t name(DType t, void *const *x, const Sizes *s, cudaStream_t stream)
#define FIRST(call)                                                                                \
    do {                                                                                           \
        cudaError_t first_ = (call);                                                               \
        if (first_ != cudaSuccess) return first_;                                                  \
    } while (0)

RUN(scale)
{
    return t ? kernel_scale_ex(t, x[0], 0.3f, N, stream) : kernel_scale(x[0], 0.3f, N, stream);
}
RUN(dropout)
{
    return kernel_dropout_ex(t ? t : DTYPE_F32, x[0], 0.25f, 7, 99, N, stream);
}
RUN(add)
{
    return t ? kernel_add_ex(t, x[0], t, x[1], N, stream) : kernel_add(x[0], x[1], N, stream);
}
RUN(add_wide)
{
    return t ? kernel_add_ex(t, x[0], DTYPE_F32, x[1], N, stream)
             : kernel_add(x[0], x[1], N, stream);
}
RUN(add_narrow)
{
    return t ? kernel_add_ex(DTYPE_F32, x[0], t, x[1], N, stream)
             : kernel_add(x[0], x[1], N, stream);
}
#define DIVIDED(to, from) kernel_add_divided_ex(to, x[0], from, x[1], 3.0f, N, stream)
RUN(add_divided)
{
    return t ? DIVIDED(t, t) : kernel_add_divided(x[0], x[1], 3.0f, N, stream);
}
RUN(add_divided_wide)
{
    return t ? DIVIDED(t, DTYPE_F32) : kernel_add_divided(x[0], x[1], 3.0f, N, stream);
}
RUN(add_divided_narrow)
{
    return t ? DIVIDED(DTYPE_F32, t) : kernel_add_divided(x[0], x[1], 3.0f, N, stream);
}
RUN(add_out)
{
    return t ? kernel_add_out_ex(t, x[0], x[1], x[2], N, stream)
             : kernel_add_out(x[0], x[1], x[2], N, stream);
}
RUN(sum_rows)
{
    return t ? kernel_sum_rows_ex(t, x[0], x[1], RC) : kernel_sum_rows(x[0], x[1], RC);
}
RUN(broadcast)
{
    return t ? kernel_broadcast_bias_ex(t, x[0], x[1], RC) : kernel_broadcast_bias(x[0], x[1], RC);
}
RUN(gelu)
{
    return t ? kernel_gelu_forward_ex(t, x[0], x[1], N, stream)
             : kernel_gelu_forward(x[0], x[1], N, stream);
}
RUN(gelu_back)
{
    return t ? kernel_gelu_backward_ex(t, x[0], x[1], x[2], N, stream)
             : kernel_gelu_backward(x[0], x[1], x[2], N, stream);
}
RUN(bias_gelu)
{
    return kernel_bias_gelu_forward_ex(t, x[0], x[1], x[2], RC);
}
RUN(bias_then_gelu)
{
    FIRST(kernel_broadcast_bias_ex(t, x[0], x[2], RC));
    FIRST(kernel_add_ex(t, x[1], t, x[0], N, stream));
    return kernel_gelu_forward_ex(t, x[0], x[1], N, stream);
}
RUN(bias_gelu_back)
{
    return kernel_bias_gelu_backward_ex(t, x[0], x[1], x[2], x[3], RC);
}
RUN(gelu_then_bias_back)
{
    FIRST(kernel_gelu_backward_ex(t, x[0], x[2], x[3], N, stream));
    return kernel_sum_rows_ex(t, x[1], x[0], RC);
}
RUN(bias_gelu_back_in_place)
{
    return kernel_bias_gelu_backward_ex(t, x[0], x[1], x[2], x[0], RC);
}
RUN(gelu_then_bias_back_elsewhere)
{
    FIRST(kernel_gelu_backward_ex(t, x[3], x[2], x[0], N, stream));
    FIRST(kernel_sum_rows_ex(t, x[1], x[3], RC));
    return kernel_cast(t, x[0], t, x[3], N, stream);
}
RUN(norm)
{
    return t ? kernel_layernorm_forward_ex(t, x[0], x[1], x[2], x[3], x[4], x[5], RC)
             : kernel_layernorm_forward(x[0], x[1], x[2], x[3], x[4], x[5], RC);
}
RUN(residual_norm)
{
    return kernel_residual_layernorm_forward_ex(t, x[0], x[1], x[2], x[3], x[4], x[5], x[6], RC);
}
RUN(residual_then_norm)
{
    FIRST(kernel_add_ex(t, x[3], t, x[4], N, stream));
    return kernel_layernorm_forward_ex(t, x[0], x[1], x[2], x[3], x[5], x[6], RC);
}
RUN(norm_back)
{
    return t ? kernel_layernorm_backward_ex(t, x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7], NULL,
                                            RC)
             : kernel_layernorm_backward(x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7], NULL, RC);
}
RUN(norm_residual_back)
{
    return kernel_layernorm_backward_ex(t, x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7], x[8],
                                        RC);
}
RUN(norm_back_then_residual)
{
    FIRST(
        kernel_layernorm_backward_ex(t, x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7], NULL, RC));
    return kernel_add_ex(t, x[0], t, x[8], N, stream);
}
RUN(softmax)
{
    int n = s->rows / s->T;
    return t ? kernel_causal_softmax_forward_ex(t, x[0], n, s->T, 0.7f, stream)
             : kernel_causal_softmax_forward(x[0], n, s->T, 0.7f, stream);
}
RUN(softmax_back)
{
    int n = s->rows / s->T;
    return t ? kernel_causal_softmax_backward_ex(t, x[0], x[1], n, s->T, 0.7f, stream)
             : kernel_causal_softmax_backward(x[0], x[1], n, s->T, 0.7f, stream);
}
RUN(attention)
{
    int B = s->rows / s->T;
    return t ? kernel_attention_forward_ex(t, x[0], x[1], x[2], B, s->T, s->cols, s->heads,
                                           s->heads, 0.6f, stream)
             : kernel_attention_forward(x[0], x[1], x[2], B, s->T, s->cols, s->heads, s->heads,
                                        0.6f, stream);
}
RUN(attention_back)
{
    int B = s->rows / s->T;
    return t ? kernel_attention_backward_ex(t, x[0], x[1], x[2], x[3], x[4], x[5], B, s->T, s->cols,
                                            s->heads, s->heads, 0.6f, stream)
             : kernel_attention_backward(x[0], x[1], x[2], x[3], x[4], x[5], B, s->T, s->cols,
                                         s->heads, s->heads, 0.6f, stream);
}
RUN(grouped_attention)
{
    int B = s->rows / s->T, kv = kv_heads(s);
    return t ? kernel_attention_forward_ex(t, x[0], x[1], x[2], B, s->T, s->cols, s->heads, kv,
                                           0.6f, stream)
             : kernel_attention_forward(x[0], x[1], x[2], B, s->T, s->cols, s->heads, kv, 0.6f,
                                        stream);
}
RUN(grouped_attention_back)
{
    int B = s->rows / s->T, kv = kv_heads(s);
    return t ? kernel_attention_backward_ex(t, x[0], x[1], x[2], x[3], x[4], x[5], B, s->T, s->cols,
                                            s->heads, kv, 0.6f, stream)
             : kernel_attention_backward(x[0], x[1], x[2], x[3], x[4], x[5], B, s->T, s->cols,
                                         s->heads, kv, 0.6f, stream);
}
RUN(rotary)
{
    int B = s->rows / s->T, hs = s->cols / s->heads / 2 * 2;
    RotaryFrequencies f;
    for (int i = 0; i < ATTENTION_MOST_COLUMNS / 2; i++) f.of_pair[i] = 1.0f / (float)(1 + 2 * i);
    return t ? kernel_rotary_ex(t, x[0], B, s->T, s->cols, s->heads, hs, f, 1, stream)
             : kernel_rotary(x[0], B, s->T, s->cols, s->heads, hs, f, 1, stream);
}
RUN(rms)
{
    return t ? kernel_rmsnorm_forward_ex(t, x[0], x[1], x[2], x[3], s->rows, s->cols, 0.1f, stream)
             : kernel_rmsnorm_forward(x[0], x[1], x[2], x[3], s->rows, s->cols, 0.1f, stream);
}
RUN(residual_rms)
{
    return kernel_residual_rmsnorm_forward_ex(t, x[0], x[1], x[2], x[3], x[4], s->rows, s->cols,
                                              0.1f, stream);
}
RUN(residual_then_rms)
{
    FIRST(kernel_add_ex(t, x[2], t, x[3], N, stream));
    return kernel_rmsnorm_forward_ex(t, x[0], x[1], x[2], x[4], s->rows, s->cols, 0.1f, stream);
}
RUN(rms_back)
{
    return t ? kernel_rmsnorm_backward_ex(t, x[0], x[1], x[2], x[3], x[4], x[5], NULL, RC)
             : kernel_rmsnorm_backward(x[0], x[1], x[2], x[3], x[4], x[5], NULL, RC);
}
RUN(rms_residual_back)
{
    return kernel_rmsnorm_backward_ex(t, x[0], x[1], x[2], x[3], x[4], x[5], x[6], RC);
}
RUN(rms_back_then_residual)
{
    FIRST(kernel_rmsnorm_backward_ex(t, x[0], x[1], x[2], x[3], x[4], x[5], NULL, RC));
    return kernel_add_ex(t, x[0], t, x[6], N, stream);
}
RUN(swiglu)
{
    return t ? kernel_swiglu_forward_ex(t, x[0], x[1], RC) : kernel_swiglu_forward(x[0], x[1], RC);
}
RUN(swiglu_back)
{
    return t ? kernel_swiglu_backward_ex(t, x[0], x[1], x[2], RC)
             : kernel_swiglu_backward(x[0], x[1], x[2], RC);
}
RUN(swiglu_back_in_place)
{
    return t ? kernel_swiglu_backward_ex(t, x[0], x[1], x[0], RC)
             : kernel_swiglu_backward(x[0], x[1], x[0], RC);
}
RUN(words)
{
    int B = s->rows / s->T;
    return t ? kernel_embedding_forward_ex(t, x[0], x[1], x[2], NULL, B, s->T, s->cols, s->vocab,
                                           stream)
             : kernel_embedding_forward(x[0], x[1], x[2], NULL, B, s->T, s->cols, s->vocab, stream);
}
RUN(words_back)
{
    int B = s->rows / s->T;
    return t ? kernel_embedding_backward_ex(t, x[0], NULL, x[1], x[2], B, s->T, s->cols, s->vocab,
                                            stream)
             : kernel_embedding_backward(x[0], NULL, x[1], x[2], B, s->T, s->cols, s->vocab,
                                         stream);
}
RUN(embedding)
{
    int B = s->rows / s->T;
    return t ? kernel_embedding_forward_ex(t, x[0], x[1], x[2], x[3], B, s->T, s->cols, s->vocab,
                                           stream)
             : kernel_embedding_forward(x[0], x[1], x[2], x[3], B, s->T, s->cols, s->vocab, stream);
}
RUN(embedding_back)
{
    int B = s->rows / s->T;
    return t ? kernel_embedding_backward_ex(t, x[0], x[1], x[2], x[3], B, s->T, s->cols, s->vocab,
                                            stream)
             : kernel_embedding_backward(x[0], x[1], x[2], x[3], B, s->T, s->cols, s->vocab,
                                         stream);
}
// The vocabulary must be the columns: tokens are below 3, which every vocabulary here has.
RUN(loss)
{
    return t ? kernel_cross_entropy_ex(t, x[0], x[1], x[2], x[3], s->rows, s->cols, 0.5f, stream)
             : kernel_cross_entropy(x[0], x[1], x[2], x[3], s->rows, s->cols, 0.5f, stream);
}
RUN(loss_in_place)
{
    return t ? kernel_cross_entropy_ex(t, x[0], x[1], x[1], x[2], s->rows, s->cols, 0.5f, stream)
             : kernel_cross_entropy(x[0], x[1], x[1], x[2], s->rows, s->cols, 0.5f, stream);
}
RUN(loss_alone)
{
    return t ? kernel_cross_entropy_ex(t, x[0], NULL, x[1], x[2], s->rows, s->cols, 0.5f, stream)
             : kernel_cross_entropy(x[0], NULL, x[1], x[2], s->rows, s->cols, 0.5f, stream);
}

#define OUT(name, shape)                                                                           \
    {                                                                                              \
        name, shape, TYPED, true                                                                   \
    }
#define OUT_FLOAT(name, shape)                                                                     \
    {                                                                                              \
        name, shape, FLOAT, true                                                                   \
    }
#define IN(name, shape)                                                                            \
    {                                                                                              \
        name, shape, TYPED, false                                                                  \
    }
#define IN_FLOAT(name, shape)                                                                      \
    {                                                                                              \
        name, shape, FLOAT, false                                                                  \
    }
#define IN_POSITIVE(name, shape)                                                                   \
    {                                                                                              \
        name, shape, POSITIVE, false                                                               \
    }
#define IN_TOKENS(name, shape)                                                                     \
    {                                                                                              \
        name, shape, TOKENS, false                                                                 \
    }

static const Kernel kernels[] = {
    {"scale", scale, NULL, {OUT("x", ALL)}},
    {"dropout", dropout, NULL, {OUT("x", ALL)}},
    {"add", add, NULL, {OUT("dst", ALL), IN("src", ALL)}},
    {"add of floats", add_wide, NULL, {OUT("dst", ALL), IN_FLOAT("src", ALL)}},
    {"add to floats", add_narrow, NULL, {OUT_FLOAT("dst", ALL), IN("src", ALL)}},
    {"add_divided", add_divided, NULL, {OUT("dst", ALL), IN("src", ALL)}},
    {"add_divided of floats", add_divided_wide, NULL, {OUT("dst", ALL), IN_FLOAT("src", ALL)}},
    {"add_divided to floats", add_divided_narrow, NULL, {OUT_FLOAT("dst", ALL), IN("src", ALL)}},
    {"add_out", add_out, NULL, {OUT("out", ALL), IN("a", ALL), IN("b", ALL)}},
    {"sum_rows", sum_rows, NULL, {OUT("out", COLS), IN("x", ALL)}},
    {"broadcast_bias", broadcast, NULL, {OUT("out", ALL), IN("bias", COLS)}},
    {"gelu_forward", gelu, NULL, {OUT("out", ALL), IN("in", ALL)}},
    {"gelu_backward", gelu_back, NULL, {OUT("din", ALL), IN("dout", ALL), IN("in", ALL)}},
    {"bias_gelu_forward",
     bias_gelu,
     bias_then_gelu,
     {OUT("out", ALL), OUT("y", ALL), IN("bias", COLS)}},
    {"bias_gelu_backward",
     bias_gelu_back,
     gelu_then_bias_back,
     {OUT("din", ALL), OUT("dbias", COLS), IN("dout", ALL), IN("y", ALL)}},
    {"bias_gelu_backward in place",
     bias_gelu_back_in_place,
     gelu_then_bias_back_elsewhere,
     {OUT("din", ALL), OUT("dbias", COLS), IN("dout", ALL), {"scratch", ALL, TYPED, false}}},
    {"layernorm_forward",
     norm,
     NULL,
     {OUT("out", ALL), OUT_FLOAT("mean", ROWS), OUT_FLOAT("rstd", ROWS), IN("in", ALL),
      IN("weight", COLS), IN("bias", COLS)}},
    {"residual_layernorm_forward",
     residual_norm,
     residual_then_norm,
     {OUT("out", ALL), OUT_FLOAT("mean", ROWS), OUT_FLOAT("rstd", ROWS), OUT("sum", ALL),
      IN("residual", ALL), IN("weight", COLS), IN("bias", COLS)}},
    {"layernorm_backward",
     norm_back,
     NULL,
     {OUT("din", ALL), OUT("dweight", COLS), OUT("dbias", COLS), IN("dout", ALL), IN("in", ALL),
      IN("weight", COLS), IN_FLOAT("mean", ROWS), IN_POSITIVE("rstd", ROWS)}},
    {"layernorm_backward with a residual",
     norm_residual_back,
     norm_back_then_residual,
     {OUT("din", ALL), OUT("dweight", COLS), OUT("dbias", COLS), IN("dout", ALL), IN("in", ALL),
      IN("weight", COLS), IN_FLOAT("mean", ROWS), IN_POSITIVE("rstd", ROWS), IN("residual", ALL)}},
    {"causal_softmax_forward", softmax, NULL, {OUT("att", SQUARES)}},
    {"causal_softmax_backward", softmax_back, NULL, {OUT("datt", SQUARES), IN("att", SQUARES)}},
    {"attention_forward",
     attention,
     NULL,
     {OUT("out", ALL), OUT_FLOAT("stats", STATS), IN("qkv", QKV)}},
    {"attention_backward",
     attention_back,
     NULL,
     {OUT("dqkv", QKV), OUT_FLOAT("delta", OF_HEADS), IN("dout", ALL), IN("out", ALL),
      IN_POSITIVE("stats", STATS), IN("qkv", QKV)}},
    {"embedding_forward",
     embedding,
     NULL,
     {OUT("out", ALL), IN_TOKENS("tokens", ROWS), IN("wte", WORDS), IN("wpe", PLACES)}},
    {"embedding_backward",
     embedding_back,
     NULL,
     {OUT("dwte", WORDS), OUT("dwpe", PLACES), IN("dout", ALL), IN_TOKENS("tokens", ROWS)}},
    {"attention_forward of grouped queries",
     grouped_attention,
     NULL,
     {OUT("out", ALL), OUT_FLOAT("stats", STATS), IN("qkv", GROUPED_QKV)}},
    {"attention_backward of grouped queries",
     grouped_attention_back,
     NULL,
     {OUT("dqkv", GROUPED_QKV), OUT_FLOAT("delta", OF_HEADS), IN("dout", ALL), IN("out", ALL),
      IN_POSITIVE("stats", STATS), IN("qkv", GROUPED_QKV)}},
    {"rotary", rotary, NULL, {OUT("x", ALL)}},
    {"rmsnorm_forward",
     rms,
     NULL,
     {OUT("out", ALL), OUT_FLOAT("rstd", ROWS), IN("in", ALL), IN("weight", COLS)}},
    {"residual_rmsnorm_forward",
     residual_rms,
     residual_then_rms,
     {OUT("out", ALL), OUT_FLOAT("rstd", ROWS), OUT("sum", ALL), IN("residual", ALL),
      IN("weight", COLS)}},
    {"rmsnorm_backward",
     rms_back,
     NULL,
     {OUT("din", ALL), OUT("dweight", COLS), IN("dout", ALL), IN("in", ALL), IN("weight", COLS),
      IN_POSITIVE("rstd", ROWS)}},
    {"rmsnorm_backward with a residual",
     rms_residual_back,
     rms_back_then_residual,
     {OUT("din", ALL), OUT("dweight", COLS), IN("dout", ALL), IN("in", ALL), IN("weight", COLS),
      IN_POSITIVE("rstd", ROWS), IN("residual", ALL)}},
    {"swiglu_forward", swiglu, NULL, {OUT("out", ALL), IN("in", HALVES_OF_ALL)}},
    {"swiglu_backward",
     swiglu_back,
     NULL,
     {OUT("din", HALVES_OF_ALL), IN("dout", ALL), IN("in", HALVES_OF_ALL)}},
    {"swiglu_backward in place",
     swiglu_back_in_place,
     NULL,
     {OUT("din", HALVES_OF_ALL), IN("dout", ALL)}},
    {"embedding_forward of words alone",
     words,
     NULL,
     {OUT("out", ALL), IN_TOKENS("tokens", ROWS), IN("wte", WORDS)}},
    {"embedding_backward of words alone",
     words_back,
     NULL,
     {OUT("dwte", WORDS), IN("dout", ALL), IN_TOKENS("tokens", ROWS)}},
    {"cross_entropy",
     loss,
     NULL,
     {OUT_FLOAT("losses", ROWS), OUT("dlogits", ALL), IN("logits", ALL),
      IN_TOKENS("targets", ROWS)}},
    {"cross_entropy in place",
     loss_in_place,
     NULL,
     {OUT_FLOAT("losses", ROWS), OUT("logits", ALL), IN_TOKENS("targets", ROWS)}},
    {"cross_entropy without a gradient",
     loss_alone,
     NULL,
     {OUT_FLOAT("losses", ROWS), IN("logits", ALL), IN_TOKENS("targets", ROWS)}},
};

#endif
