/* rules_sizes.c: what optimizer.c counts of shards that are too large for 32 bits, where two ranks
 * shard and two such pairs replicate. See rules.h.
 */
#include "rules.h"

#include "fsdp.h"
#include "harness.h"
#include "huge.h"
#include "training.h"

static void check_moments(uint64_t log, const FsdpAdamW *opt, int64_t numel, GpuAccess access,
                          const char *what)
{
    const Buffer moments[] = {{opt->m[0], DTYPE_F32, numel}, {opt->v[0], DTYPE_F32, numel}};
    for (int i = 0; i < 2; i++) check_covers(log, &moments[i], access, what);
}

static void create_body(OneUnit *u, const Rank *r)
{
    FsdpAdamW opt;
    uint64_t log = gpulog_length();
    need(fsdp_adamw_create(&opt, u->model, &u->ctx, &TEST_ADAMW));
    check_moments(log, &opt, u->unit->flat.layout.shard_numel, GPU_WRITE,
                  "create_moments, which makes moments of zeros");
    fsdp_adamw_destroy(&opt);
}

// What a step must have written: the shard with its padding; and the valid elements of the moments.
static void check_step(uint64_t log, const FlatParam *flat, const FsdpAdamW *opt, const char *what)
{
    Buffer grad = flat->sharded_grad;
    grad.numel = flat_valid_numel(&flat->layout, flat->layout.rank);
    check_covers(log, &flat->sharded_param, GPU_WRITE, what);
    check_covers(log, &grad, GPU_READ, what);
    if (opt != NULL) check_moments(log, opt, grad.numel, GPU_WRITE, what);
}

static void adamw_body(OneUnit *u, const Rank *r)
{
    float *m = NULL, *v = NULL;
    FlatParam *flat = &u->unit->flat;
    size_t bytes = buffer_bytes(&flat->sharded_grad);
    need_cuda(cudaMalloc((void **)&m, bytes));
    need_cuda(cudaMalloc((void **)&v, bytes));
    FsdpAdamW opt = {&u->ctx, u->unit->root, TEST_ADAMW, 0, 1, &m, &v, NULL, NULL};
    uint64_t log = gpulog_length();
    need(fsdp_adamw_step_by_root(&opt));
    check_step(log, flat, &opt, "fsdp_adamw_step, a step on a shard");
    need_cuda(cudaFree(m));
    need_cuda(cudaFree(v));
}

static void sgd_body(OneUnit *u, const Rank *r)
{
    uint64_t log = gpulog_length();
    need(fsdp_sgd_step(u->model, &u->ctx, 0.5f, 0.25f));
    check_step(log, &u->unit->flat, NULL, "fsdp_sgd_step, a step on a shard");
}

static void zero_body(OneUnit *u, const Rank *r)
{
    uint64_t log = gpulog_length();
    need(fsdp_zero_grad(u->model, &u->ctx));
    check_covers(log, &u->unit->flat.sharded_grad, GPU_WRITE,
                 "fsdp_zero_grad, which zeroes a gradient shard");
}

static void norm_body(OneUnit *u, const Rank *r)
{
    float norm;
    Buffer grad = u->unit->flat.sharded_grad;
    grad.numel -= HUGE_PADDING;
    uint64_t log = gpulog_length();
    need(fsdp_grad_norm(u->model, &u->ctx, &norm));
    check_covers(log, &grad, GPU_READ,
                 "fsdp_grad_norm, which adds up the squares of a gradient "
                 "shard");
}

// A dry run's norm is 0, which is larger than -1.
static void clip_body(OneUnit *u, const Rank *r)
{
    float norm;
    Buffer grad = u->unit->flat.sharded_grad;
    grad.numel -= HUGE_PADDING;
    uint64_t log = gpulog_length();
    need(fsdp_clip_grad_norm(u->model, &u->ctx, -1.0f, &norm));
    check_covers(log, &grad, GPU_WRITE, "fsdp_clip_grad_norm, which scales a gradient shard");
}

void rule_moments_beyond_32_bits(void)
{
    run_huge_pairs(create_body);
}

void rule_counts_beyond_32_bits(Apart part)
{
    static const HugeBody BODY[] = {[APART_NORM] = norm_body,
                                    [APART_CLIP] = clip_body,
                                    [APART_ADAMW] = adamw_body,
                                    [APART_SGD] = sgd_body,
                                    [APART_ZERO_GRAD] = zero_body};
    run_huge_pairs(BODY[part]);
}
