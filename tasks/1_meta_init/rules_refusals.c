/* rules_refusals.c: sentences of fsdp.h on meta_init.c about what is refused, what fails, and
 * parameters that are frozen, empty or too large for 32 bits. See rules.h.
 */
#include "rules.h"

#include "backend.h"
#include "fsdp.h"
#include "harness.h"
#include "host_memory.h"
#include "huge.h"
#include "oracle.h"
#include "snapshot.h"
#include "training.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- Refused ----

// Each refusal, and not the first one's alone; whichever parameter it is, of a model whose others
// are on meta or have storage of their own.
RANK_RULE(refused_model_is_as_it_was, 1)
{
    Spec spec = spec_mlp(3);
    Module *model = spec_create(&spec);
    Param *params[16];
    size_t host = 0;
    int n = meta_params(model, params, 16);
    for (int why = 0; why < 3; why++)
        for (int i = n - 1; i >= 0; i--) {
            params[i]->owner = why == 0 ? model : NULL;
            params[i]->data.data = why == 1 ? &n : NULL;
            params[i]->dtype = why == 2 ? DTYPE_BF16 : DTYPE_F32;
            need_refused_whole(model, NULL, meta_materialize(model, 7, r->stream), params[i]->name);
            params[i]->owner = NULL;
            params[i]->data.data = NULL;
            params[i]->dtype = DTYPE_F32;
        }
    // A refusal, and a release where there is nothing: simgpu keeps nothing of them.
    params[0]->dtype = DTYPE_BF16;
    for (int i = 0; i < 102; i++) {
        if (i == 2) host = host_bytes();
        need_refused(meta_materialize(model, 7, r->stream), params[0]->name);
        meta_release(model);
    }
    check(host_bytes() <= host + 2048,
          "100 calls of meta_materialize that were refused and as many of meta_release left %zu "
          "bytes of host memory: which list is not freed?",
          host_bytes() - host);
    params[0]->dtype = DTYPE_F32;
    module_destroy(model);
}

// ---- Failed ----

#ifndef BACKEND_CUDA
// A copy that fails is no lack of memory, whatever it copies; and it leaves no chunk.
static void copy_body(const Rank *r, void *arg)
{
    enum { TIMES = 12, FIRST = 4 };
    static const int64_t NUMEL[] = {3, 1 << 20, INT64_C(1) << 31, INT64_C(1) << 32};
    cudaStream_t dead = dead_stream();
    size_t host = 0;
    float *dst = NULL;
    need_cuda(cudaMalloc((void **)&dst, 4 << 20));
    backend_ignore_reports();
    for (int i = 0; i < TIMES; i++) {
        Param p = {.name = "ones", .ndim = 1, .init = INIT_ONE};
        p.shape[0] = NUMEL[i % 4];
        if (i == FIRST) host = host_bytes();
        need_failure(meta_init_device(&p, 7, 0, p.shape[0], dst, dead), ERR_CUDA, "");
    }
    check(host_bytes() <= host + (TIMES - FIRST) * 4096,
          "%d calls of meta_init_device whose copy failed left %zu bytes of host memory",
          TIMES - FIRST, host_bytes() - host);
    cudaGetLastError();
    backend_listen();
    need_cuda(cudaFree(dst));
}

// The same of a model: on meta again, with the status of what failed.
static void model_body(const Rank *r, void *arg)
{
    Spec spec = spec_mlp(3);
    Module *model = spec_create(&spec);
    Param *params[16];
    int n = meta_params(model, params, 16);
    cudaStream_t dead = dead_stream();
    size_t live = gpulog_live_bytes(r->device), host = 0;
    backend_ignore_reports();
    for (int i = 0; i < 8; i++) {
        if (i == 4) host = host_bytes();
        need_failure(meta_materialize(model, 7, dead), ERR_CUDA, "");
        check(gpulog_live_bytes(r->device) == live,
              "meta_materialize could not fill what it had allocated, and left %zu bytes",
              gpulog_live_bytes(r->device) - live);
        for (int k = 0; k < n; k++)
            check(params[k]->data.data == NULL && params[k]->grad.data == NULL,
                  "meta_materialize failed, and %s is not on meta", params[k]->name);
    }
    check(host_bytes() <= host + 16384,
          "4 calls of meta_materialize that failed left %zu bytes of host memory",
          host_bytes() - host);
    cudaGetLastError();
    backend_listen();
    need(meta_materialize(model, 7, r->stream));
    meta_release(model);
    module_destroy(model);
}
#endif

void rule_failed_copy_keeps_its_status(void)
{
#ifndef BACKEND_CUDA
    run_ranks(1, copy_body, NULL);
#endif
}

void rule_failed_model_keeps_its_status(void)
{
#ifndef BACKEND_CUDA
    run_ranks(1, model_body, NULL);
#endif
}

// ---- Frozen, empty, many, large ----

// What each element of a parameter of ones begins with: whether that is right, other tests ask.
static float initial_value(const Param *p)
{
    float value = 77.0f;
    meta_init_slice(p, 7, 0, 1, &value);
    return value;
}

// Fails unless all elements of the parameter on the device are `want`.
static void check_all(const Param *p, const char *what, const void *device, float want)
{
    int64_t numel = oracle_numel(p);
    float *got = fetch(device, (size_t)numel);
    for (int64_t i = 0; i < numel; i++)
        check(got[i] == want, "%s of %s, which is %s: element %lld is %g, want %g", what, p->name,
              p->frozen ? "frozen" : "not frozen", (long long)i, (double)got[i], (double)want);
    free(got);
}

// A frozen parameter has values and goes as any other does; its gradient it may do without. One
// that is empty needs no memory, and stops nobody.
RANK_RULE(frozen_and_empty_parameters, 1)
{
    Param p[] = {{.name = "first", .ndim = 1, .shape = {5}, .frozen = true},
                 {.name = "empty", .ndim = 3, .shape = {4, 0, 7}},
                 {.name = "trains", .ndim = 2, .shape = {2, 3}},
                 {.name = "last", .ndim = 1, .shape = {70000}, .frozen = true}};
    enum { N = sizeof p / sizeof *p };
    Param *list[N], *got[N];
    Module model = {.name = "model", .n_params = N, .params = list};
    for (int i = 0; i < N; i++) {
        list[i] = &p[i];
        p[i].id = (uint32_t)i;
        p[i].init = INIT_ONE;
    }
    check_leaks();
    check(meta_params(&model, got, N) == N && memcmp(got, list, sizeof got) == 0,
          "meta_params leaves out a parameter that is frozen or empty");
    size_t live = gpulog_live_bytes(r->device);
    for (int round = 0; round < 2; round++) {
        need(meta_materialize(&model, 7, r->stream));
        need_cuda(cudaStreamSynchronize(r->stream));
        for (int i = 0; i < N; i++) {
            bool empty = oracle_numel(&p[i]) == 0;
            check(empty || (p[i].data.data != NULL && (p[i].frozen || p[i].grad.data != NULL)),
                  "meta_materialize gives %s, which is %s, no storage", p[i].name,
                  p[i].frozen ? "frozen" : "not frozen");
            if (!empty) check_all(&p[i], "the data", p[i].data.data, initial_value(&p[i]));
            if (!empty && p[i].grad.data != NULL)
                check_all(&p[i], "the gradient", p[i].grad.data, 0.0f);
        }
        meta_release(&model);
        check(gpulog_live_bytes(r->device) == live,
              "meta_release of a model with frozen and empty parameters left %zu bytes",
              gpulog_live_bytes(r->device) - live);
        for (int i = 0; i < N; i++)
            check(p[i].data.data == NULL && p[i].grad.data == NULL,
                  "meta_release leaves %s, which is %s, a pointer to what is gone", p[i].name,
                  p[i].frozen ? "frozen" : "not frozen");
    }
}

// Any number of parameters.
RANK_RULE(materializes_any_number, 1)
{
    enum { N = 1100 };
    static Param p[N];
    static Param *list[N];
    Module model = {.name = "many", .n_params = N, .params = list};
    check_leaks();
    for (int i = 0; i < N; i++) {
        list[i] = &p[i];
        p[i] = (Param){.id = (uint32_t)i, .ndim = 1, .shape = {1}, .init = INIT_ONE};
        snprintf(p[i].name, sizeof p[i].name, "p%d", i);
    }
    check(meta_count(&model) == N, "a model of %d parameters of one element: meta_count gives %lld",
          N, (long long)meta_count(&model));
    need(meta_materialize(&model, 7, r->stream));
    need_cuda(cudaStreamSynchronize(r->stream));
    for (int i = 0; i < N; i++)
        check(p[i].data.data != NULL && p[i].grad.data != NULL,
              "of %d parameters meta_materialize gives %s no storage", N, p[i].name);
    for (int i = 0; i < N; i += 157)
        check_all(&p[i], "the data", p[i].data.data, initial_value(&p[i]));
    meta_release(&model);
    for (int i = 0; i < N; i++)
        check(p[i].data.data == NULL && p[i].grad.data == NULL,
              "of %d parameters meta_release leaves %s its storage", N, p[i].name);
}

// Storage alone, which is quickly made: of more bytes, and of more elements, than 32 bits count.
static void large_body(const Rank *r, void *arg)
{
    enum { MANY = 8 };
    Param p = {.name = "large", .ndim = 2, .shape = {1 << 16, 1 << 16}, .init = INIT_NONE};
    Param small = {.name = "small", .ndim = 1, .shape = {MANY}, .init = INIT_NONE};
    Param *list[] = {&p, &small};
    Module model = {.name = "model", .n_params = 2, .params = list};
    const int64_t numel = (INT64_C(1) << 32) + MANY;
    size_t live = gpulog_live_bytes(r->device);
    need(meta_materialize(&model, 7, r->stream)); // what came before, the libraries take first
    meta_release(&model);
    uint64_t log = gpulog_length();
    need(meta_materialize(&model, 7, r->stream));
    check(gpulog_live_bytes(r->device) - live == 8 * (size_t)numel,
          "data and gradients of %lld elements take %zu bytes, want %zu%s", (long long)numel,
          gpulog_live_bytes(r->device) - live, 8 * (size_t)numel,
          cut_cause(gpulog_live_bytes(r->device) - live, 8 * (size_t)numel));
    check_covers(log, &p.grad, GPU_WRITE, "to zero a gradient");
    meta_release(&model);
    check(gpulog_live_bytes(r->device) == live, "meta_release of %lld elements left %zu bytes",
          (long long)numel, gpulog_live_bytes(r->device) - live);
}

void rule_materializes_beyond_32_bits(void)
{
    run_ranks_dry(1, large_body, NULL);
}
