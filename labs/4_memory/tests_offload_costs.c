/* Lab 4, offload: bytes on the device and over the bus, the host's waits, copies on the clock.
 */
#include <stdlib.h>
#include <string.h>

#include "backend.h"
#include "tests.h"
#include "times.h"

// ---- Bytes and waits ----

// Of the handout's tables, in bytes.
typedef struct OffloadFigures {
    size_t params, grads;        // shards on the device, at most
    size_t unsharded;            // parameters unsharded at most
    uint64_t to_device, to_host; // over the bus in a step
    size_t pinned;               // of the host
} OffloadFigures;

static OffloadFigures offload_figures(const Wrapped *w, const Case *c, int world)
{
    size_t P = 0, R = 0, u = 0, S = (size_t)(world / c->replicas), n = (size_t)c->rounds;
    size_t blocks = (size_t)w->root->n_units - 1;
    for (int i = 0; i < w->root->n_units; i++) {
        size_t padded = (size_t)w->root->units[i]->flat.layout.padded;
        P += padded;
        if (i == 0) R = padded;
        if (i > 0) u = larger(u, padded);
    }
    bool zero3 = c->options.strategy == STRATEGY_ZERO3,
         zero1 = c->options.strategy == STRATEGY_ZERO1;
    bool every = c->options.reduce_every_time;
    size_t a = c->policy == NULL ? 4 : (size_t)dtype_bytes(c->policy->param_dtype);
    size_t two = 4 * (u + (blocks > 1 ? larger(R, u) : R)) / S;
    OffloadFigures f = {.params = two, .grads = two, .unsharded = a * (zero3 ? R + 2 * u : P)};
    if (world == 1) f.grads = 4 * (R + (blocks > 1 ? 2 : 1) * u);
    f.to_device = 4 * P / S * (zero1 ? 1 : n) + (zero3 ? 4 * (P - R) / S * n : 0);
    f.to_host = 4 * P / S * (every ? n : 1);
    if (every) f.to_device += 4 * P / S * (n - 1);
    f.pinned = 16 * P / S;
    return f;
}

static uint64_t over_the_bus(uint64_t first, bool to_device)
{
    uint64_t bytes = 0;
    for (uint64_t i = first; i < gpulog_length(); i++) {
        GpuLogEntry entry;
        bool found = gpulog_get(i, &entry) && is_copy(&entry, to_device);
        // What a test puts in, and a loss that arrives, are no shard.
        if (found && !entry.host_waits && entry.bytes > 16) bytes += entry.bytes;
    }
    return bytes;
}

// What the host has pinned where nothing is offloaded: the context's part.
static size_t pinned_without(const Case *c, const Rank *r)
{
    Case plain = *c;
    Wrapped w;
    size_t bytes = 0;
    plain.offload = false;
    case_wrap(&w, &plain, r);
    backend_pinned_bytes(&bytes);
    case_unwrap(&w, r);
    return bytes;
}

static void check_pinned(size_t without, size_t want, const char *when)
{
    size_t bytes;
    if (!backend_pinned_bytes(&bytes)) return;
    check(bytes - without == want,
          "%s %zu bytes of the host are pinned, want %zu: parameters, gradients and two moments",
          when, bytes - without, want);
}

static void offload_bytes_body(const Rank *r, void *arg)
{
    const Case *c = arg;
    Wrapped w;
    size_t before = gpulog_live_bytes(r->device), host = pinned_without(c, r);
    case_wrap(&w, c, r);
    OffloadFigures f = offload_figures(&w, c, r->world);
    check_pinned(host, f.pinned, "before a step");
    check(gpulog_live_bytes(r->device) == before,
          "shards and moments take %zu bytes of the device, want 0: they are on the host",
          gpulog_live_bytes(r->device) - before);
    uint64_t first = gpulog_length();
    gpulog_reset_traffic();
    case_train(&w, c, r, 0);
    need(fsdp_adamw_step(&w.adamw));
    need_cuda(cudaDeviceSynchronize());
    check_pinned(host, f.pinned, "after a step");
    check(gpulog_live_bytes(r->device) == before, "after a step %zu bytes are left on the device",
          gpulog_live_bytes(r->device) - before);
    const struct {
        const char *what;
        uint64_t got, want;
    } rows[] = {
        {"of parameter shards are on the device at a time", case_peak(first, GPU_SHARDED_PARAM),
         f.params},
        {"of gradient shards are on the device at a time", case_peak(first, GPU_SHARDED_GRAD),
         f.grads},
        {"of parameters are unsharded at a time", case_peak(first, GPU_UNSHARDED_PARAM),
         f.unsharded},
        {"cross the bus to the device in a step", over_the_bus(first, true), f.to_device},
        {"cross the bus to the host in a step", over_the_bus(first, false), f.to_host},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        check(rows[i].got == rows[i].want || (i == 2 && r->world == 1),
              "%llu bytes %s, want %llu: the handout's table%s", (unsigned long long)rows[i].got,
              rows[i].what, (unsigned long long)rows[i].want,
              i == 3 ? " (each shard before its all-gather, and the host's gradient before a later "
                       "micro-batch adds to it)"
                     : "");
    GpuTraffic with = gpulog_traffic(GPU_ALL_GATHER), sums = gpulog_traffic(GPU_REDUCE_SCATTER);
    fsdp_adamw_destroy(&w.adamw);
    if (w.root->extensions->precision != NULL) need(precision_remove(w.model));
    need(offload_remove(w.model));
    check_pinned(host, 0, "when offload has been taken off");
    if (c->policy != NULL) need(precision_apply(w.model, c->policy));
    gpulog_reset_traffic();
    case_train(&w, c, r, 0);
    need_cuda(cudaDeviceSynchronize());
    check(with.sent == gpulog_traffic(GPU_ALL_GATHER).sent &&
              sums.sent == gpulog_traffic(GPU_REDUCE_SCATTER).sent,
          "with offload a rank sends %llu and %llu bytes, without it %llu and %llu",
          (unsigned long long)with.sent, (unsigned long long)sums.sent,
          (unsigned long long)gpulog_traffic(GPU_ALL_GATHER).sent,
          (unsigned long long)gpulog_traffic(GPU_REDUCE_SCATTER).sent);
    case_unwrap(&w, r);
}

TEST(offload_bytes_are_the_formula)
{
    static const MixedPrecisionPolicy bf16 = {DTYPE_BF16, DTYPE_F32, DTYPE_F32, true};
    Spec spec = spec_gpt2(3);
    for (int i = 0; i < 6; i++) {
        Case c = offloaded(spec, ALL[1 + i % 3], 1 + i % 4);
        c.rounds = 1 + i % 2;
        c.options.reduce_every_time = c.rounds > 1 && c.options.strategy == STRATEGY_ZERO3 && i > 2;
        c.policy = i % 4 == 2 ? &bf16 : NULL;
        run_ranks(1 + i % 4, offload_bytes_body, &c);
    }
    Case every = offloaded(spec, STRATEGY_ZERO2, 2);
    every.rounds = 3;
    every.options.reduce_every_time = true;
    run_ranks(2, offload_bytes_body, &every);
    for (int world = 1; world <= 2; world++) { // a root that is more than two blocks
        Case root = offloaded(spec_gpt2(2), STRATEGY_ZERO3, world);
        root.spec.vocab = 700;
        run_ranks(world, offload_bytes_body, &root);
        root.rounds = 3;
        run_ranks(world, offload_bytes_body, &root);
    }
    RULE(copies_beyond_32_bits);
    for (int world = 1; world <= 4; world++) { // sizes that no number of ranks divides
        Case odd = offloaded(spec_mlp(3), STRATEGY_ZERO3, world);
        odd.spec.dim = 7;
        run_ranks(world, offload_bytes_body, &odd);
    }
}

// How often the host waited since `first`, but for reading the loss, and where it did last.
static int host_waits(uint64_t first, uint64_t *last)
{
    int n = 0;
    for (uint64_t i = first; i < gpulog_length(); i++) {
        GpuLogEntry entry;
        char place[256];
        if (!gpulog_get(i, &entry)) continue;
        if (!entry.host_waits && entry.op != GPU_STREAM_SYNC && entry.op != GPU_EVENT_SYNC &&
            entry.op != GPU_DEVICE_SYNC)
            continue;
        gpulog_where(entry.site, place, sizeof place);
        if (strncmp(place, "nn/cross_entropy.c:", 19) == 0) continue;
        n++;
        *last = i;
    }
    return n;
}

static void check_freed_before(uint64_t wait)
{
    for (uint64_t i = wait; i < gpulog_length(); i++) {
        GpuLogEntry entry;
        check(!gpulog_get(i, &entry) || entry.op != GPU_FREE ||
                  (entry.category != GPU_SHARDED_PARAM && entry.category != GPU_SHARDED_GRAD),
              "a last copy is freed after the host's wait, when the GPU is idle: offload_wait "
              "frees both before it waits");
    }
}

static void waits_body(Wrapped *w, const Case *c, const Rank *r)
{
    for (int round = 0; round < c->rounds; round++) {
        float *logits = NULL, *dlogits = NULL;
        Batch batch = case_batch(c, 0, r->rank, round);
        w->run.B = c->spec.B;
        w->run.T = c->spec.T;
        need(strategy_micro_batch(w->model, round, c->rounds));
        need(module_forward(w->model, &w->run, batch.in, &logits));
        need(cross_entropy(&w->run, logits, batch.targets, w->run.B * w->run.T, c->spec.vocab, NULL,
                           &dlogits));
        uint64_t first = gpulog_length(), last = 0;
        need(module_backward(w->model, &w->run, dlogits, NULL));
        int waits = host_waits(first, &last), want = round == c->rounds - 1;
        check(waits == want,
              "in the backward of micro-batch %d of %d the host waits %d times, want %d: once, at "
              "the end of the last",
              round, c->rounds, waits, want);
        if (waits > 0) check_freed_before(last);
        need_cuda(cudaFreeAsync(dlogits, r->stream));
        need_cuda(cudaStreamSynchronize(r->stream));
        batch_destroy(&batch);
    }
    // The gradients are there without another wait.
    double sum = 0.0;
    for (int u = 0; u < w->root->n_units; u++)
        for (int64_t i = 0; i < w->root->units[u]->flat.layout.shard_numel; i++)
            sum += ((const float *)w->root->units[u]->flat.sharded_grad.data)[i] != 0.0f;
    check(sum > 0.0, "after the backward the host has no gradient");
}

TEST(the_host_waits_once)
{
    for (int world = 1; world <= 3; world++) {
        Case c = offloaded(spec_mlp(4), STRATEGY_ZERO3, world);
        c.rounds = world;
        c.options.reduce_every_time = world == 3;
        run_wrapped(world, waits_body, &c);
    }
    RULE(nothing_is_in_flight);
}

// ---- On the clock ----

static void overlap_body(Wrapped *w, const Case *c, const Rank *r)
{
    uint64_t copies[64], gathers[64];
    uint64_t first = gpulog_length();
    case_train(w, c, r, 0);
    need_cuda(cudaDeviceSynchronize());
    int n = find_entries(first, GPU_COPY, true, copies, 64);
    check(n == find_entries(first, GPU_ALL_GATHER, true, gathers, 64),
          "%d shards were copied to the device for %d all-gathers", n,
          find_entries(first, GPU_ALL_GATHER, true, gathers, 64));
    for (int i = 0; i + 1 < n; i++) // between the passes the host reads the loss
        check(
            i + 1 == w->root->n_units || !log_ordered(gathers[i], copies[i + 1]),
            "copy %d to the device waits for all-gather %d, and could overlap it: the copy before "
            "it is freed after it is queued (offload_all_gather)",
            i + 1, i);
    for (int i = 0; i + 2 < n; i++)
        check(log_ordered(gathers[i], copies[i + 2]),
              "copy %d to the device does not wait for all-gather %d: three copies are there at a "
              "time",
              i + 2, i);
    // The other way: copies are those on to_host, and gradients are freed late as well.
    int scattered = find_entries(first, GPU_REDUCE_SCATTER, false, gathers, 64), sent = 0;
    for (uint64_t i = first; i < gpulog_length() && sent < 64; i++) {
        GpuLogEntry entry;
        if (gpulog_get(i, &entry) && is_copy(&entry, false) &&
            entry.stream == w->root->extensions->offload->to_host)
            copies[sent++] = i;
    }
    check(sent == scattered, "%d gradient shards were copied to the host for %d reduce-scatters",
          sent, scattered);
    for (int i = 0; i + 1 < sent; i++)
        check(!log_ordered(copies[i], gathers[i + 1]),
              "reduce-scatter %d waits for copy %d to the host, and could overlap it: the gradient "
              "before it is freed (offload_send_grad)",
              i + 1, i);
    for (int i = 0; i + 2 < sent; i++)
        check(log_ordered(copies[i], gathers[i + 2]),
              "reduce-scatter %d does not wait for copy %d to the host: three gradient shards are "
              "there at a time",
              i + 2, i);
}

typedef struct Clocked {
    TimesLog log;
    int first;
} Clocked;

static void clock_body(const Rank *r, void *arg)
{
    Clocked *run = (Clocked *)arg + r->rank;
    Case c = offloaded(spec_mlp(6), STRATEGY_ZERO3, r->world);
    Wrapped w;
    c.spec.dim = 256;
    case_wrap(&w, &c, r);
    run->first = (int)gpulog_length();
    case_train(&w, &c, r, 0);
    need_cuda(cudaDeviceSynchronize());
    times_copy(&run->log);
    case_unwrap(&w, r);
}

// Of the copies in this direction, how many are under way while a collective or a kernel is.
static int overlapping(const Clocked *run, const Times *times, bool to_device)
{
    int n = 0;
    for (int i = run->first; i < run->log.n; i++) {
        bool hidden = false;
        if (!is_copy(&run->log.entry[i], to_device)) continue;
        for (int k = run->first; k < run->log.n && !hidden; k++) {
            GpuOp op = run->log.entry[k].op;
            bool works = op == GPU_KERNEL || op == GPU_BLAS || gpulog_is_collective(op);
            hidden = works && times[k].begin < times[i].end && times[k].end > times[i].begin;
        }
        n += hidden;
    }
    return n;
}

TEST(copies_overlap_on_the_clock)
{
    enum { WORLD = 2, LEAST_TO_DEVICE = 4, LEAST_TO_HOST = 2 };
    needs_ranks(WORLD);
    Clocked *run = shared_alloc(WORLD * sizeof *run);
    TimesLog *logs = calloc(WORLD, sizeof *logs);
    Times *times = calloc(WORLD * TIMES_MOST, sizeof *times);
    assert_non_null(logs);
    assert_non_null(times);
    for (int world = 2; world <= 3; world++) {
        Case c = offloaded(spec_mlp(4), STRATEGY_ZERO3, world);
        run_wrapped(world, overlap_body, &c);
    }
    run_ranks(WORLD, clock_body, run);
    for (int i = 0; i < WORLD; i++) logs[i] = run[i].log;
    const char *wrong = times_replay("laptop", logs, WORLD, times);
    if (wrong != NULL && times_are_known()) fail_msg("the ranks' logs cannot be timed: %s", wrong);
    for (int i = 0; i < WORLD && wrong == NULL; i++) {
        int to_device = overlapping(&run[i], times + (size_t)i * TIMES_MOST, true);
        int to_host = overlapping(&run[i], times + (size_t)i * TIMES_MOST, false);
        if (to_device < LEAST_TO_DEVICE || to_host < LEAST_TO_HOST)
            fail_msg("on a modelled machine %d copies to the device and %d to the host overlap "
                     "kernels or collectives, want at least %d and %d: copies have streams of "
                     "their own, and nothing waits for one before it is needed",
                     to_device, to_host, LEAST_TO_DEVICE, LEAST_TO_HOST);
    }
    free(logs);
    free(times);
}
