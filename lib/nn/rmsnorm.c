/* rmsnorm.c: the layer around the RMSNorm kernels: weight (C), and for the backward each row's
 * 1/root mean square. A block may give it a residual, as in layernorm.c.
 */
#include "internal.h"

typedef struct RmsNorm {
    NormPass pass; // the pass in progress
    float *rstd;   // device (rows)
    float eps;
} RmsNorm;

static Status rmsnorm_forward(Module *self, NnRun *run, const void *in, void *out)
{
    RmsNorm *s = self->state;
    const Param *weight = self->params[0];
    int rows = (int)run_rows(run), C = self->in_dim;
    TRY(param_has_data(weight, self->out_type));
    TRY(module_alloc(self, run, &s->rstd, run_rows(run), "root mean squares"));
    if (s->pass.residual != NULL)
        CUDA_TRY(kernel_residual_rmsnorm_forward_ex(self->out_type, out, s->rstd, s->pass.sum,
                                                    s->pass.residual, weight->data.data, rows, C,
                                                    s->eps, run->stream));
    else
        CUDA_TRY(kernel_rmsnorm_forward_ex(self->out_type, out, s->rstd, in, weight->data.data,
                                           rows, C, s->eps, run->stream));
    return OK;
}

static Status rmsnorm_backward(Module *self, NnRun *run, const void *dout, void *din)
{
    RmsNorm *s = self->state;
    const Param *weight = self->params[0];
    TRY(param_has_data(weight, self->out_type));
    void *dweight;
    TRY(param_grad_begin(weight, run, self->out_type, &dweight));
    CUDA_TRY(kernel_rmsnorm_backward_ex(self->out_type, din, dweight, dout, self->in,
                                        weight->data.data, s->rstd, s->pass.residual,
                                        (int)run_rows(run), self->in_dim, run->stream));
    TRY(param_grad_end(weight, run, &dweight));
    return OK;
}

static Status rmsnorm_free_saved(Module *self, NnRun *run)
{
    RmsNorm *s = self->state;
    return run_free(run, &s->rstd);
}

Module *rmsnorm_create(const char *name, int dim, float eps)
{
    if (dim < 1 || !(eps >= 0.0f)) {
        fail(ERR_ARGUMENT, "RMSNorm %s would have %d columns and eps %g", name, dim, (double)eps);
        return NULL;
    }
    Module *m = module_create(name, dim, dim, sizeof(RmsNorm));
    if (m == NULL) return NULL;
    ((RmsNorm *)m->state)->eps = m->numbers.eps = eps;
    m->forward = rmsnorm_forward;
    m->backward = rmsnorm_backward;
    m->free_saved = rmsnorm_free_saved;
    if (module_add_param(m, param_create("weight", dim, 0, INIT_ONE, 0.0f))) return module_named(m);
    module_destroy(m);
    return NULL;
}
