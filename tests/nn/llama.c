/* llama.c: a Llama-shaped model: every gradient against central differences of a naive one in
 * double precision; Llama 3's numbers of parameters; names, causality, memory, types, mistakes.
 * What module.c promises around every pass gpt2.c tests.
 */
#include "kernels.h"
#include "naive_llama.h"
#include "small_model.h"

static LlamaConfig small(bool tied)
{
    return (LlamaConfig){.vocab = VOCAB,
                         .max_T = 7,
                         .layers = 2,
                         .heads = 4,
                         .kv_heads = 2,
                         .dim = 8,
                         .hidden = 5,
                         .eps = 1e-4f,
                         .rotary = {.theta = 50.0f},
                         .tied = tied};
}

static void naive_logits(const Fixture *f, double *logits, double *const *p)
{
    const LlamaConfig *c = f->config;
    NaiveLlama n = {SEQUENCES,    LENGTH,    c->dim, c->heads, c->kv_heads,
                    c->hidden,    c->layers, VOCAB,  c->tied,  .theta = c->rotary.theta,
                    .eps = c->eps};
    naive_llama(&n, logits, f->host_tokens, p);
}

static void open_fixture(Fixture *f, const Rank *r, const LlamaConfig *config)
{
    fixture_begin(f, r, llama_create(config), 0.4);
    f->naive = naive_logits;
    f->config = config;
}

// ---- Against the naive model ----

static void check_gradients(const Rank *r, void *arg)
{
    Fixture f;
    LlamaConfig config = small(arg != NULL);
    open_fixture(&f, r, &config);
    check_gradients_of(&f, r);
    close_fixture(&f);
}
TEST(test_gradients)
{
    run_ranks_limit(1, 60, check_gradients, NULL);
}
TEST(test_gradients_tied)
{
    run_ranks_limit(1, 60, check_gradients, "tied");
}

// ---- Names and numbers ----

RANK_TEST(test_names, 1)
{
    static const struct {
        const char *name;
        int64_t rows, columns;
    } want[] = {{"embed.wte", VOCAB, 8},        {"h.0.norm_1.weight", 8, 0},
                {"h.0.attn.qkv.weight", 16, 8}, {"h.0.attn.proj.weight", 8, 8},
                {"h.0.norm_2.weight", 8, 0},    {"h.0.mlp.gate_up.weight", 10, 8},
                {"h.0.mlp.down.weight", 8, 5},  {"h.1.norm_1.weight", 8, 0},
                {"h.1.attn.qkv.weight", 16, 8}, {"h.1.attn.proj.weight", 8, 8},
                {"h.1.norm_2.weight", 8, 0},    {"h.1.mlp.gate_up.weight", 10, 8},
                {"h.1.mlp.down.weight", 8, 5},  {"norm_f.weight", 8, 0},
                {"head.weight", VOCAB, 8}};
    for (int tied = 0; tied < 2; tied++) {
        LlamaConfig config = small(tied);
        Module *m = llama_create(&config);
        Param *params[MAX_PARAMS];
        int n = list_params(m, params, 0);
        check(n == 15 - tied, "the model has %d parameters", n);
        for (int i = 0; i < n; i++)
            check(strcmp(params[i]->name, want[i].name) == 0 && params[i]->id == (uint32_t)i &&
                      params[i]->shape[0] == want[i].rows && params[i]->shape[1] == want[i].columns,
                  "parameter %d is %s (%d, %d), number %u", i, params[i]->name,
                  (int)params[i]->shape[0], (int)params[i]->shape[1], params[i]->id);
        module_destroy(m);
    }
}

// Elements of all parameters, by their shapes; a tied one counts once.
static int64_t model_count(const Module *m, bool tied)
{
    int64_t count = 0;
    for (int i = 0; i < m->n_params; i++) count += (int64_t)numel_of(m->params[i]);
    for (int i = 0; i < m->n_children - tied; i++) count += model_count(m->children[i], false);
    return count;
}

// Llama 3's shapes (Hugging Face's config.json of Meta-Llama-3-8B, Meta-Llama-3-70B and
// Llama-3.1-405B), and how many parameters their models have.
RANK_TEST(test_counts, 1)
{
    static const struct {
        LlamaConfig config;
        int64_t count;
    } table[] = {
        {{.layers = 32, .heads = 32, .dim = 4096, .hidden = 14336}, 8030261248},
        {{.layers = 80, .heads = 64, .dim = 8192, .hidden = 28672}, 70553706496},
        {{.layers = 126, .heads = 128, .dim = 16384, .hidden = 53248}, 405853388800},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        LlamaConfig config = table[i].config;
        config.vocab = 128256;
        config.max_T = 8192;
        config.kv_heads = 8;
        size_t live = gpulog_live_bytes(r->device);
        Module *m = llama_create(&config);
        check(m != NULL, "a Llama of %d layers: %s", config.layers, last_error());
        int64_t count = model_count(m, false);
        check(count == table[i].count, "a Llama of %d layers has %lld parameters, not %lld",
              config.layers, (long long)count, (long long)table[i].count);
        check(gpulog_live_bytes(r->device) == live, "a model on meta takes device memory");
        module_destroy(m);
    }
}

// ---- What a pass promises ----

RANK_TEST(test_causality, 1)
{
    Fixture f;
    float *logits = NULL;
    LlamaConfig config = small(false);
    open_fixture(&f, r, &config);
    need(module_forward(f.m, &f.run, f.tokens, &logits));
    float *before = fetch(logits, ROWS * VOCAB);
    need(module_discard(f.m, &f.run));
    check(gpulog_live_bytes(r->device) == f.live, "a discarded forward left memory allocated");
    f.host_tokens[3] = 10; // of the first sequence
    send_tokens(f.tokens, f.host_tokens, ROWS);
    need(module_forward(f.m, &f.run, f.tokens, &logits));
    float *after = fetch(logits, ROWS * VOCAB);
    need(module_discard(f.m, &f.run));
    check_equal("logits before the changed token", after, before, 3 * VOCAB);
    check_equal("logits of the other sequence", after + LENGTH * VOCAB, before + LENGTH * VOCAB,
                LENGTH * VOCAB);
    check(memcmp(after + 3 * VOCAB, before + 3 * VOCAB, VOCAB * sizeof *after) != 0,
          "the changed token changed nothing");
    free(before);
    free(after);
    close_fixture(&f);
}

// With keys and values that are copies, heads that share them have the results of heads that have
// their own.
RANK_TEST(test_grouped, 1)
{
    enum { B = 2, T = 21, C = 24, HEADS = 4, HS = C / HEADS, KV = 2, WIDTH = C + 2 * KV * HS };
    uint64_t seed = 9;
    float *few = draw_floats(B * T * WIDTH, 1.0, &seed),
          *all = malloc(sizeof(float) * B * T * 3 * C);
    float *w = draw_floats(B * T * C, 1.0, &seed), scale = 0.4f;
    for (int row = 0; row < B * T; row++)
        for (int c = 0; c < 3 * C; c++) {
            int part = c / C, head = c % C / HS, column = c % HS; // part 0: queries
            int at = part == 0 ? c : C + (part - 1) * KV * HS + head / (HEADS / KV) * HS + column;
            all[row * 3 * C + c] = few[row * WIDTH + at];
        }
    float *x[2] = {on_device(all, B * T * 3 * C), on_device(few, B * T * WIDTH)};
    float *dout = on_device(w, B * T * C), *out[2], *stats[2], *dqkv[2], *delta[2], *got[2][2];
    for (int i = 0; i < 2; i++) {
        int width = i == 1 ? WIDTH : 3 * C, kv = i == 1 ? KV : HEADS;
        out[i] = nans_on_device(B * T * C);
        stats[i] = nans_on_device(B * T * HEADS * 2);
        dqkv[i] = nans_on_device((size_t)(B * T * width));
        delta[i] = nans_on_device(B * T * HEADS);
        need_cuda(
            kernel_attention_forward(out[i], stats[i], x[i], B, T, C, HEADS, kv, scale, r->stream));
        need_cuda(kernel_attention_backward(dqkv[i], delta[i], dout, out[i], stats[i], x[i], B, T,
                                            C, HEADS, kv, scale, r->stream));
        got[i][0] = fetch(out[i], B * T * C);
        got[i][1] = fetch(dqkv[i], (size_t)(B * T * width));
    }
    check_equal("outputs of shared heads", got[1][0], got[0][0], B * T * C);
    for (int row = 0; row < B * T; row++)
        check_equal("gradients of the queries of shared heads", got[1][1] + row * WIDTH,
                    got[0][1] + row * 3 * C, C);
    for (int i = 0; i < 2; i++) {
        void *device[] = {out[i], stats[i], dqkv[i], delta[i], x[i]};
        for (int k = 0; k < 5; k++) need_cuda(cudaFree(device[k]));
        free(got[i][0]);
        free(got[i][1]);
    }
    need_cuda(cudaFree(dout));
    free(few);
    free(all);
    free(w);
}

// A turn and the one back are no turn but for rounding, position 0 is not turned at all, and what
// is not a head's stays.
RANK_TEST(test_rotary, 1)
{
    enum { B = 2, T = 70, HEADS = 3, HS = 10, WIDTH = HEADS * HS + 7, ALL = B * T * WIDTH };
    uint64_t seed = 11;
    RotaryFrequencies f = {{1.0f, 0.31f, 0.1f, 0.031f, 0.01f}};
    float *host = draw_floats(ALL, 1.0, &seed), *x = on_device(host, ALL);
    need_cuda(kernel_rotary(x, B, T, WIDTH, HEADS, HS, f, 1, r->stream));
    float *turned = fetch(x, ALL);
    need_cuda(kernel_rotary(x, B, T, WIDTH, HEADS, HS, f, -1, r->stream));
    float *back = fetch(x, ALL);
    for (int i = 0; i < ALL; i++) {
        int t = i / WIDTH % T, c = i % WIDTH, pair = c % HS % (HS / 2), sign = c % HS < HS / 2;
        bool stays = t == 0 || c >= HEADS * HS;
        double angle = (double)((float)t * f.of_pair[pair]);
        double other = stays ? 0.0 : host[sign ? i + HS / 2 : i - HS / 2];
        double want = stays ? host[i] : host[i] * cos(angle) + (sign ? -1 : 1) * other * sin(angle);
        check(stays ? turned[i] == host[i] : fabs(turned[i] - want) < 3e-7,
              "position %d, column %d: %.9g, want %.9g", t, c, turned[i], want);
        check(fabsf(back[i] - host[i]) < 5e-7f, "there and back: %.9g was %.9g", back[i], host[i]);
    }
    need_cuda(cudaFree(x));
    free(host);
    free(turned);
    free(back);
}

// ---- Types ----

// Parameters as numbers of `type`, gradients of zeros.
static void give_halves(Param *const *params, int n, DType type)
{
    uint64_t seed = 3;
    for (int i = 0; i < n; i++) {
        size_t size = numel_of(params[i]), bytes = size * (size_t)dtype_bytes(type);
        float *values = draw_floats(size, 0.4, &seed);
        for (size_t j = 0; j < size && params[i]->init == INIT_ONE; j++) values[j] += 1.0f;
        float *wide = on_device(values, size);
        need_cuda(cudaMalloc(&params[i]->data.data, bytes));
        need_cuda(cudaMalloc(&params[i]->grad.data, bytes));
        need_cuda(cudaMemset(params[i]->grad.data, 0, bytes));
        need_cuda(kernel_cast(type, params[i]->data.data, DTYPE_F32, wide, size, NULL));
        need_cuda(cudaDeviceSynchronize());
        need_cuda(cudaFree(wide));
        params[i]->data.dtype = params[i]->grad.dtype = type;
        free(values);
    }
}

// In bf16 and fp16 the logits are those of floats but for as much as rounding does in so few layers
// (bf16 has 8 bits, fp16 11), and each parameter gets a gradient.
RANK_TEST(test_halves, 1)
{
    static const DType types[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    static const double bound[] = {0.0, 0.04, 0.005};
    float *want = NULL;
    for (int t = 0; t < 3; t++) {
        LlamaConfig config = small(false);
        Param *params[MAX_PARAMS];
        int32_t tokens[ROWS];
        float *logits = NULL, *dlogits = NULL, loss;
        NnRun run;
        config.dtype = types[t];
        Module *m = llama_create(&config);
        int n = list_params(m, params, 0);
        need(nn_run_create(&run, r->stream));
        run.B = SEQUENCES;
        run.T = LENGTH;
        give_halves(params, n, types[t]);
        for (int i = 0; i < ROWS; i++) tokens[i] = (i * i + 3) % 10;
        int32_t *in = tokens_on_device(tokens, ROWS);
        need(module_forward(m, &run, in, &logits));
        float *got = fetch(logits, ROWS * VOCAB);
        if (t == 0) want = got;
        double off = 0.0, most = 0.0;
        for (int i = 0; i < ROWS * VOCAB; i++) {
            off = fmax(off, fabs((double)got[i] - want[i]));
            most = fmax(most, fabs((double)want[i]));
        }
        check(off <= bound[t] * most && (t == 0 || off > 0.0),
              "type %d: logits are off by %g, the largest is %g", t, off, most);
        need(cross_entropy(&run, logits, in, ROWS, VOCAB, &loss, &dlogits));
        need(module_backward(m, &run, dlogits, NULL));
        need_cuda(cudaFreeAsync(dlogits, r->stream));
        need_cuda(cudaStreamSynchronize(r->stream));
        for (int i = 0; i < n; i++) {
            size_t bytes = numel_of(params[i]) * (size_t)dtype_bytes(types[t]);
            char *grad = calloc(1, bytes);
            bool any = false;
            need_cuda(cudaMemcpy(grad, params[i]->grad.data, bytes, cudaMemcpyDeviceToHost));
            for (size_t b = 0; b < bytes; b++) any |= grad[b] != 0;
            check(any, "type %d: %s has no gradient", t, params[i]->name);
            free(grad);
        }
        take_storage(m);
        module_destroy(m);
        need(nn_run_destroy(&run));
        need_cuda(cudaFree(in));
        if (t > 0) free(got);
    }
    free(want);
}

// ---- Mistakes ----

static void refuse(LlamaConfig config, const char *words)
{
    check(llama_create(&config) == NULL, "a model was made where \"%s\" should be said", words);
    check(strstr(last_error(), words) != NULL, "the message is \"%s\", without \"%s\"",
          last_error(), words);
}

RANK_TEST(test_mistakes, 1)
{
    LlamaConfig bad;
    float *logits = NULL;
    Fixture f;
#define REFUSE(field, value, words) (bad = small(false), bad.field = (value), refuse(bad, words))
    REFUSE(layers, 0, "Llama with 0 layers");
    REFUSE(heads, 3, "8 columns do not divide among 3 heads");
    REFUSE(kv_heads, 3, "4 heads of queries do not divide among 3 of keys");
    REFUSE(kv_heads, 0, "do not divide among 0 of keys");
    REFUSE(heads, 8, "a head has 1 columns, and rotary positions take pairs");
    REFUSE(dim, 4 * 130, "a head has 130 columns, and the kernel takes 128");
    REFUSE(hidden, 0, "SwiGLU mlp would have 0 columns");
    REFUSE(vocab, 0, "would have 0 tokens");
    REFUSE(rotary.factor, 8.0f, "low below high");
    check(rmsnorm_create("norm", 0, 1e-5f) == NULL, "an RMSNorm without columns was made");
    check(rmsnorm_create("norm", 3, -1.0f) == NULL, "an RMSNorm of a negative eps was made");
    check(swiglu_create("act", 0) == NULL, "a SwiGLU without columns was made");

    LlamaConfig config = small(false);
    open_fixture(&f, r, &config);
    f.run.T = 8;
    check(module_forward(f.m, &f.run, f.tokens, &logits) == ERR_ARGUMENT, "8 tokens went into 7");
    check(strstr(last_error(), "sequence of 8 tokens, but the model takes at most 7") != NULL,
          "the message is \"%s\"", last_error());
    f.run.T = LENGTH;
    need(module_discard(f.m, &f.run));
    for (int i = 0; i < f.n; i++) {
        void *data = f.params[i]->data.data;
        f.params[i]->data.data = NULL;
        check(module_forward(f.m, &f.run, f.tokens, &logits) == ERR_ARGUMENT &&
                  strstr(last_error(), f.params[i]->name) != NULL,
              "without %s: \"%s\"", f.params[i]->name, last_error());
        f.params[i]->data.data = data;
        need(module_discard(f.m, &f.run));
        check(gpulog_live_bytes(r->device) == f.live, "without %s: memory is left",
              f.params[i]->name);
    }
    close_fixture(&f);
}

SUITE_MAIN("llama")
