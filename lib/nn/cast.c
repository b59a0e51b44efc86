/* cast.c: the layer between modules of two types, without parameters or saved values. */
#include "internal.h"
#include "kernels.h"

static size_t numel(const Module *self, const NnRun *run)
{
    return run_rows(run) * (size_t)self->in_dim;
}

static Status cast_forward(Module *self, NnRun *run, const void *in, void *out)
{
    CUDA_TRY(kernel_cast(self->out_type, out, self->in_type, in, numel(self, run), run->stream));
    return OK;
}

static Status cast_backward(Module *self, NnRun *run, const void *dout, void *din)
{
    CUDA_TRY(kernel_cast(self->in_type, din, self->out_type, dout, numel(self, run), run->stream));
    return OK;
}

Module *cast_create(const char *name, int dim, DType in_type, DType out_type)
{
    if (dim < 1) {
        fail(ERR_ARGUMENT, "cast %s would have %d columns", name, dim);
        return NULL;
    }
    Module *m = module_create(name, dim, dim, 0);
    if (m == NULL) return NULL;
    m->in_type = in_type;
    m->out_type = out_type;
    m->types_stay = true;
    m->forward = cast_forward;
    m->backward = cast_backward;
    return m;
}

bool cast_logits(Module *m, DType dtype)
{
    if (dtype == DTYPE_F32) return true;
    module_set_type(m, dtype);
    if (!module_add_child(m, cast_create("logits", m->out_dim, dtype, DTYPE_F32))) return false;
    m->out_type = DTYPE_F32;
    m->types_stay = true;
    return true;
}
