/* rules_elsewhere.c: the optimizer of a root whose shards are elsewhere (fsdp.h's shard_ops). See
 * rules.h.
 */
#include "rules.h"

#include "fsdp.h"
#include "harness.h"
#include "offload.h"
#include "training.h"

enum { CREATE, FREE, ADAMW, SGD, ZERO, SQUARES, SCALE, OPS };
static struct {
    int calls[OPS];
    const void *what[OPS];
    float a, b;
    double *sum;
    Status squares; // what sum_squares says
} asked;

static Status ask(int which, const void *what)
{
    asked.calls[which]++;
    asked.what[which] = what;
    return ERR_IO;
}

static Status other_create(FsdpAdamW *opt)
{
    return ask(CREATE, opt);
}

static void other_free(FsdpAdamW *opt)
{
    ask(FREE, opt);
}

static Status other_adamw(FsdpAdamW *opt)
{
    return ask(ADAMW, opt);
}

static Status other_sgd(FsdpRoot *root, float lr, float weight_decay)
{
    asked.a = lr;
    asked.b = weight_decay;
    return ask(SGD, root);
}

static Status other_zero(FsdpRoot *root)
{
    return ask(ZERO, root);
}

static Status other_squares(FsdpRoot *root, double *sum, double *squares)
{
    ask(SQUARES, root);
    asked.sum = sum;
    *squares = 9.0;
    return asked.squares;
}

static Status other_scale(FsdpRoot *root, float factor)
{
    asked.a = factor;
    return ask(SCALE, root);
}

static void check_asked(int which, const char *name, Status status, const void *what, int calls)
{
    check(status == ERR_IO && asked.calls[which] == calls && asked.what[which] == what,
          "the root's shard_ops does the work, and fails: %s gives status %d, and has asked it %d "
          "times of %d, with what it was given itself",
          name, (int)status, asked.calls[which], calls);
}

static void ask_adamw(Sharded *s, int i)
{
    FsdpAdamW other;
    Status status = fsdp_adamw_create(&other, s->model, &s->ctx, &TEST_ADAMW);
    check_asked(CREATE, "fsdp_adamw_create", status, &other, i);
    check_asked(FREE, "fsdp_adamw_destroy", ERR_IO, &other, i);
    check(other.root == NULL && other.n == 0,
          "an optimizer that could not be made is not zero afterwards");
    check_asked(ADAMW, "fsdp_adamw_step", fsdp_adamw_step(&s->adamw), &s->adamw, i);
    check(s->adamw.t == 0, "a step that shard_ops makes was counted");
}

static void ask_sgd(Sharded *s, int i)
{
    check_asked(SGD, "fsdp_sgd_step", fsdp_sgd_step(s->model, &s->ctx, 0.5f, 0.25f), s->root, i);
    check(asked.a == 0.5f && asked.b == 0.25f, "fsdp_sgd_step asks with %g and %g", (double)asked.a,
          (double)asked.b);
}

static void ask_norm(Sharded *s, int i)
{
    float norm = 0.0f;
    need(fsdp_grad_norm(s->model, &s->ctx, &norm));
    check_asked(SQUARES, "fsdp_grad_norm", ERR_IO, s->root, i);
    check(norm == 3.0f && asked.sum != NULL, "of shards whose squares are 9 the norm is %g",
          (double)norm);
    int device = 0;
    need_cuda(cudaGetDevice(&device));
    need_cuda(cudaDeviceSynchronize());
    size_t live = gpulog_live_bytes(device);
    asked.squares = ERR_IO;
    check(fsdp_grad_norm(s->model, &s->ctx, &norm) == ERR_IO,
          "the root's sum_squares failed: fsdp_grad_norm must return that");
    asked.squares = OK;
    asked.calls[SQUARES]--;
    need_cuda(cudaDeviceSynchronize());
    check(gpulog_live_bytes(device) == live,
          "fsdp_grad_norm failed, and left %zu bytes on the device",
          gpulog_live_bytes(device) - live);
}

static void ask_clip(Sharded *s, int i)
{
    float norm = 0.0f;
    check_asked(SCALE, "fsdp_clip_grad_norm", fsdp_clip_grad_norm(s->model, &s->ctx, 1.5f, &norm),
                s->root, i);
    check(norm == 3.0f && asked.a == 0.5f,
          "of shards whose squares are 9 the norm is %g, and clipping to 1.5 scales by %g",
          (double)norm, (double)asked.a);
}

// A root may have other functions that work on its shards: these are asked, and nobody else.
static void elsewhere_body(const Rank *r, void *arg)
{
    static const ShardOps OTHERS = {other_create,  other_free,  other_adamw, other_sgd, other_zero,
                                    other_squares, other_scale, NULL,        NULL,      NULL};
    const Apart *what = arg;
    Spec spec = spec_mlp(3);
    Sharded s;
    FsdpAdamW nothing = {0};
    sharded_create(&s, &spec, &TEST_OPTIONS, *what == APART_ADAMW ? &TEST_ADAMW : NULL, r);
    fsdp_adamw_destroy(&nothing);
    s.root->shard_ops = &OTHERS;
    for (int i = 1; i <= 2; i++) {
        if (*what == APART_ADAMW) ask_adamw(&s, i);
        if (*what == APART_SGD) ask_sgd(&s, i);
        if (*what == APART_ZERO_GRAD)
            check_asked(ZERO, "fsdp_zero_grad", fsdp_zero_grad(s.model, &s.ctx), s.root, i);
        if (*what == APART_NORM) ask_norm(&s, i);
        if (*what == APART_CLIP) ask_clip(&s, i);
    }
    s.root->shard_ops = NULL;
    sharded_destroy(&s);
}

void rule_shards_may_be_elsewhere(Apart what)
{
    run_ranks(1, elsewhere_body, &what);
    run_ranks(2, elsewhere_body, &what);
}
