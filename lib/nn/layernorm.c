/* layernorm.c: the layer around the layer normalisation kernels: weight, bias (C), and for the
 * backward each row's mean and 1/deviation.
 *
 * A block may give it (and rmsnorm.c's) a residual for one pass. The kernel then adds the residual:
 * to the input of a forward, to the gradient that a backward returns.
 */
#include "internal.h"
#include "kernels.h"

typedef struct LayerNorm {
    NormPass pass;      // the pass in progress
    float *mean, *rstd; // device (rows)
} LayerNorm;

static Status layernorm_forward(Module *self, NnRun *run, const void *in, void *out)
{
    LayerNorm *s = self->state;
    const Param *weight = self->params[0], *bias = self->params[1];
    int rows = (int)run_rows(run), C = self->in_dim;
    TRY(param_has_data(weight, self->out_type));
    TRY(param_has_data(bias, self->out_type));
    TRY(module_alloc(self, run, &s->mean, run_rows(run), "means"));
    TRY(module_alloc(self, run, &s->rstd, run_rows(run), "deviations"));
    if (s->pass.residual != NULL)
        CUDA_TRY(kernel_residual_layernorm_forward_ex(
            self->out_type, out, s->mean, s->rstd, s->pass.sum, s->pass.residual, weight->data.data,
            bias->data.data, rows, C, run->stream));
    else
        CUDA_TRY(kernel_layernorm_forward_ex(self->out_type, out, s->mean, s->rstd, in,
                                             weight->data.data, bias->data.data, rows, C,
                                             run->stream));
    return OK;
}

static Status layernorm_backward(Module *self, NnRun *run, const void *dout, void *din)
{
    LayerNorm *s = self->state;
    const Param *weight = self->params[0], *bias = self->params[1];
    TRY(param_has_data(weight, self->out_type));
    void *dweight, *dbias;
    TRY(param_grad_begin(weight, run, self->out_type, &dweight));
    TRY(param_grad_begin(bias, run, self->out_type, &dbias));
    CUDA_TRY(kernel_layernorm_backward_ex(self->out_type, din, dweight, dbias, dout, self->in,
                                          weight->data.data, s->mean, s->rstd, s->pass.residual,
                                          (int)run_rows(run), self->in_dim, run->stream));
    TRY(param_grad_end(weight, run, &dweight));
    TRY(param_grad_end(bias, run, &dbias));
    return OK;
}

Status norm_forward_sum(Module *m, NnRun *run, void *sum, const void *residual, void **out)
{
    NormPass *s = m->state;
    s->sum = sum;
    s->residual = residual;
    Status done = module_forward_any(m, run, sum, out);
    s->sum = NULL;
    s->residual = NULL;
    TRY(done);
    return OK;
}

Status norm_backward_sum(Module *m, NnRun *run, const void *dout, const void *residual, void *din)
{
    NormPass *s = m->state;
    s->residual = residual;
    Status done = module_backward_into(m, run, dout, din);
    s->residual = NULL;
    TRY(done);
    return OK;
}

static Status layernorm_free_saved(Module *self, NnRun *run)
{
    LayerNorm *s = self->state;
    TRY(run_free(run, &s->mean));
    TRY(run_free(run, &s->rstd));
    return OK;
}

Module *layernorm_create(const char *name, int dim)
{
    if (dim < 1) {
        fail(ERR_ARGUMENT, "layer normalisation %s would have %d columns", name, dim);
        return NULL;
    }
    Module *m = module_create(name, dim, dim, sizeof(LayerNorm));
    if (m == NULL) return NULL;
    m->forward = layernorm_forward;
    m->backward = layernorm_backward;
    m->free_saved = layernorm_free_saved;
    if (module_add_param(m, param_create("weight", dim, 0, INIT_ONE, 0.0f)) &&
        module_add_param(m, param_create("bias", dim, 0, INIT_ZERO, 0.0f)))
        return module_named(m);
    module_destroy(m);
    return NULL;
}
