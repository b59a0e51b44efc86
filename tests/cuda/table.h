/* table.h: what every kernel works on, and how near to the CPU's its results must be.
 *
 * Interface: Sizes, Shape, words_of; Begin; Operand; Kernel, and the tables of them: halves,
 * elementwise, sums, matrices, attention, fused_attention, rotary, embedding, loss.
 */
#ifndef TESTS_CUDA_TABLE_H
#define TESTS_CUDA_TABLE_H

#include <math.h>

#include "host/cpu_kernels.h"

// The sizes of one run.
typedef struct Sizes {
    size_t n; // of an elementwise kernel
    int rows,
        cols;  // of a matrix; for attention (rows, cols, cols); for tokens B·T = rows, T = cols
    int width; // C of an embedding and of attention, which has 3 heads where that divides it
    int vocab;
} Sizes;

typedef enum Shape {
    N,
    ROWS,
    COLS,
    MATRIX,
    HALVES,
    SQUARES,
    TOKENS,
    EMBEDDED,
    HALF_EMBEDDED,
    QKV,
    GROUPED_QKV,
    PER_HEAD,
    STATISTICS,
    WORDS,
    PLACES,
    DOUBLE
} Shape;

static inline int heads_of(const Sizes *s)
{
    return s->width % 3 == 0 ? 3 : 1;
}

// How many words of 4 bytes an array of this shape has.
static size_t words_of(Shape shape, const Sizes *s)
{
    size_t rows = (size_t)s->rows, cols = (size_t)s->cols, width = (size_t)s->width;
    switch (shape) {
    case N: return s->n;
    case ROWS: return rows;
    case COLS: return cols;
    case MATRIX: return rows * cols;
    case HALVES: return rows * 2 * cols;
    case SQUARES: return rows * cols * cols;
    case TOKENS: return rows;
    case EMBEDDED: return rows * width;
    case HALF_EMBEDDED: return (rows - rows / 2) * width;
    case QKV: return rows * 3 * width;
    case GROUPED_QKV: return rows * (width + 2 * (width / (size_t)heads_of(s)));
    case PER_HEAD: return rows * (size_t)heads_of(s);
    case STATISTICS: return 2 * rows * (size_t)heads_of(s);
    case WORDS: return (size_t)s->vocab * width;
    case PLACES: return cols * width;
    case DOUBLE: return sizeof(double) / sizeof(float);
    }
    return 0;
}

typedef enum Begin {
    NANS,          // an output
    DRAWN,         // in [-1, 1)
    POSITIVE,      // in [0, 1)
    EIGHTHS,       // whole multiples of 1/8 in [-2, 2): sums of less than a million are exact
    FINE,          // multiples of 2^-20 in [-2, 2): sums are exact in a double, but not in a float
    FAR,           // in [-1, 1), but around 100 in the first row
    LARGE,         // in [-30, 30)
    TOKEN,         // int32 in [0, vocab)
    ONE_AND_A_HALF // a double
} Begin;

// How far a result may be from the CPU's, relative to the larger of that and 1, in units of 2^-24:
// half the distance of neighbouring floats at 1.
#define EXACT 0.0
// Sums of numbers drawn around 0: the partial sums of the CPU's sequential loop stay below 4·√rows
// (the seeds are fixed), each addition rounds by half a unit of that, and so does the other side.
#define COLUMN_SUM (-1.0)

typedef struct Operand {
    const char *name;
    Shape shape;
    Begin begin;
    double units; // of an output; an array that is only read must keep its bits
} Operand;
#define OUT(name, shape, begin, units)                                                             \
    {                                                                                              \
        name, shape, begin, units                                                                  \
    }
#define IN(name, shape, begin)                                                                     \
    {                                                                                              \
        name, shape, begin, EXACT                                                                  \
    }

#define OPERANDS 10
typedef cudaError_t (*Run)(bool host, float *const *x, const Sizes *s, cudaStream_t stream);
typedef struct Kernel {
    const char *name;
    Run run;
    Operand operand[OPERANDS]; // x[0], x[1] … of run
} Kernel;

// The kernel, on the host or on the device.
#define CALL(name, ...) (host ? cpu_kernel_##name : kernel_##name)(__VA_ARGS__)
#define RUN(name)                                                                                  \
    static cudaError_t name(bool host, float *const *x, const Sizes *s, cudaStream_t stream)

// clang-format off
RUN(run_fill) { return CALL(fill, x[0], 1.5f, s->n, stream); }
RUN(run_scale) { return CALL(scale, x[0], 0.3f, s->n, stream); }
RUN(run_add) { return CALL(add, x[0], x[1], s->n, stream); }
RUN(run_add_out) { return CALL(add_out, x[0], x[1], x[2], s->n, stream); }
RUN(run_add_divided) { return CALL(add_divided, x[0], x[1], 3.0f, s->n, stream); }
RUN(run_adamw)
{
    return CALL(adamw, x[0], x[1], x[2], x[3], s->n, 1e-3f, 0.9f, 0.95f, 1e-8f, 0.1f, 3, stream);
}
RUN(run_sgd) { return CALL(sgd, x[0], x[1], x[2], s->n, 0.1f, 0.9f, 0.01f, stream); }
RUN(run_plain_sgd) { return CALL(sgd, x[0], x[1], NULL, s->n, 0.1f, 0.0f, 0.01f, stream); }
RUN(run_gelu_forward) { return CALL(gelu_forward, x[0], x[1], s->n, stream); }
RUN(run_gelu_backward) { return CALL(gelu_backward, x[0], x[1], x[2], s->n, stream); }
RUN(run_sum_squares) { return CALL(sum_squares, (double *)(void *)x[0], x[1], s->n, stream); }
RUN(run_mean) { return CALL(mean, x[0], x[1], s->n, stream); }
RUN(run_sum_rows) { return CALL(sum_rows, x[0], x[1], s->rows, s->cols, stream); }
RUN(run_broadcast_bias) { return CALL(broadcast_bias, x[0], x[1], s->rows, s->cols, stream); }
RUN(run_bias_gelu_forward)
{
    return CALL(bias_gelu_forward, x[0], x[1], x[2], s->rows, s->cols, stream);
}
RUN(run_bias_gelu_backward)
{
    return CALL(bias_gelu_backward, x[0], x[1], x[2], x[3], s->rows, s->cols, stream);
}
RUN(run_bias_gelu_backward_in_place)
{
    return CALL(bias_gelu_backward, x[0], x[1], x[2], x[0], s->rows, s->cols, stream);
}
RUN(run_layernorm_forward)
{
    return CALL(layernorm_forward, x[0], x[1], x[2], x[3], x[4], x[5], s->rows, s->cols, stream);
}
RUN(run_residual_layernorm_forward)
{
    return CALL(residual_layernorm_forward, x[0], x[1], x[2], x[3], x[4], x[5], x[6], s->rows,
                s->cols, stream);
}
RUN(run_layernorm_backward)
{
    return CALL(layernorm_backward, x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7], NULL, s->rows,
                s->cols, stream);
}
RUN(run_residual_layernorm_backward)
{
    return CALL(layernorm_backward, x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7], x[8], s->rows,
                s->cols, stream);
}
RUN(run_softmax_forward)
{
    return CALL(causal_softmax_forward, x[0], s->rows, s->cols, 0.7f, stream);
}
RUN(run_softmax_of_negative)
{
    return CALL(causal_softmax_forward, x[0], s->rows, s->cols, -3.0f, stream);
}
RUN(run_softmax_backward)
{
    return CALL(causal_softmax_backward, x[0], x[1], s->rows, s->cols, 0.7f, stream);
}
RUN(run_attention_forward)
{
    return CALL(attention_forward, x[0], x[1], x[2], s->rows / s->cols, s->cols, s->width,
                heads_of(s), heads_of(s), 0.3f, stream);
}
RUN(run_attention_backward)
{
    return CALL(attention_backward, x[0], x[1], x[2], x[3], x[4], x[5], s->rows / s->cols, s->cols,
                s->width, heads_of(s), heads_of(s), 0.3f, stream);
}
// Rows from the middle one on.
RUN(run_attention_rows)
{
    return CALL(attention_rows_ex, DTYPE_F32, x[0], x[1], (int)(s->rows / 2), s->rows, s->width,
                heads_of(s), 1, 0.3f, stream);
}
// All heads share one of keys and values.
RUN(run_grouped_attention_forward)
{
    return CALL(attention_forward, x[0], x[1], x[2], s->rows / s->cols, s->cols, s->width,
                heads_of(s), 1, 0.3f, stream);
}
RUN(run_grouped_attention_backward)
{
    return CALL(attention_backward, x[0], x[1], x[2], x[3], x[4], x[5], s->rows / s->cols,
                s->cols, s->width, heads_of(s), 1, 0.3f, stream);
}
// Where a head has an odd number of columns, the last of the row's stay.
static cudaError_t turn(bool host, float *x, const Sizes *s, int direction, cudaStream_t stream)
{
    RotaryFrequencies f;
    for (int i = 0; i < ATTENTION_MOST_COLUMNS / 2; i++) f.of_pair[i] = 1.0f / (float)(1 + 3 * i);
    int hs = s->width / heads_of(s) / 2 * 2;
    return CALL(rotary, x, s->rows / s->cols, s->cols, s->width, heads_of(s), hs, f, direction,
                stream);
}
RUN(run_rotary) { return turn(host, x[0], s, 1, stream); }
RUN(run_rotary_back) { return turn(host, x[0], s, -1, stream); }
RUN(run_rmsnorm_forward)
{
    return CALL(rmsnorm_forward, x[0], x[1], x[2], x[3], s->rows, s->cols, 1e-5f, stream);
}
RUN(run_residual_rmsnorm_forward)
{
    return CALL(residual_rmsnorm_forward, x[0], x[1], x[2], x[3], x[4], s->rows, s->cols, 1e-5f,
                stream);
}
RUN(run_rmsnorm_backward)
{
    return CALL(rmsnorm_backward, x[0], x[1], x[2], x[3], x[4], x[5], NULL, s->rows, s->cols,
                stream);
}
RUN(run_residual_rmsnorm_backward)
{
    return CALL(rmsnorm_backward, x[0], x[1], x[2], x[3], x[4], x[5], x[6], s->rows, s->cols,
                stream);
}
RUN(run_swiglu_forward) { return CALL(swiglu_forward, x[0], x[1], s->rows, s->cols, stream); }
RUN(run_swiglu_backward)
{
    return CALL(swiglu_backward, x[0], x[1], x[2], s->rows, s->cols, stream);
}
RUN(run_swiglu_backward_in_place)
{
    return CALL(swiglu_backward, x[0], x[1], x[0], s->rows, s->cols, stream);
}
RUN(run_words_forward)
{
    return CALL(embedding_forward, x[0], (int32_t *)(void *)x[1], x[2], NULL, s->rows / s->cols,
                s->cols, s->width, s->vocab, stream);
}
RUN(run_words_backward)
{
    return CALL(embedding_backward, x[0], NULL, x[1], (int32_t *)(void *)x[2], s->rows / s->cols,
                s->cols, s->width, s->vocab, stream);
}
RUN(run_embedding_forward)
{
    return CALL(embedding_forward, x[0], (int32_t *)(void *)x[1], x[2], x[3], s->rows / s->cols,
                s->cols, s->width, s->vocab, stream);
}
RUN(run_embedding_backward)
{
    return CALL(embedding_backward, x[0], x[1], x[2], (int32_t *)(void *)x[3], s->rows / s->cols,
                s->cols, s->width, s->vocab, stream);
}
RUN(run_cross_entropy)
{
    return CALL(cross_entropy, x[0], x[1], x[2], (int32_t *)(void *)x[3], s->rows, s->vocab, 0.5f,
                stream);
}
RUN(run_cross_entropy_in_place)
{
    return CALL(cross_entropy, x[0], x[1], x[1], (int32_t *)(void *)x[2], s->rows, s->vocab, 0.5f,
                stream);
}
RUN(run_cross_entropy_alone)
{
    return CALL(cross_entropy, x[0], NULL, x[1], (int32_t *)(void *)x[2], s->rows, s->vocab, 0.5f,
                stream);
}

// n halves lie in words_of(N) words; what is past them must stay. Whatever bits they have, NaN and
// infinity too, the results are the same to the last bit.
RUN(run_cast_bf16) { return CALL(cast, DTYPE_BF16, x[0], DTYPE_F32, x[1], s->n, stream); }
RUN(run_cast_fp16) { return CALL(cast, DTYPE_F16, x[0], DTYPE_F32, x[1], s->n, stream); }
RUN(run_cast_wide) { return CALL(cast, DTYPE_F32, x[0], DTYPE_BF16, x[1], s->n, stream); }
RUN(run_cast_across) { return CALL(cast, DTYPE_F16, x[0], DTYPE_BF16, x[1], s->n, stream); }
RUN(run_check_bf16)
{
    return CALL(check_finite, (int32_t *)(void *)x[0], DTYPE_BF16, x[1], s->n, stream);
}
RUN(run_check_float)
{
    return CALL(check_finite, (int32_t *)(void *)x[0], DTYPE_F32, x[1], s->n, stream);
}
RUN(run_scale_bf16) { return CALL(scale_ex, DTYPE_BF16, x[0], 0.3f, s->n, stream); }
RUN(run_scale_fp16) { return CALL(scale_ex, DTYPE_F16, x[0], 0.25f, s->n, stream); }
RUN(run_dropout) { return CALL(dropout_ex, DTYPE_F32, x[0], 0.3f, 7, 1ull << 40, s->n, stream); }
RUN(run_dropout_bf16) { return CALL(dropout_ex, DTYPE_BF16, x[0], 0.3f, 7, 99, s->n, stream); }
RUN(run_add_narrow) { return CALL(add_ex, DTYPE_F32, x[0], DTYPE_BF16, x[1], s->n, stream); }
RUN(run_add_wide) { return CALL(add_ex, DTYPE_F16, x[0], DTYPE_F32, x[1], s->n, stream); }
RUN(run_add_bf16) { return CALL(add_ex, DTYPE_BF16, x[0], DTYPE_BF16, x[1], s->n, stream); }
RUN(run_divided_bf16)
{
    return CALL(add_divided_ex, DTYPE_F32, x[0], DTYPE_BF16, x[1], 3.0f, s->n, stream);
}
RUN(run_divided_fp16)
{
    return CALL(add_divided_ex, DTYPE_F32, x[0], DTYPE_F16, x[1], 1.5f, s->n, stream);
}
RUN(run_divided_narrow)
{
    return CALL(add_divided_ex, DTYPE_BF16, x[0], DTYPE_BF16, x[1], 3.0f, s->n, stream);
}
RUN(run_divided_float)
{
    return CALL(add_divided_ex, DTYPE_F32, x[0], DTYPE_F32, x[1], 3.0f, s->n, stream);
}
RUN(run_add_out_fp16) { return CALL(add_out_ex, DTYPE_F16, x[0], x[1], x[2], s->n, stream); }

// n codes lie in words_of(N) words. 5 rows of n / 5 codes, n / 5 + 1 apart where they fit.
RUN(run_amax) { return CALL(amax, (uint32_t *)(void *)x[0], x[1], s->n, stream); }
RUN(run_quantize)
{
    return CALL(quantize_e4m3, (uint8_t *)x[0], x[1], (uint32_t *)(void *)x[2], s->n, stream);
}
static cudaError_t dequantize(bool host, DType type, float *const *x, const Sizes *s,
                              cudaStream_t stream)
{
    size_t rows = 5, n = s->n / rows, stride = s->n > 20 ? n + 1 : n;
    return CALL(dequantize_e4m3, type, x[0], (uint8_t *)x[1], stride, (uint32_t *)(void *)x[2],
                rows, n, stream);
}
RUN(run_dequantize) { return dequantize(host, DTYPE_F32, x, s, stream); }
RUN(run_dequantize_bf16) { return dequantize(host, DTYPE_BF16, x, s, stream); }
RUN(run_dequantize_fp16) { return dequantize(host, DTYPE_F16, x, s, stream); }

#define ONTO                                                                                       \
    {                                                                                              \
        OUT("dst", N, DRAWN, EXACT), IN("src", N, DRAWN)                                           \
    }
static const Kernel halves[] = {
    {"cast to bf16", run_cast_bf16, {OUT("dst", N, NANS, EXACT), IN("src", N, LARGE)}},
    {"cast to fp16", run_cast_fp16, {OUT("dst", N, NANS, EXACT), IN("src", N, LARGE)}},
    {"cast from bf16", run_cast_wide, {OUT("dst", N, NANS, EXACT), IN("src", N, DRAWN)}},
    {"cast of bf16 to fp16", run_cast_across, {OUT("dst", N, NANS, EXACT), IN("src", N, DRAWN)}},
    {"amax", run_amax, {OUT("amax", DOUBLE, TOKEN, EXACT), IN("x", N, LARGE)}},
    {"quantize_e4m3", run_quantize,
     {OUT("dst", N, NANS, EXACT), IN("src", N, LARGE), IN("amax", DOUBLE, POSITIVE)}},
    {"dequantize_e4m3 to floats", run_dequantize,
     {OUT("dst", N, NANS, EXACT), IN("src", N, DRAWN), IN("amax", DOUBLE, POSITIVE)}},
    {"dequantize_e4m3 to bf16", run_dequantize_bf16,
     {OUT("dst", N, NANS, EXACT), IN("src", N, DRAWN), IN("amax", DOUBLE, POSITIVE)}},
    {"dequantize_e4m3 to fp16", run_dequantize_fp16,
     {OUT("dst", N, NANS, EXACT), IN("src", N, DRAWN), IN("amax", DOUBLE, POSITIVE)}},
    {"check_finite of bf16", run_check_bf16,
     {OUT("found", DOUBLE, TOKEN, EXACT), IN("x", N, DRAWN)}},
    {"check_finite of floats", run_check_float,
     {OUT("found", DOUBLE, TOKEN, EXACT), IN("x", N, DRAWN)}},
    {"scale_ex of bf16", run_scale_bf16, {OUT("x", N, DRAWN, EXACT)}},
    {"scale_ex of fp16", run_scale_fp16, {OUT("x", N, DRAWN, EXACT)}},
    {"dropout_ex of floats", run_dropout, {OUT("x", N, DRAWN, EXACT)}},
    {"dropout_ex of bf16", run_dropout_bf16, {OUT("x", N, DRAWN, EXACT)}},
    {"add_ex of bf16 to floats", run_add_narrow, ONTO},
    {"add_ex of floats to fp16", run_add_wide, ONTO},
    {"add_ex of bf16", run_add_bf16, ONTO},
    {"add_divided_ex of bf16", run_divided_bf16, ONTO},
    {"add_divided_ex of fp16", run_divided_fp16, ONTO},
    {"add_divided_ex to bf16", run_divided_narrow, ONTO},
    {"add_divided_ex of floats", run_divided_float, ONTO},
    {"add_out_ex of fp16", run_add_out_fp16,
     {OUT("out", N, NANS, EXACT), IN("a", N, DRAWN), IN("b", N, DRAWN)}},
};

static const Kernel elementwise[] = {
    {"fill", run_fill, {OUT("x", N, NANS, EXACT)}},
    {"scale", run_scale, {OUT("x", N, DRAWN, EXACT)}},
    {"add", run_add, {OUT("dst", N, DRAWN, EXACT), IN("src", N, DRAWN)}},
    {"add_out", run_add_out, {OUT("out", N, NANS, EXACT), IN("a", N, DRAWN), IN("b", N, DRAWN)}},
    {"add_divided", run_add_divided, {OUT("dst", N, DRAWN, EXACT), IN("src", N, DRAWN)}},
    {"adamw", run_adamw, {OUT("p", N, DRAWN, EXACT), IN("g", N, DRAWN), OUT("m", N, DRAWN, EXACT),
                      OUT("v", N, POSITIVE, EXACT)}},
    {"sgd", run_sgd, {OUT("p", N, DRAWN, EXACT), IN("g", N, DRAWN), OUT("buf", N, DRAWN, EXACT)}},
    {"plain sgd", run_plain_sgd, {OUT("p", N, DRAWN, EXACT), IN("g", N, DRAWN)}},
    // An exponential of ours and one of CUDA's, each within 2 units, and what is done with it.
    {"gelu_forward", run_gelu_forward, {OUT("out", N, NANS, 12), IN("in", N, LARGE)}},
    {"gelu_backward", run_gelu_backward,
     {OUT("din", N, NANS, 32), IN("dout", N, DRAWN), IN("in", N, LARGE)}},
};

// Sums of eighths are exact in any order. A double holds the squares of those, 48 bits and more.
static const Kernel sums[] = {
    {"sum_squares", run_sum_squares,
     {OUT("sum", DOUBLE, ONE_AND_A_HALF, EXACT), IN("x", N, EIGHTHS)}},
    {"mean", run_mean, {OUT("mean", DOUBLE, NANS, EXACT), IN("x", N, FINE)}},
};

// dout in eighths: Σ dout is exact too.
static const Kernel matrices[] = {
    {"sum_rows", run_sum_rows, {OUT("out", COLS, EIGHTHS, EXACT), IN("x", MATRIX, EIGHTHS)}},
    {"broadcast_bias",
     run_broadcast_bias,
     {OUT("out", MATRIX, NANS, EXACT), IN("bias", COLS, DRAWN)}},
    {"bias_gelu_forward", run_bias_gelu_forward,
     {OUT("out", MATRIX, NANS, 12), OUT("y", MATRIX, LARGE, EXACT), IN("bias", COLS, DRAWN)}},
    {"bias_gelu_backward", run_bias_gelu_backward,
     {OUT("din", MATRIX, NANS, 32), OUT("dbias", COLS, DRAWN, COLUMN_SUM),
      IN("dout", MATRIX, DRAWN),
      IN("y", MATRIX, LARGE)}},
    {"bias_gelu_backward in place", run_bias_gelu_backward_in_place,
     {OUT("din", MATRIX, LARGE, 32), OUT("dbias", COLS, DRAWN, COLUMN_SUM),
      IN("dout", MATRIX, DRAWN)}},
    // Row 0 lies around 100, where its mean is rounded to 64 units, and more once divided.
    {"layernorm_forward", run_layernorm_forward,
     {OUT("out", MATRIX, NANS, 1000), OUT("mean", ROWS, NANS, 32), OUT("rstd", ROWS, NANS, 32),
      IN("in", MATRIX, FAR), IN("weight", COLS, DRAWN), IN("bias", COLS, DRAWN)}},
    {"residual_layernorm_forward", run_residual_layernorm_forward,
     {OUT("out", MATRIX, NANS, 1000), OUT("mean", ROWS, NANS, 32), OUT("rstd", ROWS, NANS, 32),
      OUT("sum", MATRIX, FAR, EXACT), IN("residual", MATRIX, DRAWN), IN("weight", COLS, DRAWN),
      IN("bias", COLS, DRAWN)}},
    {"layernorm_backward", run_layernorm_backward,
     {OUT("din", MATRIX, NANS, 64), OUT("dweight", COLS, DRAWN, COLUMN_SUM),
      OUT("dbias", COLS, EIGHTHS, EXACT), IN("dout", MATRIX, EIGHTHS), IN("in", MATRIX, DRAWN),
      IN("weight", COLS, DRAWN), IN("mean", ROWS, DRAWN), IN("rstd", ROWS, POSITIVE)}},
    {"layernorm_backward with a residual", run_residual_layernorm_backward,
     {OUT("din", MATRIX, NANS, 64), OUT("dweight", COLS, DRAWN, COLUMN_SUM),
      OUT("dbias", COLS, EIGHTHS, EXACT), IN("dout", MATRIX, EIGHTHS), IN("in", MATRIX, DRAWN),
      IN("weight", COLS, DRAWN), IN("mean", ROWS, DRAWN), IN("rstd", ROWS, POSITIVE),
      IN("residual", MATRIX, DRAWN)}},
    {"rmsnorm_forward", run_rmsnorm_forward,
     {OUT("out", MATRIX, NANS, 64), OUT("rstd", ROWS, NANS, 32), IN("in", MATRIX, FAR),
      IN("weight", COLS, DRAWN)}},
    {"residual_rmsnorm_forward", run_residual_rmsnorm_forward,
     {OUT("out", MATRIX, NANS, 64), OUT("rstd", ROWS, NANS, 32), OUT("sum", MATRIX, FAR, EXACT),
      IN("residual", MATRIX, DRAWN), IN("weight", COLS, DRAWN)}},
    {"rmsnorm_backward", run_rmsnorm_backward,
     {OUT("din", MATRIX, NANS, 64), OUT("dweight", COLS, DRAWN, COLUMN_SUM),
      IN("dout", MATRIX, DRAWN), IN("in", MATRIX, DRAWN), IN("weight", COLS, DRAWN),
      IN("rstd", ROWS, POSITIVE)}},
    {"rmsnorm_backward with a residual", run_residual_rmsnorm_backward,
     {OUT("din", MATRIX, NANS, 64), OUT("dweight", COLS, DRAWN, COLUMN_SUM),
      IN("dout", MATRIX, DRAWN), IN("in", MATRIX, DRAWN), IN("weight", COLS, DRAWN),
      IN("rstd", ROWS, POSITIVE), IN("residual", MATRIX, DRAWN)}},
    {"swiglu_forward", run_swiglu_forward, {OUT("out", MATRIX, NANS, 16), IN("in", HALVES, LARGE)}},
    {"swiglu_backward", run_swiglu_backward,
     {OUT("din", HALVES, NANS, 32), IN("dout", MATRIX, DRAWN), IN("in", HALVES, LARGE)}},
    {"swiglu_backward in place", run_swiglu_backward_in_place,
     {OUT("din", HALVES, LARGE, 32), IN("dout", MATRIX, DRAWN)}},
};

// Exponents reach -42, where a product's rounding alone is 32 units of it.
static const Kernel attention[] = {
    {"causal_softmax_forward", run_softmax_forward, {OUT("att", SQUARES, LARGE, 64)}},
    {"causal_softmax_forward of a negative scale", run_softmax_of_negative,
     {OUT("att", SQUARES, LARGE, 64)}},
    {"causal_softmax_backward", run_softmax_backward,
     {OUT("datt", SQUARES, DRAWN, COLUMN_SUM), IN("att", SQUARES, POSITIVE)}},
};

// A row's softmax is made in one piece by the one and key by key by the other; sums are of as many
// products as a head has columns, or a sequence rows.
static const Kernel fused_attention[] = {
    {"attention_forward", run_attention_forward,
     {OUT("out", EMBEDDED, NANS, 64), OUT("stats", STATISTICS, NANS, 64), IN("qkv", QKV, DRAWN)}},
    {"attention_backward", run_attention_backward,
     {OUT("dqkv", QKV, NANS, COLUMN_SUM), OUT("delta", PER_HEAD, NANS, 64),
      IN("dout", EMBEDDED, DRAWN), IN("out", EMBEDDED, DRAWN), IN("stats", STATISTICS, POSITIVE),
      IN("qkv", QKV, DRAWN)}},
    {"attention_forward of grouped queries", run_grouped_attention_forward,
     {OUT("out", EMBEDDED, NANS, 64), OUT("stats", STATISTICS, NANS, 64),
      IN("qkv", GROUPED_QKV, DRAWN)}},
    {"attention_rows", run_attention_rows,
     {OUT("out", HALF_EMBEDDED, NANS, 64), IN("qkv", GROUPED_QKV, DRAWN)}},
    {"attention_backward of grouped queries", run_grouped_attention_backward,
     {OUT("dqkv", GROUPED_QKV, NANS, COLUMN_SUM), OUT("delta", PER_HEAD, NANS, 64),
      IN("dout", EMBEDDED, DRAWN), IN("out", EMBEDDED, DRAWN), IN("stats", STATISTICS, POSITIVE),
      IN("qkv", GROUPED_QKV, DRAWN)}},
};

// A sine and a cosine, each rounded from a double that may be off in its last place.
static const Kernel rotary[] = {
    {"rotary", run_rotary, {OUT("x", EMBEDDED, DRAWN, 4)}},
    {"rotary back", run_rotary_back, {OUT("x", EMBEDDED, DRAWN, 4)}},
};

static const Kernel embedding[] = {
    {"embedding_forward", run_embedding_forward,
     {OUT("out", EMBEDDED, NANS, EXACT), IN("tokens", TOKENS, TOKEN), IN("wte", WORDS, DRAWN),
      IN("wpe", PLACES, DRAWN)}},
    {"embedding_backward", run_embedding_backward,
     {OUT("dwte", WORDS, DRAWN, EXACT), OUT("dwpe", PLACES, DRAWN, EXACT),
      IN("dout", EMBEDDED, DRAWN),
      IN("tokens", TOKENS, TOKEN)}},
    {"embedding_forward of words alone", run_words_forward,
     {OUT("out", EMBEDDED, NANS, EXACT), IN("tokens", TOKENS, TOKEN), IN("wte", WORDS, DRAWN)}},
    {"embedding_backward of words alone", run_words_backward,
     {OUT("dwte", WORDS, DRAWN, EXACT), IN("dout", EMBEDDED, DRAWN), IN("tokens", TOKENS, TOKEN)}},
};

static const Kernel loss[] = {
    {"cross_entropy", run_cross_entropy,
     {OUT("losses", ROWS, NANS, 64), OUT("dlogits", MATRIX, NANS, 64), IN("logits", MATRIX, LARGE),
      IN("targets", ROWS, TOKEN)}},
    {"cross_entropy in place", run_cross_entropy_in_place,
     {OUT("losses", ROWS, NANS, 64), OUT("logits", MATRIX, LARGE, 64), IN("targets", ROWS, TOKEN)}},
    {"cross_entropy without a gradient", run_cross_entropy_alone,
     {OUT("losses", ROWS, NANS, 64), IN("logits", MATRIX, LARGE), IN("targets", ROWS, TOKEN)}},
};
// clang-format on

#endif
