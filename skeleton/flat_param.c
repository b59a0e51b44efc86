/* Task 2: flat parameter. Many parameters in one buffer, cut into equal shards.
 *
 * One all-gather of a megabyte is far quicker than twenty of fifty kilobytes, and a collective
 * needs the same count from every rank. So the parameters of a unit lie back to back in a flat
 * buffer, and zeros follow the last until the length is a multiple of the world size W. Every rank
 * owns one W-th of the buffer. A shard may begin and end inside a parameter: ten elements on three
 * ranks are
 *
 *      rank 0           rank 1           rank 2
 *     [0 1 2 3]        [4 5 6 7]        [8 9 . .]         shard 4, padded 12, 2 of padding
 *
 * The padding must always be zero: the norm of the gradient includes it, the optimizer updates it
 * like any other element, and one NaN in it makes the norm NaN.
 *
 * Interface:
 *   flat_layout, flat_layout_destroy         the arithmetic: offsets, padding, shard length
 *   flat_valid_numel, flat_param_range_in_shard   which elements a rank owns
 *   flat_create, flat_destroy                the shard of this rank and its gradient
 *   flat_set_state                           sharded → unsharding → unsharded → sharded
 *   flat_set_views, flat_set_grad_views      the parameters as views into the unsharded buffer
 *   flat_zero_padding
 */
// Task 2 of 6. Each TODO says what must hold afterwards and asks a question. Write
// the code that makes it hold.
// The handout is handouts/2_flat_param.md; `make grade TASK=2` says how far you are.
#include "fsdp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t max64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

// Checks the arguments of flat_layout.
static Status check_layout(const char *name, Param **params, int n, int rank, int world)
{
    if (world < 1) return fail(ERR_ARGUMENT, "%s: a world of %d ranks", name, world);
    if (rank < 0 || rank >= world)
        return fail(ERR_ARGUMENT, "%s: rank %d is none of 0 to %d", name, rank, world - 1);
    if (n < 1) return fail(ERR_ARGUMENT, "%s: no parameters to shard", name);
    for (int i = 0; i < n; i++) {
        if (params[i]->dtype != DTYPE_F32)
            return fail(ERR_ARGUMENT, "%s: %s is not float", name, params[i]->name);
        if (params[i]->owner != NULL)
            return fail(ERR_ARGUMENT, "%s: %s belongs to another unit", name, params[i]->name);
    }
    return OK;
}

// A flat gradient is reduced and updated as one.
static Status check_trains(const char *name, Param **params, int n)
{
    for (int i = 0; i < n; i++)
        if (params[i]->frozen)
            return fail(ERR_ARGUMENT,
                        "%s: %s is frozen, and a flat parameter trains as one: lay it out by "
                        "parameter (per_parameter_layout)",
                        name, params[i]->name);
    return OK;
}

void flat_layout_destroy(FlatLayout *layout)
{
    free(layout->params);
    free(layout->offset);
    memset(layout, 0, sizeof *layout);
}

Status flat_layout_default(FlatLayout *layout, const char *name, Param **params, int n, int rank,
                           int world, bool align)
{
    memset(layout, 0, sizeof *layout);
    TRY(check_layout(name, params, n, rank, world));
    TRY(check_trains(name, params, n));
    layout->rank = rank;
    layout->world = world;
    layout->params = malloc((size_t)n * sizeof(Param *));
    layout->offset = malloc((size_t)n * sizeof(int64_t));
    if (layout->params == NULL || layout->offset == NULL) {
        flat_layout_destroy(layout);
        return fail(ERR_MEMORY, "%s: no host memory for %d parameters", name, n);
    }

    // TODO 2.1: The layout has the n parameters back to back, with no gap, and no more padding than
    // equal shards need. With `align` a shard is a multiple of 4 elements.
    // Hint: 10 elements on 3 ranks pad to 12. What is `padded` for 10 with `align`? And for 12
    // without?
    NOT_YET("2.1");
    return OK;
}

int64_t flat_valid_numel_default(const FlatLayout *layout, int rank)
{
    // TODO 2.2: The result is how many elements of the rank's shard belong to parameters: all, some
    // or none.
    // Hint: 5 elements on 4 ranks: shards of 2. What does rank 3 hold?
    NOT_YET("2.2");
}

void flat_param_range_in_shard_default(const FlatLayout *layout, int i, int rank, int64_t *begin,
                                       int64_t *end, int64_t *at)
{
    // TODO 2.3: The rank's shard holds elements [*begin, *end) of the parameter, from element *at
    // of the shard on. *begin = *end if it holds none.
    // Hint: In how many ways can two ranges overlap? Draw them before you write.
    NOT_YET("2.3");
}

Status flat_zero_padding_default(const FlatParam *flat, const Buffer *sharded, cudaStream_t stream)
{
    // TODO 2.4: Once `stream` has run what is queued, the elements of this rank's shard that belong
    // to no parameter are zero; no other byte was touched.
    // Hint: Which element is the first of the padding, and what if there is none?
    NOT_YET("2.4");
}

// Allocates the two shards and gives them their values.
static Status fill_shards(FlatParam *flat, uint64_t seed, cudaStream_t stream)
{
    FlatLayout *layout = &flat->layout;
    flat->sharded_param = (Buffer){NULL, DTYPE_F32, layout->shard_numel};
    flat->sharded_grad = (Buffer){NULL, DTYPE_F32, layout->grad_numel};
    flat->unsharded_param = (Buffer){NULL, DTYPE_F32, layout->padded};
    flat->unsharded_grad = (Buffer){NULL, DTYPE_F32, layout->world * layout->grad_numel};

    // TODO 2.5: The rank has its two shards and the event (without timing). Every initial value is
    // where it belongs, and all else is zero: the padding, and the whole gradient.
    // Hint: How much of the model may be on this device while you build it?
    NOT_YET("2.5");
}

Status flat_create(FlatParam *flat, const char *name, const FlatLayout *layout, uint64_t seed,
                   cudaStream_t stream)
{
    Status status = OK;
    memset(flat, 0, sizeof *flat);
    snprintf(flat->name, sizeof flat->name, "%s", name);
    flat->layout = *layout;
    for (int i = 0; i < layout->n && status == OK; i++)
        if (layout->params[i]->data.data != NULL)
            status = fail(ERR_ARGUMENT, "%s: %s is not on meta: it has storage of its own", name,
                          layout->params[i]->name);
    if (status == OK) status = fill_shards(flat, seed, stream);
    for (int i = 0; i < layout->n && status == OK; i++) layout->params[i]->owner = flat;
    if (status != OK) flat_destroy(flat);
    return status;
}

Status flat_set_state(FlatParam *flat, FlatState to)
{
    static const char *const NAMES[] = {"sharded", "unsharding", "unsharded"};
    static const FlatState NEXT[] = {FLAT_UNSHARDING, FLAT_UNSHARDED, FLAT_SHARDED};
    if (to != NEXT[flat->state])
        return fail(ERR_ARGUMENT,
                    "%s is %s and cannot become %s: the order is unshard, wait for "
                    "it, reshard",
                    flat->name, NAMES[flat->state], NAMES[to]);
    flat->state = to;
    return OK;
}

void flat_set_views(FlatParam *flat)
{
    // TODO 2.6: The data of every parameter is its range of unsharded_param: a view, and no byte
    // was copied. If unsharded_param has no memory, no parameter has any.
    // Hint: An offset added to NULL is not NULL. Who takes care of that here?
    NOT_YET("2.6");
}

void flat_set_grad_views(FlatParam *flat)
{
    for (int i = 0; i < flat->layout.n; i++) {
        Param *param = flat->layout.params[i];
        param->grad =
            buffer_range(&flat->unsharded_grad, flat->layout.offset[i], meta_numel(param));
    }
    for (int i = 0; i < flat->layout.n; i++)
        if (flat->layout.params[i]->frozen) flat->layout.params[i]->grad.data = NULL;
}

void flat_destroy(FlatParam *flat)
{
    for (int i = 0; i < flat->layout.n; i++) {
        Param *param = flat->layout.params[i];
        if (param->owner != flat) continue;
        param->owner = NULL;
        param->data.data = NULL;
        param->grad.data = NULL;
    }
    cudaFree(flat->sharded_param.data);
    cudaFree(flat->sharded_grad.data);
    if (flat->all_gather_done != NULL) cudaEventDestroy(flat->all_gather_done);
    flat_layout_destroy(&flat->layout);
    memset(flat, 0, sizeof *flat);
}
