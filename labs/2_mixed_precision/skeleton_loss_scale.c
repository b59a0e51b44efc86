/* Lab 2, second half: loss scaling. fp16 has too few exponents for gradients: those below 6e-8
 * become 0.
 *
 * Every gradient is linear in the loss's. So the loss's gradient is multiplied by a scale, every
 * result of the backward is larger by that factor, and the optimizer gets it divided again, in
 * float. The largest scale that works is unknown, and changes. So it is found by trial: if a
 * gradient becomes infinite or NaN, the step is skipped and the scale halved; after many steps
 * without one the scale is doubled.
 *
 * [Note: all or none] A rank sees only its own shard of the gradient. If one rank skipped a step
 * alone, its shard of the parameters (and its t) would be one step behind, and nobody would notice.
 * So the ranks take the maximum of what they found before one of them decides.
 *
 * Interface:
 *   loss_scaler_create, loss_scaler_destroy
 *   loss_scaler_scale                  the loss's gradient, before the backward
 *   loss_scaler_unscale                the parameters' gradients, after it
 *   loss_scaler_step                   the optimizer's, or none
 *   loss_scaler_update                 the scale of the next step
 */
// Lab 2. Each TODO says what must hold afterwards and asks a question. Write
// the code that makes it hold.
// The handout is labs/2_mixed_precision/handout.md; `make grade LAB=2` says how far you are.
#include "precision.h"

#include <math.h>

#include "kernels.h"
#include "not_yet.h"
#include "offload.h"

Status loss_scaler_create(LossScaler *scaler, Module *root)
{
    TRY(fsdp_find_root(root, &scaler->root));
    scaler->unscaled = scaler->stepped = scaler->found_inf = false;
    scaler->found = scaler->host = NULL;
    if (scaler->root->extensions->pipeline != NULL)
        return fail(ERR_ARGUMENT,
                    "%s is a stage: a loss scale would look only at its gradients, and "
                    "stages would step apart",
                    root->name);
    if (!(scaler->scale > 0.0f) || !isfinite(scaler->scale))
        return fail(ERR_ARGUMENT, "a loss scale of %g: it must be positive and finite",
                    (double)scaler->scale);
    if (!(scaler->growth_factor > 1.0f) || isinf(scaler->growth_factor) ||
        !(scaler->backoff_factor > 0.0f) || !(scaler->backoff_factor < 1.0f) ||
        scaler->growth_interval < 1)
        return fail(ERR_ARGUMENT,
                    "a scale grows by %g after %d steps and shrinks by %g: want a finite factor "
                    "above 1, at least one step, and a factor between 0 and 1",
                    (double)scaler->growth_factor, scaler->growth_interval,
                    (double)scaler->backoff_factor);
    CUDA_TRY(cudaMalloc((void **)&scaler->found, sizeof *scaler->found));
    CUDA_TRY(cudaMallocHost((void **)&scaler->host, sizeof *scaler->host));
    return OK;
}

void loss_scaler_destroy(LossScaler *scaler)
{
    cudaFree(scaler->found);
    cudaFreeHost(scaler->host);
    scaler->found = scaler->host = NULL;
}

Status loss_scaler_scale(LossScaler *scaler, float *grad, size_t n, cudaStream_t stream)
{
    if (scaler->unscaled)
        return fail(ERR_ARGUMENT, "the gradients of this step are unscaled already: call "
                                  "loss_scaler_update before the next backward");
    CUDA_TRY(kernel_scale(grad, scaler->scale, n, stream));
    return OK;
}

// check_and_unscale for gradients in host memory (offload.h).
static Status check_and_unscale_on_host(LossScaler *scaler)
{
    FsdpRoot *root = scaler->root;
    bool finite = true;
    TRY(offload_check_and_scale_grad(root, 1.0f / scaler->scale, &finite));
    *scaler->host = !finite;
    CUDA_TRY(cudaMemcpyAsync(scaler->found, scaler->host, sizeof *scaler->host,
                             cudaMemcpyHostToDevice, root->ctx->compute_stream));
    return OK;
}

// Queues, on the compute stream: sets *found to 1 if one of this rank's gradients is not finite,
// else to 0, and divides all of them by the scale.
static Status check_and_unscale(LossScaler *scaler)
{
    const FsdpRoot *root = scaler->root;
    cudaStream_t stream = root->ctx->compute_stream;
    if (root->extensions->offload != NULL) return check_and_unscale_on_host(scaler);
    // TODO L2.8: As the comment above says, for every unit.
    // Hint: Infinity divided by 65536 is what? And 0 times infinity?
    NOT_YET("L2.8");
}

Status loss_scaler_unscale(LossScaler *scaler)
{
    const FsdpContext *ctx = scaler->root->ctx;
    if (scaler->unscaled)
        return fail(ERR_ARGUMENT, "the gradients of this step are unscaled already");
    TRY(check_and_unscale(scaler));
    // TODO L2.9: On every rank found_inf is true if any rank found infinity or NaN. The host has
    // waited for it, and `unscaled` is true.
    // Hint: What do two replicas of one shard know of each other's gradient? And with one shard, is
    // there another rank to ask?
    NOT_YET("L2.9");
}

Status loss_scaler_step(LossScaler *scaler, FsdpAdamW *opt)
{
    if (scaler->stepped)
        return fail(ERR_ARGUMENT, "this step was taken already: call loss_scaler_update after it");
    // TODO L2.10: If all unscaled gradients are finite, the optimizer has made a step; else it has
    // changed nothing.
    // Hint: t counts steps and is in the formula. May a skipped step count?
    NOT_YET("L2.10");
}

Status loss_scaler_update(LossScaler *scaler)
{
    if (!scaler->unscaled)
        return fail(ERR_ARGUMENT, "nothing was unscaled since the last loss_scaler_update");
    // TODO L2.11: scale and growth_tracker are those of the next step (precision.h), and the
    // three flags of a step are reset.
    // Hint: From which step on are the growth_interval steps counted?
    NOT_YET("L2.11");
}
