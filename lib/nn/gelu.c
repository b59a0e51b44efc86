/* gelu.c: the layer around the GELU kernels. It has no parameters and keeps only its input.
 */
#include "internal.h"
#include "kernels.h"

static size_t numel(const Module *self, const NnRun *run)
{
    return run_rows(run) * (size_t)self->in_dim;
}

static Status gelu_forward(Module *self, NnRun *run, const void *in, void *out)
{
    CUDA_TRY(kernel_gelu_forward_ex(self->out_type, out, in, numel(self, run), run->stream));
    return OK;
}

static Status gelu_backward(Module *self, NnRun *run, const void *dout, void *din)
{
    CUDA_TRY(kernel_gelu_backward_ex(self->out_type, din, dout, self->in, numel(self, run),
                                     run->stream));
    return OK;
}

Module *gelu_create(const char *name, int dim)
{
    if (dim < 1) {
        fail(ERR_ARGUMENT, "GELU %s would have %d columns", name, dim);
        return NULL;
    }
    Module *m = module_create(name, dim, dim, 0);
    if (m == NULL) return NULL;
    m->forward = gelu_forward;
    m->backward = gelu_backward;
    return m;
}
