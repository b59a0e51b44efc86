/* data.c: batches of texts or of tokens, and the loss on those held out. See data.h. */
#include "data.h"

#include <stdlib.h>
#include <string.h>

// ---- Training ----

Status data_open(Data *data, const DataOptions *options, int vocab, int T)
{
    *data = (Data){.opt = *options};
    if (options->train == NULL) {
        TRY(text_load(&data->text, options->files, options->n_files, T));
        for (size_t i = 0; i < data->text.length; i++)
            if (data->text.bytes[i] >= vocab)
                return fail(ERR_IO,
                            "%s: byte %zu of the text is %d, and the model's vocabulary has %d",
                            options->files[0], i, data->text.bytes[i], vocab);
        return OK;
    }
    TRY(tokens_open(&data->train, options->train, vocab, T));
    return options->val != NULL ? tokens_open(&data->val, options->val, vocab, T) : OK;
}

void data_close(Data *data)
{
    text_free(&data->text);
    tokens_close(&data->train);
    tokens_close(&data->val);
}

static int64_t sequence_of(const Data *data, uint64_t seed, uint64_t drawn)
{
    return data->opt.in_order ? (int64_t)(drawn % (uint64_t)data->train.sequences)
                              : tokens_drawn(&data->train, seed, drawn);
}

Status data_batch(const Data *data, uint64_t seed, int step, uint64_t drawn, int first, int B,
                  int all, int T, int32_t *in, int32_t *targets)
{
    if (data->opt.train == NULL) {
        text_batch(&data->text, seed, step, first, B, T, in, targets);
        return OK;
    }
    for (int i = 0; i < all; i++)
        TRY(tokens_check_sequence(&data->train, sequence_of(data, seed, drawn + (uint64_t)i)));
    for (int i = 0; i < B; i++, in += T, targets += T)
        tokens_sequence(&data->train, sequence_of(data, seed, drawn + (uint64_t)(first + i)), in,
                        targets);
    return OK;
}

// ---- Validation ----

bool data_validates(const Data *data)
{
    return data->opt.train == NULL || data->opt.val != NULL;
}

// The loss of sequence i. All ranks are here at once, each with another.
static Status loss_of(const Data *data, Trainer *t, int64_t i, int32_t *in, float *loss)
{
    int T = t->opt.T;
    if (data->opt.train != NULL)
        tokens_sequence(&data->val, i, in, in + T);
    else
        text_held_out(&data->text, t->opt.seed, 0, (int)i, 1, T, in, in + T);
    return trainer_forward(t, in, in + T, 1, T, loss, NULL);
}

// all (world, rounds): the floats of the ranks' losses. Those of a pipeline's stages belong to the
// same sequence, and their mean is its loss (stages.h).
static double mean_loss(const Trainer *t, const uint64_t *all, int rounds, int64_t n)
{
    int stages = t->world.size / t->places;
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        for (int s = 0; s < stages; s++) {
            int64_t rank = s * t->places + i % t->places;
            uint32_t bits = (uint32_t)all[rank * rounds + i / t->places];
            float loss;
            memcpy(&loss, &bits, sizeof loss);
            sum += (double)loss / stages;
        }
    return sum / (double)n;
}

static Status losses(const Data *data, Trainer *t, int64_t n, int rounds, uint64_t *mine,
                     uint64_t *all, int32_t *in)
{
    for (int k = 0; k < rounds; k++) {
        int64_t i = (int64_t)k * t->places + t->place; // past the last one: to be there with others
        float loss;
        uint32_t bits;
        TRY(loss_of(data, t, i < n ? i : 0, in, &loss));
        memcpy(&bits, &loss, sizeof bits);
        mine[k] = bits;
    }
    return gather_over_ranks(t, mine, rounds, all);
}

Status data_validate(const Data *data, Trainer *t, int sequences, double *loss)
{
    int64_t n = sequences;
    if (data->opt.train != NULL && n > data->val.sequences) n = data->val.sequences;
    for (int64_t i = 0; i < n && data->opt.train != NULL; i++)
        TRY(tokens_check_sequence(&data->val, i));
    int rounds = (int)((n + t->places - 1) / t->places);
    size_t numbers = (size_t)rounds * (size_t)(t->world.size + 1);
    uint64_t *all = malloc(numbers * sizeof *all);
    int32_t *in = malloc(2 * (size_t)t->opt.T * sizeof *in);
    Status status = ERR_MEMORY;
    if (all == NULL || in == NULL)
        fail(ERR_MEMORY, "no host memory for a validation");
    else
        status = losses(data, t, n, rounds, all + numbers - rounds, all, in);
    if (status == OK) *loss = mean_loss(t, all, rounds, n);
    free(all);
    free(in);
    return status;
}
