/* dropout.c: GPT-2's dropouts, in place, without a mask. See Dropout in nn.h. */
#include "mix.h"

#include "internal.h"

Status dropout(const Module *self, NnRun *run, const Param *at, void *x, size_t each)
{
    const Dropout *d = &run->dropout;
    if (d->p == 0.0f) return OK;
    uint64_t key = mix(d->seed ^ mix(at->id));
    CUDA_TRY(kernel_dropout_ex(self->out_type, x, d->p, key, d->first * each, (size_t)run->B * each,
                               run->stream));
    return OK;
}

Status dropout_copy(const Module *self, NnRun *run, const Param *at, const void **x, size_t each,
                    void **copy)
{
    size_t n = (size_t)run->B * each;
    if (run->dropout.p == 0.0f) return OK;
    if (*copy == NULL) TRY(module_alloc_typed(self, run, copy, n, "dropout's output"));
    CUDA_TRY(cudaMemcpyAsync(*copy, *x, n * (size_t)dtype_bytes(self->out_type),
                             cudaMemcpyDeviceToDevice, run->stream));
    *x = *copy;
    return dropout(self, run, at, *copy, each);
}
