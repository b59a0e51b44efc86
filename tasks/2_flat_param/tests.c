/* Task 2, flat parameter: what lies where, what is padding, and what a rank holds. */
#include "bytes.h"
#include "rules.h"
#include "tests_sets.h"
#include "training.h"

#include <stdio.h>
#include <stdlib.h>

// ---- Arithmetic ----

static void layout_body(const Rank *r, void *arg)
{
    const Table *t = arg;
    for (const Lengths *in = t->set; in < t->set + t->n; in++) {
        for (int world = t->low; world <= t->high; world++) {
            Set set;
            FlatLayout flat;
            int64_t numel = sum_sizes(in), at = 0, want = numel,
                    multiple = t->align ? 4 * world : world;
            make_set(&set, in->n, in->of);
            while (want % multiple != 0) want++;

            need(flat_layout(&flat, "unit", set.pointer, set.n, world - 1, world, t->align));
            check(flat.params != set.pointer,
                  "flat_layout: layout->params is the caller's list, which it must copy");
            check(flat.n == set.n && flat.rank == world - 1 && flat.world == world,
                  "flat_layout did not write down n, rank or world");
            for (int i = 0; i < set.n; i++) {
                check(flat.params[i] == set.pointer[i],
                      "flat_layout: parameter %d is not the one that was given", i);
                check(flat.offset[i] == at, "flat_layout: parameter %d begins at %lld, want %lld",
                      i, (long long)flat.offset[i], (long long)at);
                at += in->of[i];
            }
            check(flat.numel == numel, "flat_layout: numel of %d parameters is %lld, want %lld",
                  set.n, (long long)flat.numel, (long long)numel);
            check(flat.padded == want,
                  "flat_layout (numel %lld, W = %d%s): padded is %lld, want %lld%s",
                  (long long)numel, world, t->align ? ", 16-byte shards" : "",
                  (long long)flat.padded, (long long)want,
                  padding_cause(numel, flat.padded, multiple));
            check(flat.shard_numel * world == want,
                  "flat_layout must give each of %d ranks an equal part of padded, %lld: "
                  "shard_numel is %lld",
                  world, (long long)want, (long long)flat.shard_numel);
            flat_layout_destroy(&flat);
        }
    }
}

static void run_layouts(bool align)
{
    Table table = KNOWN;
    table.align = align;
    run_ranks(1, layout_body, &table);
    for (int i = 0; i < 2; i++) {
        table = draw_table(6, 1, 40);
        table.align = align;
        run_ranks(1, layout_body, &table);
    }
}

TEST(layout_pads_to_world)
{
    run_layouts(false);
}

TEST(layout_aligns_shards)
{
    run_layouts(true);
}

// The handout's example, written out.
RANK_TEST(layout_worked_example, 1)
{
    Set set;
    FlatLayout flat;
    make_set(&set, 3, (int64_t[]){3, 4, 3});
    need(flat_layout(&flat, "unit", set.pointer, 3, 2, 3, false));
    check(flat.numel == 10 && flat.padded == 12 && flat.shard_numel == 4,
          "flat_layout of 10 elements on 3 ranks: numel %lld, padded %lld, shard %lld; want 10, "
          "12, 4%s",
          (long long)flat.numel, (long long)flat.padded, (long long)flat.shard_numel,
          padding_cause(10, flat.padded, 3));
    check(flat.offset[0] == 0 && flat.offset[1] == 3 && flat.offset[2] == 7,
          "flat_layout: parameters of 3, 4 and 3 elements begin at %lld, %lld and %lld; want 0, 3 "
          "and 7",
          (long long)flat.offset[0], (long long)flat.offset[1], (long long)flat.offset[2]);
    part_holds("2.1");
    check(flat_valid_numel(&flat, 0) == 4 && flat_valid_numel(&flat, 1) == 4 &&
              flat_valid_numel(&flat, 2) == 2,
          "flat_valid_numel by rank: %lld, %lld, %lld; want 4, 4, 2",
          (long long)flat_valid_numel(&flat, 0), (long long)flat_valid_numel(&flat, 1),
          (long long)flat_valid_numel(&flat, 2));
    part_holds("2.2");
    int64_t begin, end, at;
    flat_param_range_in_shard(&flat, 1, 0, &begin, &end,
                              &at); // parameter 1 is [3, 7): rank 0 has its first element
    check(begin == 0 && end == 1 && at == 3,
          "flat_param_range_in_shard: rank 0 holds [%lld, %lld) of parameter 1 at %lld; want [0, "
          "1) at 3",
          (long long)begin, (long long)end, (long long)at);
    flat_param_range_in_shard(&flat, 1, 1, &begin, &end, &at);
    check(begin == 1 && end == 4 && at == 0,
          "flat_param_range_in_shard: rank 1 holds [%lld, %lld) of parameter 1 at %lld; want [1, "
          "4) at 0",
          (long long)begin, (long long)end, (long long)at);
    flat_layout_destroy(&flat);
}

TEST(layout_refuses_bad_input)
{
    RULE(layout_reads_its_own_list);
    RULE(flat_layout_refuses_a_frozen_parameter);
}

static void run_tables(RankBody body)
{
    Table table = KNOWN;
    run_ranks(1, body, &table);
    for (int i = 0; i < 2; i++) {
        table = draw_table(6, 1, 40);
        run_ranks(1, body, &table);
    }
}

// The two tests below count element by element who owns what, and compare.
static void real_body(const Rank *r, void *arg)
{
    const Table *t = arg;
    for (const Lengths *in = t->set; in < t->set + t->n; in++) {
        for (int world = t->low; world <= t->high; world++) {
            Set set;
            Known known;
            make_set(&set, in->n, in->of);
            make_known(&known, &set, 0, world, t->align);
            const FlatLayout flat = known.layout;
            for (int rank = 0; rank < world; rank++) {
                int64_t want = 0;
                for (int64_t e = 0; e < flat.numel; e++) want += e / flat.shard_numel == rank;
                check(flat_valid_numel(&known.layout, rank) == want,
                      "flat_valid_numel (numel %lld, W = %d): rank %d holds %lld valid elements, "
                      "want %lld",
                      (long long)flat.numel, world, rank,
                      (long long)flat_valid_numel(&known.layout, rank), (long long)want);
            }
        }
    }
}

TEST(valid_and_padding_by_rank)
{
    run_tables(real_body);
}

static void cover_body(const Rank *r, void *arg)
{
    const Table *t = arg;
    for (const Lengths *in = t->set; in < t->set + t->n; in++) {
        for (int world = t->low; world <= t->high; world++) {
            Set set;
            Known known;
            make_set(&set, in->n, in->of);
            make_known(&known, &set, 0, world, t->align);
            const int64_t shard_numel = known.layout.shard_numel;
            for (int i = 0; i < set.n; i++) {
                int owners[MAX_NUMEL] = {0};
                for (int rank = 0; rank < world; rank++) {
                    int64_t begin = -1, end = -2, at = -1;
                    flat_param_range_in_shard(&known.layout, i, rank, &begin, &end, &at);
                    check(begin == end || (0 <= begin && begin < end && end <= in->of[i]),
                          "flat_param_range_in_shard: parameter %d (numel %lld), rank %d of %d: "
                          "slice [%lld, %lld), which must be a part of it",
                          i, (long long)in->of[i], rank, world, (long long)begin, (long long)end);
                    for (int64_t e = begin; e < end; e++) {
                        owners[e]++;
                        int64_t place = rank * shard_numel + at + (e - begin);
                        check(place == known.offset[i] + e,
                              "flat_param_range_in_shard: element %lld of parameter %d lands at "
                              "%lld of the flat "
                              "buffer, not at %lld",
                              (long long)e, i, (long long)place, (long long)(known.offset[i] + e));
                    }
                }
                for (int64_t e = 0; e < in->of[i]; e++)
                    check(owners[e] == 1,
                          "flat_param_range_in_shard: element %lld of parameter %d has %d owners "
                          "in a world of %d",
                          (long long)e, i, owners[e], world);
            }
        }
    }
}

TEST(slices_cover_every_element_once)
{
    run_tables(cover_body);
    RULE(layout_beyond_32_bits);
}

// ---- Storage ----

// The largest set first: the more elements are wrong, the more they tell of the mistake.
static void whole_body(const Rank *r, void *arg)
{
    const Table *t = arg;
    for (const Lengths *in = t->set + t->n; in-- > t->set;) {
        Set set;
        FlatParam flat;
        FlatLayout made;
        make_set(&set, in->n, in->of);
        need(flat_layout(&made, "unit", set.pointer, set.n, r->rank, r->world, t->align));
        check_known(&made, &set, r, t->align);
        uint64_t log = gpulog_length();
        need(flat_create(&flat, "unit", &made, t->seed, r->stream));
        check_kept(&flat, &made);
        check_known(&flat.layout, &set, r, t->align);
        check_on_stream(log, r->stream, "flat_create's work", "the stream that was given");
        check(set.param[0].owner == &flat, "flat_create did not become the parameters' owner");
        check(flat.all_gather_done != NULL &&
                  cudaEventRecord(flat.all_gather_done, r->stream) == cudaSuccess,
              "flat_create must create the event flat->all_gather_done: task 3 records it");
        float ms =
            0.0f; // there is no time between an event and itself, but it has to have been asked
        check(cudaEventElapsedTime(&ms, flat.all_gather_done, flat.all_gather_done) ==
                  cudaErrorInvalidResourceHandle,
              "flat_create: flat->all_gather_done measures time, which nothing needs: create it "
              "with cudaEventDisableTiming");
        cudaGetLastError(); // that was the answer, and no error of anybody's

        float *full = NULL;
        need_cuda(cudaMalloc((void **)&full, (size_t)flat.layout.padded * sizeof *full));
        need_nccl(ncclAllGather(flat.sharded_param.data, full, (size_t)flat.layout.shard_numel,
                                ncclFloat, r->comm, r->stream));
        need_cuda(cudaStreamSynchronize(r->stream));
        float *got = fetch(full, (size_t)flat.layout.padded),
              *want = calloc((size_t)flat.layout.padded, sizeof *want);
        for (int i = 0; i < set.n; i++)
            meta_init_slice(&set.param[i], t->seed, 0, in->of[i], want + flat.layout.offset[i]);
        Layout layout;
        layout_params(&layout, set.pointer, set.n, r->world, LAYOUT_WHOLE);
        check_equal_in(&((Clues){.layout = &layout, .world = r->world}),
                       "the shards side by side, against the whole made at once", got, want,
                       (size_t)flat.layout.padded);
        free(got);
        free(want);
        need_cuda(cudaFree(full));
        flat_destroy(&flat);
        check(set.param[0].owner == NULL, "flat_destroy left the parameters owned");
    }
}

TEST(shards_make_the_whole_model)
{
    Table table = KNOWN;
    for (int world = 1; world <= 8; world++) run_ranks(world, whole_body, &table);
    table = draw_table(4, 2, 8);
    run_ranks(table.low, whole_body, &table);
}

// flat_zero_padding of a buffer that is neither shard nor sharded_grad.
static void check_zero_padding(const FlatParam *flat, const Set *set, const Rank *r)
{
    size_t n = (size_t)flat->layout.shard_numel, valid = 0;
    while (valid < n && r->rank * (int64_t)n + (int64_t)valid < flat->layout.numel) valid++;
    check(flat_valid_numel(&flat->layout, r->rank) == (int64_t)valid,
          "flat_valid_numel: rank %d holds %lld valid elements, want %zu", r->rank,
          (long long)flat_valid_numel(&flat->layout, r->rank), valid);
    float *host = malloc(n * sizeof *host), *buffer = NULL;
    for (size_t i = 0; i < n; i++) host[i] = 7.0f;
    need_cuda(cudaMalloc((void **)&buffer, n * sizeof *host));
    send_to(buffer, host, n);
    Buffer sharded = {buffer, DTYPE_F32, flat->layout.shard_numel};
    uint64_t log = gpulog_length();
    need(flat_zero_padding(flat, &sharded, r->stream));
    check_no_host_wait(log, "in flat_zero_padding");
    need_cuda(cudaStreamSynchronize(r->stream));
    float *got = fetch(buffer, n);
    for (size_t i = valid; i < n; i++) host[i] = 0.0f;
    check_equal_in(&((Clues){.otherwise = "flat_zero_padding must zero the elements of "
                                          "`sharded` from flat_valid_numel on, and nothing else: "
                                          "which memory does it zero, and how many bytes of it?"}),
                   "a buffer of sevens after flat_zero_padding, which zeroes only the padding", got,
                   host, n);
    need_cuda(cudaFree(buffer));
    free(host);
    free(got);
}

// No parameter is asked for that there is not.
static void range_of_a_parameter(const FlatLayout *layout, int i, int rank, int64_t *begin,
                                 int64_t *end, int64_t *at)
{
    check(0 <= i && i < layout->n,
          "fill_shards asks for the slice of parameter %d of %d, counted from 0: which does its "
          "loop go through?",
          i, layout->n);
    flat_param_range_in_shard_default(layout, i, rank, begin, end, at);
}

static void birth_body(const Rank *r, void *arg)
{
    const Table *t = arg;
    FlatLayoutOps ops = FLAT_LAYOUT_OPS;
    ops.param_range_in_shard = range_of_a_parameter;
    for (const Lengths *in = t->set + t->n; in-- > t->set;) {
        for (int align = 0; align <= 1; align++) {
            Set set;
            FlatParam flat;
            FlatLayout made;
            make_set(&set, in->n, in->of);
            need(flat_layout(&made, "unit", set.pointer, set.n, r->rank, r->world, align));
            made.ops = &ops;
            need(flat_create(&flat, "unit", &made, t->seed, r->stream));
            check_kept(&flat, &made);
            check_known(&flat.layout, &set, r, align);
            need_cuda(cudaStreamSynchronize(r->stream));
            check_zero_padding(&flat, &set, r);
            float *shard = fetch(flat.sharded_param.data, (size_t)flat.layout.shard_numel);
            float *grad = fetch(flat.sharded_grad.data, (size_t)flat.layout.shard_numel);
            for (int64_t i = 0; i < flat.layout.shard_numel; i++) {
                bool padding = r->rank * flat.layout.shard_numel + i >= flat.layout.numel;
                check(!padding || shard[i] == 0.0f,
                      "%lld elements: padding element %lld of the shard of %lld is %g: fill_shards "
                      "must zero it",
                      (long long)flat.layout.numel, (long long)i,
                      (long long)flat.layout.shard_numel, (double)shard[i]);
                check(
                    grad[i] == 0.0f,
                    "element %lld of the fresh gradient shard is %g: fill_shards must zero all of "
                    "it, and cudaMemset counts bytes",
                    (long long)i, (double)grad[i]);
            }
            free(shard);
            free(grad);
            flat_destroy(&flat);
        }
    }
}

TEST(new_padding_is_zero)
{
    Table table = KNOWN;
    for (int world = 1; world <= 8; world++) run_ranks(world, birth_body, &table);
    RULE(padding_of_any_size_and_type);
    table = draw_table(4, 2, 8);
    run_ranks(table.low, birth_body, &table);
}

// Why building it took so much more at its peak than it holds.
static const char *peak_cause(size_t surplus, const Set *set)
{
    static char text[300];
    text[0] = '\0';
    for (int i = 0; i < set->n; i++)
        if (surplus == (size_t)set->param[i].shape[0] * sizeof(float))
            snprintf(text, sizeof text,
                     LIKELY "the surplus is exactly parameter %s, whole: is it made whole on the "
                            "device, and this rank's slice copied out of it?",
                     set->param[i].name);
    return text;
}

static void memory_body(const Rank *r, void *arg)
{
    const Table *t = arg;
    Set set;
    FlatParam flat;
    FlatLayout made;
    make_set(&set, t->set->n, t->set->of);
    need(flat_layout(&made, "unit", set.pointer, set.n, r->rank, r->world, t->align));
    check_known(&made, &set, r, t->align);
    size_t before = gpulog_live_bytes(r->device);
    gpulog_reset_peak(r->device);
    need(flat_create(&flat, "unit", &made, 42, r->stream));
    need_cuda(cudaStreamSynchronize(r->stream));
    check_kept(&flat, &made);
    check_known(&flat.layout, &set, r, t->align);
    size_t want = 2 * (size_t)flat.layout.shard_numel * sizeof(float);
    check(gpulog_live_bytes(r->device) - before == want,
          "the flat parameter holds %zu bytes, want %zu: "
          "a shard and its gradient%s",
          gpulog_live_bytes(r->device) - before, want,
          arrays_cause(gpulog_live_bytes(r->device) - before, 2, want / 2,
                       want / 2 * (size_t)r->world));
    check(gpulog_peak_bytes(r->device) - before == want,
          "building it took %zu bytes at the peak, want "
          "%zu: a rank never holds more of the model than its shard%s",
          gpulog_peak_bytes(r->device) - before, want,
          peak_cause(gpulog_peak_bytes(r->device) - before - want, &set));
    flat_destroy(&flat);
    check(gpulog_live_bytes(r->device) == before, "flat_destroy left %zu bytes",
          gpulog_live_bytes(r->device) - before);
}

TEST(memory_is_two_shards)
{
    // A million elements, so that a copy of the model would show.
    Table table = {.set = {{3, {700001, 3, 300000}}}};
    run_worlds(memory_body, &table, 1, 4);
    RULE(failed_create_keeps_nothing);
    RULE(flat_keeps_within_its_places);
    RULE(failed_calls_of_create_are_told);
    RULE(any_number_of_parameters);
    RULE(flat_beyond_32_bits);
    RULE(create_asks_its_layout);
    int world = draw(2, 8);
    table = (Table){.set = {{3, {draw(1, 90000), draw(1, 9), draw(1, 90000)}}},
                    .align = draw_chance(50)};
    const int64_t *sizes = table.set->of;
    drawn("parameters of %lld, %lld and %lld elements; %d ranks", (long long)sizes[0],
          (long long)sizes[1], (long long)sizes[2], world);
    run_ranks(world, memory_body, &table);
}

static void attach_body(const Rank *r, void *arg)
{
    const Table *t = arg;
    Set set;
    FlatParam flat;
    FlatLayout made;
    float *full = NULL;
    make_set(&set, t->set->n, t->set->of);
    need(flat_layout(&made, "unit", set.pointer, set.n, r->rank, r->world, t->align));
    need(flat_create(&flat, "unit", &made, 42, r->stream));
    check_kept(&flat, &made);
    check_known(&flat.layout, &set, r, t->align);
    check(set.param[0].data.data == NULL && set.param[0].grad.data == NULL,
          "a parameter has data before anything was gathered");
    need_cuda(cudaMalloc((void **)&full, (size_t)flat.layout.padded * sizeof *full));
    uint64_t log = gpulog_length();
    flat.unsharded_param = (Buffer){full, DTYPE_F32, flat.layout.padded};
    flat.unsharded_grad = (Buffer){full + 1, DTYPE_F32, flat.layout.padded - 1}; // elsewhere
    flat_set_views(&flat);
    flat_set_grad_views(&flat);
    for (int i = 0; i < set.n; i++)
        for (int grad = 0; grad < 2; grad++) {
            const Buffer *view = grad ? &set.param[i].grad : &set.param[i].data;
            const char *function = grad ? "flat_set_grad_views" : "flat_set_views";
            check(view->data == full + grad + flat.layout.offset[i],
                  "%s: parameter %d is no view of the buffer at its offset %lld", function, i,
                  (long long)flat.layout.offset[i]);
            check(view->numel == set.param[i].shape[0],
                  "%s: the view of parameter %d has %lld elements (numel), want %lld: a Buffer has "
                  "a type and a number, too",
                  function, i, (long long)view->numel, (long long)set.param[i].shape[0]);
        }
    flat.unsharded_param.data = flat.unsharded_grad.data = NULL;
    flat_set_views(&flat);
    flat_set_grad_views(&flat);
    for (int i = 0; i < set.n; i++) {
        check(set.param[i].data.data == NULL,
              "parameter %d keeps a pointer to data after flat_set_views without a buffer", i);
        check(set.param[i].grad.data == NULL,
              "parameter %d keeps a pointer to its gradient after flat_set_grad_views without a "
              "buffer",
              i);
    }
    check(gpulog_length() == log, "attaching a view must not allocate or copy anything");
    flat.unsharded_param.data = flat.unsharded_grad.data = full; // and taken back by destroy
    flat_set_views(&flat);
    flat_set_grad_views(&flat);
    flat_destroy(&flat);
    for (int i = 0; i < set.n; i++)
        check(set.param[i].data.data == NULL && set.param[i].grad.data == NULL,
              "flat_destroy left parameter %d a view of what is gone", i);
    need_cuda(cudaFree(full));
}

TEST(parameters_are_views)
{
    Table table = {.set = {{3, {3, 4, 3}}}};
    run_ranks(3, attach_body, &table);
    RULE(states_follow_each_other);
    RULE(views_have_their_buffers_type);
    table = draw_table(1, 1, 8);
    run_ranks(table.low, attach_body, &table);
}

SUITE_MAIN("flat_param")
