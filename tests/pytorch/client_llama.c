/* client_llama.c: this side of `make compare-pytorch` for Llama, as client.c is for GPT-2: a model
 * in or out of Hugging Face's file, and its logits.
 *
 *   client_llama import|export FILE LOGITS VOCAB CONTEXT LAYERS HEADS DIM SEQUENCES
 *                KV_HEADS HIDDEN TIED THETA FACTOR
 *
 * Token t of sequence b is (7·t + 31·b + t·t) % VOCAB. Rank 0 writes the logits (SEQUENCES,
 * CONTEXT, VOCAB), float, to LOGITS. FACTOR above 0: Llama 3.1's scaling, 1 and 4 periods of
 * CONTEXT/2 tokens.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint.h"
#include "launch.h"

typedef struct Client {
    World world;
    ncclComm_t comm;
    cudaStream_t stream;
    NnRun run;
    Mesh mesh;
    FsdpContext ctx;
    Module *model;
} Client;

static Status client_open(Client *c, bool loads)
{
    FsdpOptions options = {.reshard_after_forward = FSDP_RESHARD_AUTO, .seed = 42};
    TRY(world_connect(&c->world, &c->comm));
    if (loads) checkpoint_storage_only(c->model);
    CUDA_TRY(cudaStreamCreate(&c->stream));
    TRY(nn_run_create(&c->run, c->stream));
    TRY(mesh_1d(&c->mesh, c->comm));
    TRY(fsdp_context_create(&c->ctx, &c->mesh, c->stream));
    for (int i = 0; i < c->model->n_children; i++)
        if (strncmp(c->model->children[i]->name, "h.", 2) == 0)
            TRY(fully_shard(c->model->children[i], &c->ctx, &options));
    return fully_shard(c->model, &c->ctx, &options);
}

static Status client_close(Client *c)
{
    fsdp_unwrap(c->model);
    TRY(fsdp_context_destroy(&c->ctx));
    module_destroy(c->model);
    TRY(nn_run_destroy(&c->run));
    CUDA_TRY(cudaStreamDestroy(c->stream));
    return world_disconnect(c->comm);
}

// The logits (B·T, vocab) of the tokens of the header, on rank 0 in `path`.
static Status write_forward(Client *c, int B, int T, int vocab, const char *path)
{
    size_t rows = (size_t)B * (size_t)T, n = rows * (size_t)vocab;
    int32_t *tokens = malloc(rows * sizeof *tokens), *device = NULL;
    float *logits = malloc(n * sizeof *logits), *out = NULL;
    if (tokens == NULL || logits == NULL) return fail(ERR_MEMORY, "no host memory for logits");
    for (int b = 0; b < B; b++)
        for (int t = 0; t < T; t++) tokens[b * T + t] = (7 * t + 31 * b + t * t) % vocab;
    CUDA_TRY(cudaMalloc((void **)&device, rows * sizeof *tokens));
    CUDA_TRY(cudaMemcpy(device, tokens, rows * sizeof *tokens, cudaMemcpyHostToDevice));
    c->run.B = B;
    c->run.T = T;
    TRY(module_forward(c->model, &c->run, device, &out));
    CUDA_TRY(cudaMemcpyAsync(logits, out, n * sizeof *out, cudaMemcpyDeviceToHost, c->stream));
    CUDA_TRY(cudaStreamSynchronize(c->stream));
    TRY(module_discard(c->model, &c->run));
    TRY(fsdp_reshard_all(c->model));
    CUDA_TRY(cudaFree(device));
    FILE *file = c->world.rank == 0 ? fopen(path, "wb") : NULL;
    bool good = c->world.rank != 0;
    if (file != NULL) {
        good = fwrite(logits, sizeof *logits, n, file) == n;
        good = fclose(file) == 0 && good;
    }
    free(tokens);
    free(logits);
    return good ? OK : fail(ERR_IO, "%s: cannot be written", path);
}

int main(int argc, char **argv)
{
    Client c = {0};
    int n[9];
    if (argc != 15 || world_from_env(&c.world) != OK) return 2;
    for (int i = 0; i < 9; i++) n[i] = atoi(argv[4 + i]);
    bool exports = strcmp(argv[1], "export") == 0;
    LlamaConfig config = {
        .vocab = n[0],
        .max_T = n[1],
        .layers = n[2],
        .heads = n[3],
        .dim = n[4],
        .kv_heads = n[6],
        .hidden = n[7],
        .tied = n[8] != 0,
        .rotary = {(float)atof(argv[13]), (float)atof(argv[14]), 1.0f, 4.0f, n[1] / 2}};
    check_set_rank(c.world.rank);
    c.model = llama_create(&config);
    if (c.model == NULL || client_open(&c, !exports) != OK) return 1;
    Status done = exports ? llama_export(argv[2], c.model) : llama_import(argv[2], c.model);
    if (done == OK) done = write_forward(&c, n[5], n[1], n[0], argv[3]);
    if (done == OK) done = client_close(&c);
    return done == OK ? 0 : 1;
}
