/* tests_fp8.c: the second half, FP8 all-gathers: what is in a message, the scales, what a parameter
 * is afterwards, bytes, and trainings. Numbers of 8 bits are worked out by fp8_numbers.h.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "draw_model.h"
#include "fp8_numbers.h"
#include "harness.h"
#include "narrow.h"
#include "per_parameter.h"
#include "snapshot.h"
#include "strategies.h"
#include "tests.h"

static bool everything(const Param *param)
{
    return true;
}

static bool nothing(const Param *param)
{
    return false;
}

static const Fp8Options MATRICES = {NULL}, ALL = {everything}, NONE = {nothing};

static Case in_fp8(Spec spec, Strategy strategy, int world, int replicas, int rounds)
{
    Case c = by_parameter(spec, strategy, world, replicas, rounds);
    c.fp8 = &MATRICES;
    return c;
}

// Elements of a parameter's chunk.
static size_t chunk_of(const Param *param, int world)
{
    return (size_t)(most_rows(param->shape[0], world) * (meta_numel(param) / param->shape[0]));
}

// ---- What is in a message ----

// Bytes of a rank's part: those of the numbers that are not quantised are a multiple of `wide`.
static size_t part_of(const FlatLayout *layout, const int *slot, size_t wide)
{
    size_t numbers = 0, codes = 0;
    for (int i = 0; i < layout->n; i++)
        *(slot[i] < 0 ? &numbers : &codes) += chunk_of(layout->params[i], layout->world);
    if (numbers > 0)
        while (codes % wide != 0) codes++;
    return numbers * wide + codes;
}

static void places_body(const Rank *r, void *arg)
{
    const Case *c = arg;
    Module *model = spec_create(&c->spec);
    Param *params[64];
    int n = meta_params(model, params, 64);
    for (int world = 1; world <= 8; world++)
        for (int kind = 0; kind < 4; kind++) {
            int slot[64];
            int64_t at[64], wide = kind % 2 == 0 ? 4 : 2, numbers = 0, codes = 0;
            const FlatLayout layout = {.params = params, .n = n, .world = world};
            for (int i = 0; i < n; i++) {
                bool chosen = kind < 2 ? layout.params[i]->ndim > 1 : kind == 2 || i % 3 == 0;
                slot[i] = chosen ? i : -1;
                if (!chosen) numbers += wide * (int64_t)chunk_of(layout.params[i], world);
            }
            int64_t bytes = fp8_place(&layout, slot, wide, at), first = 0;
            for (int i = 0; i < n; i++) {
                int64_t *next = slot[i] < 0 ? &first : &codes,
                        chunk = (int64_t)chunk_of(layout.params[i], world);
                int64_t want = slot[i] < 0 ? first : numbers + codes;
                check(
                    at[i] == want,
                    "fp8_place: the chunk of %s, %s, begins at byte %lld of a part, want %lld: "
                    "what is not quantised comes first, then the codes, in the order of the layout",
                    layout.params[i]->name, slot[i] < 0 ? "not quantised" : "in 8 bits",
                    (long long)at[i], (long long)want);
                *next += chunk * (slot[i] < 0 ? wide : 1);
            }
            check(bytes == (int64_t)part_of(&layout, slot, (size_t)wide),
                  "fp8_place: a part of %lld bytes of numbers and %lld codes on %d ranks has %lld "
                  "bytes, want %zu: a multiple of %lld where there are such numbers, else only the "
                  "codes",
                  (long long)numbers, (long long)codes, world, (long long)bytes,
                  part_of(&layout, slot, (size_t)wide), (long long)wide);
        }
    module_destroy(model);
}

static void check_places(void)
{
    Case c = in_fp8(spec_mlp(4), STRATEGY_ZERO3, 1, 1, 1);
    run_ranks(1, places_body, &c);
}

// What all else builds on, as need_layout.
static void need_places(void)
{
    need_layout(false);
    check_places();
}

TEST(codes_and_floats_share_a_message)
{
    need_chunks();
    check_places();
    RULE(the_handouts_examples);
    RULE(places_beyond_32_bits);
}

// ---- Scales ----

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

// This rank's masters are `factor` times the initial values.
static void check_masters(const Wrapped *w, float factor)
{
    for (int u = 0; u < w->root->n_units; u++) {
        const FlatParam *flat = &w->root->units[u]->flat;
        float *got = fetch(flat->sharded_param.data, (size_t)flat->layout.shard_numel);
        for (int i = 0; i < flat->layout.n; i++) {
            const Param *const param = flat->layout.params[i];
            int64_t begin, end, at;
            float *values = values_of_param(param, meta_numel(param));
            flat_param_range_in_shard(&flat->layout, i, w->mesh.shard.rank, &begin, &end, &at);
            for (int64_t k = begin; k < end; k++)
                check(got[at + k - begin] == factor * values[k],
                      "the master of element %lld of %s is %.9g, want %.9g: fill_part reads the "
                      "shard, and writes only to the gather buffer",
                      (long long)k, param->name, (double)got[at + k - begin],
                      (double)(factor * values[k]));
            free(values);
        }
        free(got);
    }
}

// Each amax on the device is that of `factor` times the initial values.
static void check_scales(const Wrapped *w, float factor, const char *when)
{
    const Fp8State *state = w->root->extensions->fp8;
    check_masters(w, factor);
    uint32_t *got =
        (uint32_t *)(void *)fetch((const float *)(const void *)state->amax, (size_t)state->n);
    int n = 0;
    for (int u = 0; u < w->root->n_units; u++) {
        const FlatLayout *layout = &w->root->units[u]->flat.layout;
        for (int i = 0; i < layout->n; i++) {
            const Param *const param = layout->params[i];
            int64_t numel = meta_numel(param);
            int slot = fp8_of(w->root->units[u])->slot[i];
            if (param->ndim < 2) continue;
            float *values = values_of_param(param, numel), most = 0.0f;
            for (int64_t k = 0; k < numel; k++) most = fmaxf(most, factor * fabsf(values[k]));
            check(got[slot] == bits_of(most),
                  "fp8_update_scales: %s the amax of %s has the bits %08x, want %08x, of %.9g: the "
                  "largest element that any rank has of it now",
                  when, param->name, got[slot], bits_of(most), (double)most);
            free(values);
            n++;
        }
    }
    check(n == state->n, "%d parameters have a scale, want %d: the matrices", state->n, n);
    free(got);
}

// All-reduces since `first`, of which each must be of n numbers.
static void check_all_reduces(uint64_t first, size_t want, int n, const char *when)
{
    size_t bytes, count = count_since(first, GPU_ALL_REDUCE, &bytes);
    check(count == want,
          "fp8_update_scales: %s there were %zu all-reduces, want %zu: one for all units, where "
          "the shards were written "
          "since the last",
          when, count, want);
    check(bytes == want * 4 * (size_t)n,
          "fp8_update_scales: %s all-reduces had %zu bytes, want %zu: 4 of each parameter", when,
          bytes, want * 4 * (size_t)n);
}

static void scales_body(Wrapped *w, const Case *c, const Rank *r)
{
    size_t shards = (size_t)w->mesh.shard.size, one = shards > 1 ? 1 : 0;
    int n = w->root->extensions->fp8->n;
    uint64_t begin = gpulog_length(), first = begin;
    need(fp8_update_scales(w->root));
    check(!w->root->extensions->fp8->stale,
          "after fp8_update_scales state->stale is true: the scales are those of the shards now, "
          "and the next unit's all-gather need not find them again");
    case_train(w, c, r, 0);
    check_all_reduces(first, one, n, "in the first step");
    need_cuda(cudaDeviceSynchronize());
    check_scales(w, 1.0f, "in the first step");

    need(fsdp_zero_grad(w->model, &w->ctx)); // so that a step halves every parameter
    need(fsdp_sgd_step(w->model, &w->ctx, 0.5f, 1.0f));
    Batch batch = case_batch(c, 0, r->rank, 0);
    first = gpulog_length();
    need(fsdp_set_training(w->model, false));
    forward_batch(&c->spec, &w->run, w->model, &batch);
    need(fsdp_set_training(w->model, true));
    need(module_discard(w->model, &w->run));
    need(fsdp_reshard_all(w->model));
    check_all_reduces(first, one, n, "in an evaluation after a step of SGD");
    first = gpulog_length();
    case_train(w, c, r, 1);
    check_all_reduces(first, 0, n, "in a step after an evaluation");
    need_cuda(cudaDeviceSynchronize());
    check_scales(w, 0.5f, "after a step that halved it");

    need(fsdp_adamw_step(&w->adamw));
    first = gpulog_length();
    case_train(w, c, r, 2);
    check_all_reduces(first, one, n, "after a step of AdamW");
    need_cuda(cudaDeviceSynchronize());
    check_no_race(begin);
    batch_destroy(&batch);
}

// One element of the root's matrix, which rank 0 has, becomes a NaN: every rank's amax is one, too.
static void check_nan_of_rank_0(const Wrapped *w, const Rank *r)
{
    const FlatParam *flat = &w->root->units[0]->flat;
    const Fp8State *state = w->root->extensions->fp8;
    const float nan = NAN;
    int slot = state->units[0].slot[0], n = state->n;
    if (r->rank == 0) send_to(flat->sharded_param.data, &nan, 1);
    fsdp_shards_written(w->root);
    need_cuda(cudaDeviceSynchronize());
    need(fp8_update_scales(w->root));
    need_cuda(cudaDeviceSynchronize());
    uint32_t *got = (uint32_t *)(void *)fetch((const float *)(const void *)state->amax, (size_t)n);
    check(slot >= 0 && got[slot] > bits_of(INFINITY),
          "fp8_update_scales: rank 0 has a NaN in %s, and on rank %d its amax has the bits %08x, "
          "want those of a NaN: the largest as whole numbers, on each rank and over the ranks",
          flat->layout.params[0]->name, r->rank, got[slot]);
    free(got);
}

// The state and its tables are made, and units still gather floats: the switch is not needed.
static void largest_body(Wrapped *w, const Case *c, const Rank *r)
{
    need(fp8_create(w->root, &MATRICES));
    const Fp8State *state = w->root->extensions->fp8;
    for (int again = 0; again < 2; again++) {
        uint64_t first = gpulog_length();
        need(fp8_update_scales(w->root));
        check(!state->stale,
              "after fp8_update_scales state->stale is true: the scales are those of the shards "
              "now, and the next unit's all-gather need not find them again");
        check_all_reduces(first, again == 0 && r->world > 1, state->n,
                          again == 0 ? "at first" : "the second time");
        need_cuda(cudaDeviceSynchronize());
        check_no_race(first);
    }
    check_scales(w, 1.0f, "at first");
    need(fsdp_sgd_step(w->model, &w->ctx, 0.5f, 1.0f)); // halves every parameter
    need_cuda(cudaDeviceSynchronize());
    need(fp8_update_scales(w->root));
    need_cuda(cudaDeviceSynchronize());
    check_scales(w, 0.5f, "after a step that halved it");
    check_nan_of_rank_0(w, r);
    fp8_destroy(w->root);
}

TEST(one_all_reduce_finds_all_scales)
{
    need_places();
    for (int world = 1; world <= 8; world++) {
        Case c = by_parameter(spec_mlp(3), STRATEGY_ZERO3, world, 1, 1);
        run_wrapped(world, largest_body, &c);
    }
}

// ---- There and back ----

// What a matrix of this rank's model is filled with before it is gathered.
typedef enum Fill { INITIAL, ZEROS, INFINITE, A_NAN, TINY, FILLS } Fill;

static Fill fill_of(const Case *c, const Param *param)
{
    return c->tied ? (Fill)(param->id % FILLS) : INITIAL; // `tied`: with such numbers
}

// All values of the parameter, as the masters have them.
static float *filled(const Case *c, const Param *param)
{
    int64_t numel = meta_numel(param);
    float *x = values_of_param(param, numel);
    Fill fill = fill_of(c, param);
    for (int64_t i = 0; i < numel && fill == ZEROS; i++) x[i] = 0.0f;
    for (int64_t i = 0; i < numel && fill == TINY; i++) x[i] *= 0x1p-130f;
    if (fill == INFINITE) x[numel - 1] = -INFINITY;
    if (fill == A_NAN) x[0] = NAN;
    return x;
}

static void send_masters(Wrapped *w, const Case *c)
{
    for (int u = 0; u < w->root->n_units; u++) {
        const FlatParam *flat = &w->root->units[u]->flat;
        for (int i = 0; i < flat->layout.n; i++) {
            int64_t begin, end, at;
            float *x = filled(c, flat->layout.params[i]);
            flat_param_range_in_shard(&flat->layout, i, w->mesh.shard.rank, &begin, &end, &at);
            if (begin < end)
                send_to((float *)flat->sharded_param.data + at, x + begin, (size_t)(end - begin));
            free(x);
        }
    }
    fsdp_shards_written(w->root);
    need_cuda(cudaDeviceSynchronize());
}

// `how` a matrix came to its values.
static void check_param(const Case *c, const Param *param, const char *how)
{
    size_t numel = (size_t)meta_numel(param);
    DType type = c->policy != NULL ? c->policy->param_dtype : DTYPE_F32;
    float *x = filled(c, param), *want = filled(c, param);
    float *got = fetch_typed(type, param->data.data, numel);
    bool matrix = param->ndim > 1;
    double scale = fp8_scale(x, numel);
    if (matrix) fp8_param(want, numel);
    for (size_t i = 0; i < numel; i++) {
        float rounded = half_float(type, want[i]);
        check(got[i] == rounded || (isnan(got[i]) && isnan(rounded)),
              "element %zu of %s is %.9g in the masters, and %.9g unsharded, want %.9g: %s", i,
              param->name, (double)x[i], (double)got[i], (double)rounded,
              matrix ? how : "it is no matrix: copy_param copies what fill_part has cast");
        double bound = fmax(fabs(x[i]) / 16, ldexp(1.0, -10) / scale);
        if (matrix && type == DTYPE_F32 && !isnan(scale))
            check(fabs((double)got[i] - x[i]) <= bound,
                  "element %zu of %s: %.9g became %.9g, which is off by more than %.3g", i,
                  param->name, (double)x[i], (double)got[i], bound);
    }
    free(x);
    free(want);
    free(got);
}

static const char THERE_AND_BACK[] =
    "rounded to 8 bits with its parameter's scale by fill_part, and "
    "brought back by copy_param";

// The bytes of all ranks' parts against the masters of every rank.
static void check_message(const Case *c, const FsdpUnit *unit, const uint8_t *bytes)
{
    const FlatLayout *layout = &unit->flat.layout;
    const Fp8Unit *own = fp8_of(unit);
    size_t used = 0;
    for (int i = 0; i < layout->n; i++) {
        const Param *const param = layout->params[i];
        size_t numel = (size_t)meta_numel(param), chunk = chunk_of(param, layout->world);
        float *x = filled(c, param);
        bool code = own->slot[i] >= 0;
        double scale = fp8_scale(x, numel);
        size_t end = (size_t)own->at[i] + chunk * (code ? 1 : sizeof(float));
        if (end > used) used = end;
        for (size_t k = 0; k < chunk * (size_t)layout->world; k++) {
            const uint8_t *part = bytes + k / chunk * (size_t)own->shard_bytes + own->at[i];
            float value;
            memcpy(&value, part + k % chunk * (code ? 0 : sizeof value), sizeof value);
            double got = code ? fp8_value(part[k % chunk]) : value;
            double master = k < numel ? x[k] : 0.0;
            double want = code ? fp8_round(master * scale) : master;
            check(got == want,
                  "fill_part: in rank %zu's part element %zu of %s is %.9g, want %.9g%s", k / chunk,
                  k, param->name, got, want,
                  k >= numel ? ", it is padding"
                  : code     ? ", the master times the scale in 8 bits"
                             : ", the master");
        }
        free(x);
    }
    for (int rank = 0; rank < layout->world; rank++)
        for (size_t k = used; k < (size_t)own->shard_bytes; k++)
            check(bytes[(size_t)rank * (size_t)own->shard_bytes + k] == 0,
                  "fill_part: byte %zu of rank %d's part, after the last chunk, is not zero", k,
                  rank);
}

// A message is filled and gathered; and copied out, if that is `back`. The switch is not needed.
static void check_messages(Wrapped *w, const Case *c, const Rank *r, bool back)
{
    need(fp8_create(w->root, &MATRICES));
    Fp8State *state = w->root->extensions->fp8;
    uint64_t first = gpulog_length();
    need(fp8_update_scales(w->root));
    need_cuda(cudaDeviceSynchronize());
    check_scales(w, 1.0f, "before an all-gather");
    state->stale = true;
    for (int u = 0; u < w->root->n_units; u++) {
        FsdpUnit *unit = w->root->units[u];
        Buffer *buffer = &unit->flat.unsharded_param;
        const Buffer wide = *buffer;
        size_t bytes = (size_t)fp8_of(unit)->shard_bytes * (size_t)r->world;
        *buffer = (Buffer){NULL, DTYPE_BYTE, (int64_t)bytes};
        need_cuda(cudaMallocAsync(&buffer->data, bytes, w->ctx.all_gather_stream));
        need(fp8_all_gather(unit));
        check(!state->stale, "fp8_all_gather has left scales that are stale");
        need_cuda(cudaDeviceSynchronize());
        uint8_t *got = malloc(bytes + sizeof(float)); // a code is read as if it were a float
        check(got != NULL, "no memory");
        need_cuda(cudaMemcpy(got, buffer->data, bytes, cudaMemcpyDeviceToHost));
        check_message(c, unit, got);
        free(got);
        if (back) need(fp8_copy_out(unit));
        need_cuda(cudaDeviceSynchronize());
        for (int i = 0; i < unit->flat.layout.n && back; i++)
            check_param(c, unit->flat.layout.params[i], THERE_AND_BACK);
        need_cuda(cudaFreeAsync(buffer->data, w->ctx.compute_stream));
        need_cuda(cudaDeviceSynchronize());
        *buffer = wide;
        flat_set_views(&unit->flat);
    }
    check_no_race(first);
    fp8_destroy(w->root);
}

static void there_body(Wrapped *w, const Case *c, const Rank *r)
{
    check_messages(w, c, r, false);
}

static void back_body(Wrapped *w, const Case *c, const Rank *r)
{
    check_messages(w, c, r, true);
}

static void run_messages(WrappedBody body)
{
    need_places();
    for (int world = 1; world <= 8; world++) {
        Case c = by_parameter(spec_mlp(3), STRATEGY_ZERO3, world, 1, 1);
        run_wrapped(world, body, &c);
    }
}

TEST(each_rank_fills_its_part)
{
    run_messages(there_body);
}

TEST(copy_out_dequantises_codes)
{
    run_messages(back_body);
}

static void rounded_body(const Rank *r, void *arg)
{
    const Case *c = arg;
    Wrapped w;
    Case plain = *c;
    plain.tied = false;
    case_wrap(&w, &plain, r);
    send_masters(&w, c);
    uint64_t first = gpulog_length();
    size_t wide = c->policy != NULL ? 2 : 4, live = gpulog_live_bytes(r->device);
    for (int pass = 0; pass < 2; pass++)
        for (int u = 0; u < w.root->n_units; u++) {
            FsdpUnit *unit = w.root->units[u];
            FlatParam *flat = &unit->flat;
            size_t part = part_of(&flat->layout, fp8_of(unit)->slot, wide);
            size_t buffer = part * (size_t)flat->layout.world,
                   before = gpulog_live_bytes(r->device);
            check(
                buffer_bytes(&flat->unsharded_param) == buffer,
                "before its all-gather, number %d, unsharded_param of %s has %zu bytes, want %zu: "
                "fp8_reset makes it what the all-gather fills",
                pass + 1, flat->name, buffer_bytes(&flat->unsharded_param), buffer);
            need(fsdp_unshard(unit));
            check(gpulog_live_bytes(r->device) - before == buffer,
                  "an all-gather of %s took %zu bytes, want %zu: only the gather buffer",
                  flat->name, gpulog_live_bytes(r->device) - before, buffer);
            need(fsdp_wait_for_unshard(unit));
            check(
                !flat_param_is_shard(flat),
                "what is unsharded of %s was rounded, and flat_param_is_shard says that it is the "
                "shard: gather_in_fp8 sets flat.gathers_alone",
                flat->name);
            need_cuda(cudaDeviceSynchronize());
            check(
                gpulog_live_bytes(r->device) - before == buffer_bytes(&flat->unsharded_param),
                "outside of a forward an unsharded unit of %zu bytes takes %zu: its gather buffer "
                "is freed at once",
                buffer_bytes(&flat->unsharded_param), gpulog_live_bytes(r->device) - before);
            for (int i = 0; i < flat->layout.n; i++)
                check_param(c, flat->layout.params[i], THERE_AND_BACK);
            need(fsdp_reshard(unit));
            need(fsdp_free_all_gather(w.root));
        }
    check_no_race(first);
    check(gpulog_live_bytes(r->device) == live, "all-gathers in FP8 have left %zu bytes",
          gpulog_live_bytes(r->device) - live);
    case_unwrap(&w, r);
}

TEST(unsharded_matrices_are_rounded)
{
    need_places();
    static const MixedPrecisionPolicy BF16 = {DTYPE_BF16, DTYPE_F32, DTYPE_F32, true},
                                      FP16 = {DTYPE_F16, DTYPE_F32, DTYPE_F32, true};
    for (int world = 1; world <= 8; world++) {
        Case c = in_fp8(spec_mlp(3), STRATEGY_ZERO3, world, 1, 1);
        run_ranks(world, rounded_body, &c);
        c.policy = world % 2 == 0 ? &BF16 : &FP16;
        run_ranks(world, rounded_body, &c);
    }
    Case odd = in_fp8(spec_mlp(12), STRATEGY_ZERO3, 3, 1, 1);
    odd.tied = true;
    run_ranks(3, rounded_body, &odd);
}

// ---- What it costs ----

// Bytes that a rank sends in a step's all-gathers, and copies of the compute stream: before an
// all-gather a kernel may copy or a copy.
static size_t sent_in_step(const Case *c, const Rank *r, size_t *copies, size_t *peak)
{
    Wrapped w;
    case_wrap(&w, c, r);
    uint64_t first = gpulog_length();
    size_t bytes;
    gpulog_reset_traffic();
    case_train(&w, c, r, 0);
    size_t sent = gpulog_traffic(GPU_ALL_GATHER).sent;
    *copies = count_since(first, GPU_COPY, &bytes);
    for (uint64_t i = first; i < gpulog_length(); i++) {
        GpuLogEntry entry;
        if (!gpulog_get(i, &entry) || entry.stream != w.ctx.all_gather_stream) continue;
        *copies -= entry.op == GPU_COPY;
    }
    *peak = case_peak(first, GPU_UNSHARDED_PARAM);
    case_unwrap(&w, r);
    return sent;
}

static void payload_body(const Rank *r, void *arg)
{
    Case c = *(const Case *)arg;
    Wrapped w;
    size_t W = (size_t)r->world, want = 0, R = 0, u = 0, R8 = 0, u8 = 0, vectors = 0, grads = 0;
    size_t copies, peak;
    c.fp8 = &MATRICES;
    case_wrap(&w, &c, r);
    for (int k = 0; k < w.root->n_units; k++) {
        const FlatLayout *layout = &w.root->units[k]->flat.layout;
        size_t part = part_of(layout, fp8_of(w.root->units[k])->slot, 4), bytes = 0, plain = 0;
        for (int i = 0; i < layout->n; i++) {
            bytes += 4 * W * chunk_of(layout->params[i], r->world);
            plain += layout->params[i]->ndim < 2;
        }
        size_t times = k == 0 ? 1 : 2; // again for the backward
        vectors += times * plain;
        grads += (size_t)layout->n;
        want += times * (W - 1) * part;
        *(k == 0 ? &R : &u) = bytes;
        *(k == 0 ? &R8 : &u8) = W * part;
    }
    case_unwrap(&w, r);
    size_t sent = sent_in_step(&c, r, &copies, &peak);
    check(
        sent == want,
        "a step's all-gathers sent %zu bytes, want %zu: a byte for each element of a matrix, 4 for "
        "the others",
        sent, want);
    check(copies == vectors + grads,
          "a step made %zu copies, want %zu: of what is no matrix, and of the gradients", copies,
          vectors + grads);
    size_t forward = u + 2 * u8 > R8 + u8 ? u + 2 * u8 : R8 + u8;
    check(peak == R + forward,
          "unsharded parameters and gather buffers had %zu bytes at most, want %zu: one unit, and "
          "two "
          "gather buffers of bytes, next to the root",
          peak, R + forward);

    c.fp8 = NULL;
    size_t floats = sent_in_step(&c, r, &copies, &peak);
    c.fp8 = &ALL;
    sent = sent_in_step(&c, r, &copies, &peak);
    check(
        4 * sent == floats,
        "with all parameters in 8 bits a step's all-gathers sent %zu bytes, want a quarter of %zu",
        sent, floats);
}

TEST(bytes_in_fp8_are_the_formula)
{
    need_places();
    for (int world = 2; world <= 8; world += world == 5 ? 3 : 1) {
        Case c = in_fp8(spec_gpt2(4), STRATEGY_ZERO3, world, 1, 1);
        run_ranks(world, payload_body, &c);
    }
    RULE(one_launch_for_each);
}

// ---- Training ----

TEST(training_in_fp8_follows_the_oracle)
{
    need_layout(true);
    need_places();
    for (int world = 1; world <= 8; world++) {
        Case c = in_fp8(spec_mlp(3), STRATEGY_ZERO3, world, 1, 2);
        run_wrapped(world, scales_body, &c);
    }
    Case one = in_fp8(spec_mlp(3), STRATEGY_ZERO2, 1, 1, 1);
    run_wrapped(1, scales_body, &one);
    RULE(scales_of_any_number_of_units);
    static const MixedPrecisionPolicy BF16 = {DTYPE_BF16, DTYPE_F32, DTYPE_F32, true},
                                      FP16 = {DTYPE_F16, DTYPE_F16, DTYPE_F32, true};
    static const Strategy STRATEGIES[] = {STRATEGY_ZERO1, STRATEGY_ZERO2, STRATEGY_ZERO3};
    static const PrefetchOptions AHEAD = {2, 2, 0};
    for (int world = 1; world <= 8; world++) {
        Case c = in_fp8(spec_mlp(3), STRATEGIES[world % 3], world, 1, 1 + world % 2);
        c.policy = world % 4 == 2 ? &BF16 : world % 4 == 0 ? &FP16 : NULL;
        c.frozen = world % 3 == 0 ? every_third : NULL;
        c.prefetch = world > 5 ? &AHEAD : NULL;
        c.recompute = world % 3 == 1 ? RECOMPUTE_BLOCKS : RECOMPUTE_NONE;
        c.steps = 3;
        run_case(world, &c);
    }
    Case replicas = in_fp8(spec_mlp(3), STRATEGY_ZERO3, 6, 2, 2);
    run_case(6, &replicas);
    Case gpt2 = in_fp8(spec_gpt2(2), STRATEGY_ZERO3, 3, 1, 1);
    gpt2.fp8 = &ALL;
    run_case(3, &gpt2);
    Case stages = in_fp8(spec_mlp(3), STRATEGY_ZERO3, 4, 1, 2);
    stages.stages = 2;
    run_case(4, &stages);
}

// ---- The masters, and what does not go together ----

static Status compare_master(const Param *param, const float *values, void *arg)
{
    int64_t numel = meta_numel(param);
    float *want = values_of_param(param, numel);
    for (int64_t i = 0; i < numel; i++)
        check(values[i] == want[i],
              "fsdp_full_state: element %lld of %s is %.9g, want %.9g: the master, not what a "
              "forward "
              "reads",
              (long long)i, param->name, (double)values[i], (double)want[i]);
    free(want);
    (*(int *)arg)++;
    return OK;
}

static void masters_body(Wrapped *w, const Case *c, const Rank *r)
{
    const MixedPrecisionPolicy narrow = {DTYPE_BF16, DTYPE_F32, DTYPE_F32, true};
    int seen = 0, params;
    params = meta_params(w->model, NULL, 0);
    need(fsdp_full_state(w->model, compare_master, &seen));
    check(r->rank > 0 || seen == params, "fsdp_full_state gave %d parameters, want %d", seen,
          params);
    FsdpUnit *unit = w->root->units[1];
    need(fsdp_unshard(unit));
    need(fsdp_wait_for_unshard(unit));
    need_cuda(cudaDeviceSynchronize());
    for (int i = 0; i < unit->flat.layout.n; i++)
        check_param(c, unit->flat.layout.params[i],
                    "after fp8_full_state, as gather_in_fp8 has it");
    need_refused_whole(w->model, &w->adamw, fsdp_full_state(w->model, compare_master, &seen),
                       "call fsdp_reshard_all(root) first");
    need_refused_whole(w->model, &w->adamw, fp8_remove(w->model),
                       "call fsdp_reshard_all(root) first");
    need(fsdp_reshard_all(w->model));
    need_refused_whole(w->model, &w->adamw, fp8_apply(w->model, NULL), "gathers in FP8 already");
    if (c->policy == NULL)
        need_refused(precision_apply(w->model, &narrow), "call precision_apply before fp8_apply");
    else
        need_refused(precision_remove(w->model), "call fp8_remove first");

    need(fp8_remove(w->model)); // and all is as without
    size_t bytes = (size_t)unit->flat.layout.padded * (c->policy != NULL ? 2 : 4);
    check(!unit->flat.gathers_alone && buffer_bytes(&unit->flat.unsharded_param) == bytes,
          "after fp8_remove %s is still one that gathers in FP8", unit->flat.name);
    seen = 0;
    need(fsdp_full_state(w->model, compare_master, &seen));
    check(r->rank > 0 || seen == params, "after fp8_remove fsdp_full_state gave %d parameters",
          seen);
    case_train(w, c, r, 0);
    need_refused_whole(w->model, &w->adamw, fp8_remove(w->model), "does not gather in FP8");
    need_refused_whole(w->model, &w->adamw, fp8_apply(w->model, &NONE),
                       "no parameter is chosen for FP8");
    need(fsdp_unshard(unit));
    need_refused_whole(w->model, &w->adamw, fp8_apply(w->model, NULL),
                       "call fsdp_reshard_all(root) first");
    need(fsdp_reshard_all(w->model));
    OffloadState elsewhere;
    w->root->extensions->offload = &elsewhere;
    need_refused_whole(w->model, &w->adamw, fp8_apply(w->model, NULL), "in shards on the device");
    w->root->extensions->offload = NULL;
    need(fp8_apply(w->model, NULL));
    case_train(w, c, r, 1);
}

TEST(the_masters_are_saved)
{
    need_places();
    static const MixedPrecisionPolicy BF16 = {DTYPE_BF16, DTYPE_F32, DTYPE_F32, true};
    for (int world = 1; world <= 3; world++) {
        Case c = in_fp8(spec_mlp(3), STRATEGY_ZERO3, world, 1, 1);
        c.policy = world == 2 ? &BF16 : NULL;
        run_wrapped(world, masters_body, &c);
    }
    RULE(saving_changes_nothing);
    Case flat = in_fp8(spec_mlp(3), STRATEGY_ZERO3, 2, 1, 1);
    flat.layout = NULL;
    check_case_refused(2, &flat);
    Case ddp = in_fp8(spec_mlp(3), STRATEGY_DDP, 2, 2, 1);
    check_case_refused(2, &ddp);
    RULE(copies_that_fail);
}
