/* tests_gradients.h: the models of backward.c, the gradients that each rank makes of them, and the
 * average that must come of those.
 */
#ifndef TESTS_BACKWARD_GRADIENTS_H
#define TESTS_BACKWARD_GRADIENTS_H

#include <stdlib.h>

#include "claims.h"
#include "draw_model.h"
#include "figures.h"
#include "fsdp.h"
#include "harness.h"

// At least three layers: two units and the root.
static Shape draw_shape(int layers)
{
    Shape shape = {draw_mlp(layers), TEST_OPTIONS};
    if (shape.spec.layers < 3) shape.spec.layers = 3;
    shape.options.align_shards = draw_chance(50);
    return shape;
}

// On a model of so many layers at most, on 2 to 8 ranks.
static void run_drawn(int layers, ShardedBody body)
{
    Shape shape = draw_shape(layers);
    run_shape(shape, body, NULL, drawn_world(&shape.spec, 2, 8));
}

// What the gradients are made of, drawn for each test: nobody can know an average without the
// gradients of all ranks.
static struct MadeOf {
    int step, modulus, round, apart, apart_modulus;
} made_of;

static void known_gradients(void)
{
    made_of = (struct MadeOf){1, 19, 3, 1, 5};
}

static void draw_gradients(void)
{
    made_of.step = draw(1, 12);
    made_of.modulus = 13 + 2 * draw(0, 6);
    made_of.round = draw(1, 5);
    made_of.apart = draw(1, 3);
    made_of.apart_modulus = draw(3, 7);
}

static float average_of(int64_t i, int round)
{
    return (float)(1 + i * made_of.step % made_of.modulus + made_of.round * round);
}

// Element i of the unsharded gradient that `rank` makes in micro-batch `round`: whole numbers, so
// that every sum is exact; what sets the ranks apart cancels in the sum, which is W times
// average_of.
static float gradient_of(int rank, int world, int64_t i, int round)
{
    int64_t apart = (2 * rank - (world - 1)) * (1 + i % made_of.apart_modulus) * made_of.apart;
    return average_of(i, round) + (float)apart;
}

// What a layer does: adds to the gradient through param->grad.data, on the compute stream.
static void write_gradients(const FsdpUnit *unit, int round)
{
    const FlatParam *flat = &unit->flat;
    need_cuda(cudaStreamSynchronize(unit->ctx->compute_stream));
    for (int j = 0; j < flat->layout.n; j++) {
        const Param *param = flat->layout.params[j];
        int64_t numel = meta_numel(param);
        check(
            param->grad.data != NULL,
            "%s has no gradient to write to: fsdp_begin_grad must make it a view of the unsharded "
            "gradient",
            param->name);
        float *host = fetch(param->grad.data, (size_t)numel);
        for (int64_t i = 0; i < numel; i++)
            host[i] += gradient_of(flat->layout.rank, flat->layout.world,
                                   flat->layout.offset[j] + i, round);
        need_cuda(cudaMemcpyAsync(param->grad.data, host, (size_t)numel * sizeof *host,
                                  cudaMemcpyHostToDevice, unit->ctx->compute_stream));
        need_cuda(cudaStreamSynchronize(unit->ctx->compute_stream));
        free(host);
    }
}

// What the average may be off by. The sum is exact, and so is the quotient; a division by a power
// of two is exact in any order too, there the bound is 0. For other W a correct program may also
// multiply by 1/W, before the sum as ncclAvg does or behind it: then each of at most W products and
// 1/W itself round once, and at most three levels of sums, each by half a unit in the last place.
static double average_bound(int world, int rounds)
{
    if ((world & (world - 1)) == 0) return 0.0;
    double largest = made_of.modulus + made_of.round * rounds + // of |gradient_of|
                     made_of.apart * made_of.apart_modulus * (world - 1);
    return rounds * 6 * largest * 0x1p-24;
}

// What the shard would be by mistakes that somebody has made. values: CLUES_MAX arrays of a shard.
static void suspect(Clues *clues, const FlatParam *flat, int rounds, float *values)
{
    enum { LAST, OWN, OWN_SHARE, LARGEST, FIRST_PLACE, NEXT_PLACE, OWN_FIRST, N };
    static const char *const cause[N] = {
        [LAST] = "this is the last micro-batch's average alone: is it written over the gradient of "
                 "the earlier ones, in place of being added to it?",
        [OWN] = "this is this rank's own gradient: was it summed over the ranks at all?",
        [OWN_SHARE] = "this is this rank's own gradient divided by the number of ranks: was it "
                      "summed over the ranks (ncclSum)?",
        [LARGEST] = "this is the largest of the ranks' gradients divided by their number: is the "
                    "reduction ncclSum?",
        [FIRST_PLACE] = "this is the average of rank 0's shard: is this rank's number in the "
                        "offset at which it receives?",
        [NEXT_PLACE] = "this is the average of the next rank's shard: whose number is in the "
                       "offset at which this rank receives?",
        [OWN_FIRST] = "this is this rank's own gradient at the beginning of the buffer, divided: "
                      "fsdp_reduce_scatter must add what it has received at this rank's place",
    };
    size_t n = (size_t)flat->layout.shard_numel;
    float w = (float)flat->layout.world;
    for (size_t k = 0; k < N; k++) {
        for (size_t i = 0; i < n; i++) {
            int64_t in_shard = (int64_t)i,
                    place = flat->layout.rank * flat->layout.shard_numel + in_shard;
            int64_t next =
                (flat->layout.rank + 1) % flat->layout.world * flat->layout.shard_numel + in_shard;
            float sum[N] = {0.0f}, *value = &values[k * n + i];
            *value = 0.0f;
            for (int round = 0; round < rounds && place < flat->layout.numel; round++) {
                sum[LAST] = average_of(place, round);
                sum[OWN] += gradient_of(flat->layout.rank, flat->layout.world, place, round);
                sum[OWN_SHARE] = sum[OWN] / w;
                sum[LARGEST] +=
                    gradient_of(flat->layout.world - 1, flat->layout.world, place, round) / w;
                sum[FIRST_PLACE] += average_of(in_shard, round);
                if (next < flat->layout.numel) sum[NEXT_PLACE] += average_of(next, round);
                sum[OWN_FIRST] +=
                    gradient_of(flat->layout.rank, flat->layout.world, in_shard, round) / w;
            }
            *value = sum[k];
        }
        if (k == LAST || k == FIRST_PLACE || flat->layout.world > 1)
            clues->clue[clues->n++] = (Clue){values + k * n, cause[k]};
    }
}

// The gradient shard against the sum of the averages of rounds [0, rounds), padding zero. known:
// the cause where it differs; NULL: not known.
static void check_average(const FsdpUnit *unit, int rounds, const char *known)
{
    const FlatParam *flat = &unit->flat;
    check_figures();
    float *want = calloc((size_t)flat->layout.shard_numel, sizeof *want);
    need_cuda(cudaDeviceSynchronize());
    float *got = fetch(flat->sharded_grad.data, (size_t)flat->layout.shard_numel);
    for (int64_t i = 0; i < flat->layout.shard_numel; i++) {
        int64_t place = flat->layout.rank * flat->layout.shard_numel + i;
        for (int round = 0; round < rounds && place < flat->layout.numel; round++)
            want[i] += average_of(place, round);
    }
    Layout layout;
    Clues clues = {.layout = &layout, .world = flat->layout.world, .average = true, .known = known};
    float *values = malloc(CLUES_MAX * (size_t)flat->layout.shard_numel * sizeof *values);
    check(values != NULL, "no memory for what could be wrong");
    layout_module(&layout, unit->module, true, flat->layout.world, flat->layout.rank);
    suspect(&clues, flat, rounds, values);
    check_near_in(&clues, "the gradient shard, against the average over the ranks", got, want,
                  (size_t)flat->layout.shard_numel, average_bound(flat->layout.world, rounds));
    free(values);
    for (int64_t i = 0; i < flat->layout.shard_numel; i++)
        check(flat->layout.rank * flat->layout.shard_numel + i < flat->layout.numel ||
                  got[i] == 0.0f,
              "the padding of the gradient shard is not zero after a backward: element %lld of "
              "%lld is %g",
              (long long)i, (long long)flat->layout.shard_numel, (double)got[i]);
    free(got);
    free(want);
}

// Reduces what is written, and ends the backward; exact about what each leaves.
static void reduce(FsdpUnit *unit)
{
    need(fsdp_reduce_grad(unit));
    check(unit->flat.unsharded_grad.data == NULL,
          "after fsdp_reduce_grad the unit still has an unsharded gradient");
    need(fsdp_finish_backward(unit->root));
    FsdpRoot *root = unit->root;
    bool left = root->reduce_scatter_state.buffer != NULL;
    if (left) need(fsdp_free_reduce_scatter(root));
    check(unit->root->reduce_scatter_state.buffer == NULL,
          "after fsdp_free_reduce_scatter root->reduce_scatter_state still holds a gradient");
    check(!left,
          "after fsdp_finish_backward root->reduce_scatter_state still holds the gradient that was "
          "reduced last: nothing frees it, and the compute stream does not wait for the last "
          "reduce-scatter");
}

static void reduce_round(FsdpUnit *unit, int round)
{
    need(fsdp_begin_grad(unit));
    write_gradients(unit, round);
    reduce(unit);
}

#endif
