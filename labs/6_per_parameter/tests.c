/* Lab 6, per-parameter shards: who owns which rows, what is copied where, and what that costs.
 *
 * Chunks are cut here a second time, row by row, and trainings are compared with the serial oracle
 * of strategies.h.
 */
#include <stdio.h>
#include <stdlib.h>

#include "draw_model.h"
#include "harness.h"
#include "per_parameter.h"
#include "strategies.h"
#include "tests.h"

enum { MOST_PARAMS = 12 };

// ---- The arithmetic ----

typedef struct Shapes {
    int n, world;
    Param param[MOST_PARAMS];
    Param *list[MOST_PARAMS];
} Shapes;

static void add_shape(Shapes *s, int64_t rows, int64_t cols, bool frozen)
{
    Param *param = &s->param[s->n];
    *param = (Param){.ndim = cols > 0 ? 2 : 1, .shape = {rows, cols}, .frozen = frozen};
    snprintf(param->name, sizeof param->name, "p%d", s->n);
    s->list[s->n++] = param;
}

// Whose row number `row` of `rows` is: torch.chunk deals out as many to each as the first gets.
static int owner_of_row(int64_t row, int64_t rows, int world)
{
    int64_t each = 0;
    while (each * world < rows) each++; // the fewest with which all are dealt out
    return (int)(row / each);
}

int64_t most_rows(int64_t rows, int world)
{
    int64_t first = 0;
    for (int64_t row = 0; row < rows; row++) first += owner_of_row(row, rows, world) == 0;
    return first;
}

// The ranges of parameter i, by its rows one after the other.
static void check_ranges(const FlatLayout *layout, const Shapes *s, int i, int64_t at)
{
    Param *param = layout->params[i];
    int64_t rows = param->shape[0], cols = param->ndim > 1 ? param->shape[1] : 1;
    for (int rank = 0; rank < s->world; rank++) {
        int64_t begin, end, where = -1, first = -1, n = 0;
        for (int64_t row = 0; row < rows; row++) {
            if (owner_of_row(row, rows, s->world) != rank) continue;
            if (first < 0) first = row * cols;
            n += cols;
        }
        flat_param_range_in_shard(layout, i, rank, &begin, &end, &where);
        check(end - begin == n && (n == 0 || begin == first),
              "param_range: %s has %lld rows of %lld on %d ranks: rank %d owns elements [%lld, "
              "%lld), want "
              "[%lld, %lld): chunks of %lld rows, as torch.chunk cuts them",
              param->name, (long long)rows, (long long)cols, s->world, rank, (long long)begin,
              (long long)end, (long long)(n == 0 ? begin : first),
              (long long)(n == 0 ? begin : first + n), (long long)most_rows(rows, s->world));
        check(where == at,
              "param_range: rank %d's chunk of %s is at element %lld of the shard, want %lld: "
              "after the chunks of the parameters before it, padding included, also where the rank "
              "has no element of it",
              rank, param->name, (long long)where, (long long)at);
    }
}

// Beginning with what stands alone, as each test: one whose shards are cut in another way would
// look for the mistake elsewhere.
static void check_chunks(const Shapes *s)
{
    for (int i = 0; i < s->n; i++) {
        const Param *param = s->list[i];
        int64_t cols = param->ndim > 1 ? param->shape[1] : 1;
        int64_t chunk = most_rows(param->shape[0], s->world) * cols;
        check(per_parameter_chunk(param, s->world) == chunk,
              "per_parameter_chunk: a chunk of %s, %lld rows of %lld, has %lld elements on %d "
              "ranks, want %lld",
              param->name, (long long)param->shape[0], (long long)cols,
              (long long)per_parameter_chunk(param, s->world), s->world, (long long)chunk);
    }
}

// ranges: of each parameter, too.
static void check_layout(const Shapes *s, bool ranges)
{
    FlatLayout layout;
    int64_t at = 0, grads = 0, numel = 0;
    int place = 0;
    need(per_parameter_layout(&layout, "unit", (Param **)s->list, s->n, 0, s->world, false));
    check(layout.n == s->n, "per_parameter_layout: of %d parameters it has %d", s->n, layout.n);
    for (int last = 0; last < 2; last++) // those that train, then the frozen ones
        for (int i = 0; i < s->n; i++) {
            const Param *param = s->list[i];
            if (param->frozen != (last == 1)) continue;
            check(layout.params[place] == param,
                  "per_parameter_layout: place %d of the layout is %s, want %s: those that train "
                  "first, in the order of "
                  "the walk",
                  place, layout.params[place]->name, param->name);
            int64_t cols = param->ndim > 1 ? param->shape[1] : 1;
            int64_t chunk = most_rows(param->shape[0], s->world) * cols;
            check(layout.offset[place] == s->world * at,
                  "per_parameter_layout: %s begins at element %lld of the unsharded buffer, want "
                  "%lld: after the chunks "
                  "that all ranks have of those before it",
                  param->name, (long long)layout.offset[place], (long long)(s->world * at));
            if (ranges) check_ranges(&layout, s, place, at);
            numel += param->shape[0] * cols;
            at += chunk;
            if (last == 0) grads = at;
            place++;
        }
    check(layout.numel == numel && layout.shard_numel == at && layout.padded == s->world * at,
          "per_parameter_layout: %lld elements on %d ranks: numel %lld, shards of %lld, padded "
          "%lld; want "
          "%lld, %lld, %lld",
          (long long)numel, s->world, (long long)layout.numel, (long long)layout.shard_numel,
          (long long)layout.padded, (long long)numel, (long long)at, (long long)(s->world * at));
    check(layout.grad_numel == grads,
          "per_parameter_layout: %lld elements of a shard have a gradient, want %lld: the chunks "
          "of those that train",
          (long long)layout.grad_numel, (long long)grads);
    flat_layout_destroy(&layout);
}

typedef struct Needed {
    int layouts; // 0: chunks alone; 1: places and lengths, too; 2: and who owns what
    bool frozen; // of frozen parameters, too
} Needed;

static void fixed_body(const Rank *r, void *arg)
{
    const Needed *needed = arg;
    for (int world = 1; world <= MOST_WORLD; world++) {
        Shapes s = {.world = world};
        add_shape(&s, 5, 2, false);
        add_shape(&s, world, 3, false); // a row each
        add_shape(&s, world > 1 ? world - 1 : 1, 4, needed->frozen);
        add_shape(&s, 1, 0, false); // one element
        add_shape(&s, 2 * world + 1, 0, needed->frozen);
        add_shape(&s, 3 * world, 1, false);
        check_chunks(&s);
        for (int i = 0; i < needed->layouts; i++) check_layout(&s, i == 1);
    }
}

void need_chunks(void)
{
    Needed chunks = {0, false};
    run_ranks(1, fixed_body, &chunks);
}

void need_layout(bool frozen)
{
    Needed all = {2, frozen};
    run_ranks(1, fixed_body, &all);
}

TEST(chunks_are_whole_rows)
{
    need_chunks();
}

TEST(a_unit_is_laid_out)
{
    Needed places = {1, true};
    run_ranks(1, fixed_body, &places);
}

static void drawn_body(const Rank *r, void *arg)
{
    check_chunks(arg);
    check_layout(arg, true);
}

TEST(rows_are_cut_into_chunks)
{
    Shapes s = {.world = draw(1, MOST_WORLD)};
    int n = draw(1, MOST_PARAMS);
    for (int i = 0; i < n; i++)
        add_shape(&s, draw(1, 20), draw_chance(30) ? 0 : draw(1, 9), draw_chance(40));
    need_layout(true);
    run_ranks(1, drawn_body, &s);
    RULE(layout_beyond_32_bits);
}

static void refused_body(const Rank *r, void *arg)
{
    FlatLayout layout;
    static const struct {
        int n, rank, world;
        bool align, narrow, owned;
        const char *why;
    } BAD[] = {{1, 0, 0, false, false, false, "a world of 0 ranks"},
               {1, 2, 2, false, false, false, "rank 2 is none of 0 to 1"},
               {0, 0, 1, false, false, false, "no parameters"},
               {1, 0, 2, true, false, false, "align_shards is for flat parameters"},
               {1, 0, 2, false, true, false, "is not float"},
               {1, 0, 2, false, false, true, "belongs to another unit"}};
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        Shapes s = {.world = 1};
        add_shape(&s, 4, 2, false);
        if (BAD[i].narrow) s.param[0].dtype = DTYPE_BF16;
        if (BAD[i].owned) s.param[0].owner = &s;
        need_refused(per_parameter_layout(&layout, "unit", s.list, BAD[i].n, BAD[i].rank,
                                          BAD[i].world, BAD[i].align),
                     BAD[i].why);
    }
}

// ---- The models ----

Case by_parameter(Spec spec, Strategy strategy, int world, int replicas, int rounds)
{
    Case c = case_of(spec, strategy, world, replicas, rounds);
    c.layout = per_parameter_layout;
    return c;
}

void check_case_refused(int world, Case *c)
{
    const char *reason = case_refusal(c, world);
    if (reason[0] == '\0') fail_msg("the case is not one that is refused");
    char *message = run_refused_message(world, c, reason);
    if (message != NULL) fail_msg("%s", message);
}

static bool every_fourth(int i) // as many of each block of a GPT-2
{
    return i % 4 == 2;
}

// Its initial values.
float *values_of_param(const Param *param, int64_t numel)
{
    float *want = malloc((size_t)numel * sizeof *want);
    check(want != NULL, "no memory for the oracle");
    meta_init_slice(param, 42, 0, numel, want);
    return want;
}

// ---- Copy-out ----

size_t count_since(uint64_t first, GpuOp op, size_t *bytes)
{
    size_t n = 0;
    *bytes = 0;
    for (uint64_t i = first; i < gpulog_length(); i++) {
        GpuLogEntry entry;
        if (!gpulog_get(i, &entry) || entry.op != op) continue;
        if (op == GPU_COPY && (entry.to == GPULOG_HOST || entry.from == GPULOG_HOST)) continue;
        n++;
        *bytes += entry.bytes;
    }
    return n;
}

static void contiguous_body(Wrapped *w, const Case *c, const Rank *r)
{
    for (int u = 0; u < w->root->n_units; u++) {
        FsdpUnit *unit = w->root->units[u];
        const FlatLayout *layout = &unit->flat.layout;
        size_t before = gpulog_live_bytes(r->device), bytes;
        uint64_t first = gpulog_length();
        need(fsdp_unshard(unit));
        need(fsdp_wait_for_unshard(unit));
        size_t copies = count_since(first, GPU_COPY, &bytes);
        size_t want = layout->world > 1 ? (size_t)layout->n : 0;
        check(copies == want && bytes == (want > 0 ? (size_t)layout->padded * 4 : 0),
              "copy_out of %s made %zu copies of %zu bytes, want %zu of %zu: one per parameter, "
              "with its padding",
              unit->flat.name, copies, bytes, want, want > 0 ? (size_t)layout->padded * 4 : 0);
        need_cuda(cudaDeviceSynchronize());
        check_no_race(first);
        for (int i = 0; i < layout->n; i++) {
            Param *param = layout->params[i];
            int64_t numel = meta_numel(param);
            check(param->data.data == (float *)unit->flat.unsharded_param.data + layout->offset[i],
                  "%s is no view of the unsharded buffer at offset[%d]: copy_out sets the views",
                  param->name, i);
            float *got = fetch(param->data.data, (size_t)numel);
            float *values = values_of_param(param, numel);
            check_equal("an unsharded parameter, contiguous", got, values, (size_t)numel);
            free(got);
            free(values);
        }
        size_t unsharded = layout->world > 1 ? (size_t)layout->padded * 4 : 0;
        check(gpulog_live_bytes(r->device) - before == unsharded,
              "outside of a forward an unsharded unit of %zu bytes takes %zu: copy_out frees the "
              "gather buffer there",
              unsharded, gpulog_live_bytes(r->device) - before);
        need(fsdp_reshard(unit));
        need(fsdp_free_all_gather(w->root));
        check(gpulog_live_bytes(r->device) == before, "a reshard has left %zu bytes",
              gpulog_live_bytes(r->device) - before);
    }
}

TEST(unsharded_parameters_are_contiguous)
{
    need_layout(false);
    for (int world = 1; world <= MOST_WORLD; world++) {
        Case c = by_parameter(spec_mlp(3), STRATEGY_ZERO3, world, 1, 1);
        run_wrapped(world, contiguous_body, &c);
    }
}

// ---- Two gather buffers ----

// The n-th entry of this kind since `first`; -1.
static int64_t nth(uint64_t first, GpuOp op, int n)
{
    GpuLogEntry entry;
    for (uint64_t i = first; i < gpulog_length(); i++)
        if (gpulog_get(i, &entry) && entry.op == op && n-- == 0) return (int64_t)i;
    return -1;
}

// The copies of the unit that is gathered n-th: the first one after its all-gather.
static int64_t copy_after(int64_t gather)
{
    return nth((uint64_t)gather, GPU_COPY, 0);
}

static void buffers_body(Wrapped *w, const Case *c, const Rank *r)
{
    Batch batch = case_batch(c, 0, r->rank, 0);
    size_t live = gpulog_live_bytes(r->device);
    uint64_t first = gpulog_length();
    forward_batch(&c->spec, &w->run, w->model, &batch);
    check(w->root->extensions->copied_out.buffer == NULL,
          "after the outermost forward a gather buffer is left to free");
    check_no_race(first);
    // The root's is gathered first and copied after the batch; from the first block on they
    // overlap.
    for (int k = 1; k + 1 < w->root->n_units; k++) {
        int64_t gather = nth(first, GPU_ALL_GATHER, k), next = nth(first, GPU_ALL_GATHER, k + 1);
        check(gather >= 0 && next >= 0, "a forward of %d units made fewer all-gathers",
              w->root->n_units);
        int64_t copy = copy_after(gather);
        check(copy >= 0 && copy < next, "unit %d was not copied out before the next was gathered",
              k);
        check(
            !log_ordered((uint64_t)copy, (uint64_t)next),
            "the all-gather of unit %d waits for the copy-out of the unit before it: in a forward "
            "copy_out leaves its gather buffer to the next",
            k + 1);
        if (k + 2 >= w->root->n_units) continue;
        int64_t third = nth(first, GPU_ALL_GATHER, k + 2);
        check(log_ordered((uint64_t)copy, (uint64_t)third),
              "the all-gather of unit %d does not wait for the copy-out of unit %d: more than two "
              "gather buffers are there at a time",
              k + 2, k);
    }
    need(fsdp_reshard_all(w->model));
    need_cuda(cudaDeviceSynchronize());
    check(gpulog_live_bytes(r->device) == live,
          "a forward has left %zu bytes: copy_out frees the gather buffer of the unit before",
          gpulog_live_bytes(r->device) - live);
    batch_destroy(&batch);
}

TEST(two_gather_buffers_at_most)
{
    need_layout(false);
    for (int world = 2; world <= 4; world++) {
        Case c = by_parameter(spec_mlp(6), STRATEGY_ZERO3, world, 1, 1);
        run_wrapped(world, buffers_body, &c);
    }
}

// ---- Training ----

TEST(gradients_are_reduced_in_rank_order)
{
    need_layout(false);
    for (int world = 1; world <= MOST_WORLD; world++) {
        Case c = by_parameter(spec_mlp(3), STRATEGY_ZERO3, world, 1, 1 + world % 2);
        run_case(world, &c);
    }
    Case gpt2 = by_parameter(spec_gpt2(2), STRATEGY_ZERO3, 3, 1, 1);
    run_case(3, &gpt2);
    Case drawn = by_parameter(draw_mlp(5), STRATEGY_ZERO3, 1, 1, 1);
    int world = drawn_world(&drawn.spec, 2, MOST_WORLD);
    run_case(world, &drawn);
}

TEST(strategies_and_types_train_alike)
{
    need_layout(false);
    static const MixedPrecisionPolicy NARROW = {DTYPE_BF16, DTYPE_F32, DTYPE_F32, true};
    static const Strategy ALL[] = {STRATEGY_DDP, STRATEGY_ZERO1, STRATEGY_ZERO2, STRATEGY_ZERO3};
    for (int i = 0; i < 4; i++)
        for (int replicas = 1; replicas <= 2; replicas++) {
            Case c = by_parameter(spec_mlp(3), ALL[i], 6, replicas, 2);
            c.policy = (i + replicas) % 2 == 0 ? &NARROW : NULL;
            c.partial = replicas == 2 && i == 2;
            run_case(6, &c);
        }
    Case slices = by_parameter(spec_mlp(3), STRATEGY_ZERO3, 4, 1, 1);
    slices.options.reshard_ranks = 2;
    check_case_refused(4, &slices);
    run_ranks(1, refused_body, NULL);
}

// ---- What it costs ----

// Of one rank and one step; R, u: bytes of the root and of a block, padded; rG, uG: of those that
// train. The models' blocks are equal.
static void costs_body(Wrapped *w, const Case *c, const Rank *r)
{
    size_t params = 0, grads = 0, n_params = 0, n_grads = 0, R = 0, u = 0, rG = 0, uG = 0;
    for (int i = 0; i < w->root->n_units; i++) {
        const FlatLayout *layout = &w->root->units[i]->flat.layout;
        size_t bytes = 0, before = grads, times = i == 0 ? 1 : 2; // again for the backward
        for (int k = 0; k < layout->n; k++) {
            int64_t rows = layout->params[k]->shape[0];
            size_t chunk =
                (size_t)(most_rows(rows, r->world) * (meta_numel(layout->params[k]) / rows));
            bytes += 4 * chunk * (size_t)r->world;
            n_grads += !layout->params[k]->frozen;
            grads += layout->params[k]->frozen ? 0 : 4 * chunk * (size_t)r->world;
        }
        n_params += times * (size_t)layout->n;
        params += times * bytes;
        *(i == 0 ? &R : &u) = bytes;
        size_t *trains = i == 0 ? &rG : &uG;
        if (grads - before > *trains) *trains = grads - before;
    }
    uint64_t first = gpulog_length();
    size_t bytes, copies;
    gpulog_reset_traffic();
    case_train(w, c, r, 0);
    check_all_freed(first);
    copies = count_since(first, GPU_COPY, &bytes);
    check(copies == n_params + n_grads && bytes == params + grads,
          "a step made %zu copies of %zu bytes, want %zu of %zu: one per parameter for each "
          "all-gather, one per gradient for each reduction",
          copies, bytes, n_params + n_grads, params + grads);
    size_t W = (size_t)r->world;
    check(gpulog_traffic(GPU_ALL_GATHER).sent == (W - 1) * (params / W),
          "a step's all-gathers sent %llu bytes, want %zu",
          (unsigned long long)gpulog_traffic(GPU_ALL_GATHER).sent, (W - 1) * (params / W));
    check(gpulog_traffic(GPU_REDUCE_SCATTER).sent == (W - 1) * (grads / W),
          "a step's reduce-scatters sent %llu bytes, want %zu: frozen parameters have no part in "
          "them",
          (unsigned long long)gpulog_traffic(GPU_REDUCE_SCATTER).sent, (W - 1) * (grads / W));
    size_t most_params = R + (R + u > 3 * u ? R + u : 3 * u);
    size_t most_grads = rG + (rG > 2 * uG ? rG : 2 * uG);
    check(case_peak(first, GPU_UNSHARDED_PARAM) == most_params,
          "unsharded parameters and gather buffers had %zu bytes at most, want %zu: copy_out "
          "leaves one gather buffer in a forward, none in a backward",
          case_peak(first, GPU_UNSHARDED_PARAM), most_params);
    check(case_peak(first, GPU_UNSHARDED_GRAD) == most_grads,
          "unsharded gradients and what is being reduced had %zu bytes at most, want %zu: copy_in "
          "frees the reduction before it takes memory, and last what it has copied",
          case_peak(first, GPU_UNSHARDED_GRAD), most_grads);
}

TEST(copies_and_bytes_are_the_table)
{
    need_layout(true);
    for (int world = 2; world <= MOST_WORLD; world++) {
        Case c = by_parameter(spec_gpt2(4), STRATEGY_ZERO3, world, 1, 1);
        c.frozen = world % 2 == 0 ? every_fourth : NULL;
        run_wrapped(world, costs_body, &c);
    }
}

// ---- Padding ----

static void padding_body(Wrapped *w, const Case *c, const Rank *r)
{
    for (int u = 0; u < w->root->n_units; u++) {
        FlatParam *flat = &w->root->units[u]->flat;
        const FlatLayout *layout = &flat->layout;
        size_t n = (size_t)layout->shard_numel;
        float *sevens = malloc(n * sizeof *sevens);
        check(sevens != NULL, "no memory");
        for (size_t i = 0; i < n; i++) sevens[i] = 7.0f;
        send_to(flat->sharded_param.data, sevens, n);
        need(flat_zero_padding(flat, &flat->sharded_param, r->stream));
        need_cuda(cudaStreamSynchronize(r->stream));
        float *got = fetch(flat->sharded_param.data, n);
        int64_t at = 0;
        for (int i = 0; i < layout->n; i++) {
            int64_t rows = layout->params[i]->shape[0], cols = meta_numel(layout->params[i]) / rows;
            for (int64_t k = 0; k < most_rows(rows, r->world) * cols; k++, at++) {
                int64_t row = r->rank * most_rows(rows, r->world) + k / cols;
                check((got[at] == 7.0f) == (row < rows),
                      "zero_padding: element %lld of rank %d's shard of %s, in its chunk of %s, is "
                      "%g: padding is "
                      "what comes after the rank's rows, in each chunk",
                      (long long)at, r->rank, flat->name, layout->params[i]->name, (double)got[at]);
            }
        }
        int64_t valid = flat_valid_numel(layout, r->rank), last = 0;
        for (at = 0; at < (int64_t)n; at++)
            if (got[at] == 7.0f) last = at + 1;
        check(valid == last,
              "valid_numel: the last valid element of rank %d's shard of %s ends at %lld, want "
              "%lld",
              r->rank, flat->name, (long long)valid, (long long)last);
        free(sevens);
        free(got);
    }
}

TEST(each_chunk_has_its_padding)
{
    need_layout(false);
    for (int world = 1; world <= MOST_WORLD; world++) {
        Case c = by_parameter(spec_mlp(3), STRATEGY_ZERO3, world, 1, 1);
        run_wrapped(world, padding_body, &c);
        c.spec = spec_gpt2(2); // some have padding, between others that have none
        run_wrapped(world, padding_body, &c);
    }
}

SUITE_MAIN("per_parameter")
