/* Lab 6: a copy, a collective or a visitor that fails; sizes beyond 2³¹; what only costs; what is
 * taken off leaves nothing.
 */
#include <stdlib.h>
#include <string.h>

#include "backend.h"
#include "fp8_gather.h"
#include "per_parameter.h"
#include "snapshot.h"
#include "tests.h"

static const Fp8Options MATRICES = {NULL};

// ---- The handout's own examples ----

// Rows of each of four ranks, of a parameter of so many.
static const int ROWS[][5] = {{5, 2, 2, 1, 0}, {4, 1, 1, 1, 1}, {3, 1, 1, 1, 0}};
// On two ranks a (5 rows of 2) and b (3 rows of 1): [begin, end) at a place.
static const int64_t RANGES[2][2][3] = {{{0, 6, 0}, {0, 2, 6}}, {{6, 10, 0}, {2, 3, 6}}};

static void examples_body(const Rank *r, void *arg)
{
    Param a = {.name = "a", .ndim = 2, .shape = {5, 2}}, b = {.name = "b", .ndim = 1, .shape = {3}},
          w = {.name = "w", .ndim = 2, .shape = {3, 3}};
    Param *list[] = {&a, &b}, *both[] = {&b, &w};
    FlatLayout layout;
    for (int i = 0; i < 3; i++)
        for (int rank = 0; rank < 4; rank++) {
            int64_t begin, end, at;
            Param p = {.name = "p", .ndim = 1, .shape = {ROWS[i][0]}}, *one = &p;
            need(per_parameter_layout(&layout, "unit", &one, 1, rank, 4, false));
            flat_param_range_in_shard(&layout, 0, rank, &begin, &end, &at);
            check(end - begin == ROWS[i][1 + rank],
                  "%d rows on 4 ranks: rank %d has %lld, want %d, as the handout has it",
                  ROWS[i][0], rank, (long long)(end - begin), ROWS[i][1 + rank]);
            flat_layout_destroy(&layout);
        }
    need(per_parameter_layout(&layout, "unit", list, 2, 0, 2, false));
    for (int rank = 0; rank < 2; rank++)
        for (int i = 0; i < 2; i++) {
            const int64_t *want = RANGES[rank][i];
            int64_t begin, end, at;
            flat_param_range_in_shard(&layout, i, rank, &begin, &end, &at);
            check(begin == want[0] && end == want[1] && at == want[2],
                  "rank %d has [%lld, %lld) of %s at %lld, want [%lld, %lld) at %lld, as the "
                  "handout has it",
                  rank, (long long)begin, (long long)end, list[i]->name, (long long)at,
                  (long long)want[0], (long long)want[1], (long long)want[2]);
        }
    flat_layout_destroy(&layout);
    int64_t at[2], bytes;
    need(per_parameter_layout(&layout, "unit", both, 2, 0, 2, false));
    bytes = fp8_place(&layout, (const int[]){-1, 0}, 4, at);
    check(bytes == 16 && at[0] == 0 && at[1] == 8,
          "a bias of 3 floats and a matrix of 3 by 3 on 2 ranks: a part of %lld bytes, with the "
          "bias at %lld and the matrix at %lld; the handout has 16, 0 and 8",
          (long long)bytes, (long long)at[0], (long long)at[1]);
    flat_layout_destroy(&layout);
}

void rule_the_handouts_examples(void)
{
    run_ranks(1, examples_body, NULL);
}

// ---- Sizes ----

enum { WORLD = 4 };

static void check_chunk(const Param *param, int64_t want)
{
    check(per_parameter_chunk(param, WORLD) == want,
          "per_parameter_chunk: a chunk has %lld elements, want %lld, which is beyond 2³¹",
          (long long)per_parameter_chunk(param, WORLD), (long long)want);
}

static void huge_layout_body(const Rank *r, void *arg)
{
    // Two parameters of 2³² + 5 rows of 3 and 2³² + 1 rows of 2.
    const int64_t rows[] = {(INT64_C(1) << 32) + 5, (INT64_C(1) << 32) + 1}, columns[] = {3, 2};
    const int64_t chunk[] = {((INT64_C(1) << 30) + 2) * 3, ((INT64_C(1) << 30) + 1) * 2};
    Param param[2] = {{.name = "a", .ndim = 2, .shape = {rows[0], columns[0]}},
                      {.name = "b", .ndim = 2, .shape = {rows[1], columns[1]}}};
    Param *list[] = {&param[0], &param[1]};
    FlatLayout layout;
    for (int i = 0; i < 2; i++) check_chunk(list[i], chunk[i]);
    need(per_parameter_layout(&layout, "unit", list, 2, WORLD - 1, WORLD, false));
    check(layout.offset[1] == WORLD * chunk[0] && layout.shard_numel == chunk[0] + chunk[1] &&
              layout.numel == rows[0] * columns[0] + rows[1] * columns[1],
          "per_parameter_layout counts beyond 2³¹: the second parameter is at %lld of shards of "
          "%lld, want %lld and %lld",
          (long long)layout.offset[1], (long long)layout.shard_numel, (long long)(WORLD * chunk[0]),
          (long long)(chunk[0] + chunk[1]));
    for (int i = 0; i < 2; i++) {
        int64_t begin, end, at;
        flat_param_range_in_shard(&layout, i, WORLD - 1, &begin, &end, &at);
        check(begin == (WORLD - 1) * chunk[i] && end == rows[i] * columns[i] &&
                  at == (i == 0 ? 0 : chunk[0]),
              "param_range counts beyond 2³¹: [%lld, %lld) at %lld", (long long)begin,
              (long long)end, (long long)at);
    }
    flat_layout_destroy(&layout);
}

static void huge_place_body(const Rank *r, void *arg)
{
    const int64_t chunk[] = {((INT64_C(1) << 30) + 2) * 3, ((INT64_C(1) << 30) + 1) * 2};
    Param param[2] = {{.name = "a", .ndim = 1, .shape = {chunk[0] * WORLD}},
                      {.name = "b", .ndim = 1, .shape = {chunk[1] * WORLD}}};
    Param *list[] = {&param[0], &param[1]};
    const int slots[][2] = {{-1, 0}, {0, -1}};
    FlatLayout layout;
    for (int i = 0; i < 2; i++) check_chunk(list[i], chunk[i]);
    need(per_parameter_layout(&layout, "unit", list, 2, 0, WORLD, false));
    for (int i = 0; i < 2; i++) {
        int64_t at[2], wide = chunk[i] * 4, codes = chunk[1 - i];
        int64_t bytes = fp8_place(&layout, slots[i], 4, at);
        check(at[i] == 0 && at[1 - i] == wide && bytes == (wide + codes + 3) / 4 * 4,
              "fp8_place counts beyond 2³¹: places %lld and %lld, %lld bytes", (long long)at[0],
              (long long)at[1], (long long)bytes);
    }
    flat_layout_destroy(&layout);
}

void rule_layout_beyond_32_bits(void)
{
    run_ranks(1, huge_layout_body, NULL);
}

void rule_places_beyond_32_bits(void)
{
    run_ranks(1, huge_place_body, NULL);
}

// ---- What is freed before memory is taken ----

static void freed_first_body(Wrapped *w, const Case *c, const Rank *r)
{
    uint64_t first = gpulog_length();
    size_t most = 0;
    for (int u = 2; u < w->root->n_units; u++) { // as in a forward, of equal units
        FsdpUnit *unit = w->root->units[u];
        unit->phase = FSDP_FORWARD;
        need(fsdp_unshard(unit));
        need(fsdp_wait_for_unshard(unit));
        unit->phase = FSDP_IDLE;
        if (u > 2) need(fsdp_reshard(w->root->units[u - 1]));
        most = buffer_bytes(&unit->flat.unsharded_param);
    }
    need(fsdp_reshard_all(w->model));
    need(layout_free_copied_out(w->root));
    need(fsdp_free_all_gather(w->root));
    size_t peak = case_peak(first, GPU_UNSHARDED_PARAM);
    check(peak <= 3 * most,
          "two units of %zu bytes are unsharded one after the other, and %zu bytes are there at a "
          "time, want three buffers: copy_out frees the gather buffer before it takes memory",
          most, peak);
}

// ---- A call that fails ----

void rule_copies_that_fail(void)
{
    Case c = by_parameter(spec_mlp(4), STRATEGY_ZERO3, 2, 1, 1);
    run_wrapped(2, freed_first_body, &c);
    c = by_parameter(spec_mlp(2), STRATEGY_ZERO3, 2, 1, 1);
    run_failing_calls(2, &c);
    c.fp8 = &MATRICES;
    run_failing_calls(2, &c);
}

// ---- FP8 ----

static Status count_params(const Param *param, const float *values, void *arg)
{
    return ++*(int *)arg == 2 ? fail(ERR_IO, "%s: as it is meant to", param->name) : OK;
}

// Kernels, and sets of memory, since `first`.
static size_t launches(uint64_t first, GpuOp op)
{
    size_t n = 0;
    GpuLogEntry entry;
    for (uint64_t i = first; i < gpulog_length(); i++) n += gpulog_get(i, &entry) && entry.op == op;
    return n;
}

static void scales_body(Wrapped *w, const Case *c, const Rank *r)
{
    Fp8State *state = w->root->extensions->fp8;
    uint64_t first;
#ifndef BACKEND_CUDA
    if (r->world > 1) {
        const ncclComm_t comm = w->ctx.mesh.shard.comm;
        backend_ignore_reports();
        w->ctx.mesh.shard.comm = NULL;
        need_failure(fp8_update_scales(w->root), ERR_NCCL, "");
        w->ctx.mesh.shard.comm = comm;
        check(state->stale,
              "fp8_update_scales failed in its all-reduce, and the scales are not stale any more");
        need_cuda(cudaDeviceSynchronize());
        backend_listen();
    }
#endif
    first = gpulog_length();
    need(fp8_update_scales(w->root));
    check_no_host_wait(first, "for its scales");
    check(r->world == 1 || launches(first, GPU_ALL_REDUCE) == 1,
          "with %d units the scales take %zu all-reduces, want 1", w->root->n_units,
          launches(first, GPU_ALL_REDUCE));
    for (int u = 0; u < w->root->n_units; u++) need(fsdp_unshard(w->root->units[u]));
    need(fsdp_reshard_all(w->model));
    check(!state->stale, "after an all-gather the scales are still stale");
}

static void launches_body(Wrapped *w, const Case *c, const Rank *r)
{
    FsdpUnit *unit = w->root->units[w->root->n_units - 1];
    need(fp8_update_scales(w->root));
    uint64_t first = gpulog_length();
    need(fsdp_unshard(unit));
    size_t each = launches(first, GPU_KERNEL) + launches(first, GPU_COPY),
           sets = launches(first, GPU_MEMSET);
    check(each == (size_t)unit->flat.layout.n && sets <= 1,
          "%d parameters take %zu kernels or copies and %zu memsets in front of an all-gather, "
          "want one for each: fill_part",
          unit->flat.layout.n, each, sets);
    check(r->world > 1 || launches(first, GPU_ALL_GATHER) == 0,
          "one rank sends nothing, and there is an all-gather: fp8_all_gather");
    need(fsdp_wait_for_unshard(unit));
    need(fsdp_reshard_all(w->model));
}

static void saving_body(Wrapped *w, const Case *c, const Rank *r)
{
    Fp8State *state = w->root->extensions->fp8;
    FsdpUnit *unit = w->root->units[w->root->n_units - 1];
    int n;
    need(fp8_update_scales(w->root));
    // The model is saved, and goes on in FP8, failed or not.
    for (int fails = 0; fails < 2; fails++) {
        n = fails ? 0 : 2;
        check_set_silent(true);
        Status status = fsdp_full_state(w->model, count_params, &n);
        check_set_silent(false);
        check(status == (fails && r->rank == 0 ? ERR_IO : OK), // it is shown to one
              "a visitor %s, and fp8_full_state gives status %d", fails ? "fails" : "works",
              (int)status);
        check(unit->all_gather == fp8_all_gather && unit->flat.gathers_alone &&
                  unit->flat.unsharded_param.dtype == DTYPE_BYTE,
              "after fp8_full_state, %s, %s does not gather in FP8",
              fails ? "whose visitor failed" : "which worked", unit->flat.name);
        check(!state->stale, "fp8_full_state writes no shard: the scales are those of before");
    }
    need(fp8_remove(w->model));
    Snapshot *before = snapshot_take(w->model, &w->adamw);
    need(fp8_apply(w->model, c->fp8));
    need(fp8_remove(w->model));
    snapshot_check_at(__FILE__, __LINE__, before, w->model, &w->adamw, "fp8_apply and fp8_remove");
    need(fp8_apply(w->model, c->fp8));
}

// Of one unit, and of three.
static void run_fp8(WrappedBody body)
{
    for (int world = 1; world < 4; world++) {
        Case c = by_parameter(spec_mlp(world == 2 ? 1 : 3), STRATEGY_ZERO3, world, 1, 1);
        c.fp8 = &MATRICES;
        run_wrapped(world, body, &c);
    }
}

void rule_scales_of_any_number_of_units(void)
{
    run_fp8(scales_body);
}

void rule_one_launch_for_each(void)
{
    run_fp8(launches_body);
}

void rule_saving_changes_nothing(void)
{
    run_fp8(saving_body);
}
