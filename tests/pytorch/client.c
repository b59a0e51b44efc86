/* client.c: this side of `make compare-pytorch`: a GPT-2 in or out of Hugging Face's file, and its
 * logits; or trained from it, and its losses.
 *
 *   client import|export FILE LOGITS VOCAB CONTEXT LAYERS HEADS DIM SEQUENCES
 *   client train FILE LOSSES VOCAB CONTEXT LAYERS HEADS DIM SEQUENCES STEPS PARAM_TYPE REDUCE_TYPE
 *
 * Token t of sequence b is (7·t + 31·b + t·t) % VOCAB. Rank 0 writes the logits (SEQUENCES,
 * CONTEXT, VOCAB), float, to LOGITS. A training has SEQUENCES per rank and step, the ranks' back to
 * back (token_of), ZeRO-3, AdamW without clipping at the trainer's rates, and the types float or
 * bf16; rank 0 writes the loss of each step, float, the mean over the ranks.
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

// Token i of a step's sequence, of all ranks' sequences. tests/pytorch/train.py has the same.
static int32_t token_of(int step, int sequence, int i, int vocab)
{
    return (i * i + 7 * i + 31 * sequence + 17 * step) % 23 % vocab;
}

static Status train(Trainer *t, const char *file, const char *out)
{
    int B = t->opt.B, T = t->opt.T, vocab = t->opt.model.vocab, steps = t->opt.steps;
    size_t rows = (size_t)B * (size_t)T;
    int32_t *in = malloc(2 * rows * sizeof *in);
    float *losses = malloc((size_t)steps * sizeof *losses);
    if (in == NULL || losses == NULL) return fail(ERR_MEMORY, "no host memory for a training");
    TRY(world_connect(&t->world, &t->comm));
    checkpoint_storage_only(t->model);
    TRY(trainer_create(t));
    TRY(gpt2_import(file, t->model));
    for (int step = 1; step <= steps; step++) {
        for (int b = 0; b < B; b++)
            for (int i = 0; i < T; i++) {
                int sequence = t->world.rank * B + b;
                in[b * T + i] = token_of(step, sequence, i, vocab);
                in[(int)rows + b * T + i] = token_of(step, sequence, i + 1, vocab);
            }
        TRY(trainer_step(t, step, in, in + rows, &losses[step - 1]));
        TRY(mean_over_ranks(t, &losses[step - 1]));
    }
    if (t->world.rank == 0) TRY(write_floats(out, losses, (size_t)steps));
    free(in);
    free(losses);
    TRY(trainer_destroy(t));
    return world_disconnect(t->comm);
}

// The policy of the two types. Of floats there is none.
static void set_types(TrainerOptions *o, const char *param, const char *reduce)
{
    o->mixed = strcmp(param, "bf16") == 0;
    if (!o->mixed) return;
    o->strategic = true;
    o->strategy = STRATEGY_ZERO3;
    o->replicas = 1;
    o->policy = (MixedPrecisionPolicy){
        DTYPE_BF16, strcmp(reduce, "bf16") == 0 ? DTYPE_BF16 : DTYPE_F32, DTYPE_F32, true};
}

int main(int argc, char **argv)
{
    static Trainer t;
    int n[6];
    bool trains = argc == 13 && strcmp(argv[1], "train") == 0;
    if ((argc != 10 && !trains) || world_from_env(&t.world) != OK) return 2;
    for (int i = 0; i < 6; i++) n[i] = atoi(argv[4 + i]);
    check_set_rank(t.world.rank);
    t.opt = (TrainerOptions){
        .model = {.vocab = n[0], .max_T = n[1], .layers = n[2], .heads = n[3], .dim = n[4]},
        .adamw = {1e-3f, 0.9f, 0.99f, 1e-8f, 0.1f},
        .B = n[5],
        .T = n[1],
        .steps = trains ? atoi(argv[10]) : 1,
        .clip = 1e9f,
        .seed = 42};
    if (trains) set_types(&t.opt, argv[11], argv[12]);
    t.model = gpt2_create(&t.opt.model);
    if (t.model == NULL) return 2;
    if (trains) return train(&t, argv[2], argv[3]) == OK ? 0 : 1;
    return run(&t, strcmp(argv[1], "export") == 0, argv[2], argv[3]) == OK ? 0 : 1;
}
