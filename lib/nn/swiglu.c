/* swiglu.c: the layer around the SwiGLU kernels, and the feed-forward part around it, in which one
 * linear layer makes the gate and the gated values, side by side.
 */
#include <limits.h>

#include "internal.h"

static Status swiglu_forward(Module *self, NnRun *run, const void *in, void *out)
{
    CUDA_TRY(kernel_swiglu_forward_ex(self->out_type, out, in, (int)run_rows(run), self->out_dim,
                                      run->stream));
    return OK;
}

static Status swiglu_backward(Module *self, NnRun *run, const void *dout, void *din)
{
    CUDA_TRY(kernel_swiglu_backward_ex(self->out_type, din, dout, self->in, (int)run_rows(run),
                                       self->out_dim, run->stream));
    return OK;
}

static bool is_good_size(const char *name, int dim)
{
    if (dim >= 1 && dim <= INT_MAX / 2) return true;
    fail(ERR_ARGUMENT, "SwiGLU %s would have %d columns", name, dim);
    return false;
}

Module *swiglu_create(const char *name, int dim)
{
    if (!is_good_size(name, dim)) return NULL;
    Module *m = module_create(name, 2 * dim, dim, 0);
    if (m == NULL) return NULL;
    m->forward = swiglu_forward;
    m->backward = swiglu_backward;
    return m;
}

Module *gated_ffn_create(const char *name, int dim, int hidden, float init_std, float proj_std)
{
    if (!is_good_size(name, hidden)) return NULL;
    Module *children[] = {
        linear_create("gate_up", dim, 2 * hidden, false, init_std),
        swiglu_create("act", hidden),
        linear_create("down", hidden, dim, false, proj_std),
    };
    return sequence_create(name, 3, children);
}
