/* cross_entropy.c: the mean cross entropy of a batch, and the logits' gradient, in one pass. */
#include "gpulog.h"
#include "internal.h"
#include "kernels.h"

// The memory of one call, freed in one place, also on errors.
typedef struct Loss {
    float *losses; // device (rows)
    float *mean;   // device (1)
    float *grad;   // device (rows, vocab)
} Loss;

// Where the mean goes: to the host, which waits for it, or to the device.
typedef struct Wanted {
    float *host, *device;
    bool in_place; // the gradient takes the place of the logits
} Wanted;

static Status compute(NnRun *run, Loss *l, const float *logits, const int32_t *targets, int rows,
                      int vocab, float scale, Wanted loss, bool want_grad)
{
    TRY(run_alloc(run, &l->losses, (size_t)rows));
    gpulog_name(l->losses, "losses");
    if (want_grad) TRY(run_alloc(run, &l->grad, (size_t)rows * (size_t)vocab));
    gpulog_name(l->grad, "gradient of the logits");
    float *grad = loss.in_place ? (float *)(uintptr_t)logits : l->grad;
    CUDA_TRY(
        kernel_cross_entropy(l->losses, grad, logits, targets, rows, vocab, scale, run->stream));
    if (loss.device != NULL)
        CUDA_TRY(kernel_mean(loss.device, l->losses, (size_t)rows, run->stream));
    if (loss.host == NULL) return OK;
    TRY(run_alloc(run, &l->mean, 1));
    gpulog_name(l->mean, "mean loss");
    CUDA_TRY(kernel_mean(l->mean, l->losses, (size_t)rows, run->stream));
    CUDA_TRY(
        cudaMemcpyAsync(loss.host, l->mean, sizeof(float), cudaMemcpyDeviceToHost, run->stream));
    CUDA_TRY(cudaStreamSynchronize(run->stream));
    return OK;
}

Status cross_entropy(NnRun *run, const float *logits, const int32_t *targets, int rows, int vocab,
                     float *loss, float **dlogits)
{
    float scale = rows < 1 ? 0.0f : 1.0f / (float)rows;
    return cross_entropy_scaled(run, logits, targets, rows, vocab, scale, loss, dlogits);
}

static Status run_loss(NnRun *run, const float *logits, const int32_t *targets, int rows, int vocab,
                       float scale, Wanted loss, float **dlogits)
{
    Loss l = {0};
    if (dlogits != NULL) *dlogits = NULL;
    if (rows < 1 || vocab < 1)
        return fail(ERR_ARGUMENT, "cross entropy of %d rows of %d classes", rows, vocab);
    Status done = compute(run, &l, logits, targets, rows, vocab, scale, loss, dlogits != NULL);
    if (done == OK && dlogits != NULL) {
        *dlogits = l.grad;
        l.grad = NULL;
    }
    TRY(run_free(run, &l.losses));
    TRY(run_free(run, &l.mean));
    TRY(run_free(run, &l.grad));
    TRY(done);
    return OK;
}

Status cross_entropy_scaled(NnRun *run, const float *logits, const int32_t *targets, int rows,
                            int vocab, float scale, float *loss, float **dlogits)
{
    return run_loss(run, logits, targets, rows, vocab, scale, (Wanted){.host = loss}, dlogits);
}

Status cross_entropy_in_place(NnRun *run, float *logits, const int32_t *targets, int rows,
                              int vocab, float scale, float *loss)
{
    Wanted wanted = {.host = loss, .in_place = true};
    return run_loss(run, logits, targets, rows, vocab, scale, wanted, NULL);
}

Status cross_entropy_queued(NnRun *run, const float *logits, const int32_t *targets, int rows,
                            int vocab, float scale, float *loss, float **dlogits)
{
    return run_loss(run, logits, targets, rows, vocab, scale, (Wanted){.device = loss}, dlogits);
}
