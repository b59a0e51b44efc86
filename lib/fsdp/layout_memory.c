/* layout_memory.c: memory, named in the log, of a layout that copies. See per_parameter.h. */
#include "gpulog.h"
#include "per_parameter.h"

static Status alloc(FsdpUnit *unit, Buffer *buffer, GpuCategory category)
{
    void *data = NULL;
    if (buffer->data != NULL) gpulog_category(buffer->data, category);
    CUDA_TRY(cudaMallocAsync(&data, buffer_bytes(buffer), unit->ctx->compute_stream));
    gpulog_category(data, category);
    buffer->data = data;
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

Status layout_free_copied_out(FsdpRoot *root)
{
    AllGatherState *copied_out = &root->extensions->copied_out;
    return stream_free_after(&copied_out->buffer, copied_out->event, root->ctx->all_gather_stream);
}
