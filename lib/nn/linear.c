/* linear.c: y = x·Wᵀ + b, with x (rows, I), W (O, I), b (O), y (rows, O).
 *
 * cuBLAS is column-major, and a row-major matrix read by columns is its transpose. So each product
 * below is written down transposed: yᵀ = W·xᵀ, in which W, stored (O, I), looks like (I, O) to
 * cuBLAS and must be turned (CUBLAS_OP_T), while xᵀ and yᵀ are just x and y as they lie in memory.
 *
 * Interface: linear_create; linear_create_bare, linear_tie for a weight of another module's.
 */
#include <stdlib.h>

#include "internal.h"
#include "kernels.h"

static const float ZERO = 0.0f, ONE = 1.0f;

static Param *bias_of(const Module *self)
{
    return self->n_params > 1 ? self->params[1] : NULL;
}

static Status linear_forward(Module *self, NnRun *run, const void *in, float *out)
{
    int I = self->in_dim, O = self->out_dim, rows = (int)run_rows(run);
    const Param *weight = self->params[0], *bias = bias_of(self);
    TRY(param_has_data(weight));
    if (bias != NULL) {
        TRY(param_has_data(bias));
        CUDA_TRY(kernel_spread_bias(out, bias->data, rows, O, run->stream));
    }
    CUBLAS_TRY(cublasSgemm(run->blas, CUBLAS_OP_T, CUBLAS_OP_N, O, rows, I, &ONE, weight->data, I,
                           in, I, bias != NULL ? &ONE : &ZERO, out, O));
    return OK;
}

static Status linear_backward(Module *self, NnRun *run, const float *dout, float *din)
{
    int I = self->in_dim, O = self->out_dim, rows = (int)run_rows(run);
    const Param *weight = self->params[0], *bias = bias_of(self);
    TRY(param_has_data(weight));
    TRY(param_has_grad(weight));
    // dx = dy·W
    CUBLAS_TRY(cublasSgemm(run->blas, CUBLAS_OP_N, CUBLAS_OP_N, I, rows, O, &ONE, weight->data, I,
                           dout, O, &ZERO, din, I));
    // dW += dyᵀ·x
    CUBLAS_TRY(cublasSgemm(run->blas, CUBLAS_OP_N, CUBLAS_OP_T, I, O, rows, &ONE, self->in, I, dout,
                           O, &ONE, weight->grad, I));
    if (bias == NULL) return OK;
    TRY(param_has_grad(bias));
    CUDA_TRY(kernel_sum_rows(bias->grad, dout, rows, O, run->stream));
    return OK;
}

Module *linear_create_bare(const char *name, int in_dim, int out_dim)
{
    if (in_dim < 1) {
        fail(ERR_ARGUMENT, "linear layer %s would have %d inputs", name, in_dim);
        return NULL;
    }
    Module *m = module_create(name, in_dim, out_dim, 0);
    if (m == NULL) return NULL;
    m->forward = linear_forward;
    m->backward = linear_backward;
    return m;
}

bool linear_tie(Module *m, Param *weight)
{
    m->params = malloc(sizeof(Param *));
    if (m->params == NULL) {
        fail(ERR_MEMORY, "no host memory for the parameters of module %s", m->name);
        return false;
    }
    m->params[m->n_params++] = weight;
    return true;
}

Module *linear_create(const char *name, int in_dim, int out_dim, bool bias, float init_std)
{
    Module *m = linear_create_bare(name, in_dim, out_dim);
    if (m == NULL) return NULL;
    bool made =
        module_add_param(m, param_create("weight", out_dim, in_dim, INIT_NORMAL, init_std)) &&
        (!bias || module_add_param(m, param_create("bias", out_dim, 0, INIT_ZERO, 0.0f)));
    if (made) return module_named(m);
    module_destroy(m);
    return NULL;
}
