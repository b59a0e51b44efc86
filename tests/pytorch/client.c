/* client.c: this side of `make compare-pytorch`: a GPT-2 in or out of Hugging Face's file, and its
 * logits.
 *
 *   client import|export FILE LOGITS VOCAB CONTEXT LAYERS HEADS DIM SEQUENCES
 *
 * Token t of sequence b is (7·t + 31·b + t·t) % VOCAB. Rank 0 writes the logits (SEQUENCES,
 * CONTEXT, VOCAB), float, to LOGITS.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../examples/common/trainer.h"
#include "checkpoint.h"

static Status write_floats(const char *path, const float *values, size_t n)
{
    FILE *file = fopen(path, "wb");
    bool good = file != NULL && fwrite(values, sizeof *values, n, file) == n;
    if (file != NULL) good = fclose(file) == 0 && good;
    return good ? OK : fail(ERR_IO, "%s: cannot be written", path);
}

static Status run(Trainer *t, bool exports, const char *file, const char *out)
{
    int B = t->opt.B, T = t->opt.T, vocab = t->opt.model.vocab;
    size_t rows = (size_t)B * (size_t)T;
    int32_t *tokens = malloc(rows * sizeof *tokens);
    float *logits = malloc(rows * (size_t)vocab * sizeof *logits);
    if (tokens == NULL || logits == NULL) return fail(ERR_MEMORY, "no host memory for logits");
    for (int b = 0; b < B; b++)
        for (int i = 0; i < T; i++) tokens[b * T + i] = (7 * i + 31 * b + i * i) % vocab;
    TRY(world_connect(&t->world, &t->comm));
    if (!exports) checkpoint_storage_only(t->model);
    TRY(trainer_create(t));
    TRY(exports ? gpt2_export(file, t->model) : gpt2_import(file, t->model));
    TRY(trainer_forward(t, tokens, NULL, B, T, NULL, logits));
    if (t->world.rank == 0) TRY(write_floats(out, logits, rows * (size_t)vocab));
    free(tokens);
    free(logits);
    TRY(trainer_destroy(t));
    return world_disconnect(t->comm);
}

int main(int argc, char **argv)
{
    static Trainer t;
    int n[6];
    if (argc != 10 || world_from_env(&t.world) != OK) return 2;
    for (int i = 0; i < 6; i++) n[i] = atoi(argv[4 + i]);
    check_set_rank(t.world.rank);
    t.opt = (TrainerOptions){
        .model = {.vocab = n[0], .max_T = n[1], .layers = n[2], .heads = n[3], .dim = n[4]},
        .adamw = {1e-3f, 0.9f, 0.99f, 1e-8f, 0.1f},
        .B = n[5],
        .T = n[1],
        .steps = 1,
        .seed = 42};
    t.model = gpt2_create(&t.opt.model);
    if (t.model == NULL) return 2;
    return run(&t, strcmp(argv[1], "export") == 0, argv[2], argv[3]) == OK ? 0 : 1;
}
