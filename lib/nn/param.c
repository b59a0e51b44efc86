/* param.c: describes a parameter, and checks that its storage is there.
 *
 * A layer may run only while its parameters point at device memory. With FSDP they do not between a
 * reshard and the next unshard. Using a unit then is an easy mistake, so every layer checks before
 * it queues anything.
 */
#include <stdio.h>
#include <stdlib.h>

#include "gpulog.h"
#include "internal.h"

Param *param_create(const char *name, int64_t dim0, int64_t dim1, InitKind init, float init_std)
{
    if (dim0 < 1 || dim1 < 0) {
        fail(ERR_ARGUMENT, "parameter %s would be (%lld, %lld)", name, (long long)dim0,
             (long long)dim1);
        return NULL;
    }
    Param *param = calloc(1, sizeof *param);
    if (param == NULL) {
        fail(ERR_MEMORY, "no host memory for parameter %s", name);
        return NULL;
    }
    snprintf(param->name, sizeof param->name, "%s", name);
    param->dtype = DTYPE_F32; // as in param->data and param->grad: 0
    param->ndim = dim1 > 0 ? 2 : 1;
    param->shape[0] = dim0;
    param->shape[1] = dim1;
    param->init = init;
    param->init_std = init_std;
    return param;
}

int64_t param_numel(const Param *param)
{
    int64_t n = 1;
    for (int i = 0; i < param->ndim; i++) n *= param->shape[i];
    return n;
}

static const char *type_name(DType type)
{
    return type == DTYPE_F32 ? "float" : type == DTYPE_BF16 ? "bf16" : "fp16";
}

// A buffer whose type is not the layer's is the caller's mistake.
static Status check_type(const Param *param, const Buffer *buffer, DType type)
{
    if (buffer->dtype == type) return OK;
    return fail(ERR_ARGUMENT, "%s is %s, and its layer computes in %s (module_set_type)",
                param->name, type_name(buffer->dtype), type_name(type));
}

// A parameter without an owner, or narrower than a float, is in no shard.
static void say_category(const Param *param, const Buffer *buffer, GpuCategory category)
{
    bool shard = param->owner != NULL && buffer->dtype == DTYPE_F32;
    if (!shard && buffer->data != NULL) gpulog_category(buffer->data, category);
}

Status param_has_data(const Param *param, DType type)
{
    say_category(param, &param->data, GPU_UNSHARDED_PARAM);
    if (param->data.data != NULL) return check_type(param, &param->data, type);
    return fail(ERR_ARGUMENT,
                "%s has no data: it was never materialised, or its unit is not unsharded",
                param->name);
}

Status param_has_grad(const Param *param, DType type)
{
    if (param->frozen) return OK;
    say_category(param, &param->grad, GPU_UNSHARDED_GRAD);
    if (param->grad.data != NULL) return check_type(param, &param->grad, type);
    return fail(ERR_ARGUMENT, "%s has no gradient: none was allocated before this backward",
                param->name);
}

Status param_grad_begin(const Param *param, NnRun *run, DType type, void **grad)
{
    size_t n = (size_t)param_numel(param);
    *grad = param->grad.data;
    if (!param->frozen) return param_has_grad(param, type);
    TRY(run_alloc_typed(run, grad, type, n));
    CUDA_TRY(cudaMemsetAsync(*grad, 0, n * (size_t)dtype_bytes(type), run->stream));
    return OK;
}

Status param_grad_end(const Param *param, NnRun *run, void **grad)
{
    return param->frozen ? run_free_typed(run, grad) : OK;
}
