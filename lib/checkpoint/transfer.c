/* transfer.c: moves elements between a device and a file through one buffer, and lets ranks agree
 * on whether all went well.
 */
#include <stdio.h>
#include <stdlib.h>

#include "checkpoint.h"
#include "internal.h"

enum { ELEMENTS = CHECKPOINT_BUFFER / 4 };

const char *checkpoint_part_name(CheckpointPart part)
{
    static const char *const NAMES[] = {"", ".adamw.m", ".adamw.v"};
    return NAMES[part];
}

void checkpoint_tensor_name(char *out, const char *param, CheckpointPart part)
{
    snprintf(out, CHECKPOINT_NAME, "%s%s", param, checkpoint_part_name(part));
}

static int64_t buffer_elements(int64_t n)
{
    return n < ELEMENTS ? n : ELEMENTS;
}

// Copies n floats between the host's buffer and a shard, which is on the device or, offloaded, in
// pinned host memory. When it returns, the copy is done.
static Status move(void *to, const void *from, int64_t n, cudaStream_t stream)
{
    CUDA_TRY(cudaMemcpyAsync(to, from, (size_t)n * sizeof(float), cudaMemcpyDefault, stream));
    CUDA_TRY(cudaStreamSynchronize(stream));
    return OK;
}

Status checkpoint_copy_out(Safetensors *file, int tensor, int64_t first, int64_t n,
                           const float *device, cudaStream_t stream)
{
    int64_t room = buffer_elements(n);
    float *buffer = malloc((size_t)(room + 1) * sizeof *buffer);
    Status status = OK;
    if (buffer == NULL) return fail(ERR_MEMORY, "%s: no host memory for a slice", file->path);
    for (int64_t i = 0; i < n && status == OK; i += room) {
        int64_t now = n - i < room ? n - i : room;
        status = move(buffer, device + i, now, stream);
        if (status == OK) status = safetensors_write(file, tensor, first + i, now, buffer);
    }
    free(buffer);
    return status;
}

Status checkpoint_copy_in(const Safetensors *file, const SafetensorsEntry *entry, int64_t first,
                          int64_t n, float *device, cudaStream_t stream)
{
    int64_t room = buffer_elements(n);
    float *buffer = malloc((size_t)(room + 1) * sizeof *buffer);
    Status status = OK;
    if (buffer == NULL) return fail(ERR_MEMORY, "%s: no host memory for a slice", file->path);
    for (int64_t i = 0; i < n && status == OK; i += room) {
        int64_t now = n - i < room ? n - i : room;
        status = safetensors_read(file, entry, first + i, now, buffer);
        if (status == OK) status = move(device + i, buffer, now, stream);
    }
    free(buffer);
    return status;
}

// *failed = whether any rank of the group has failed: a sum over the ranks, on the device.
static Status sum_failures(const ProcessGroup *group, cudaStream_t stream, int32_t *failed,
                           int32_t *device)
{
    CUDA_TRY(cudaMemcpyAsync(device, failed, sizeof *failed, cudaMemcpyHostToDevice, stream));
    NCCL_TRY(ncclAllReduce(device, device, 1, ncclInt32, ncclMax, group->comm, stream));
    CUDA_TRY(cudaMemcpyAsync(failed, device, sizeof *failed, cudaMemcpyDeviceToHost, stream));
    CUDA_TRY(cudaStreamSynchronize(stream));
    return OK;
}

static Status count_failures(const ProcessGroup *group, cudaStream_t stream, int32_t *failed)
{
    int32_t *device = NULL;
    if (group->size == 1) return OK;
    CUDA_TRY(cudaMallocAsync((void **)&device, sizeof *failed, stream));
    Status status = sum_failures(group, stream, failed, device);
    CUDA_TRY(cudaFreeAsync(device, stream));
    return status;
}

Status checkpoint_agree(const FsdpContext *ctx, Status mine)
{
    int32_t failed = mine != OK;
    TRY(count_failures(&ctx->mesh.shard, ctx->compute_stream, &failed));
    TRY(count_failures(&ctx->mesh.replicate, ctx->compute_stream, &failed));
    return mine != OK || failed == 0 ? mine : ERR_IO;
}

static bool is_first(const FsdpContext *ctx)
{
    return ctx->mesh.shard.rank == 0 && ctx->mesh.replicate.rank == 0;
}

void checkpoint_alike_begin(const FsdpContext *ctx)
{
    if (!is_first(ctx)) check_set_silent(true);
}

Status checkpoint_alike_agree(const FsdpContext *ctx, Status mine)
{
    if (!is_first(ctx)) check_set_silent(false);
    TRY(checkpoint_agree(ctx, is_first(ctx) ? mine : OK));
    if (mine != OK) fail(mine, "%s", check_last());
    return checkpoint_agree(ctx, mine);
}

void checkpoint_storage_only(Module *model)
{
    for (int i = 0; i < model->n_params; i++) model->params[i]->init = INIT_NONE;
    for (int i = 0; i < model->n_children; i++) checkpoint_storage_only(model->children[i]);
}
