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
// Lab 7. Each TODO says what must hold afterwards and asks a question. Write
// the code that makes it hold.
// The handout is labs/7_pipeline/handout.md; `make grade LAB=7` says how far you are.
#include "pipeline.h"

Buffer *pipeline_transfer(Pipeline *p, PipelineAction action, bool before, int *stage)
{
    const PipelineMesh *mesh = p->mesh;
    PipelineSlot *slot = pipeline_slot(p, action.micro_batch);
    int64_t rows = (int64_t)p->batches[action.micro_batch].B * p->run->T;
    // TODO L7.8: The result is the buffer, and *stage is set, as pipeline.h says. A buffer that
    // receives has its type and elements, which the stage's module knows.
    // Hint: A forward needs something from the stage before, and gives something to the stage
    // after. And a backward?
    NOT_YET("L7.8");
}

// The rank of the world that has this rank's place in another stage.
static int rank_in(const PipelineMesh *mesh, int stage)
{
    return stage * mesh->group.size + mesh->place;
}

// Queues the two messages; NULL: none.
static Status send_and_receive(Pipeline *p, const Buffer *sent, int to, const Buffer *received,
                               int from)
{
    const PipelineMesh *mesh = p->mesh;
    // TODO L7.9: Both are queued on p->stream, and neither waits for the other: they are one
    // operation.
    // Hint: Stage 0 sends and then receives, and so does stage 1. Who receives first?
    NOT_YET("L7.9");
}

static Status free_buffer(Pipeline *p, Buffer *buffer)
{
    if (buffer->data == NULL) return OK;
    CUDA_TRY(cudaFreeAsync(buffer->data, p->stream));
    buffer->data = NULL;
    return OK;
}

// Makes p->stream wait for all work that is queued on the compute stream.
static Status wait_for_compute(Pipeline *p)
{
    CUDA_TRY(cudaEventRecord(p->computed, p->run->stream));
    CUDA_TRY(cudaStreamWaitEvent(p->stream, p->computed, 0));
    return OK;
}

Status pipeline_exchange(Pipeline *p, const PipelineAction *done, const PipelineAction *next)
{
    int to = 0, from = 0;
    Buffer *sent = done != NULL ? pipeline_transfer(p, *done, false, &to) : NULL;
    PipelineSlot *ended = NULL; // whose backward is done
    if (done != NULL && done->backward) ended = pipeline_slot(p, done->micro_batch);
    // TODO L7.10: As pipeline.h says. What is received for `next` may have the slot that `done`
    // had: first free, then allocate.
    // Hint: Which buffers has the compute stream read for the last time when a backward is queued?
    // Which one does the transfer still read?
    NOT_YET("L7.10");
}
