/* Task 2, flat parameter: where every single element lies, counted one by one, for many parameters
 * and in worlds far larger than the visible tests have. Drawn from SEED, which is the course's, and
 * not in the archive that students get; grader/course/hidden.py runs it.
 */
#include "draw_model.h"
#include "fsdp.h"
#include "harness.h"

#include <stdio.h>
#include <stdlib.h>

enum { MOST = 40, LARGEST = 90 };

typedef struct Set {
    int n, world;
    bool align;
    uint64_t seed;
    int64_t size[MOST];
    Param param[MOST];
    Param *params[MOST];
} Set;

static void draw_set(Set *set, int most, int low, int high)
{
    int64_t numel = 0;
    *set = (Set){.n = draw(1, most), .align = draw_chance(50), .seed = draw_word()};
    set->world = draw(low, high);
    for (int i = 0; i < set->n; i++) {
        Param *p = &set->param[i];
        numel += set->size[i] = draw(1, draw_chance(30) ? 3 : LARGEST);
        *p = (Param){.id = (uint32_t)(2 * i + 1), .ndim = 1, .init = INIT_NORMAL, .init_std = 1.0f};
        snprintf(p->name, sizeof p->name, "p%d", i);
        p->shape[0] = set->size[i];
        set->params[i] = p;
    }
    drawn("%d parameters of %lld elements, %d ranks, aligned: %s", set->n, (long long)numel,
          set->world, set->align ? "yes" : "no");
}

// Place by place: the flat buffer is what is back to back, and each rank's slices are
// its stretch of it.
static void places_body(const Rank *r, void *arg)
{
    Set *set = arg;
    FlatLayout flat;
    int64_t numel = 0, step = set->align ? 4 * set->world : set->world;
    for (int i = 0; i < set->n; i++) numel += set->size[i];
    need(flat_layout(&flat, "unit", set->params, set->n, 0, set->world, set->align));
    check(flat.numel == numel && flat.padded % step == 0 && flat.padded >= numel &&
              flat.padded - step < numel && flat.shard_numel * set->world == flat.padded,
          "numel %lld, W = %d: numel %lld, padded %lld, shard %lld", (long long)numel, set->world,
          (long long)flat.numel, (long long)flat.padded, (long long)flat.shard_numel);
    int *owners = calloc((size_t)flat.padded, sizeof *owners);
    check(owners != NULL, "no memory");
    int64_t all = 0;
    for (int rank = 0; rank < set->world; rank++) {
        int64_t real = 0;
        for (int i = 0; i < set->n; i++) {
            int64_t begin = -1, end = -1, at = -1;
            flat_param_range_in_shard(&flat, i, rank, &begin, &end, &at);
            check(begin == end || (0 <= begin && begin < end && end <= set->size[i]),
                  "rank %d of %d, parameter %d of %lld elements: slice [%lld, %lld)", rank,
                  set->world, i, (long long)set->size[i], (long long)begin, (long long)end);
            real += end - begin;
            for (int64_t e = begin; e < end; e++) {
                int64_t place = rank * flat.shard_numel + at + e - begin;
                check(place == flat.offset[i] + e && at + e - begin < flat.shard_numel,
                      "rank %d of %d: element %lld of parameter %d is at place %lld, want %lld",
                      rank, set->world, (long long)e, i, (long long)place,
                      (long long)(flat.offset[i] + e));
                owners[place]++;
            }
        }
        check(flat_valid_numel(&flat, rank) == real,
              "rank %d of %d holds %lld real elements, want %lld", rank, set->world,
              (long long)flat_valid_numel(&flat, rank), (long long)real);
        all += real;
    }
    check(all == numel, "the ranks hold %lld elements, there are %lld", (long long)all,
          (long long)numel);
    for (int64_t place = 0; place < numel; place++)
        check(owners[place] == 1, "place %lld has %d owners", (long long)place, owners[place]);
    free(owners);
    flat_layout_destroy(&flat);
}

// The shard of a large world, made on the device: its slices, and zeros behind them.
static void shard_body(const Rank *r, void *arg)
{
    Set *set = arg;
    FlatParam flat;
    FlatLayout made;
    need(flat_layout(&made, "unit", set->params, set->n, r->rank, r->world, set->align));
    need(flat_create(&flat, "unit", &made, set->seed, r->stream));
    need_cuda(cudaStreamSynchronize(r->stream));
    int64_t numel = 0, step = set->align ? 4 * r->world : r->world;
    for (int i = 0; i < set->n; i++) numel += set->size[i];
    int64_t shard_numel = (numel + step - 1) / step * step / r->world;
    check(flat.layout.shard_numel == shard_numel, "numel %lld, W = %d: shards of %lld, want %lld",
          (long long)numel, r->world, (long long)flat.layout.shard_numel, (long long)shard_numel);
    float *whole = calloc((size_t)(shard_numel * r->world), sizeof *whole);
    check(whole != NULL, "no memory");
    for (int i = 0, at = 0; i < set->n; at += (int)set->size[i++])
        meta_init_slice(set->params[i], set->seed, 0, set->size[i], whole + at);
    float *got = fetch(flat.sharded_param.data, (size_t)shard_numel);
    check_equal("this rank's shard, against its part of the whole made at once", got,
                whole + r->rank * shard_numel, (size_t)shard_numel);
    free(got);
    free(whole);
    flat_destroy(&flat);
}

TEST(every_element_has_one_place)
{
    static Set set; // it points into itself
    for (int i = 0; i < 8; i++) {
        draw_set(&set, MOST, 1, 200);
        run_ranks(1, places_body, &set);
    }
    want_devices(13);
    for (int i = 0; i < 3; i++) {
        draw_set(&set, i == 0 ? 2 : MOST, 3, 13);
        run_ranks(set.world, shard_body, &set);
    }
}

SUITE_MAIN("hidden_flat_param")
