/* claim_causes.c: why a claim about a whole training fails, where its numbers tell. See
 * claim_causes.h.
 */
#include "claim_causes.h"

#include <math.h>
#include <stdlib.h>

// What training begins with, all parameters back to back.
float *initial_values(const Layout *layout)
{
    float *values = malloc((layout->begin[layout->n] + 1) * sizeof *values);
    check(values != NULL, "no memory for the initial values");
    for (int i = 0; i < layout->n; i++)
        meta_init_slice(layout->param[i], TEST_OPTIONS.seed, 0,
                        (int64_t)(layout->begin[i + 1] - layout->begin[i]),
                        values + layout->begin[i]);
    return values;
}

// The losses tell which half of a step is wrong: the first one is made by a forward alone.
const char *losses_cause(const float *got, const float *want, int n)
{
    if (n < 2 || isnan(want[0])) return "";
    if (got[0] == want[0])
        return LIKELY
            "the first loss is right, and with it the initial values and the forward: what "
            "do the backward and the optimizer do, and to which parameters?";
    return LIKELY "already the first loss is wrong, before any backward: are the initial values "
                  "right (tasks 1 and 2), and in their places when a layer reads them (task 3)?";
}

// Why the first step's gradient is not the average of the micro-batches', each of which is given.
const char *gradient_cause(const Plain *plain, int world, const float *got, const float *want,
                           float *const *grads, size_t n)
{
    Layout layout;
    double squares = 0.0;
    for (size_t i = 0; i < n; i++) squares += (double)want[i] * (double)want[i];
    Clues clues = {.layout = &layout,
                   .world = world,
                   .average = true,
                   .slack = 1e-6 * sqrt(squares / (double)n),
                   .known = model_layout(&layout, plain->model)};
    clues.clue[clues.n++] = (Clue){grads[0], "this is the gradient of rank 0's batch alone: is it "
                                             "reduced over the ranks at all?"};
    clues.clue[clues.n++] =
        (Clue){grads[world - 1], "this is the gradient of the last rank's batch "
                                 "alone: is it summed over the ranks?"};
    return cause_of(&clues, got, want, n);
}

// What is live although everything was taken down.
const char *left_cause(size_t left, const Sizes *sizes)
{
    size_t shards = 0;
    for (int i = 0; i < sizes->n; i++) shards += sizes->size[i].bytes / (size_t)sizes->world;
    if (left == 2 * shards)
        return LIKELY "that is exactly every unit's shard and gradient shard: does fsdp_unwrap "
                      "destroy each unit's flat parameter?";
    return bytes_cause(left, sizes);
}

// Why a step of one whole model's traffic each way sends something else. part: what it takes to
// gather, or to reduce, every unit once.
const char *traffic_cause(uint64_t gathered, uint64_t reduced, uint64_t other, uint64_t part,
                          bool reshard)
{
    if (reduced == part && other == 0 && reshard && gathered == part)
        return LIKELY
            "every unit is gathered once in a step: is it kept after the forward although "
            "it was told to reshard?";
    if (reduced == part && other == 0 && !reshard && gathered == 2 * part)
        return LIKELY "every unit is gathered twice in a step: is it resharded after the forward "
                      "although it was told to stay unsharded?";
    if (reduced == part && other == 0 && gathered == 0)
        return LIKELY "nothing is gathered in this step: are the parameters of the step before "
                      "still there, and used again?";
    if (reduced == 0 && other == 0)
        return LIKELY "no gradient is reduced: does the post-backward hook call fsdp_reduce_grad?";
    if (reduced == 0 && other == 2 * part)
        return LIKELY "the gradients are all-reduced, which sends twice as much: a rank needs no "
                      "more than its shard (ncclReduceScatter)?";
    return "";
}
