/* schedule_in_three_parts.c: The schedule is written in three loops, blocks are shared out by
 * quotient and remainder, the four cases of a transfer are spelled out, and each exchange has an
 * event of its own.
 */
// ==== pipeline.c
Status pipeline_blocks(int blocks, int stages, int stage, int *first, int *last)
{
    if (stages < 1 || stage < 0 || stage >= stages)
        return fail(ERR_ARGUMENT, "stage %d is not one of %d", stage, stages);
    int quotient = blocks / stages, left = blocks % stages;
    if (quotient == 0)
        return fail(ERR_ARGUMENT, "too few blocks (%d) for %d stages", blocks, stages);
    int before = stage < left ? stage : left; // the first ones have one more
    *first = stage * quotient + before;
    *last = *first + quotient + (stage < left ? 1 : 0);
    return OK;
}

void pipeline_schedule(PipelineKind kind, int stage, int stages, int n, PipelineAction *out)
{
    int ahead = kind == PIPELINE_GPIPE ? n : stages - stage - 1, at = 0;
    if (ahead > n) ahead = n;
    for (int k = 0; k < ahead; k++) out[at++] = (PipelineAction){.micro_batch = k};
    for (int k = ahead; k < n; k++) {
        out[at++] = (PipelineAction){.micro_batch = k};
        out[at++] = (PipelineAction){.backward = true, .micro_batch = k - ahead};
    }
    for (int k = n - ahead; k < n; k++)
        out[at++] = (PipelineAction){.backward = true, .micro_batch = k};
}
// ==== transfers.c
Buffer *pipeline_transfer(Pipeline *p, PipelineAction action, bool before, int *stage)
{
    int mine = p->mesh->stage, last = p->mesh->stages - 1;
    PipelineSlot *slot = pipeline_slot(p, action.micro_batch);
    int64_t rows = (int64_t)p->run->T * p->batches[action.micro_batch].B;
    bool forward = !action.backward;
    if (forward && before) {
        if (mine == 0) return NULL;
        *stage = mine - 1;
        slot->in.data = NULL;
        slot->in.dtype = p->module->in_type;
        slot->in.numel = rows * p->module->in_dim;
        return &slot->in;
    }
    if (forward) {
        *stage = mine + 1;
        return mine < last ? &slot->out : NULL;
    }
    if (before) {
        if (mine == last) return NULL;
        *stage = mine + 1;
        slot->out_grad.data = NULL;
        slot->out_grad.dtype = p->module->out_type;
        slot->out_grad.numel = rows * p->module->out_dim;
        return &slot->out_grad;
    }
    *stage = mine - 1;
    return mine > 0 ? &slot->in_grad : NULL;
}

static Status wait_for_compute(Pipeline *p)
{
    cudaEvent_t event;
    CUDA_TRY(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    CUDA_TRY(cudaEventRecord(event, p->run->stream));
    CUDA_TRY(cudaStreamWaitEvent(p->stream, event, 0));
    CUDA_TRY(cudaEventDestroy(event));
    return OK;
}
