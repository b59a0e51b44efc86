/* Lab 7, second file: between two stages. One stage sends what the next one needs.
 *
 * Transfers have a stream of their own. It waits for the compute that made the buffer to send;
 * while a buffer is on its way, the stage that receives can compute something else. Two events are
 * enough: one says that compute is done, and one per slot says that its input has arrived.
 *
 * [Note: both at once] A send of NCCL may wait until the other side receives. In 1F1B stage 0 sends
 * an activation and receives a gradient from stage 1, which sends a gradient and receives an
 * activation. If both send first, both wait forever. Calls between ncclGroupStart and ncclGroupEnd
 * are one operation: both directions go at once.
 *
 * [Note: who frees] The stream of the transfers owns the buffers that were received, and frees them
 * after the backward that reads them. It also frees the gradient of the input, after it was sent.
 * The output belongs to its module, which frees it in the backward. By then it has been sent,
 * because the next stage has sent its gradient back.
 *
 * Interface:
 *   pipeline_transfer     the buffer that an action needs, and the one that it has made
 *   pipeline_exchange     sends the one, receives the other
 */
#include "pipeline.h"

Buffer *pipeline_transfer(Pipeline *p, PipelineAction action, bool before, int *stage)
{
    const PipelineMesh *mesh = p->mesh;
    PipelineSlot *slot = pipeline_slot(p, action.micro_batch);
    int64_t rows = (int64_t)p->batches[action.micro_batch].B * p->run->T;
    //[L7.8] The result is the buffer, and *stage is set, as pipeline.h says. A buffer that
    //  receives has its type and elements, which the stage's module knows.
    //? A forward needs something from the stage before, and gives something to the stage after. And
    //? a backward?
    bool from_front = action.backward != before; // the stage before has the other end
    *stage = mesh->stage + (from_front ? -1 : 1);
    if (*stage < 0 || *stage == mesh->stages) return NULL;
    if (!before) return action.backward ? &slot->in_grad : &slot->out;
    if (action.backward)
        slot->out_grad = (Buffer){NULL, p->module->out_type, rows * p->module->out_dim};
    else
        slot->in = (Buffer){NULL, p->module->in_type, rows * p->module->in_dim};
    return action.backward ? &slot->out_grad : &slot->in;
    //[end L7.8]
}

// The rank of the world that has this rank's place in another stage.
static int rank_in(const PipelineMesh *mesh, int stage)
{
    //[[L7.9a] The rank.
    return stage * mesh->group.size + mesh->place;
    //[end L7.9a]
}

// Queues the two messages; NULL: none.
static Status send_and_receive(Pipeline *p, const Buffer *sent, int to, const Buffer *received,
                               int from)
{
    const PipelineMesh *mesh = p->mesh;
    //[L7.9] Both are queued on p->stream, and neither waits for the other: they are one operation.
    //? Stage 0 sends and then receives, and so does stage 1. Who receives first?
    ncclResult_t queued = ncclSuccess;
    NCCL_TRY(ncclGroupStart());
    if (sent != NULL)
        queued = ncclSend(sent->data, (size_t)sent->numel, dtype_nccl(sent->dtype),
                          rank_in(mesh, to), mesh->world, p->stream);
    if (received != NULL && queued == ncclSuccess)
        queued = ncclRecv(received->data, (size_t)received->numel, dtype_nccl(received->dtype),
                          rank_in(mesh, from), mesh->world, p->stream);
    ncclResult_t ended = ncclGroupEnd();
    NCCL_TRY(queued);
    NCCL_TRY(ended);
    return OK;
    //[end L7.9]
}

static Status free_buffer(Pipeline *p, Buffer *buffer)
{
    //[[L7.10a] The buffer, if it has memory, is freed on p->stream, and has none.
    if (buffer->data == NULL) return OK;
    CUDA_TRY(cudaFreeAsync(buffer->data, p->stream));
    buffer->data = NULL;
    return OK;
    //[end L7.10a]
}

// Makes p->stream wait for all work that is queued on the compute stream.
static Status wait_for_compute(Pipeline *p)
{
    //[[L7.10b] The two calls, with p->computed.
    CUDA_TRY(cudaEventRecord(p->computed, p->run->stream));
    CUDA_TRY(cudaStreamWaitEvent(p->stream, p->computed, 0));
    return OK;
    //[end L7.10b]
}

Status pipeline_exchange(Pipeline *p, const PipelineAction *done, const PipelineAction *next)
{
    int to = 0, from = 0;
    Buffer *sent = done != NULL ? pipeline_transfer(p, *done, false, &to) : NULL;
    PipelineSlot *ended = NULL; // whose backward is done
    if (done != NULL && done->backward) ended = pipeline_slot(p, done->micro_batch);
    //[L7.10] As pipeline.h says. What is received for `next` may have the slot that `done` had:
    //  first free, then allocate.
    //? Which buffers has the compute stream read for the last time when a backward is queued? Which
    //? one does the transfer still read?
    if (sent != NULL || ended != NULL) TRY(wait_for_compute(p));
    if (ended != NULL) {
        TRY(free_buffer(p, &ended->in));
        TRY(free_buffer(p, &ended->out_grad));
    }
    Buffer *received = next != NULL ? pipeline_transfer(p, *next, true, &from) : NULL;
    if (received != NULL) TRY(pipeline_alloc(p, received));
    TRY(send_and_receive(p, sent, to, received, from));
    if (received != NULL)
        CUDA_TRY(cudaEventRecord(pipeline_slot(p, next->micro_batch)->received, p->stream));
    return ended != NULL ? free_buffer(p, &ended->in_grad) : OK;
    //[end L7.10]
}
