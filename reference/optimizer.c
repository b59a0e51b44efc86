/* Task 5: optimizer. Each rank steps the shard it owns, and nothing else.
 *
 * An optimizer that works element by element does not care which parameter an element belongs to.
 * So it runs over the flat shards as they are, padding and all, and its state is as long as the
 * shards: with AdamW 8N/W bytes a rank instead of 8N, the largest single saving of FSDP. No
 * communication is needed: the next forward gathers what the ranks have written.
 *
 * What does need all ranks is the norm of the gradient, since each rank sees only a part of it: the
 * squares are summed locally, then over the ranks, and only then comes the root.
 *
 * Interface:
 *   fsdp_adamw_create, fsdp_adamw_step, fsdp_adamw_destroy
 *   fsdp_sgd_step
 *   fsdp_zero_grad, fsdp_grad_norm, fsdp_clip_grad_norm
 *
 * Everything runs on ctx->compute_stream, which at the end of a backward has waited for the gradients.
 */
#include "fsdp.h"
#include "kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// Every flat parameter below root, in *out (malloc'ed, *n of them).
static Status list_flat(Module *root, FlatParam ***out, int *n)
{
    *n = fsdp_flat_params(root, NULL, 0);
    if (*n == 0) return fail(ERR_ARGUMENT, "%s: nothing below it is sharded", root->name);
    *out = malloc((size_t)*n * sizeof **out);
    if (*out == NULL) return fail(ERR_MEMORY, "no host memory for %d flat parameters", *n);
    fsdp_flat_params(root, *out, *n);
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
        return fail(ERR_MEMORY, "no host memory for the moments of %d flat parameters", opt->n);

    //[5.1] opt->m[i] and opt->v[i]: buffers of zeros (see zeros above), as long as the shard of
    //  opt->flat[i].
    //? How many bytes are the moments of 355 million parameters, whole, and on each of 8 ranks?
    for (int i = 0; i < opt->n; i++) {
        TRY(zeros(&opt->m[i], opt->flat[i]->shard_numel, opt->ctx->compute_stream));
        TRY(zeros(&opt->v[i], opt->flat[i]->shard_numel, opt->ctx->compute_stream));
    }
    return OK;
    //[end 5.1]
}

Status fsdp_adamw_create(FsdpAdamW *opt, Module *root, FsdpContext *ctx, const AdamWConfig *config)
{
    memset(opt, 0, sizeof *opt);
    opt->ctx = ctx;
    opt->config = *config;
    TRY(list_flat(root, &opt->flat, &opt->n));
    Status status = create_moments(opt);
    if (status != OK) fsdp_adamw_destroy(opt);
    return status;
}

Status fsdp_adamw_step(FsdpAdamW *opt)
{
    const AdamWConfig *c = &opt->config;
    cudaStream_t stream = opt->ctx->compute_stream;

    //[5.2] The step count goes up first: the formula counts from 1. For each flat parameter one
    //  kernel_adamw over the whole shard, then flat_zero_padding: padding must be zero after every
    //  step, whatever was in its gradient or its moments.
    //? Weight decay alone keeps a zero zero. What moves a padding element then?
    opt->t++;
    for (int i = 0; i < opt->n; i++) {
        FlatParam *flat = opt->flat[i];
        CUDA_TRY(kernel_adamw(flat->sharded_param, flat->sharded_grad, opt->m[i], opt->v[i],
                              (size_t)flat->shard_numel, c->lr, c->beta1, c->beta2, c->eps,
                              c->weight_decay, opt->t, stream));
        TRY(flat_zero_padding(flat, flat->sharded_param, stream));
    }
    return OK;
    //[end 5.2]
}

void fsdp_adamw_destroy(FsdpAdamW *opt)
{
    for (int i = 0; i < opt->n; i++) {
        if (opt->m != NULL) cudaFree(opt->m[i]);
        if (opt->v != NULL) cudaFree(opt->v[i]);
    }
    free(opt->m);
    free(opt->v);
    free(opt->flat);
    memset(opt, 0, sizeof *opt);
}

// What is done to one flat parameter by a function of this file that goes over all of them.
typedef Status (*FlatFn)(FlatParam *flat, FsdpContext *ctx, void *arg);

// fn for every flat parameter below root, in order; stops at the first error.
static Status for_each_flat(Module *root, FsdpContext *ctx, FlatFn fn, void *arg)
{
    FlatParam **flat = NULL;
    int n = 0;
    TRY(list_flat(root, &flat, &n));
    Status status = OK;
    for (int i = 0; i < n && status == OK; i++) status = fn(flat[i], ctx, arg);
    free(flat);
    return status;
}

typedef struct SgdConfig {
    float lr, weight_decay;
} SgdConfig;

static Status sgd_one(FlatParam *flat, FsdpContext *ctx, void *arg)
{
    const SgdConfig *c = arg;
    //[5.3] One kernel_sgd over the shard, without momentum (buf NULL, momentum 0), then
    //  flat_zero_padding.
    CUDA_TRY(kernel_sgd(flat->sharded_param, flat->sharded_grad, NULL, (size_t)flat->shard_numel, c->lr, 0.0f,
                        c->weight_decay, ctx->compute_stream));
    TRY(flat_zero_padding(flat, flat->sharded_param, ctx->compute_stream));
    return OK;
    //[end 5.3]
}

Status fsdp_sgd_step(Module *root, FsdpContext *ctx, float lr, float weight_decay)
{
    SgdConfig config = {lr, weight_decay};
    return for_each_flat(root, ctx, sgd_one, &config);
}

static Status zero_one(FlatParam *flat, FsdpContext *ctx, void *arg)
{
    //[5.4] The whole gradient shard is zero, on ctx->compute_stream.
    size_t bytes = (size_t)flat->shard_numel * sizeof(float);
    CUDA_TRY(cudaMemsetAsync(flat->sharded_grad, 0, bytes, ctx->compute_stream));
    return OK;
    //[end 5.4]
}

Status fsdp_zero_grad(Module *root, FsdpContext *ctx)
{
    return for_each_flat(root, ctx, zero_one, NULL);
}

// sum is one double on the device: += Σ of the squares of this rank's part of the gradient.
static Status sum_one(FlatParam *flat, FsdpContext *ctx, void *sum)
{
    size_t n = (size_t)flat->shard_numel;
    CUDA_TRY(kernel_sum_squares(sum, flat->sharded_grad, n, ctx->compute_stream));
    return OK;
}

// *squares (host) = Σ of the squares of the whole gradient, over all ranks. sum: one double,
// device.
static Status sum_all(Module *root, FsdpContext *ctx, double *sum, double *squares)
{
    CUDA_TRY(cudaMemsetAsync(sum, 0, sizeof *sum, ctx->compute_stream));
    //[5.5] sum_one for every flat parameter (for_each_flat) adds this rank's squares to *sum. Then
    //  ncclAllReduce (one ncclDouble, ncclSum, in place), and the result to the host:
    //  cudaMemcpyAsync to squares, and a cudaStreamSynchronize before anybody reads it. All on
    //  ctx->compute_stream.
    //? The root of a sum is not the sum of the roots: on which side of the all-reduce belongs sqrt?
    TRY(for_each_flat(root, ctx, sum_one, sum));
    NCCL_TRY(ncclAllReduce(sum, sum, 1, ncclDouble, ncclSum, ctx->comm, ctx->compute_stream));
    CUDA_TRY(cudaMemcpyAsync(squares, sum, sizeof *sum, cudaMemcpyDeviceToHost, ctx->compute_stream));
    CUDA_TRY(cudaStreamSynchronize(ctx->compute_stream));
    return OK;
    //[end 5.5]
}

Status fsdp_grad_norm(Module *root, FsdpContext *ctx, float *norm)
{
    double *sum = NULL, squares = 0.0;
    CUDA_TRY(cudaMallocAsync((void **)&sum, sizeof *sum, ctx->compute_stream));
    Status status = sum_all(root, ctx, sum, &squares);
    CUDA_TRY(cudaFreeAsync(sum, ctx->compute_stream));
    *norm = (float)sqrt(squares);
    return status;
}

static Status scale_one(FlatParam *flat, FsdpContext *ctx, void *factor)
{
    size_t n = (size_t)flat->shard_numel;
    CUDA_TRY(kernel_scale(flat->sharded_grad, *(const float *)factor, n, ctx->compute_stream));
    return OK;
}

Status fsdp_clip_grad_norm(Module *root, FsdpContext *ctx, float max_norm, float *norm)
{
    TRY(fsdp_grad_norm(root, ctx, norm));
    //[5.6] Where the norm is larger than max_norm, scale_one for every flat parameter by
    //  max_norm / *norm; else the gradients keep their bits.
    //? Every rank must decide the same. Do they all see the same norm?
    if (*norm > max_norm) {
        float factor = max_norm / *norm;
        TRY(for_each_flat(root, ctx, scale_one, &factor));
    }
    return OK;
    //[end 5.6]
}
