/* narrow.c: a model without FSDP that computes in bf16 or fp16. See narrow.h. */
#include "narrow.h"

#include <stdlib.h>

void *alloc_typed(DType type, size_t n)
{
    void *device = NULL;
    need_cuda(cudaMalloc(&device, (n + 1) * (size_t)dtype_bytes(type)));
    need_cuda(cudaMemset(device, 0, (n + 1) * (size_t)dtype_bytes(type)));
    need_cuda(cudaDeviceSynchronize());
    return device;
}

void send_typed(DType type, void *device, const float *x, size_t n)
{
    uint16_t *halves = malloc((n + 1) * sizeof *halves);
    check(halves != NULL, "no memory for %zu numbers", n);
    for (size_t i = 0; i < n && type != DTYPE_F32; i++) halves[i] = half_round(type, x[i]);
    const void *from = type == DTYPE_F32 ? (const void *)x : halves;
    need_cuda(cudaMemcpy(device, from, n * (size_t)dtype_bytes(type), cudaMemcpyHostToDevice));
    need_cuda(cudaDeviceSynchronize());
    free(halves);
}

float *fetch_typed(DType type, const void *device, size_t n)
{
    if (type == DTYPE_F32) return fetch(device, n);
    uint16_t *halves = malloc((n + 1) * sizeof *halves);
    float *x = malloc((n + 1) * sizeof *x);
    check(halves != NULL && x != NULL, "no memory for %zu numbers", n);
    need_cuda(cudaMemcpy(halves, device, n * sizeof *halves, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < n; i++) x[i] = (float)half_value(type, halves[i]);
    free(halves);
    return x;
}

void narrow_create(Narrow *w, Module *model, DType type)
{
    Param *params[LAYOUT_MAX];
    static Layout all;
    int n = meta_params(model, params, LAYOUT_MAX);
    layout_module(&all, model, false, 1, LAYOUT_WHOLE);
    *w = (Narrow){.model = model, .type = type, .n = all.begin[all.n]};
    module_set_type(model, type);
    w->data = alloc_typed(type, w->n);
    w->grad = alloc_typed(type, w->n);
    Buffer data = {w->data, type, (int64_t)w->n}, grad = {w->grad, type, (int64_t)w->n};
    for (int i = 0; i < n; i++) {
        int64_t at = (int64_t)all.begin[i], numel = (int64_t)all.begin[i + 1] - at;
        params[i]->data = buffer_range(&data, at, numel);
        params[i]->grad = buffer_range(&grad, at, numel);
    }
}

void narrow_destroy(Narrow *w)
{
    need_cuda(cudaFree(w->data));
    need_cuda(cudaFree(w->grad));
    module_destroy(w->model);
}

void narrow_load(Narrow *w, const float *masters)
{
    send_typed(w->type, w->data, masters, w->n);
}

void narrow_zero(Narrow *w)
{
    need_cuda(cudaMemset(w->grad, 0, w->n * (size_t)dtype_bytes(w->type)));
    need_cuda(cudaDeviceSynchronize());
}

void narrow_pass(Narrow *w, NnRun *run, const Spec *spec, const Batch *batch, float scale)
{
    size_t rows = (size_t)spec->B * (size_t)spec->T, ins = rows * (size_t)spec->in_dim;
    size_t outs = rows * (size_t)spec->vocab;
    float *x = spec->gpt2 ? NULL : fetch(batch->in, ins), *dlogits = NULL, loss;
    void *in = alloc_typed(w->type, ins), *dout = alloc_typed(w->type, outs);
    float *logits = alloc_typed(DTYPE_F32, outs);
    Buffer out, din;
    run->B = spec->B;
    run->T = spec->T;
    if (x != NULL) send_typed(w->type, in, x, ins);
    need(module_forward_typed(w->model, run, spec->gpt2 ? batch->in : in, &out));
    need_cuda(cudaStreamSynchronize(run->stream));
    float *wide = fetch_typed(w->type, out.data, outs);
    send_to(logits, wide, outs);
    need(cross_entropy_scaled(run, logits, batch->targets, (int)rows, spec->vocab, scale, &loss,
                              &dlogits));
    need_cuda(cudaStreamSynchronize(run->stream));
    float *grad = fetch(dlogits, outs);
    send_typed(w->type, dout, grad, outs);
    need(module_backward_typed(w->model, run, dout, &din));
    need_cuda(cudaStreamSynchronize(run->stream));
    need_cuda(cudaFree(dlogits));
    if (din.data != NULL) need_cuda(cudaFree(din.data));
    need_cuda(cudaFree(in));
    need_cuda(cudaFree(dout));
    need_cuda(cudaFree(logits));
    free(x);
    free(wide);
    free(grad);
}

float *narrow_grads(const Narrow *w)
{
    return fetch_typed(w->type, w->grad, w->n);
}
