/* precision_units.c: the given part of a policy: lookups, memory with a name in the log, and the
 * hooks that run after the policy's.
 */
#include "gpulog.h"
#include "precision.h"

Status precision_find(const Module *module, PrecisionState **state)
{
    FsdpRoot *root = NULL;
    TRY(fsdp_find_root(module, &root));
    *state = root->extensions->precision;
    return *state != NULL ? OK : fail(ERR_ARGUMENT, "%s has no precision", module->name);
}

PrecisionUnit *precision_of(const FsdpUnit *unit)
{
    return &unit->root->extensions->precision->units[fsdp_unit_index(unit)];
}

Status precision_alloc_grad(FsdpUnit *unit, DType dtype, Buffer *grad)
{
    *grad = (Buffer){NULL, dtype, unit->flat.unsharded_grad.numel};
    CUDA_TRY(cudaMallocAsync(&grad->data, buffer_bytes(grad), unit->ctx->compute_stream));
    gpulog_category(grad->data, GPU_UNSHARDED_GRAD);
    return OK;
}

Status precision_hook_before(FsdpUnit *unit, HookPoint point)
{
    return extension_before(unit, EXTENSION_PRECISION)->hooks[point](unit->module, unit);
}
