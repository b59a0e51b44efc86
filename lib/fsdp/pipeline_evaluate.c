/* pipeline_evaluate.c: computes the losses of a model in stages, without gradients.
 *
 * A stage sends a micro-batch on before it frees the forward's buffers, so one is in flight at a
 * time.
 */
#include "pipeline.h"

// Frees what the forward of micro-batch k has left, after it was sent.
static Status discard(Pipeline *p, int k)
{
    PipelineSlot *slot = pipeline_slot(p, k);
    TRY(stream_run_after(p->run->stream, p->stream, slot->received));
    TRY(pipeline_swap(p, k));
    TRY(module_discard(p->module, p->run));
    if (slot->in.data == NULL) return OK;
    CUDA_TRY(cudaEventRecord(p->computed, p->run->stream));
    return stream_free_after(&slot->in.data, p->computed, p->stream);
}

static Status evaluate(Pipeline *p, int k)
{
    const PipelineAction forward = {false, k};
    bool last = p->mesh->stage == p->mesh->stages - 1;
    TRY(pipeline_exchange(p, NULL, &forward));
    TRY(pipeline_forward(p, k));
    if (last)
        TRY(cross_entropy_queued(p->run, pipeline_slot(p, k)->out.data, p->batches[k].targets,
                                 p->run->B * p->run->T, p->module->out_dim, 1.0f, &p->losses[k],
                                 NULL));
    TRY(pipeline_exchange(p, &forward, NULL));
    return discard(p, k);
}

Status pipeline_evaluate(Pipeline *p, NnRun *run, const MicroBatch *batches, int n, float *losses)
{
    if (n < 1 || n > p->n)
        return fail(ERR_ARGUMENT, "an evaluation of %d batches: a step has %d", n, p->n);
    p->run = run;
    p->batches = batches;
    TRY(fsdp_set_training(p->module, false));
    for (int k = 0; k < n; k++) TRY(evaluate(p, k));
    TRY(fsdp_set_training(p->module, true));
    if (losses == NULL || p->losses == NULL) return OK;
    CUDA_TRY(cudaMemcpyAsync(losses, p->losses, (size_t)n * sizeof *losses, cudaMemcpyDeviceToHost,
                             run->stream));
    CUDA_TRY(cudaStreamSynchronize(run->stream));
    return OK;
}
