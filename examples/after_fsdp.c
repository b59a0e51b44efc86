/* after_fsdp.c: a small GPT-2 trained with FSDP. Compare with before_fsdp.c, the same program on
 * one GPU:
 *
 *     diff examples/before_fsdp.c examples/after_fsdp.c
 *
 * Usage: build/bin/launch -n 4 build/bin/after_fsdp TEXTFILE
 */
#include <stdio.h>

#include "fsdp.h"
#include "launch.h"
#include "nn.h"
#include "text.h"

enum { B = 4, T = 64, STEPS = 30, SEED = 42 };
static const Gpt2Config MODEL = {.vocab = 256, .max_T = T, .layers = 4, .heads = 4, .dim = 128};
static const AdamWConfig ADAMW = {
    .lr = 1e-3f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0.1f};

// One forward and backward of B sequences; *loss is their mean loss.
static Status pass(Module *model, NnRun *run, const Text *text, int step, int first, float *loss)
{
    int32_t in[B * T], targets[B * T], *device_in = NULL, *device_targets = NULL;
    float *logits, *dlogits, *din;

    text_batch(text, SEED, step, first, B, T, in, targets);
    CUDA_TRY(cudaMalloc((void **)&device_in, sizeof in));
    CUDA_TRY(cudaMalloc((void **)&device_targets, sizeof targets));
    CUDA_TRY(cudaMemcpy(device_in, in, sizeof in, cudaMemcpyHostToDevice));
    CUDA_TRY(cudaMemcpy(device_targets, targets, sizeof targets, cudaMemcpyHostToDevice));

    TRY(module_forward(model, run, device_in, &logits));
    TRY(cross_entropy(run, logits, device_targets, B * T, MODEL.vocab, loss, &dlogits));
    TRY(module_backward(model, run, dlogits, &din));

    CUDA_TRY(cudaFreeAsync(dlogits, run->stream));
    CUDA_TRY(cudaFree(device_in));
    CUDA_TRY(cudaFree(device_targets));
    return OK;
}

static Status train(const Text *text)
{
    NnRun run;
    cudaStream_t stream;
    World world;
    ncclComm_t comm;
    Mesh mesh;
    FsdpContext ctx;
    FsdpOptions options = {.seed = SEED};
    FsdpAdamW adamw;
    Module *model = gpt2_create(&MODEL);
    if (model == NULL) return ERR_MEMORY;

    TRY(world_from_env(&world));
    TRY(world_connect(&world, &comm));
    CUDA_TRY(cudaStreamCreate(&stream));
    TRY(nn_run_create(&run, stream));
    run.B = B;
    run.T = T;

    TRY(mesh_1d(&mesh, comm));
    TRY(fsdp_context_create(&ctx, &mesh, stream));
    for (int i = 1; i <= MODEL.layers; i++) TRY(fully_shard(model->children[i], &ctx, &options));
    TRY(fully_shard(model, &ctx, &options));
    TRY(fsdp_adamw_create(&adamw, model, &ctx, &ADAMW));

    for (int step = 0; step < STEPS; step++) {
        float loss;
        TRY(pass(model, &run, text, step, world.rank * B, &loss));
        TRY(fsdp_adamw_step(&adamw));
        TRY(fsdp_zero_grad(model, &ctx));
        if (step % 5 == 4 && world.rank == 0)
            printf("step %2d  loss %.4f\n", step + 1, (double)loss);
    }

    fsdp_adamw_destroy(&adamw);
    fsdp_unwrap(model);
    TRY(fsdp_context_destroy(&ctx));
    module_destroy(model);
    TRY(nn_run_destroy(&run));
    CUDA_TRY(cudaStreamDestroy(stream));
    TRY(world_disconnect(comm));
    return OK;
}

int main(int argc, char **argv)
{
    Text text;
    if (argc != 2) {
        fprintf(stderr, "usage: %s TEXTFILE\n", argv[0]);
        return 2;
    }
    if (text_load(&text, argv + 1, 1, T) != OK) return 1;
    Status status = train(&text);
    text_free(&text);
    return status == OK ? 0 : 1;
}
