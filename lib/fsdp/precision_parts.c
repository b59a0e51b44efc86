/* precision_parts.c: what a policy's code needs of units, and no student writes: looking things up,
 * memory that the log has a name for, hooks in front of a unit's own.
 */
#include "gpulog.h"
#include "precision.h"

Status precision_find(const Module *module, PrecisionState **state)
{
    FsdpRoot *root = NULL;
    TRY(fsdp_find_root(module, &root));
    *state = root->precision;
    return *state != NULL ? OK : fail(ERR_ARGUMENT, "%s has no precision", module->name);
}

PrecisionUnit *precision_of(const FsdpUnit *unit)
{
    int i = 0;
    while (unit->root->units[i] != unit) i++;
    return &unit->root->precision->units[i];
}

Status precision_alloc_grad(FsdpUnit *unit, DType dtype, Buffer *grad)
{
    *grad = (Buffer){NULL, dtype, unit->flat.unsharded_grad.numel};
    CUDA_TRY(cudaMallocAsync(&grad->data, buffer_bytes(grad), unit->ctx->compute_stream));
    gpulog_category(grad->data, GPU_UNSHARDED_GRAD);
    return OK;
}

void precision_add_hooks(FsdpUnit *unit, HookFn pre_backward, HookFn post_backward)
{
    PrecisionUnit *own = precision_of(unit);
    own->pre_backward = unit->hooks[HOOK_PRE_BACKWARD]->fn;
    own->post_backward = unit->hooks[HOOK_POST_BACKWARD]->fn;
    unit->hooks[HOOK_PRE_BACKWARD]->fn = pre_backward;
    unit->hooks[HOOK_POST_BACKWARD]->fn = post_backward;
}

void precision_remove_hooks(FsdpUnit *unit)
{
    PrecisionUnit *own = precision_of(unit);
    if (own->pre_backward == NULL) return;
    unit->hooks[HOOK_PRE_BACKWARD]->fn = own->pre_backward;
    unit->hooks[HOOK_POST_BACKWARD]->fn = own->post_backward;
}
