/* linear.c: y = x·Wᵀ + b, with x (rows, I), W (O, I), b (O), y (rows, O).
 *
 * cuBLAS is column-major, and a row-major matrix read by columns is its transpose. So each product
 * below is written transposed: yᵀ = W·xᵀ. W, stored (O, I), looks like (I, O) to cuBLAS and must be
 * turned (CUBLAS_OP_T), while xᵀ and yᵀ are x and y as they are in memory.
 *
 * With a GELU after it (linear_gelu_create), the GELU's kernels add the bias and sum its gradient
 * as well: they read all of y anyway.
 */
#include <stdlib.h>

#include "internal.h"
#include "kernels.h"
#include "product.h"

static Param *bias_of(const Module *self)
{
    return self->n_params > 1 ? self->params[1] : NULL;
}

// y = x·Wᵀ + beta·y
static Status multiply(const Module *self, NnRun *run, const void *x, float beta, void *y)
{
    int I = self->in_dim, O = self->out_dim;
    return multiply_typed(run, self->out_type, O, (int)run_rows(run), I,
                          (Factor){CUBLAS_OP_T, self->params[0]->data.data, I, 0},
                          (Factor){CUBLAS_OP_N, x, I, 0}, beta, y, O);
}

// dx = dy·W and, unless it is frozen, dW += dyᵀ·x, x being the module's input
static Status multiply_back(const Module *self, NnRun *run, const void *dy, void *dx)
{
    int I = self->in_dim, O = self->out_dim, rows = (int)run_rows(run);
    const Param *weight = self->params[0];
    TRY(multiply_typed(run, self->out_type, I, rows, O,
                       (Factor){CUBLAS_OP_N, weight->data.data, I, 0},
                       (Factor){CUBLAS_OP_N, dy, O, 0}, 0.0f, dx, I));
    if (weight->frozen) return OK;
    TRY(multiply_typed(run, self->out_type, I, O, rows, (Factor){CUBLAS_OP_N, self->in, I, 0},
                       (Factor){CUBLAS_OP_T, dy, O, 0}, 1.0f, weight->grad.data, I));
    return OK;
}

// Whether the parameters that a forward and a backward need have data; the bias is optional.
static Status has_data(const Module *self)
{
    TRY(param_has_data(self->params[0], self->out_type));
    if (bias_of(self) != NULL) TRY(param_has_data(bias_of(self), self->out_type));
    return OK;
}

static Status has_grad(const Module *self)
{
    TRY(param_has_data(self->params[0], self->out_type));
    TRY(param_has_grad(self->params[0], self->out_type));
    if (bias_of(self) != NULL) TRY(param_has_grad(bias_of(self), self->out_type));
    return OK;
}

// ---- Linear ----

static Status linear_forward(Module *self, NnRun *run, const void *in, void *out)
{
    const Param *bias = bias_of(self);
    TRY(has_data(self));
    if (bias != NULL)
        CUDA_TRY(kernel_broadcast_bias_ex(self->out_type, out, bias->data.data, (int)run_rows(run),
                                          self->out_dim, run->stream));
    TRY(multiply(self, run, in, bias != NULL ? 1.0f : 0.0f, out));
    return OK;
}

static Status linear_backward(Module *self, NnRun *run, const void *dout, void *din)
{
    const Param *bias = bias_of(self);
    TRY(has_grad(self));
    TRY(multiply_back(self, run, dout, din));
    if (bias != NULL && !bias->frozen)
        CUDA_TRY(kernel_sum_rows_ex(self->out_type, bias->grad.data, dout, (int)run_rows(run),
                                    self->out_dim, run->stream));
    return OK;
}

// ---- Linear followed by a GELU ----

typedef struct LinearGelu {
    void *y; // device (rows, O): the GELU's input; its backward puts the gradient by y here
} LinearGelu;

static Status linear_gelu_forward(Module *self, NnRun *run, const void *in, void *out)
{
    LinearGelu *s = self->state;
    int rows = (int)run_rows(run), O = self->out_dim;
    TRY(has_data(self));
    TRY(module_alloc_typed(self, run, &s->y, (size_t)rows * (size_t)O, "product"));
    TRY(multiply(self, run, in, 0.0f, s->y));
    CUDA_TRY(kernel_bias_gelu_forward_ex(self->out_type, out, s->y, bias_of(self)->data.data, rows,
                                         O, run->stream));
    return OK;
}

static Status linear_gelu_backward(Module *self, NnRun *run, const void *dout, void *din)
{
    LinearGelu *s = self->state;
    void *dbias;
    TRY(has_grad(self));
    TRY(param_grad_begin(bias_of(self), run, self->out_type, &dbias));
    CUDA_TRY(kernel_bias_gelu_backward_ex(self->out_type, s->y, dbias, dout, s->y,
                                          (int)run_rows(run), self->out_dim, run->stream));
    TRY(param_grad_end(bias_of(self), run, &dbias));
    TRY(multiply_back(self, run, s->y, din));
    return OK;
}

static Status linear_gelu_free_saved(Module *self, NnRun *run)
{
    LinearGelu *s = self->state;
    return run_free_typed(run, &s->y);
}

// ---- Life ----

// A layer without weight and bias, whose `state` is state_bytes of zeros.
static Module *create_bare(const char *name, int in_dim, int out_dim, size_t state_bytes)
{
    if (in_dim < 1) {
        fail(ERR_ARGUMENT, "linear layer %s would have %d inputs", name, in_dim);
        return NULL;
    }
    return module_create(name, in_dim, out_dim, state_bytes);
}

// Gives m, which may be NULL, its weight and bias. If that fails, destroys m and returns NULL.
static Module *add_params(Module *m, bool bias, float init_std)
{
    if (m == NULL) return NULL;
    bool made =
        module_add_param(m, param_create("weight", m->out_dim, m->in_dim, INIT_NORMAL, init_std)) &&
        (!bias || module_add_param(m, param_create("bias", m->out_dim, 0, INIT_ZERO, 0.0f)));
    if (made) return module_named(m);
    module_destroy(m);
    return NULL;
}

Module *linear_create_bare(const char *name, int in_dim, int out_dim)
{
    Module *m = create_bare(name, in_dim, out_dim, 0);
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
    return add_params(linear_create_bare(name, in_dim, out_dim), bias, init_std);
}

Module *linear_gelu_create(const char *name, int in_dim, int out_dim, float init_std)
{
    Module *m = create_bare(name, in_dim, out_dim, sizeof(LinearGelu));
    if (m == NULL) return NULL;
    m->forward = linear_gelu_forward;
    m->backward = linear_gelu_backward;
    m->free_saved = linear_gelu_free_saved;
    return add_params(m, true, init_std);
}
