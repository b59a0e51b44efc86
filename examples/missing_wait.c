/* missing_wait.c: the smallest piece of FSDP, on two GPUs, with one line missing. Each rank owns
 * half of a layer's weights; the ranks gather all of them on one stream and multiply on another.
 * Two streams know nothing of each other.
 *
 * handouts/0_start.md is its page. Run it, read simgpu's report, write the line, run it again:
 *
 *     make start
 */
#include <stdio.h>

#include "check.h"
#include "gpulog.h" // gpulog_name_stream
#include "kernels.h"
#include "launch.h"

enum { N = 8 }; // weights of the layer, N / 2 of them on each of two ranks

typedef struct Layer {
    float *sharded;   // (N / 2): what this rank owns
    float *unsharded; // (N): room for all of them
    float *out;       // (N): zeros, for twice the weights
    cudaStream_t all_gather_stream, compute_stream;
    cudaEvent_t all_gather_done;
} Layer;

// out = 2 * weights: each rank's half travels once, and each rank computes with all.
static Status forward(Layer *layer, ncclComm_t comm)
{
    NCCL_TRY(ncclAllGather(layer->sharded, layer->unsharded, N / 2, ncclFloat, comm,
                           layer->all_gather_stream));
    CUDA_TRY(cudaEventRecord(layer->all_gather_done, layer->all_gather_stream));

    // TODO: one call, which makes the stream that reads the weights wait for the event.

    CUDA_TRY(kernel_add(layer->out, layer->unsharded, N, layer->compute_stream));
    CUDA_TRY(kernel_scale(layer->out, 2, N, layer->compute_stream));
    return OK;
}

// Rank r owns the weights r * N / 2 + 1, r * N / 2 + 2 and so on.
static Status create(Layer *layer, int rank)
{
    float mine[N / 2];
    for (int i = 0; i < N / 2; i++) mine[i] = (float)(rank * N / 2 + i + 1);
    CUDA_TRY(cudaMalloc((void **)&layer->sharded, sizeof mine));
    CUDA_TRY(cudaMalloc((void **)&layer->unsharded, N * sizeof(float)));
    CUDA_TRY(cudaMalloc((void **)&layer->out, N * sizeof(float)));
    CUDA_TRY(cudaMemcpy(layer->sharded, mine, sizeof mine, cudaMemcpyHostToDevice));
    CUDA_TRY(cudaMemset(layer->out, 0, N * sizeof(float)));
    CUDA_TRY(cudaDeviceSynchronize());
    CUDA_TRY(cudaStreamCreateWithFlags(&layer->all_gather_stream, cudaStreamNonBlocking));
    CUDA_TRY(cudaStreamCreateWithFlags(&layer->compute_stream, cudaStreamNonBlocking));
    CUDA_TRY(cudaEventCreateWithFlags(&layer->all_gather_done, cudaEventDisableTiming));
    gpulog_name_stream(layer->all_gather_stream, "all_gather_stream"); // for simgpu's reports
    gpulog_name_stream(layer->compute_stream, "compute_stream");
    return OK;
}

static Status destroy(Layer *layer)
{
    CUDA_TRY(cudaEventDestroy(layer->all_gather_done));
    CUDA_TRY(cudaStreamDestroy(layer->compute_stream));
    CUDA_TRY(cudaStreamDestroy(layer->all_gather_stream));
    CUDA_TRY(cudaFree(layer->out));
    CUDA_TRY(cudaFree(layer->unsharded));
    CUDA_TRY(cudaFree(layer->sharded));
    return OK;
}

static Status run(void)
{
    World world;
    Layer layer;
    ncclComm_t comm;
    float out[N];
    TRY(world_from_env(&world));
    if (world.size != 2) return fail(ERR_ARGUMENT, "%d ranks: start 2 of them", world.size);
    TRY(world_connect(&world, &comm));
    TRY(create(&layer, world.rank));
    TRY(forward(&layer, comm));
    CUDA_TRY(cudaStreamSynchronize(layer.compute_stream));
    CUDA_TRY(cudaMemcpy(out, layer.out, sizeof out, cudaMemcpyDeviceToHost));
    if (world.rank == 0) {
        printf("twice the weights of both GPUs:");
        for (int i = 0; i < N; i++) printf(" %g", (double)out[i]);
        printf("\n");
    }
    TRY(destroy(&layer));
    return world_disconnect(comm);
}

int main(void)
{
    return run() == OK ? 0 : 1;
}
