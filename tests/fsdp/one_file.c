/* examples/fsdp_300.c, FSDP in one file, trains bitwise the same model as the six files. */
#include "harness.h"
#include "launch.h"

// The program takes its communicator from the harness, and its main is not this one's.
static ncclComm_t given_comm;
#define world_connect(world, comm) (*(comm) = given_comm, OK)
int one_file_main(int argc, char **argv);
#define main one_file_main
#include "../../examples/fsdp_300.c"
#undef main
#undef world_connect

#include "fsdp.h"
#include "nn.h"

enum { STEPS_COMPARED = 4 };

static Module *model_create(void)
{
    Module *children[BLOCKS + 2];
    children[0] = token_embedding_create("embed", VOCAB, T, C, 1.0f);
    for (int i = 0; i < BLOCKS; i++) {
        Module *layers[] = {linear_create("fc", C, H, false, 1.0f), gelu_create("gelu", H),
                            linear_create("proj", H, C, false, 1.0f)};
        char name[8];
        snprintf(name, sizeof name, "h.%d", i);
        children[i + 1] = sequence_create(name, 3, layers);
    }
    children[BLOCKS + 1] = linear_create("head", C, VOCAB, false, 1.0f);
    return sequence_create("model", BLOCKS + 2, children);
}

// The six files' units, the root first, begin with the values of the program's.
static void begin_alike(FsdpRoot *six)
{
    check(six->n_units == BLOCKS + 1, "%d units", six->n_units);
    for (int i = 0; i <= BLOCKS; i++) {
        const FlatLayout *layout = &six->units[i]->flat.layout;
        check(layout->shard_numel == (int64_t)unit[i].shard, "unit %d: a shard of %zu, not %lld", i,
              unit[i].shard, (long long)layout->shard_numel);
        need_cuda(cudaMemcpy(six->units[i]->flat.sharded_param.data, unit[i].sharded_param,
                             unit[i].shard * sizeof(float), cudaMemcpyDeviceToDevice));
    }
    need_cuda(cudaDeviceSynchronize());
}

// One step of the six files on the same batch.
static float six_step(Module *model, NnRun *run, FsdpContext *ctx, FsdpAdamW *adamw,
                      const Text *text, int t)
{
    int32_t tokens[2][ROWS], *batch;
    float loss, *logits, *dlogits, *din;
    text_batch(text, 42, t, rank * B, B, T, tokens[0], tokens[1]);
    need_cuda(cudaMalloc((void **)&batch, sizeof tokens));
    need_cuda(cudaMemcpyAsync(batch, tokens, sizeof tokens, cudaMemcpyHostToDevice, run->stream));
    need(module_forward(model, run, batch, &logits));
    need(cross_entropy(run, logits, batch + ROWS, ROWS, VOCAB, &loss, &dlogits));
    need(module_backward(model, run, dlogits, &din));
    need(fsdp_adamw_step(adamw));
    need(fsdp_zero_grad(model, ctx));
    need_cuda(cudaFreeAsync(dlogits, run->stream));
    need_cuda(cudaStreamSynchronize(run->stream));
    need_cuda(cudaFree(batch));
    return loss;
}

static void check_shards(const FsdpRoot *six, int t)
{
    for (int i = 0; i <= BLOCKS; i++) {
        size_t n = unit[i].shard;
        float *got = malloc(n * sizeof *got), *want = malloc(n * sizeof *want);
        check(got != NULL && want != NULL, "no host memory");
        need_cuda(cudaMemcpy(got, unit[i].sharded_param, n * sizeof *got, cudaMemcpyDeviceToHost));
        need_cuda(cudaMemcpy(want, six->units[i]->flat.sharded_param.data, n * sizeof *want,
                             cudaMemcpyDeviceToHost));
        char what[64];
        snprintf(what, sizeof what, "the shard of unit %d after step %d", i, t);
        check_equal(what, got, want, n);
        free(got);
        free(want);
    }
}

static void destroy(void)
{
    cudaStream_t streams[] = {compute, all_gather, reduce_scatter};
    cudaEvent_t events[] = {compute_done, resharded.event, reduced.event};
    for (int i = 0; i <= BLOCKS; i++) {
        need_cuda(cudaFree(unit[i].sharded_param));
        need_cuda(cudaEventDestroy(unit[i].all_gather_done));
    }
    need_cuda(cudaFree(act));
    check(cublasDestroy(blas) == CUBLAS_STATUS_SUCCESS, "cublasDestroy");
    for (int i = 0; i < 3; i++) {
        need_cuda(cudaStreamDestroy(streams[i]));
        need_cuda(cudaEventDestroy(events[i]));
    }
}

RANK_TEST_WITHIN(trains_as_the_six_files, 4 * RANKS_LIMIT, 1, 2, 3, 4)
{
    const AdamWConfig config = {LR, BETA1, BETA2, EPS, WEIGHT_DECAY};
    const FsdpOptions options = {.seed = 1};
    char path[] = "README.md", *paths[] = {path};
    World world = {.rank = r->rank, .size = r->world};
    Text text;
    NnRun run;
    Mesh mesh;
    FsdpContext ctx;
    FsdpAdamW adamw;
    FsdpRoot *six;
    given_comm = r->comm;
    need(text_load(&text, paths, 1, T));
    create(&world);

    Module *model = model_create();
    check(model != NULL, "no model");
    need(nn_run_create(&run, r->stream));
    run.B = B;
    run.T = T;
    need(mesh_1d(&mesh, r->comm));
    need(fsdp_context_create(&ctx, &mesh, r->stream));
    for (int i = 1; i <= BLOCKS; i++) need(fully_shard(model->children[i], &ctx, &options));
    need(fully_shard(model, &ctx, &options));
    need(fsdp_adamw_create(&adamw, model, &ctx, &config));
    need(fsdp_find_root(model, &six));
    need_cuda(cudaDeviceSynchronize());
    begin_alike(six);

    for (int t = 1; t <= STEPS_COMPARED; t++) {
        float got = 0.0f, want = six_step(model, &run, &ctx, &adamw, &text, t);
        train_step(&text, t, &got);
        check_equal("loss", &got, &want, 1);
        check_shards(six, t);
    }
    fsdp_adamw_destroy(&adamw);
    fsdp_unwrap(model);
    need(fsdp_context_destroy(&ctx));
    module_destroy(model);
    need(nn_run_destroy(&run));
    text_free(&text);
    destroy();
}

SUITE_MAIN("one file")
