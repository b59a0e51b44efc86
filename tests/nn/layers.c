/* layers.c: every layer's output against a plain double-precision one, and its backward against
 * that one's central differences: the input's gradient and every parameter's, all elements.
 *
 * The loss is Σ w·out with random w, so dout = w.
 */
#include "naive_llama.h"
#include "numbers.h"

#define BOUND 1e-5 // of a gradient's norm

typedef struct Case Case;
struct Case {
    const char *name;
    int B, T, in_dim, out_dim;
    int heads, vocab; // attention; embedding
    int kv_heads;
    Module *(*create)(const Case *c);
    void (*naive)(const Case *c, double *out, const double *in, double *const *p);
};

// Everything a numeric derivative needs.
typedef struct Setting {
    const Case *c;
    double *in;            // (rows, in_dim), or the tokens as numbers (rows)
    double *p[MAX_PARAMS]; // parameters
    double *w;             // (rows, out_dim) the loss's weights
    double *out;           // (rows, out_dim)
    size_t n_out;
} Setting;

static double loss_of(Setting *s)
{
    double loss = 0.0;
    s->c->naive(s->c, s->out, s->in, s->p);
    for (size_t i = 0; i < s->n_out; i++) loss += s->w[i] * s->out[i];
    return loss;
}

// d loss / d x[i] for all i of x (n), which is one of the setting's own arrays.
static double *differentiate(Setting *s, double *x, size_t n)
{
    const double step = 1e-5;
    double *gradient = naive_buffer(n);
    for (size_t i = 0; i < n; i++) {
        double before = x[i];
        x[i] = before + step;
        double above = loss_of(s);
        x[i] = before - step;
        double below = loss_of(s);
        x[i] = before;
        gradient[i] = (above - below) / (2.0 * step);
    }
    return gradient;
}

static double *widen(const float *x, size_t n)
{
    double *wide = naive_buffer(n);
    for (size_t i = 0; i < n; i++) wide[i] = x[i];
    return wide;
}

// Input of the case: floats, or tokens that repeat one of them and leave others out.
static void *make_input(const Case *c, Setting *s, uint64_t *seed)
{
    size_t rows = (size_t)c->B * c->T;
    if (c->in_dim > 0) {
        float *x = draw_floats(rows * c->in_dim, 1.0, seed);
        s->in = widen(x, rows * c->in_dim);
        float *device = on_device(x, rows * c->in_dim);
        free(x);
        return device;
    }
    int32_t tokens[64];
    s->in = naive_buffer(rows);
    for (size_t r = 0; r < rows; r++) s->in[r] = tokens[r] = (int32_t)(r * r % (size_t)c->vocab);
    return tokens_on_device(tokens, rows);
}

static void compare_params(Setting *s, Param **params, int n)
{
    for (int i = 0; i < n; i++) {
        size_t size = numel_of(params[i]);
        float *got = fetch(params[i]->grad.data, size);
        double *want = differentiate(s, s->p[i], size);
        check_norm(params[i]->name, got, GRAD_BASE, want, size, BOUND);
        free(want);
        free(got);
    }
    for (int i = 0; i < n; i++) free(s->p[i]);
}

static void check_case(const Rank *r, void *arg)
{
    const Case *c = arg;
    uint64_t seed = 7;
    size_t rows = (size_t)c->B * c->T, n_in = rows * c->in_dim;
    Setting s = {.c = c, .n_out = rows * c->out_dim};
    Module *m = c->create(c);
    check(m != NULL, "the layer was not made");
    NnRun run;
    need(nn_run_create(&run, r->stream));
    run.B = c->B;
    run.T = c->T;
    give_storage(m, 0.5, &seed);
    Param *params[MAX_PARAMS];
    int n = list_params(m, params, 0);
    for (int i = 0; i < n; i++) {
        float *values = fetch(params[i]->data.data, numel_of(params[i]));
        s.p[i] = widen(values, numel_of(params[i]));
        free(values);
    }
    void *in = make_input(c, &s, &seed);
    float *w = draw_floats(s.n_out, 1.0, &seed), *dout = on_device(w, s.n_out);
    s.w = widen(w, s.n_out);
    s.out = naive_buffer(s.n_out);

    size_t live = gpulog_live_bytes(r->device);
    float *out = NULL, *din = NULL;
    need(module_forward(m, &run, in, &out));
    float *got = fetch(out, s.n_out);
    loss_of(&s);
    check_norm("the output", got, 0.0f, s.out, s.n_out, 2e-6);
    need(module_backward(m, &run, dout, &din));
    if (c->in_dim > 0) {
        float *got_in = fetch(din, n_in);
        double *want = differentiate(&s, s.in, n_in);
        check_norm("the input's gradient", got_in, 0.0f, want, n_in, BOUND);
        free(got_in);
        free(want);
        need_cuda(cudaFreeAsync(din, r->stream));
    } else {
        check(din == NULL, "a module of tokens handed back an input gradient");
    }
    check(gpulog_live_bytes(r->device) == live, "%zd bytes more are alive after the backward",
          (ssize_t)(gpulog_live_bytes(r->device) - live));
    compare_params(&s, params, n);

    take_storage(m);
    need_cuda(cudaFree(in));
    need_cuda(cudaFree(dout));
    need(nn_run_destroy(&run));
    module_destroy(m);
    free(got);
    free(w);
    free(s.in);
    free(s.w);
    free(s.out);
}

// ---- The cases ----

static Module *create_linear(const Case *c)
{
    return linear_create("linear", c->in_dim, c->out_dim, true, 0.02f);
}
static void run_linear(const Case *c, double *out, const double *in, double *const *p)
{
    naive_linear(out, in, p, c->B * c->T, c->in_dim, c->out_dim);
}

static Module *create_linear_without_bias(const Case *c)
{
    return linear_create("linear", c->in_dim, c->out_dim, false, 0.02f);
}
static void run_linear_without_bias(const Case *c, double *out, const double *in, double *const *p)
{
    naive_product(out, in, p[0], NULL, c->B * c->T, c->in_dim, c->out_dim);
}

static Module *create_linear_gelu(const Case *c)
{
    return linear_gelu_create("fc", c->in_dim, c->out_dim, 0.02f);
}
static void run_linear_gelu(const Case *c, double *out, const double *in, double *const *p)
{
    naive_linear(out, in, p, c->B * c->T, c->in_dim, c->out_dim);
    naive_gelu(out, out, c->B * c->T * c->out_dim);
}

static Module *create_layernorm(const Case *c)
{
    return layernorm_create("norm", c->in_dim);
}
static void run_layernorm(const Case *c, double *out, const double *in, double *const *p)
{
    naive_layernorm(out, in, p, c->B * c->T, c->in_dim);
}

static Module *create_gelu(const Case *c)
{
    return gelu_create("gelu", c->in_dim);
}
static void run_gelu(const Case *c, double *out, const double *in, double *const *p)
{
    naive_gelu(out, in, c->B * c->T * c->in_dim);
}

static Module *create_attention(const Case *c)
{
    return attention_create("attn", c->in_dim, c->heads, 0.02f, 0.02f);
}
static Module *create_fused_attention(const Case *c)
{
    return fused_attention_create("attn", c->in_dim, c->heads, 0.02f, 0.02f);
}
static void run_attention(const Case *c, double *out, const double *in, double *const *p)
{
    naive_attention(out, in, p, c->B, c->T, c->in_dim, c->heads);
}

static Module *create_embedding(const Case *c)
{
    return embedding_create("embed", c->vocab, c->T, c->out_dim, 0.02f);
}
static void run_embedding(const Case *c, double *out, const double *in, double *const *p)
{
    int32_t tokens[64];
    for (int r = 0; r < c->B * c->T; r++) tokens[r] = (int32_t)in[r];
    naive_embedding(out, tokens, p, c->B, c->T, c->out_dim);
}

static Module *create_ffn(const Case *c)
{
    return ffn_create("mlp", c->in_dim, 3 * c->in_dim + 1, 0.02f, 0.02f);
}
static void run_ffn(const Case *c, double *out, const double *in, double *const *p)
{
    naive_ffn(out, in, p, c->B * c->T, c->in_dim, 3 * c->in_dim + 1);
}

static Module *create_mlp(const Case *c)
{
    return mlp_create(c->in_dim, 7, c->out_dim, 3);
}
static void run_mlp(const Case *c, double *out, const double *in, double *const *p)
{
    int rows = c->B * c->T;
    double *a = naive_buffer((size_t)rows * 7), *b = naive_buffer((size_t)rows * 7);
    naive_linear(a, in, p, rows, c->in_dim, 7);
    naive_gelu(a, a, rows * 7);
    naive_linear(b, a, p + 2, rows, 7, 7);
    naive_gelu(b, b, rows * 7);
    naive_linear(out, b, p + 4, rows, 7, c->out_dim);
    free(a);
    free(b);
}

static Module *create_rmsnorm(const Case *c)
{
    return rmsnorm_create("norm", c->in_dim, 1e-3f);
}
static void run_rmsnorm(const Case *c, double *out, const double *in, double *const *p)
{
    naive_rmsnorm(out, in, p, c->B * c->T, c->in_dim, 1e-3f);
}

static Module *create_swiglu(const Case *c)
{
    return swiglu_create("act", c->out_dim);
}
static void run_swiglu(const Case *c, double *out, const double *in, double *const *p)
{
    naive_swiglu(out, in, c->B * c->T, c->out_dim);
}

static Module *create_gated_ffn(const Case *c)
{
    return gated_ffn_create("mlp", c->in_dim, 2 * c->in_dim + 1, 0.02f, 0.02f);
}
static void run_gated_ffn(const Case *c, double *out, const double *in, double *const *p)
{
    naive_gated_ffn(out, in, p, c->B * c->T, c->in_dim, 2 * c->in_dim + 1);
}

// Fast turns: a few tokens go all the way round.
static Module *create_grouped_attention(const Case *c)
{
    RotaryConfig rotary = {.theta = 30.0f};
    return grouped_attention_create("attn", c->in_dim, c->heads, c->kv_heads, &rotary, 0.02f,
                                    0.02f);
}
static void run_grouped_attention(const Case *c, double *out, const double *in, double *const *p)
{
    NaiveLlama n = {c->B, c->T, c->in_dim, c->heads, c->kv_heads, .theta = 30.0};
    naive_grouped_attention(&n, out, in, p);
}

// Llama 3.1's scaling: with 60 tokens, and frequencies from 1 down to 30^(-3/4), pairs are in all
// three of its parts.
static Module *create_scaled_attention(const Case *c)
{
    RotaryConfig rotary = {.theta = 30.0f, .factor = 8.0f, .low = 1.0f, .high = 4.0f, 60};
    return grouped_attention_create("attn", c->in_dim, c->heads, c->kv_heads, &rotary, 0.02f,
                                    0.02f);
}
static void run_scaled_attention(const Case *c, double *out, const double *in, double *const *p)
{
    NaiveLlama n = {c->B,          c->T,         c->in_dim,  c->heads,   c->kv_heads,
                    .theta = 30.0, .factor = 8., .low = 1.0, .high = 4., .trained_T = 60.0};
    naive_grouped_attention(&n, out, in, p);
}

static Module *create_words(const Case *c)
{
    return token_embedding_create("embed", c->vocab, c->T, c->out_dim, 0.02f);
}
static void run_words(const Case *c, double *out, const double *in, double *const *p)
{
    int32_t tokens[64];
    for (int r = 0; r < c->B * c->T; r++) tokens[r] = (int32_t)in[r];
    naive_words(out, tokens, p, c->B * c->T, c->out_dim);
}

#define LAYER_TEST(test, ...)                                                                      \
    TEST(test)                                                                                     \
    {                                                                                              \
        Case c = {__VA_ARGS__};                                                                    \
        run_ranks(1, check_case, &c);                                                              \
    }

LAYER_TEST(test_linear, "linear", 3, 3, 5, 7, .create = create_linear, .naive = run_linear)
LAYER_TEST(test_linear_wide, "linear", 1, 1, 37, 19, .create = create_linear, .naive = run_linear)
LAYER_TEST(test_linear_without_bias, "linear", 2, 3, 4, 9, .create = create_linear_without_bias,
           .naive = run_linear_without_bias)
LAYER_TEST(test_linear_gelu, "fc", 3, 3, 5, 7, .create = create_linear_gelu,
           .naive = run_linear_gelu)
LAYER_TEST(test_linear_gelu_wide, "fc", 1, 3, 19, 261, .create = create_linear_gelu,
           .naive = run_linear_gelu)
LAYER_TEST(test_layernorm, "norm", 2, 3, 11, 11, .create = create_layernorm, .naive = run_layernorm)
LAYER_TEST(test_layernorm_wide, "norm", 1, 3, 67, 67, .create = create_layernorm,
           .naive = run_layernorm)
LAYER_TEST(test_gelu, "gelu", 3, 5, 13, 13, .create = create_gelu, .naive = run_gelu)
LAYER_TEST(test_attention, "attn", 2, 5, 12, 12, 3, .create = create_attention,
           .naive = run_attention)
// More sequences than heads: a batched call has one head of all of them.
LAYER_TEST(test_attention_many_sequences, "attn", 5, 4, 12, 12, 3, .create = create_attention,
           .naive = run_attention)
LAYER_TEST(test_attention_one_head, "attn", 1, 7, 5, 5, 1, .create = create_attention,
           .naive = run_attention)
LAYER_TEST(test_attention_one_token, "attn", 3, 1, 6, 6, 2, .create = create_attention,
           .naive = run_attention)
LAYER_TEST(test_fused_attention, "attn", 2, 5, 12, 12, 3, .create = create_fused_attention,
           .naive = run_attention)
LAYER_TEST(test_fused_attention_one_head, "attn", 1, 37, 5, 5, 1, .create = create_fused_attention,
           .naive = run_attention)
LAYER_TEST(test_fused_attention_wide, "attn", 1, 18, 38, 38, 2, .create = create_fused_attention,
           .naive = run_attention)
LAYER_TEST(test_fused_attention_one_token, "attn", 3, 1, 6, 6, 2, .create = create_fused_attention,
           .naive = run_attention)
LAYER_TEST(test_embedding, "embed", 3, 5, 0, 7, 0, 11, .create = create_embedding,
           .naive = run_embedding)
LAYER_TEST(test_ffn, "mlp", 2, 3, 5, 5, .create = create_ffn, .naive = run_ffn)
LAYER_TEST(test_rmsnorm, "norm", 2, 3, 11, 11, .create = create_rmsnorm, .naive = run_rmsnorm)
LAYER_TEST(test_rmsnorm_wide, "norm", 1, 3, 67, 67, .create = create_rmsnorm, .naive = run_rmsnorm)
LAYER_TEST(test_swiglu, "act", 3, 5, 26, 13, .create = create_swiglu, .naive = run_swiglu)
LAYER_TEST(test_gated_ffn, "mlp", 2, 3, 5, 5, .create = create_gated_ffn, .naive = run_gated_ffn)
LAYER_TEST(test_grouped_attention, "attn", 2, 5, 12, 12, 6, .kv_heads = 2,
           .create = create_grouped_attention, .naive = run_grouped_attention)
LAYER_TEST(test_grouped_attention_one_key, "attn", 1, 19, 12, 12, 3, .kv_heads = 1,
           .create = create_grouped_attention, .naive = run_grouped_attention)
LAYER_TEST(test_grouped_attention_all_keys, "attn", 1, 18, 36, 36, 2, .kv_heads = 2,
           .create = create_grouped_attention, .naive = run_grouped_attention)
LAYER_TEST(test_grouped_attention_one_token, "attn", 3, 1, 8, 8, 4, .kv_heads = 2,
           .create = create_grouped_attention, .naive = run_grouped_attention)
LAYER_TEST(test_scaled_attention, "attn", 1, 11, 16, 16, 2, .kv_heads = 1,
           .create = create_scaled_attention, .naive = run_scaled_attention)
LAYER_TEST(test_words, "embed", 3, 5, 0, 7, 0, 11, .create = create_words, .naive = run_words)
LAYER_TEST(test_mlp, "mlp", 3, 3, 6, 4, .create = create_mlp, .naive = run_mlp)

// ---- Memory ----

// The most device memory that a pass of m (which is destroyed) holds beside its parameters.
static size_t peak_of(const Rank *r, Module *m, NnRun *run, const float *in, const float *dout)
{
    uint64_t seed = 3;
    float *out = NULL, *din = NULL;
    check(m != NULL, "the layers were not made");
    give_storage(m, 0.5, &seed);
    size_t live = gpulog_live_bytes(r->device);
    gpulog_reset_peak(r->device);
    need(module_forward(m, run, in, &out));
    need(module_backward(m, run, dout, &din));
    size_t peak = gpulog_peak_bytes(r->device) - live;
    need_cuda(cudaFreeAsync(din, run->stream));
    need_cuda(cudaStreamSynchronize(run->stream));
    take_storage(m);
    module_destroy(m);
    return peak;
}

// The fused layer puts a gradient where its saved activations were: at its peak it holds one
// (rows, hidden) less than the same layers one by one.
RANK_TEST(test_peak, 1)
{
    enum { SEQUENCES = 4, T = 16, DIM = 32, HIDDEN = 128, ROWS = SEQUENCES * T };
    uint64_t seed = 5;
    NnRun run;
    need(nn_run_create(&run, r->stream));
    run.B = SEQUENCES;
    run.T = T;
    float *x = draw_floats(ROWS * DIM, 1.0, &seed), *in = on_device(x, ROWS * DIM);
    Module *parts[] = {linear_create("fc", DIM, HIDDEN, true, 1.0f), gelu_create("gelu", HIDDEN),
                       linear_create("proj", HIDDEN, DIM, true, 1.0f)};
    size_t plain = peak_of(r, sequence_create("mlp", 3, parts), &run, in, in);
    size_t fused = peak_of(r, ffn_create("mlp", DIM, HIDDEN, 1.0f, 1.0f), &run, in, in);
    check(fused + ROWS * HIDDEN * sizeof(float) <= plain,
          "the fused layers hold %zu bytes at their peak, the plain ones %zu", fused, plain);
    need_cuda(cudaFree(in));
    need(nn_run_destroy(&run));
    free(x);
}

SUITE_MAIN("nn layers")
