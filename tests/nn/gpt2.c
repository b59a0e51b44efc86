/* gpt2.c: a whole small GPT-2, and what module.c promises around every pass: every gradient against
 * central differences of a plain double-precision model, memory, hooks, order of calls, failures.
 */
#include <cublas_v2.h>
#include <stdio.h>

#include "small_model.h"

static const Gpt2Config SMALL = {.vocab = VOCAB, .max_T = 7, .layers = 2, .heads = 2, .dim = 6};

static void naive_logits(const Fixture *f, double *logits, double *const *p)
{
    naive_gpt2(logits, f->host_tokens, p, SEQUENCES, LENGTH, SMALL.dim, SMALL.heads, SMALL.layers,
               SMALL.vocab);
}

static void open_fixture(Fixture *f, const Rank *r, double scale)
{
    fixture_begin(f, r, gpt2_create(&SMALL), scale);
    f->naive = naive_logits;
}

static void set_gradients(Fixture *f, float value)
{
    need_cuda(cudaStreamSynchronize(f->run.stream)); // send_to does not wait for it
    for (int i = 0; i < f->n; i++) {
        size_t size = numel_of(f->params[i]);
        float *base = malloc(size * sizeof *base);
        for (size_t j = 0; j < size; j++) base[j] = value;
        send_to(f->params[i]->grad.data, base, size);
        free(base);
    }
}

// ---- Against the naive model ----

RANK_TEST_WITHIN(test_gradients, 60, 1)
{
    Fixture f;
    open_fixture(&f, r, 0.4);
    check_gradients_of(&f, r);
    close_fixture(&f);
}

// Of a batch that begins with a later sequence than the first.
RANK_TEST_WITHIN(test_gradients_with_dropout, 60, 1)
{
    Fixture f;
    open_fixture(&f, r, 0.4);
    f.run.dropout = (Dropout){.p = 0.25f, .seed = 77, .first = 5};
    naive_dropout.p = 0.25;
    naive_dropout.seed = 77;
    naive_dropout.first = 5;
    check_gradients_of(&f, r);
    close_fixture(&f);
}

// The tied weight is one Param, and tokens that never come in still get the head's contribution.
RANK_TEST(test_tied, 1)
{
    Fixture f;
    open_fixture(&f, r, 0.4);
    Module *embed = f.m->children[0], *head = f.m->children[SMALL.layers + 2];
    check(head->params[0] == embed->params[0], "the head's weight is not the embedding's");
    set_gradients(&f, 0.0f);
    pass(&f);
    float *grad = fetch(embed->params[0]->grad.data, numel_of(embed->params[0]));
    for (int c = 0; c < SMALL.dim; c++)
        check(grad[10 * SMALL.dim + c] != 0.0f,
              "token 10 is in no input, but is scored by the head; its gradient %d is 0", c);
    free(grad);
    close_fixture(&f);
}

// With the small weights that training starts from, every token is about as likely.
RANK_TEST(test_untrained, 1)
{
    Fixture f;
    open_fixture(&f, r, 0.02);
    float loss = pass(&f);
    check(fabsf(loss - logf(11.0f)) < 0.02f,
          "the loss of the untrained model is %g, not about ln 11", loss);
    close_fixture(&f);
}

// ---- Names ----

RANK_TEST(test_names, 1)
{
    static const char *const want[] = {
        "embed.wte",           "embed.wpe",         "h.0.ln_1.weight",      "h.0.ln_1.bias",
        "h.0.attn.qkv.weight", "h.0.attn.qkv.bias", "h.0.attn.proj.weight", "h.0.attn.proj.bias",
        "h.0.ln_2.weight",     "h.0.ln_2.bias",     "h.0.mlp.fc.weight",    "h.0.mlp.fc.bias",
        "h.0.mlp.proj.weight", "h.0.mlp.proj.bias",
    };
    Param *params[MAX_PARAMS];
    Module *m = gpt2_create(&SMALL);
    int n = list_params(m, params, 0);
    check(n == 2 + 2 * 12 + 2, "the model has %d parameters", n);
    for (int i = 0; i < n; i++)
        check(params[i]->id == (uint32_t)i, "%s has number %u, not %d", params[i]->name,
              params[i]->id, i);
    for (int i = 0; i < 14; i++)
        check(strcmp(params[i]->name, want[i]) == 0, "parameter %d is %s, not %s", i,
              params[i]->name, want[i]);
    check(strcmp(params[14]->name, "h.1.ln_1.weight") == 0, "parameter 14 is %s", params[14]->name);
    check(strcmp(params[n - 1]->name, "ln_f.bias") == 0, "the last one is %s", params[n - 1]->name);
    check(params[4]->shape[0] == 18 && params[4]->shape[1] == 6, "qkv's weight is (%d, %d)",
          (int)params[4]->shape[0], (int)params[4]->shape[1]);
    check(params[6]->init_std == 0.02f / 2.0f, "proj's deviation is %g", params[6]->init_std);
    module_destroy(m);
}

// ---- What a pass promises ----

RANK_TEST(test_causality, 1)
{
    Fixture f;
    float *logits = NULL;
    open_fixture(&f, r, 0.4);
    need(module_forward(f.m, &f.run, f.tokens, &logits));
    float *before = fetch(logits, ROWS * 11);
    need(module_discard(f.m, &f.run));
    f.host_tokens[3] = 10; // of the first sequence
    send_tokens(f.tokens, f.host_tokens, ROWS);
    need(module_forward(f.m, &f.run, f.tokens, &logits));
    float *after = fetch(logits, ROWS * 11);
    need(module_discard(f.m, &f.run));
    check_equal("logits before the changed token", after, before, 3 * 11);
    check_equal("logits of the other sequence", after + LENGTH * 11, before + LENGTH * 11,
                LENGTH * 11);
    check(memcmp(after + 3 * 11, before + 3 * 11, 11 * sizeof *after) != 0,
          "the changed token changed nothing");
    free(before);
    free(after);
    close_fixture(&f);
}

RANK_TEST(test_memory, 1)
{
    Fixture f;
    float *logits = NULL;
    open_fixture(&f, r, 0.4);
    pass(&f);
    check(gpulog_live_bytes(r->device) == f.live, "%zu bytes are alive after a pass, %zu before",
          gpulog_live_bytes(r->device), f.live);
    need(module_forward(f.m, &f.run, f.tokens, &logits));
    check(gpulog_live_bytes(r->device) > f.live, "a forward keeps nothing");
    need(module_discard(f.m, &f.run));
    check(gpulog_live_bytes(r->device) == f.live,
          "%zu bytes are alive after discarding, %zu before", gpulog_live_bytes(r->device), f.live);
    need(module_discard(f.m, &f.run)); // with nothing to discard
    close_fixture(&f);
}

// The gradient of two micro-batches is the sum of theirs, up to the order of additions.
RANK_TEST(test_micro_batches, 1)
{
    Fixture f;
    float *first[MAX_PARAMS], *second[MAX_PARAMS];
    open_fixture(&f, r, 0.4);
    set_gradients(&f, 0.0f);
    pass(&f);
    for (int i = 0; i < f.n; i++) first[i] = fetch(f.params[i]->grad.data, numel_of(f.params[i]));
    for (int i = 0; i < ROWS; i++) f.host_tokens[i] = (7 * i + 2) % 11;
    send_tokens(f.tokens, f.host_tokens, ROWS);
    set_gradients(&f, 0.0f);
    pass(&f);
    for (int i = 0; i < f.n; i++) {
        second[i] = fetch(f.params[i]->grad.data, numel_of(f.params[i]));
        send_to(f.params[i]->grad.data, first[i], numel_of(f.params[i]));
    }
    pass(&f);
    for (int i = 0; i < f.n; i++) {
        size_t n = numel_of(f.params[i]);
        float *both = fetch(f.params[i]->grad.data, n);
        double *want = naive_buffer(n);
        for (size_t j = 0; j < n; j++) want[j] = (double)first[i][j] + second[i][j];
        check_norm(f.params[i]->name, both, 0.0f, want, n, 2e-6);
        free(want);
        free(both);
        free(first[i]);
        free(second[i]);
    }
    close_fixture(&f);
}

// Sixty steps on one batch learn it by heart.
RANK_TEST(test_training, 1)
{
    Fixture f;
    PlainAdamW *opt = NULL;
    AdamWConfig config = {0.02f, 0.9f, 0.95f, 1e-8f, 0.01f};
    open_fixture(&f, r, 0.1);
    need(plain_adamw_create(&opt, f.m, &config, &f.run));
    float first = 0.0f, last = 0.0f;
    for (int step = 0; step < 60; step++) {
        need(plain_adamw_zero_grad(opt));
        last = pass(&f);
        if (step == 0) first = last;
        need(plain_adamw_step(opt));
    }
    check(first > 2.0f && last < 0.5f, "the loss went from %g to %g in 60 steps", first, last);
    plain_adamw_destroy(opt);
    check(gpulog_live_bytes(r->device) == f.live, "the optimizer left memory allocated");
    close_fixture(&f);
}

// How many operations called `name` the log holds from entry `from` on.
static int count_operations(uint64_t from, const char *name)
{
    GpuLogEntry entry;
    int n = 0;
    for (uint64_t i = from; i < gpulog_length(); i++)
        n += gpulog_get(i, &entry) && strcmp(entry.name, name) == 0;
    return n;
}

// Biases, GELUs and residuals beside a layer norm have no pass over memory of their own.
RANK_TEST(test_fused, 1)
{
    static const struct {
        const char *name;
        int in_block;
    } want[] = {
        {"kernel_bias_gelu_forward", 1},
        {"kernel_bias_gelu_backward", 1},
        {"kernel_residual_layernorm_forward", 1},
        {"kernel_gelu_forward", 0},
        {"kernel_gelu_backward", 0},
        {"kernel_add", 1}, // the last residual of a block's forward
    };
    Fixture f;
    open_fixture(&f, r, 0.4);
    uint64_t from = gpulog_length();
    pass(&f);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        int n = count_operations(from, want[i].name);
        check(n == want[i].in_block * SMALL.layers, "a pass has %s %d times; it has %d blocks",
              want[i].name, n, SMALL.layers);
    }
    close_fixture(&f);
}

// ---- Hooks ----

typedef struct Diary {
    char text[512];
} Diary;
typedef struct Writer {
    Diary *diary;
    const char *what;
} Writer;

static Status write_diary(Module *m, void *ctx)
{
    Writer *w = ctx;
    size_t used = strlen(w->diary->text);
    snprintf(w->diary->text + used, sizeof w->diary->text - used, "%s %s%s, ", w->what, m->name,
             m->out != NULL ? "" : " (no output)");
    return OK;
}

static Status refuse_hook(Module *m, void *ctx)
{
    return fail(ERR_IO, "this hook refuses %s", m->name);
}

static void hook_up(Module *m, Writer writers[4])
{
    for (int point = 0; point < HOOK_POINTS; point++)
        check(module_add_hook(m, point, write_diary, &writers[point]) != NULL, "no hook");
}

RANK_TEST(test_hooks, 1)
{
    Diary diary = {""};
    Writer writers[] = {
        {&diary, "forward"}, {&diary, "forwarded"}, {&diary, "backward"}, {&diary, "backwarded"}};
    uint64_t seed = 1;
    NnRun run;
    Module *parts[] = {linear_create("a", 3, 4, true, 1.0f), linear_create("b", 4, 2, true, 1.0f)};
    Module *m = sequence_create("both", 2, parts);
    need(nn_run_create(&run, r->stream));
    run.B = run.T = 1;
    give_storage(m, 1.0, &seed);
    hook_up(m, writers);
    hook_up(m->children[0], writers);
    hook_up(m->children[1], writers);
    float *x = draw_floats(3, 1.0, &seed), *in = on_device(x, 3), *out = NULL, *din = NULL;
    need(module_forward(m, &run, in, &out));
    need(module_backward(m, &run, in, &din));
    need_cuda(cudaFreeAsync(din, r->stream));
    const char *want = "forward both (no output), forward a (no output), forwarded a, "
                       "forward b (no output), forwarded b, forwarded both, "
                       "backward both, backward b, backwarded b (no output), "
                       "backward a, backwarded a (no output), backwarded both (no output), ";
    check(strcmp(diary.text, want) == 0, "the hooks ran as\n  %s\nnot as\n  %s", diary.text, want);

    size_t live = gpulog_live_bytes(r->device);
    module_add_hook(m->children[1], HOOK_PRE_FORWARD, refuse_hook, NULL);
    check(module_forward(m, &run, in, &out) == ERR_IO, "a hook's failure is lost");
    need(module_discard(m, &run));
    check(gpulog_live_bytes(r->device) == live,
          "a forward stopped by a hook left memory allocated");
    take_storage(m);
    module_destroy(m);
    need_cuda(cudaFree(in));
    need(nn_run_destroy(&run));
    free(x);
}

// The gradients of one pass that starts from zeros; free() each.
static void fetch_gradients(Fixture *f, float *out[])
{
    set_gradients(f, 0.0f);
    pass(f);
    for (int i = 0; i < f->n; i++) out[i] = fetch(f->params[i]->grad.data, numel_of(f->params[i]));
}

// A pass that a hook stopped in the midst of a block leaves no residual behind: the next is as
// ever.
RANK_TEST(test_stopped, 1)
{
    Fixture f;
    float *want[MAX_PARAMS], *got[MAX_PARAMS], *logits = NULL, *dlogits = NULL;
    open_fixture(&f, r, 0.4);
    fetch_gradients(&f, want);
    Module *block = f.m->children[1];
    for (int child = 0; child < 4; child++) {
        Module *m = block->children[child];
        for (int when = 0; when < 4; when++) {
            Hook *hook = module_add_hook(m, when, refuse_hook, NULL);
            Status done = module_forward(f.m, &f.run, f.tokens, &logits);
            check(done == (when < 2 ? ERR_IO : OK), "the forward returned %d", done);
            if (done == OK) {
                need(cross_entropy(&f.run, logits, f.targets, ROWS, SMALL.vocab, NULL, &dlogits));
                done = module_backward(f.m, &f.run, dlogits, NULL);
                check(done == ERR_IO, "the backward returned %d", done);
                need_cuda(cudaFreeAsync(dlogits, r->stream));
            }
            module_remove_hook(m, hook);
            need(module_discard(f.m, &f.run));
            check(gpulog_live_bytes(r->device) == f.live, "%s left memory allocated", m->name);
            fetch_gradients(&f, got);
            for (int i = 0; i < f.n; i++) {
                check_equal(f.params[i]->name, got[i], want[i], numel_of(f.params[i]));
                free(got[i]);
            }
        }
    }
    for (int i = 0; i < f.n; i++) free(want[i]);
    close_fixture(&f);
}

// The logits may become their gradient: the loss and all gradients are the same.
RANK_TEST(test_in_place, 1)
{
    Fixture f;
    float *want[MAX_PARAMS], *got[MAX_PARAMS], *logits = NULL, *dlogits = NULL, loss, other;
    open_fixture(&f, r, 0.4);
    fetch_gradients(&f, want);
    need(module_forward(f.m, &f.run, f.tokens, &logits));
    need(cross_entropy_scaled(&f.run, logits, f.targets, ROWS, SMALL.vocab, 0.3f, &loss, &dlogits));
    float *separate = fetch(dlogits, (size_t)ROWS * SMALL.vocab);
    size_t live = gpulog_live_bytes(r->device);
    need(cross_entropy_in_place(&f.run, logits, f.targets, ROWS, SMALL.vocab, 0.3f, &other));
    check(gpulog_live_bytes(r->device) == live, "in place, memory stays allocated");
    check(loss == other, "in place the loss is %g, not %g", other, loss);
    float *in_place = fetch(logits, (size_t)ROWS * SMALL.vocab);
    check_equal("the gradient in place", in_place, separate, (size_t)ROWS * SMALL.vocab);
    need_cuda(cudaFreeAsync(dlogits, r->stream));
    need(module_discard(f.m, &f.run));

    set_gradients(&f, 0.0f);
    need(module_forward(f.m, &f.run, f.tokens, &logits));
    need(cross_entropy_in_place(&f.run, logits, f.targets, ROWS, SMALL.vocab, 1.0f / ROWS, NULL));
    need(module_backward(f.m, &f.run, logits, NULL));
    for (int i = 0; i < f.n; i++) {
        got[i] = fetch(f.params[i]->grad.data, numel_of(f.params[i]));
        check_equal(f.params[i]->name, got[i], want[i], numel_of(f.params[i]));
        free(got[i]);
        free(want[i]);
    }
    check(gpulog_live_bytes(r->device) == f.live, "a pass in place left memory allocated");
    free(separate);
    free(in_place);
    close_fixture(&f);
}

// ---- Mistakes and failures ----

// The call must return `status`, and the line it began with must hold `words`.
static void expect(Status got, Status status, const char *words)
{
    check(got == status, "status %d, not %d", got, status);
    check(strstr(last_error(), words) != NULL, "the message is \"%s\", without \"%s\"",
          last_error(), words);
}

RANK_TEST(test_mistakes, 1)
{
    Fixture f;
    float *logits = NULL;
    open_fixture(&f, r, 0.4);
    expect(module_backward(f.m, &f.run, (float *)f.tokens, NULL), ERR_ARGUMENT,
           "without a forward");
    need(module_forward(f.m, &f.run, f.tokens, &logits));
    expect(module_forward(f.m, &f.run, f.tokens, &logits), ERR_ARGUMENT, "a second time");
    need(module_discard(f.m, &f.run));

    f.run.T = 8;
    expect(module_forward(f.m, &f.run, f.tokens, &logits), ERR_ARGUMENT,
           "sequence of 8 tokens, but the model takes at most 7");
    f.run.T = LENGTH;
    need(module_discard(f.m, &f.run));

    Param *weight = f.params[10]; // h.0.mlp.fc.weight
    Buffer data = weight->data, grad = weight->grad;
    weight->data.data = NULL;
    expect(module_forward(f.m, &f.run, f.tokens, &logits), ERR_ARGUMENT,
           "h.0.mlp.fc.weight has no data");
    weight->data = data;
    need(module_discard(f.m, &f.run));
    check(gpulog_live_bytes(r->device) == f.live,
          "a forward without a weight left memory allocated");

    need(module_forward(f.m, &f.run, f.tokens, &logits));
    float *dlogits = NULL;
    need(cross_entropy(&f.run, logits, f.targets, ROWS, SMALL.vocab, NULL, &dlogits));
    weight->grad.data = NULL;
    expect(module_backward(f.m, &f.run, dlogits, NULL), ERR_ARGUMENT,
           "h.0.mlp.fc.weight has no gradient");
    weight->grad = grad;
    need_cuda(cudaFreeAsync(dlogits, r->stream));
    need(module_discard(f.m, &f.run));
    check(gpulog_live_bytes(r->device) == f.live,
          "a backward without a gradient left memory allocated");
    close_fixture(&f);
}

// TF32 in the environment, and the mode of the handle that comes of it.
RANK_TEST(test_math_mode, 1)
{
    static const struct {
        const char *text;
        cublasMath_t mode;
    } good[] = {{NULL, CUBLAS_DEFAULT_MATH},
                {"", CUBLAS_DEFAULT_MATH},
                {"0", CUBLAS_DEFAULT_MATH},
                {"1", CUBLAS_TF32_TENSOR_OP_MATH}};
    static const char *const bad[] = {"2", "yes", "01", " 1"};
    NnRun run;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        cublasMath_t mode = CUBLAS_PEDANTIC_MATH;
        if (good[i].text == NULL)
            unsetenv("TF32");
        else
            setenv("TF32", good[i].text, 1);
        need(nn_run_create(&run, r->stream));
        check(cublasGetMathMode(run.blas, &mode) == CUBLAS_STATUS_SUCCESS, "no mode");
        check(mode == good[i].mode, "with TF32 = \"%s\" the mode is %d, not %d",
              good[i].text != NULL ? good[i].text : "(unset)", mode, good[i].mode);
        need(nn_run_destroy(&run));
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char words[64];
        snprintf(words, sizeof words, "TF32 is \"%s\"", bad[i]);
        setenv("TF32", bad[i], 1);
        expect(nn_run_create(&run, r->stream), ERR_ARGUMENT, words);
        check(run.blas == NULL, "a run that was refused has a handle");
    }
}

RANK_TEST(test_bad_sizes, 1)
{
    Gpt2Config bad = SMALL;
    bad.heads = 4;
    check(gpt2_create(&bad) == NULL, "6 columns were divided among 4 heads");
    bad = SMALL;
    bad.layers = 0;
    check(gpt2_create(&bad) == NULL, "a GPT-2 without layers was made");
    bad = SMALL;
    bad.vocab = 0;
    check(gpt2_create(&bad) == NULL, "a GPT-2 without tokens was made");
    check(mlp_create(3, 0, 3, 2) == NULL, "a hidden layer of width 0 was made");
    check(linear_create("x", 0, 3, true, 1.0f) == NULL, "a linear layer without inputs was made");
    check(linear_gelu_create("x", 0, 3, 1.0f) == NULL, "one with a GELU and no inputs was made");
    check(linear_gelu_create("x", 3, 0, 1.0f) == NULL, "one with a GELU and no outputs was made");
    Module *parts[] = {linear_create("a", 3, 4, true, 1.0f), linear_create("b", 5, 2, true, 1.0f)};
    check(sequence_create("s", 2, parts) == NULL, "4 columns went into 5");
    module_destroy(NULL);
}

#ifndef BACKEND_CUDA
// A pass with `spare` bytes of device memory left; OK, or how it failed. Nothing may leak.
static Status pass_within(Fixture *f, const Rank *r, size_t spare)
{
    size_t left = 0, total = 0;
    void *filler = NULL;
    float loss, *logits = NULL, *dlogits = NULL;
    cudaMemPool_t pool;
    need_cuda(cudaDeviceGetDefaultMemPool(&pool, r->device));
    need_cuda(cudaMemPoolTrimTo(pool, 0)); // what it keeps would be room, too
    need_cuda(cudaMemGetInfo(&left, &total));
    need_cuda(cudaMalloc(&filler, left - spare));
    Status done = module_forward(f->m, &f->run, f->tokens, &logits);
    if (done == OK)
        done = cross_entropy(&f->run, logits, f->targets, ROWS, SMALL.vocab, &loss, &dlogits);
    if (done == OK) done = module_backward(f->m, &f->run, dlogits, NULL);
    if (dlogits != NULL) need_cuda(cudaFreeAsync(dlogits, r->stream));
    need(module_discard(f->m, &f->run));
    need_cuda(cudaStreamSynchronize(r->stream));
    need_cuda(cudaFree(filler));
    cudaGetLastError(); // the failed allocation's
    check(gpulog_live_bytes(r->device) == f->live, "with %zu bytes to spare, %zu bytes leaked",
          spare, gpulog_live_bytes(r->device) - f->live);
    return done;
}

// Memory that runs out at any point of the pass: an error, no leak, and the next pass is fine. (A
// real GPU hands memory out in pieces far larger than this whole model.)
RANK_TEST_WITHIN(test_out_of_memory, 60, 1)
{
    Fixture f;
    int failures = 0;
    open_fixture(&f, r, 0.4);
    for (size_t spare = 0;; spare += 1024) {
        Status done = pass_within(&f, r, spare);
        if (done == OK) break;
        check(done == ERR_MEMORY || done == ERR_CUDA, "status %d with no memory left", done);
        failures++;
        check(failures < 200, "the pass wants more than %zu bytes", spare);
    }
    check(failures >= 5, "only %d of the sizes were too small", failures);
    pass(&f);
    close_fixture(&f);
}
#endif

SUITE_MAIN("GPT-2")
