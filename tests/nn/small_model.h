/* small_model.h: what the suites of small language models share: a model with storage and a batch,
 * a pass over it, and its gradients against central differences of a naive model in double
 * precision.
 *
 * Interface: Fixture; fixture_begin, close_fixture, pass, check_gradients_of.
 */
#ifndef TESTS_NN_SMALL_MODEL_H
#define TESTS_NN_SMALL_MODEL_H

#include "naive.h"
#include "numbers.h"

#define SEQUENCES 2
#define LENGTH 5
#define ROWS (SEQUENCES * LENGTH)
#define VOCAB 11

// A model with storage, a run, and a batch.
typedef struct Fixture {
    Module *m;
    NnRun run;
    int32_t host_tokens[ROWS], host_targets[ROWS];
    int32_t *tokens, *targets;
    Param *params[MAX_PARAMS];
    int n;
    size_t live; // bytes alive when all of this was made
    // The naive model's logits (ROWS, VOCAB) from its parameters; `config` is its own.
    void (*naive)(const struct Fixture *f, double *logits, double *const *p);
    const void *config;
} Fixture;

// The parameters of m are drawn, `scale` times.
static inline void fixture_begin(Fixture *f, const Rank *r, Module *m, double scale)
{
    uint64_t seed = 3;
    memset(f, 0, sizeof *f);
    check(m != NULL, "no model was made: %s", last_error());
    f->m = m;
    need(nn_run_create(&f->run, r->stream));
    f->run.B = SEQUENCES;
    f->run.T = LENGTH;
    give_storage(f->m, scale, &seed);
    f->n = list_params(f->m, f->params, 0);
    for (int i = 0; i < ROWS; i++) { // token 10 is never used
        f->host_tokens[i] = (i * i + 3) % 10;
        f->host_targets[i] = (3 * i + 1) % 10;
    }
    f->tokens = tokens_on_device(f->host_tokens, ROWS);
    f->targets = tokens_on_device(f->host_targets, ROWS);
    f->live = gpulog_live_bytes(r->device);
}

static inline void close_fixture(Fixture *f)
{
    take_storage(f->m);
    module_destroy(f->m);
    need_cuda(cudaFree(f->tokens));
    need_cuda(cudaFree(f->targets));
    need(nn_run_destroy(&f->run));
}

// One forward and backward; the mean loss of the batch.
static inline float pass(Fixture *f)
{
    float loss = NAN, *logits = NULL, *dlogits = NULL;
    need(module_forward(f->m, &f->run, f->tokens, &logits));
    need(cross_entropy(&f->run, logits, f->targets, ROWS, VOCAB, &loss, &dlogits));
    need(module_backward(f->m, &f->run, dlogits, NULL));
    need_cuda(cudaFreeAsync(dlogits, f->run.stream));
    return loss;
}

// ---- Against the naive model ----

static inline double naive_loss_of(const Fixture *f, double *const *p)
{
    double logits[ROWS * VOCAB];
    f->naive(f, logits, p);
    return naive_loss(logits, f->host_targets, ROWS, VOCAB);
}

static inline double *differentiate(const Fixture *f, double *const *p, int which, size_t n)
{
    const double step = 1e-5;
    double *gradient = naive_buffer(n), *x = p[which];
    for (size_t i = 0; i < n; i++) {
        double before = x[i];
        x[i] = before + step;
        double above = naive_loss_of(f, p);
        x[i] = before - step;
        gradient[i] = (above - naive_loss_of(f, p)) / (2.0 * step);
        x[i] = before;
    }
    return gradient;
}

// Every gradient of one pass, and nothing of it is alive afterwards.
static inline void check_gradients_of(Fixture *f, const Rank *r)
{
    double *p[MAX_PARAMS];
    for (int i = 0; i < f->n; i++) {
        size_t size = numel_of(f->params[i]);
        float *values = fetch(f->params[i]->data.data, size);
        p[i] = naive_buffer(size);
        for (size_t j = 0; j < size; j++) p[i][j] = values[j];
        free(values);
    }
    float loss = pass(f);
    double want_loss = naive_loss_of(f, p);
    check(fabs(loss - want_loss) < 2e-6 * want_loss, "the loss is %.8g, not %.8g", loss, want_loss);
    for (int i = 0; i < f->n; i++) {
        size_t size = numel_of(f->params[i]);
        float *got = fetch(f->params[i]->grad.data, size);
        double *want = differentiate(f, p, i, size);
        // The keys' bias of GPT-2 changes nothing (softmax does not see a shift), so of qkv's bias
        // the norm is that of the queries' and values' part alone: the bound is the same.
        check_norm(f->params[i]->name, got, GRAD_BASE, want, size, 2e-5);
        free(got);
        free(want);
    }
    for (int i = 0; i < f->n; i++) free(p[i]);
    check(gpulog_live_bytes(r->device) == f->live, "%zu bytes are alive after a pass, %zu before",
          gpulog_live_bytes(r->device), f->live);
}

#endif
