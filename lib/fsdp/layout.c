/* layout.c: memory of a layout that copies, with a name in the log. See layout_rule.h. */
#include "gpulog.h"
#include "layout_rule.h"

static Status alloc(FsdpUnit *unit, Buffer *buffer, GpuCategory category)
{
    if (buffer->data != NULL) gpulog_category(buffer->data, category);
    CUDA_TRY(cudaMallocAsync(&buffer->data, buffer_bytes(buffer), unit->ctx->compute_stream));
    gpulog_category(buffer->data, category);
    return OK;
}

Status layout_alloc_param(FsdpUnit *unit, Buffer *param)
{
    return alloc(unit, param, GPU_UNSHARDED_PARAM);
}

Status layout_alloc_grad(FsdpUnit *unit, Buffer *grad)
{
    return alloc(unit, grad, GPU_UNSHARDED_GRAD);
}
