/* Task 5: optimizer. Each rank steps the shard it owns, and nothing else.
 *
 * An optimizer that works element by element need not know which parameter an element belongs to.
 * So it runs over the flat shards, padding included, and its state is as long as the shards: with
 * AdamW 8N/W bytes per rank instead of 8N, the largest single saving of FSDP. A step needs no
 * communication: the next forward gathers the new values.
 *
 * The norm of the gradient does need all ranks, since each rank sees only a part of it: each rank
 * sums its squares, then all ranks add these sums, and the square root comes last.
 *
 * [Note: stale weights] A step writes the shards. The next forward does not gather a unit that is
 * still unsharded: it would run with the parameters from before the step. So a step refuses such a
 * unit. It refuses on one rank too, where shard and unsharded parameter are the same memory: a
 * program that runs on one rank must run on eight.
 *
 * Interface:
 *   fsdp_adamw_create, fsdp_adamw_step, fsdp_adamw_destroy
 *   fsdp_sgd_step
 *   fsdp_zero_grad, fsdp_grad_norm, fsdp_clip_grad_norm
 *
 * Everything runs on the compute stream, which at the end of a backward has waited for the
 * gradients.
 */
// Task 5 of 6. Each TODO says what must hold afterwards and asks a question. Write
// the code that makes it hold.
// The handout is handouts/5_optimizer.md; `make grade TASK=5` says how far you are.
#include "fsdp.h"
#include "kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// ERR_ARGUMENT if a unit of the root is not sharded. [Note: stale weights]
static Status check_sharded(const FsdpRoot *root)
{
    for (int i = 0; i < root->n_units; i++) {
        const FlatParam *flat = &root->units[i]->flat;
        if (flat->state != FLAT_SHARDED)
            return fail(ERR_ARGUMENT,
                        "%s is not sharded: after a step the next forward would read "
                        "its old parameters; call fsdp_reshard_all(root) before it",
                        flat->name);
    }
    return OK;
}

// A device buffer of n zeros.
static Status zeros(float **buffer, int64_t n, cudaStream_t stream)
{
    CUDA_TRY(cudaMalloc((void **)buffer, (size_t)n * sizeof(float)));
    CUDA_TRY(cudaMemsetAsync(*buffer, 0, (size_t)n * sizeof(float), stream));
    return OK;
}

static Status create_moments(FsdpAdamW *opt)
{
    opt->m = calloc((size_t)opt->n, sizeof *opt->m);
    opt->v = calloc((size_t)opt->n, sizeof *opt->v);
    if (opt->m == NULL || opt->v == NULL)
        return fail(ERR_MEMORY, "no host memory for the moments of %d units", opt->n);

    // TODO 5.1: opt->m[i] and opt->v[i] are zeros on the device, one for each element of the
    // gradient shard of opt->root->units[i].
    // Hint: How many bytes are the moments of 355 million parameters, in all and on each of 8
    // ranks?
    NOT_YET("5.1");
}

Status fsdp_adamw_create_default(FsdpAdamW *opt, Module *root, FsdpContext *ctx,
                                 const AdamWConfig *config)
{
    memset(opt, 0, sizeof *opt);
    TRY(fsdp_find_root(root, &opt->root));
    opt->ctx = ctx;
    opt->config = *config;
    opt->n = opt->root->n_units;
    Status status = create_moments(opt);
    if (status != OK) fsdp_adamw_destroy(opt);
    return status;
}

Status fsdp_adamw_step_default(FsdpAdamW *opt)
{
    const AdamWConfig *c = &opt->config;
    cudaStream_t stream = opt->ctx->compute_stream;
    TRY(check_sharded(opt->root));

    // TODO 5.2: Every shard has made one step of AdamW. opt->t has counted it, and the formula
    // counts from 1. The padding of every shard is zero, whatever was in its gradient or its
    // moments.
    // Hint: Weight decay alone leaves a zero at zero. What can change a padding element?
    NOT_YET("5.2");
}

void fsdp_adamw_destroy_default(FsdpAdamW *opt)
{
    for (int i = 0; i < opt->n; i++) {
        if (opt->m != NULL) cudaFree(opt->m[i]);
        if (opt->v != NULL) cudaFree(opt->v[i]);
    }
    free(opt->m);
    free(opt->v);
    memset(opt, 0, sizeof *opt);
}

Status fsdp_sgd_step_default(Module *module, FsdpContext *ctx, float lr, float weight_decay)
{
    FsdpRoot *root = NULL;
    TRY(fsdp_find_root(module, &root));
    TRY(check_sharded(root));

    // TODO 5.3: Every shard of the root has made one step of SGD, without momentum, and its padding
    // is zero.
    // Hint: What do you pass to kernel_sgd for no momentum?
    NOT_YET("5.3");
}

Status fsdp_zero_grad_default(Module *module, FsdpContext *ctx)
{
    FsdpRoot *root = NULL;
    TRY(fsdp_find_root(module, &root));

    // TODO 5.4: Once the compute stream has run what is queued, every gradient shard of the root is
    // zero.
    // Hint: Does the padding count as a part of it?
    NOT_YET("5.4");
}

// *squares (host) = Σ of the squares of the gradient, over all units and all ranks. sum: one double
// on the device, for intermediate sums.
static Status sum_all(FsdpRoot *root, FsdpContext *ctx, double *sum, double *squares)
{
    CUDA_TRY(cudaMemsetAsync(sum, 0, sizeof *sum, ctx->compute_stream));
    // TODO 5.5: *squares is the sum over all units and all ranks, on every rank, and the host may
    // read it. Before that *sum holds this rank's squares, then those of all ranks;
    // *ctx->host_scalar has the same number; it is pinned, so that no copy waits.
    // Hint: The root of a sum is not the sum of the roots: on which side of the all-reduce is sqrt?
    // Hint: Who waits for the copy, if not the copy itself?
    NOT_YET("5.5");
}

Status fsdp_grad_norm_default(Module *module, FsdpContext *ctx, float *norm)
{
    FsdpRoot *root = NULL;
    double *sum = NULL, squares = 0.0;
    TRY(fsdp_find_root(module, &root));
    CUDA_TRY(cudaMallocAsync((void **)&sum, sizeof *sum, ctx->compute_stream));
    Status status = sum_all(root, ctx, sum, &squares);
    CUDA_TRY(cudaFreeAsync(sum, ctx->compute_stream));
    *norm = (float)sqrt(squares);
    return status;
}

// Multiplies every gradient shard of the root by the factor.
static Status scale_all(FsdpRoot *root, FsdpContext *ctx, float factor)
{
    for (int i = 0; i < root->n_units; i++) {
        FlatParam *flat = &root->units[i]->flat;
        CUDA_TRY(kernel_scale(flat->sharded_grad.data, factor, (size_t)flat->sharded_grad.numel,
                              ctx->compute_stream));
    }
    return OK;
}

Status fsdp_clip_grad_norm_default(Module *module, FsdpContext *ctx, float max_norm, float *norm)
{
    FsdpRoot *root = NULL;
    TRY(fsdp_find_root(module, &root));
    TRY(fsdp_grad_norm(module, ctx, norm));
    // TODO 5.6: If the norm was larger than max_norm, every gradient is scaled by max_norm / *norm;
    // else every gradient is bitwise what it was.
    // Hint: Every rank must decide the same. Do they all see the same norm?
    NOT_YET("5.6");
}
