/* tests_sets.h: the parameters of flat_param.c, known and drawn, and the layout that they must
 * have.
 */
#ifndef TESTS_FLAT_PARAM_SETS_H
#define TESTS_FLAT_PARAM_SETS_H

#include <stdio.h>
#include <string.h>

#include "draw.h"
#include "fsdp.h"
#include "harness.h"

enum { MAX_PARAMS = 8, MAX_NUMEL = 64 };

// A few parameters of the given sizes, on meta; one dimension each.
typedef struct Set {
    int n;
    Param param[MAX_PARAMS];
    Param *pointer[MAX_PARAMS];
} Set;

static void make_set(Set *set, int n, const int64_t *sizes)
{
    memset(set, 0, sizeof *set);
    set->n = n;
    for (int i = 0; i < n; i++) {
        Param *p = &set->param[i];
        snprintf(p->name, sizeof p->name, "p%d", i);
        p->id = (uint32_t)i;
        p->ndim = 1;
        p->shape[0] = sizes[i];
        p->init = INIT_NORMAL;
        p->init_std = 1.0f;
        set->pointer[i] = p;
    }
}

// Parameters' sizes, for a set each.
typedef struct Lengths {
    int n;
    int64_t of[MAX_PARAMS];
} Lengths;

// Sets, in worlds from `low` to `high` where no ranks are needed.
typedef struct Table {
    int n;
    Lengths set[10];
    int low, high;
    bool align;
    uint64_t seed;
} Table;

// Sizes that have bitten somebody: none, one element, fewer elements than ranks, primes, powers of
// two.
static const Table KNOWN = {
    .n = 10,
    .set = {{1, {1}},
            {1, {3}},
            {2, {1, 1}},
            {3, {3, 4, 3}},
            {4, {0, 5, 1, 0}},
            {3, {4, 0, 3}},
            {1, {8}},
            {4, {5, 1, 13, 2}},
            {3, {16, 1, 15}},
            {2, {7, 31}}},
    .low = 1,
    .high = 8,
    .seed = 42,
};

static int64_t sum_sizes(const Lengths *sizes)
{
    int64_t sum = 0;
    for (int i = 0; i < sizes->n; i++) sum += sizes->of[i];
    return sum;
}

// Others, that nobody knows before: `n` sets for one world.
static Table draw_table(int n, int low, int high)
{
    char words[300];
    int length = 0;
    Table t = {.n = n, .low = draw(low, high), .align = draw_chance(50), .seed = draw_word()};
    t.high = t.low;
    for (int s = 0; s < n; s++) {
        Lengths *set = &t.set[s];
        set->n = draw(1, MAX_PARAMS);
        for (int i = 0; i < set->n; i++) {
            set->of[i] = draw(1, draw_chance(50) ? 5 : MAX_NUMEL - 1);
            length += snprintf(words + length, sizeof words - (size_t)length, "%s%lld",
                               i > 0   ? " "
                               : s > 0 ? ", "
                                       : "",
                               (long long)set->of[i]);
        }
    }
    drawn("parameters of %s elements; %d ranks", words, t.low);
    return t;
}

// The layout of a set as it must be, made here, for tests of what reads one: they must not loop to
// figures that the code under test has written.
typedef struct Known {
    FlatLayout layout;
    Param *params[MAX_PARAMS];
    int64_t offset[MAX_PARAMS];
} Known;

static void make_known(Known *known, const Set *set, int rank, int world, bool align)
{
    FlatLayout *layout = &known->layout;
    *layout = (FlatLayout){.n = set->n,
                           .params = known->params,
                           .offset = known->offset,
                           .rank = rank,
                           .world = world,
                           .ops = &FLAT_LAYOUT_OPS};
    for (int i = 0; i < set->n; i++) {
        known->params[i] = set->pointer[i];
        known->offset[i] = layout->numel;
        layout->numel += set->param[i].shape[0];
    }
    while (layout->shard_numel * world < layout->numel) layout->shard_numel += align ? 4 : 1;
    layout->padded = layout->shard_numel * world;
}

// For the end of a message: what may have made `padded` of numel, where it is wrong.
static const char *padding_cause(int64_t numel, int64_t padded, int64_t multiple)
{
    if (padded == (numel + multiple - 1) / multiple * multiple) return "";
    if (padded == numel)
        return "\nLikely cause: padded is numel, so no padding is added. It must be the next "
               "multiple of W (with align of 4W), for shards of one length";
    if (padded < numel)
        return "\nLikely cause: padded is less than numel, as if it were rounded down: the last "
               "elements would belong to no rank";
    if (padded % 4 == 0 && multiple % 4 != 0 && padded < numel + 4 * multiple)
        return "\nLikely cause: padded is a multiple of 4W, and nobody has asked for alignment: is "
               "`align` looked at?";
    if (padded % multiple != 0)
        return "\nLikely cause: padded is no multiple of W (with align of 4W)";
    if (padded == numel + multiple)
        return "\nLikely cause: there is too much padding: what does your rounding add if numel is "
               "a multiple already?";
    return "\nLikely cause: padded is a multiple of more than W, or with align of more than 4W: 16 "
           "bytes are 4 elements";
}

// That a layout is what it must be: what else is to be compared with it can rely on that.
static void check_known(const FlatLayout *got, const Set *set, const Rank *r, bool align)
{
    Known known;
    make_known(&known, set, r->rank, r->world, align);
    check(got->n == set->n && got->numel == known.layout.numel &&
              got->padded == known.layout.padded && got->shard_numel == known.layout.shard_numel &&
              got->rank == r->rank && got->world == r->world,
          "flat_layout (numel %lld, W = %d): numel %lld, padded %lld, shards of %lld for rank "
          "%d of %d; want %lld, %lld and %lld for rank %d of %d%s",
          (long long)known.layout.numel, r->world, (long long)got->numel, (long long)got->padded,
          (long long)got->shard_numel, got->rank, got->world, (long long)known.layout.numel,
          (long long)known.layout.padded, (long long)known.layout.shard_numel, r->rank, r->world,
          got->numel == known.layout.numel
              ? padding_cause(known.layout.numel, got->padded, (align ? 4 : 1) * r->world)
              : "");
    for (int i = 0; i < set->n; i++)
        check(got->offset[i] == known.offset[i] && got->params[i] == set->pointer[i],
              "flat_layout: parameter %d begins at %lld, want %lld", i, (long long)got->offset[i],
              (long long)known.offset[i]);
}

// That a flat parameter has the layout that it was made of.
static void check_kept(const FlatParam *flat, const FlatLayout *made)
{
    check(flat->layout.params == made->params && flat->layout.numel == made->numel,
          "flat_create gave OK, and flat->layout is not the layout that it was given");
}

#endif
