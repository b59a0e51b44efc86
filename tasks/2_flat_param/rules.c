/* rules.c: sentences of fsdp.h on flat_param.c that no other body of its suite reads. See
 * rules.h.
 */
#include "rules.h"

#include "draw.h"
#include "fsdp.h"
#include "harness.h"
#include "host_memory.h"
#include "huge.h"
#include "oracle.h"
#include "pattern.h"
#include "training.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SETS = 4 };

static Param make_param(const char *name, uint32_t id, int64_t numel, InitKind init)
{
    Param p = {.id = id, .ndim = 1, .shape = {numel}, .init = init, .init_std = 1.0f};
    snprintf(p.name, sizeof p.name, "%s", name);
    return p;
}

// ---- Sizes beyond 2³¹: arithmetic alone ----

typedef struct Large {
    int64_t numel[SETS];
    int world;
    bool align;
} Large;

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static void large_body(const Rank *r, void *arg)
{
    const Large *large = arg;
    Param param[SETS], *params[SETS];
    int64_t offset[SETS], numel = 0, multiple = large->world * (large->align ? 4 : 1);
    for (int i = 0; i < SETS; i++) {
        param[i] = make_param("large", (uint32_t)i, large->numel[i], INIT_ZERO);
        params[i] = &param[i];
        offset[i] = numel;
        numel += large->numel[i];
    }
    int64_t shard = (numel + multiple - 1) / multiple * multiple / large->world;
    FlatLayout made;
    need(flat_layout(&made, "large", params, SETS, 0, large->world, large->align));
    check(made.numel == numel && made.shard_numel == shard && made.padded == shard * large->world,
          "flat_layout (numel %lld, W = %d): numel %lld, padded %lld, shards of %lld, want "
          "%lld, %lld and %lld",
          (long long)numel, large->world, (long long)made.numel, (long long)made.padded,
          (long long)made.shard_numel, (long long)numel, (long long)(shard * large->world),
          (long long)shard);
    for (int i = 0; i < SETS; i++) {
        check(made.offset[i] == offset[i], "flat_layout: parameter %d begins at %lld, want %lld", i,
              (long long)made.offset[i], (long long)offset[i]);
        for (int rank = 0; rank < large->world; rank++) {
            int64_t from = larger(offset[i], rank * shard), begin = -1, end = -2, at = -1;
            int64_t to = smaller(offset[i] + large->numel[i], (rank + 1) * shard);
            flat_param_range_in_shard(&made, i, rank, &begin, &end, &at);
            if (from >= to)
                check(
                    begin == end,
                    "flat_param_range_in_shard: rank %d of %d holds [%lld, %lld) of parameter %d, "
                    "want nothing",
                    rank, large->world, (long long)begin, (long long)end, i);
            else
                check(begin == from - offset[i] && end == to - offset[i] &&
                          at == from - rank * shard,
                      "flat_param_range_in_shard: rank %d of %d holds [%lld, %lld) of parameter %d "
                      "at %lld, want [%lld, %lld) at %lld",
                      rank, large->world, (long long)begin, (long long)end, i, (long long)at,
                      (long long)(from - offset[i]), (long long)(to - offset[i]),
                      (long long)(from - rank * shard));
        }
    }
    for (int rank = 0; rank < large->world; rank++) {
        int64_t want = larger(0, smaller(shard, numel - rank * shard));
        check(flat_valid_numel(&made, rank) == want,
              "flat_valid_numel (numel %lld, W = %d): rank %d holds %lld, want %lld",
              (long long)numel, large->world, rank, (long long)flat_valid_numel(&made, rank),
              (long long)want);
    }
    flat_layout_destroy(&made);
    check(made.params == NULL && made.offset == NULL, "flat_layout_destroy left its tables");
    flat_layout_destroy(&made); // zeroed by now: fine
}

void rule_layout_beyond_32_bits(void)
{
    Large large = {{((int64_t)3 << 31) + 5, 7, (int64_t)1 << 33, 2}, .world = 3}; // pads by 2
    run_ranks(1, large_body, &large);
    large = (Large){.world = draw(2, 9), .align = draw_chance(50)};
    for (int i = 0; i < SETS; i++) large.numel[i] = ((int64_t)draw(1, 1 << 20) << 13) + draw(1, 99);
    large.numel[0] += (int64_t)3 << 31;
    drawn("parameters of %lld, %lld, %lld and %lld elements; %d ranks", (long long)large.numel[0],
          (long long)large.numel[1], (long long)large.numel[2], (long long)large.numel[3],
          large.world);
    run_ranks(1, large_body, &large);
}

// A shard of 2³² + 5 elements and 3 of padding, of which nothing but the last 8 has memory.
static void far_padding_body(const Rank *r, void *arg)
{
    enum { LAST = 8, PADDING = 3 };
    const int64_t numel = ((int64_t)1 << 32) + 5;
    float sevens[LAST], *last = NULL, *got = NULL;
    Param p = make_param("large", 0, numel, INIT_ZERO), *list[] = {&p};
    FlatParam flat = {.name = "large"};
    need(flat_layout(&flat.layout, "large", list, 1, 0, 1, true));
    need_cuda(cudaMalloc((void **)&last, sizeof sevens));
    for (int i = 0; i < LAST; i++) sevens[i] = 7.0f;
    send_to(last, sevens, LAST);
    uintptr_t begin = (uintptr_t)last - (uintptr_t)(numel + PADDING - LAST) * sizeof(float);
    Buffer sharded = {(void *)begin, DTYPE_F32, numel + PADDING};
    need(flat_zero_padding(&flat, &sharded, r->stream));
    need_cuda(cudaStreamSynchronize(r->stream));
    got = fetch(last, LAST);
    for (int i = 0; i < LAST; i++)
        check(got[i] == (i < LAST - PADDING ? 7.0f : 0.0f),
              "flat_zero_padding of a shard of %lld elements with %d of padding: element %lld, a "
              "seven before, is %g",
              (long long)sharded.numel, PADDING, (long long)(sharded.numel - LAST + i),
              (double)got[i]);
    free(got);
    need_cuda(cudaFree(last));
    flat_layout_destroy(&flat.layout);
}

// A buffer says of which type its elements are. Five of them, aligned to eight.
static void narrow_padding_body(const Rank *r, void *arg)
{
    enum { N = 5, SHARD = 8, BEHIND = 12 };
    static const DType TYPE[] = {DTYPE_BF16, DTYPE_BYTE};
    Param p = make_param("narrow", 0, N, INIT_ZERO), *list[] = {&p};
    FlatParam flat = {.name = "narrow"};
    float sixes[(SHARD + BEHIND) / 2], *buffer = NULL;
    need(flat_layout(&flat.layout, "narrow", list, 1, 0, 1, true));
    memset(sixes, 6, sizeof sixes);
    need_cuda(cudaMalloc((void **)&buffer, sizeof sixes));
    for (int k = 0; k < 2; k++) {
        const int bytes = (int)dtype_bytes(TYPE[k]);
        send_to(buffer, sixes, sizeof sixes / sizeof *sixes);
        Buffer sharded = {buffer, TYPE[k], SHARD};
        need(flat_zero_padding(&flat, &sharded, r->stream));
        need_cuda(cudaStreamSynchronize(r->stream));
        float *got = fetch(buffer, sizeof sixes / sizeof *sixes);
        const unsigned char *byte = (const unsigned char *)got;
        int zeros = 0;
        for (int i = 0; i < (int)sizeof sixes; i++) zeros += byte[i] == 0;
        for (int i = 0; i < (int)sizeof sixes; i++) {
            bool padding = i >= bytes * N && i < bytes * SHARD;
            check(byte[i] == (padding ? 0 : 6),
                  "flat_zero_padding of a buffer of 8 elements of %d bytes, 5 of them valid: byte "
                  "%d, %s, is %d%s",
                  bytes, i,
                  padding              ? "which is padding and must be 0"
                  : i >= bytes * SHARD ? "which lies after the padding and must stay 6"
                                       : "which is of a valid element and must stay 6",
                  byte[i],
                  zeros == (SHARD - N) * (int)sizeof(float) ? LIKELY
                      "the padding is counted in floats, and not in elements of the buffer's type"
                                                            : "");
        }
        free(got);
    }
    need_cuda(cudaFree(buffer));
    flat_layout_destroy(&flat.layout);
}

void rule_padding_of_any_size_and_type(void)
{
    run_ranks(1, far_padding_body, NULL);
    run_ranks(1, narrow_padding_body, NULL);
}

static const char *float_cause(const Buffer *view)
{
    return view->dtype == DTYPE_F32 ? LIKELY
               "it is made as one of floats; a view has its buffer's type"
                                    : "";
}

// Views of buffers of two types, neither of which is that of the shards.
RANK_RULE(views_have_their_buffers_type, 1)
{
    Param p[] = {make_param("first", 0, 3, INIT_ONE), make_param("second", 1, 4, INIT_ONE)};
    Param *list[] = {&p[0], &p[1]};
    FlatLayout made;
    FlatParam flat;
    char *buffer = NULL;
    need(flat_layout(&made, "narrow", list, 2, r->rank, r->world, false));
    need(flat_create(&flat, "narrow", &made, 42, r->stream));
    need_cuda(cudaMalloc((void **)&buffer, 64));
    flat.unsharded_param = (Buffer){buffer, DTYPE_BF16, 7};
    flat.unsharded_grad = (Buffer){buffer + 16, DTYPE_F16, 7};
    flat_set_views(&flat);
    flat_set_grad_views(&flat);
    for (int i = 0; i < 2; i++) {
        check(p[i].data.data == buffer + 2 * made.offset[i] && p[i].data.dtype == DTYPE_BF16,
              "flat_set_views of a bf16 buffer: the data of parameter %d is no view of that type "
              "at its place%s",
              i, float_cause(&p[i].data));
        check(p[i].grad.data == buffer + 16 + 2 * made.offset[i] && p[i].grad.dtype == DTYPE_F16,
              "flat_set_grad_views of an fp16 buffer: the grad of parameter %d is no view of that "
              "type at its place%s",
              i, float_cause(&p[i].grad));
    }
    flat.unsharded_param = (Buffer){NULL, DTYPE_F32, made.padded};
    flat.unsharded_grad = (Buffer){NULL, DTYPE_F32, made.padded};
    flat_destroy(&flat);
    need_cuda(cudaFree(buffer));
}

// Elements whose numbers have more than 32 bits: of a shard, and of the whole. Its first parameter
// is storage alone, which takes no time to fill; the others begin beyond 2³².
static void large_create_body(const Rank *r, void *arg)
{
    enum { WORLD = 2, OF_RANK = 1 };
    const int64_t most = ((int64_t)3 << 32) + 2, shard = ((int64_t)3 << 31) + 8;
    Param p[] = {make_param("most", 0, most, INIT_NONE), make_param("some", 1, 3, INIT_ONE),
                 make_param("last", 2, 4, INIT_ONE)};
    Param *list[] = {&p[0], &p[1], &p[2]};
    FlatLayout made;
    FlatParam flat;
    size_t live = gpulog_live_bytes(r->device);
    need(flat_layout(&made, "large", list, 3, OF_RANK, WORLD, true));
    check(made.shard_numel == shard, "flat_layout (numel %lld, W = 2): shards of %lld, want %lld",
          (long long)(most + 7), (long long)made.shard_numel, (long long)shard);
    uint64_t log = gpulog_length();
    need(flat_create(&flat, "large", &made, 42, r->stream));
    check(gpulog_live_bytes(r->device) - live == 8 * (size_t)shard,
          "a shard of %lld elements and its gradient take %zu bytes, want %zu%s", (long long)shard,
          gpulog_live_bytes(r->device) - live, 8 * (size_t)shard,
          cut_cause(gpulog_live_bytes(r->device) - live, 8 * (size_t)shard));
    check_covers(log, &flat.sharded_grad, GPU_WRITE, "the gradient shard, which is zeroed,");
    const Buffer rest = buffer_range(&flat.sharded_param, most - shard, 2 * shard - most);
    check_covers(log, &rest, GPU_WRITE,
                 "the end of a shard beyond 2^32 elements, two small parameters and padding");
    char *base = (char *)((uintptr_t)1 << 40); // nobody reads it
    flat.unsharded_param.data = base;
    flat.unsharded_grad.data = base + 1;
    flat_set_views(&flat);
    flat_set_grad_views(&flat);
    for (int i = 0; i < 3; i++) {
        int64_t begins = i == 0 ? 0 : i == 1 ? most : most + 3;
        const void *got[] = {p[i].data.data, p[i].grad.data};
        for (int grad = 0; grad < 2; grad++)
            check(got[grad] == base + grad + 4 * begins,
                  "%s: the view of parameter %d, which begins at element %lld, is %lld bytes after "
                  "the buffer's beginning%s",
                  grad ? "flat_set_grad_views" : "flat_set_views", i, (long long)begins,
                  (long long)((const char *)got[grad] - base - grad),
                  i > 0 ? LIKELY "an offset, or its bytes, are kept in 32 bits" : "");
    }
    flat.unsharded_param.data = flat.unsharded_grad.data = NULL;
    flat_destroy(&flat);
    check(gpulog_live_bytes(r->device) == live, "flat_destroy of %lld elements left %zu bytes",
          (long long)shard, gpulog_live_bytes(r->device) - live);
}

// ---- Any number of parameters, and any number of elements ----

// A flat parameter of `n` parameters of `numel` ones each, as rank `rank` of two has it: layout,
// values, views, and the end.
static void check_ones(const Rank *r, Param *p, Param **list, int n, int64_t numel, int rank)
{
    FlatLayout made;
    FlatParam flat;
    for (int i = 0; i < n; i++) {
        list[i] = &p[i];
        p[i] = make_param("one", (uint32_t)i, numel, INIT_ONE);
    }
    const int64_t all = n * numel, shard = (all + 1) / 2;
    int64_t valid = smaller(shard, all - rank * shard);
    need(flat_layout(&made, "many", list, n, rank, 2, false));
    check(made.n == n && made.numel == all && made.shard_numel == shard && made.padded == 2 * shard,
          "flat_layout of %d parameters of %lld elements: n %d, numel %lld, shards of %lld", n,
          (long long)numel, made.n, (long long)made.numel, (long long)made.shard_numel);
    for (int i = 0; i < n; i++)
        check(made.params[i] == &p[i] && made.offset[i] == i * numel,
              "flat_layout of %d parameters: parameter %d begins at %lld, want %lld", n, i,
              (long long)made.offset[i], (long long)(i * numel));
    check(flat_valid_numel(&made, rank) == valid,
          "flat_valid_numel (numel %lld, W = 2): rank %d holds %lld, want %lld", (long long)all,
          rank, (long long)flat_valid_numel(&made, rank), (long long)valid);
    need(flat_create(&flat, "many", &made, 42, r->stream));
    need_cuda(cudaStreamSynchronize(r->stream));
    float *got = shard == 0 ? NULL : fetch(flat.sharded_param.data, (size_t)shard);
    for (int64_t i = 0; i < shard; i++)
        check(got[i] == (i < valid ? 1.0f : 0.0f),
              "flat_create of %d parameters of ones: element %lld of the shard of rank %d is %g", n,
              (long long)i, rank, (double)got[i]);
    free(got);
    flat.unsharded_param.data = flat.unsharded_grad.data = &flat; // nobody reads it
    flat_set_views(&flat);
    flat_set_grad_views(&flat);
    for (int i = 0; i < n; i++) {
        check(p[i].owner == &flat, "flat_create of %d parameters: number %d has no owner", n, i);
        const void *place = (float *)&flat + i * numel;
        check(numel == 0 || (p[i].data.data == place && p[i].grad.data == place),
              "%s: of %d parameters number %d is no view of its place",
              p[i].data.data == place ? "flat_set_grad_views" : "flat_set_views", n, i);
    }
    flat.unsharded_param.data = flat.unsharded_grad.data = NULL;
    flat_destroy(&flat);
    for (int i = 0; i < n; i++)
        check(p[i].owner == NULL && p[i].data.data == NULL && p[i].grad.data == NULL,
              "flat_destroy of %d parameters leaves number %d owned, or a view", n, i);
}

RANK_RULE(any_number_of_parameters, 1)
{
    enum { N = 1032 }; // no padding: it has tests of its own
    static Param p[N];
    static Param *list[N];
    check_leaks();
    for (int rank = 0; rank < 2; rank++) {
        check_ones(r, p, list, N, 1, rank);
        check_ones(r, p, list, 2, 0, rank); // none of which has an element
    }
}

void rule_flat_beyond_32_bits(void)
{
    run_ranks_dry(1, large_create_body, NULL);
}

// ---- Names, tables, host memory ----

static void name_body(const Rank *r, void *arg)
{
    static const char NAME[] = "a.module.whose.name.is.longer.than.the.place.that.a.flat.parameter."
                               "has.for.it.and.a.little.more";
    Param p = make_param("weight", 3, 10, INIT_ONE), *list[] = {&p};
    FlatLayout made;
    struct {
        FlatParam flat;
        char behind[200];
    } place;
    memset(&place, 0x5A, sizeof place);
    need(flat_layout(&made, NAME, list, 1, r->rank, r->world, false));
    list[0] = NULL; // the layout has a list of its own
    need(flat_create(&place.flat, NAME, &made, 42, r->stream));
    check(strncmp(place.flat.name, NAME, sizeof place.flat.name - 1) == 0 &&
              strlen(place.flat.name) == sizeof place.flat.name - 1,
          "flat_create made another name than the first characters of one that is too long" LIKELY
          "a name of %zu characters has %zu places: it is cut there, with a zero at the end",
          strlen(NAME), sizeof place.flat.name);
    check(place.flat.layout.n == 1 && place.flat.layout.params[0] == &p &&
              place.flat.state == FLAT_SHARDED && place.behind[0] == 0x5A,
          "flat_create wrote the name over what comes after it");
    flat_destroy(&place.flat);
}

// Two flat parameters at a time: of each everything is its own. A name is text, not a format.
static void two_body(const Rank *r, void *arg)
{
    static const char *const NAME[] = {"first", "100%%.second"};
    static const int64_t NUMEL[] = {3, 10}, SHARD[] = {2, 5};
    Param p[] = {make_param("one", 3, 3, INIT_ONE), make_param("two", 4, 10, INIT_ONE)};
    FlatParam flat[2];
    memset(flat, 0x5A, sizeof flat);
    for (int i = 0; i < 2; i++) {
        Param *list[] = {&p[i]};
        FlatLayout made;
        need(flat_layout(&made, NAME[i], list, 1, r->rank, r->world, false));
        check(made.shard_numel == SHARD[i],
              "flat_layout (numel %lld, W = 2): shards of %lld, want %lld", (long long)NUMEL[i],
              (long long)made.shard_numel, (long long)SHARD[i]);
        need(flat_create(&flat[i], NAME[i], &made, 42, r->stream));
    }
    need_cuda(cudaStreamSynchronize(r->stream));
    for (int i = 0; i < 2; i++) {
        check(strcmp(flat[i].name, NAME[i]) == 0 && flat[i].state == FLAT_SHARDED &&
                  p[i].owner == &flat[i],
              "flat_create of two flat parameters: the name of %s is %s, or its state is not "
              "FLAT_SHARDED, or it does not own its parameter",
              NAME[i], flat[i].name);
        check(flat[i].sharded_param.numel == SHARD[i] && flat[i].sharded_grad.numel == SHARD[i],
              "flat_create of two flat parameters: the shards of %s have %lld and %lld elements, "
              "want %lld",
              NAME[i], (long long)flat[i].sharded_param.numel,
              (long long)flat[i].sharded_grad.numel, (long long)SHARD[i]);
        float *got = fetch(flat[i].sharded_param.data, (size_t)SHARD[i]), want[5];
        int64_t valid = NUMEL[i] - r->rank * SHARD[i];
        if (valid > SHARD[i]) valid = SHARD[i];
        if (valid < 0) valid = 0;
        need(flat_zero_padding(&flat[i], &flat[i].sharded_param, r->stream));
        need_cuda(cudaStreamSynchronize(r->stream));
        float *zeroed = fetch(flat[i].sharded_param.data, (size_t)SHARD[i]);
        for (int64_t e = valid; e < SHARD[i]; e++)
            check(got[e] == 0.0f, "element %lld of a shard, padding, is %g" LIKELY "%s",
                  (long long)e, (double)got[e],
                  zeroed[e] == 0.0f ? "fill_shards does not call flat_zero_padding"
                                    : "flat_zero_padding does not zero it");
        free(zeroed);
        for (int64_t e = 0; e < valid; e++) want[e] = 1.0f;
        check_equal("the shard of one of two flat parameters, of ones", got, want, (size_t)valid);
        free(got);
    }
    for (int i = 0; i < 2; i++) flat_destroy(&flat[i]);
}

// Units made again and again, and one of 8 MiB per rank where the host may take 4.
static void host_body(const Rank *r, void *arg)
{
    Param p = make_param("ones", 3, (int64_t)r->world * (2 << 20), INIT_ONE), *list[] = {&p};
    FlatLayout made;
    FlatParam flat;
    size_t before = 0;
    Param small[2000], *all[2000];
    for (int i = 0; i < 2000; i++) {
        small[i] = make_param("small", (uint32_t)i, 1, INIT_ONE);
        all[i] = &small[i];
    }
    for (int round = 0; round < 4; round++) { // tables of 32 000 bytes
        need(flat_layout(&made, "unit", all, 2000, r->rank, r->world, false));
        if (round % 2 == 0) need(flat_create(&flat, "unit", &made, 42, r->stream));
        if (round % 2 == 0)
            flat_destroy(&flat);
        else
            flat_layout_destroy(&made);
        static float storage;
        small[1999].data.data = &storage; // refused: takes the layout over all the same
        need(flat_layout(&made, "unit", all, 2000, r->rank, r->world, false));
        check(flat_create(&flat, "unit", &made, 42, r->stream) == ERR_ARGUMENT,
              "flat_create of a parameter that has storage of its own must be ERR_ARGUMENT");
        small[1999].data.data = NULL;
        if (round == 1) before = host_bytes();
    }
    check(host_bytes() <= before + 16000,
          "a flat parameter and a layout of 2000 parameters that were destroyed, and two that were "
          "refused, leave %zu bytes of host memory" LIKELY
          "nobody frees the layout's tables where the flat parameter ends, or was refused",
          host_bytes() - before);

    // simgpu has by now what it allocates once.
    host_limit((size_t)4 << 20);
    need(flat_layout(&made, "unit", list, 1, r->rank, r->world, false));
    Status status = flat_create(&flat, "unit", &made, 42, r->stream);
    host_limit(0);
    check(status == OK,
          "flat_create of a shard of 8 MiB failed where the host may take 4 MiB for it (%s): it "
          "uses no more host memory than a small buffer",
          last_error());
    flat_destroy(&flat);
    check(flat.layout.params == NULL && flat.sharded_param.data == NULL,
          "flat_destroy left pointers to what is gone");
    flat_destroy(&flat); // zeroed by now: fine
}

void rule_flat_keeps_within_its_places(void)
{
    run_ranks(2, name_body, NULL);
    run_ranks(2, two_body, NULL);
    run_ranks(2, host_body, NULL);
}
