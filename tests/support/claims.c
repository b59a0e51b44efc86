/* claims.c: what FSDP promises, as test bodies. See claims.h. */
#include "claims.h"

#include "backend.h"
#include "bytes.h"
#include "claim_causes.h"
#include "figures.h"
#include "kernels.h"

#include <math.h>
#include <stdlib.h>

typedef struct Claim {
    Spec spec;
    int steps;
    float bound;
    bool sgd;
    bool backward;
} Claim;

static const float SGD_LR = 0.1f;

// Where sums come in an order of the backend's own, every gradient has another last bit, and so has
// every step: the bound of the issue of equality is this one.
#define OTHER_ORDER 1e-6f

// AdamW makes a step of ±lr of a gradient that is nothing but rounding, as that of GPT-2's key bias
// is: where the rounding may differ, GPT-2 is trained with SGD.
static Claim allow_other_order(Claim c, int world)
{
    if (backend_sums_in_tree_order(world)) return c;
    c.bound = OTHER_ORDER;
    c.sgd = c.spec.gpt2;
    return c;
}

// ---- The same data everywhere ----

// |got - want| / |want| in the 2-norm.
static double relative_distance(const float *got, const float *want, size_t n)
{
    double difference = 0.0, norm = 0.0;
    for (size_t i = 0; i < n; i++) {
        difference += ((double)got[i] - (double)want[i]) * ((double)got[i] - (double)want[i]);
        norm += (double)want[i] * (double)want[i];
    }
    return sqrt(difference / norm);
}

static void step_plain(const Claim *c, Plain *plain)
{
    Param *params[256];
    int n = meta_params(plain->model, params, 256);
    for (int i = 0; i < n && c->sgd; i++)
        need_cuda(kernel_sgd(params[i]->data.data, params[i]->grad.data, NULL,
                             (size_t)meta_numel(params[i]), SGD_LR, 0.0f, 0.0f, plain->run.stream));
    if (!c->sgd) need(plain_adamw_step(plain->adamw));
    need(plain_adamw_zero_grad(plain->adamw));
}

// Trains one GPU without FSDP as the ranks were trained; losses (steps) out.
static float *train_plain(const Claim *c, const Rank *r, float *losses)
{
    Plain plain;
    plain_create(&plain, &c->spec, TEST_OPTIONS.seed, &TEST_ADAMW, r->stream);
    for (int step = 0; step < c->steps; step++) {
        Batch batch = batch_create(&c->spec, (uint64_t)step);
        losses[step] = train_batch(&c->spec, &plain.run, plain.model, &batch);
        step_plain(c, &plain);
        batch_destroy(&batch);
    }
    float *values = plain_params(&plain);
    plain_destroy(&plain);
    return values;
}

static void step_sharded(const Claim *c, Sharded *s)
{
    if (c->sgd)
        need(fsdp_sgd_step(s->model, &s->ctx, SGD_LR, 0.0f));
    else
        need(fsdp_adamw_step(&s->adamw));
    need(fsdp_zero_grad(s->model, &s->ctx));
}

// By SGD the bound is on the distance relative to the norm, else on every element; 0: equal bits.
static void check_trained(const Claim *c, const char *what, const float *got, const float *want,
                          size_t n, const char *otherwise)
{
    Layout layout;
    Module *model = spec_create(&c->spec);
    Clues clues = {.layout = &layout,
                   .trained = true,
                   .known = model_layout(&layout, model),
                   .otherwise = otherwise};
    float *start = clues.known ? NULL : initial_values(&layout);
    if (start != NULL && layout.begin[layout.n] == n)
        clues.clue[clues.n++] = (Clue){
            start, "every parameter still is what training began with: does the optimizer step?"};
    if (c->sgd) {
        double distance = relative_distance(got, want, n);
        check(distance <= (double)c->bound,
              "%s: they differ by %g of their norm, want at most %g%s", what, distance,
              (double)c->bound, cause_of(&clues, got, want, n));
    } else
        check_near_in(&clues, what, got, want, n, c->bound);
    free(start);
    module_destroy(model);
}

static void check_losses(const float *got, const float *want, int n)
{
    int first = 0;
    while (first < n && got[first] == want[first]) first++;
    check(first == n, "losses with FSDP, against those without: step %d gives %.9g, must be %.9g%s",
          first, (double)got[first % n], (double)want[first % n], losses_cause(got, want, n));
}

static void same_body(const Rank *r, void *arg)
{
    const Claim *c = arg;
    Sharded s;
    float losses[64], plain_losses[64];
    check(c->steps <= 64, "too many steps for the test");
    sharded_create(&s, &c->spec, &TEST_OPTIONS, &TEST_ADAMW, r);
    for (int step = 0; step < c->steps; step++) {
        Batch batch = batch_create(&c->spec, (uint64_t)step);
        losses[step] = train_batch(&c->spec, &s.run, s.model, &batch);
        step_sharded(c, &s);
        batch_destroy(&batch);
    }
    float *got = sharded_params(&s);
    size_t n = (size_t)model_numel(s.model);
    sharded_destroy(&s);
    if (r->rank != 0) return;

    float *want = train_plain(c, r, plain_losses);
    if (r->world == 1) check_losses(losses, plain_losses, c->steps);
    check_trained(c, "parameters trained with FSDP, against those without", got, want, n, NULL);
    free(got);
    free(want);
}

void claim_same_data(Spec spec, int world, int steps, float bound)
{
    Claim c = {.spec = spec, .steps = steps, .bound = bound};
    c = allow_other_order(c, world);
    run_ranks(world, same_body, &c);
}

void claim_same_data_sgd(Spec spec, int world, int steps, float bound)
{
    Claim c = {.spec = spec, .steps = steps, .bound = bound, .sgd = true};
    if (!backend_sums_in_tree_order(world)) c.bound = OTHER_ORDER;
    run_ranks(world, same_body, &c);
}

// ---- Different data on each rank ----

// Sets the plain model's gradients from host memory, all parameters back to back.
static void set_plain_grads(Plain *p, const float *values)
{
    Param *params[256];
    int n = meta_params(p->model, params, 256);
    need_cuda(cudaStreamSynchronize(p->run.stream));
    for (int i = 0; i < n; i++) {
        size_t numel = (size_t)meta_numel(params[i]);
        send_to(params[i]->grad.data, values, numel);
        values += numel;
    }
}

static Batch batch_of(const Claim *c, const Rank *r, int step, int rank)
{
    return batch_create(&c->spec, (uint64_t)(step * r->world + rank));
}

// One process does the work of W ranks. `first`: the ranks' gradient of the first step, to be
// compared with a plain accumulation.
static float *train_micro_batches(const Claim *c, const Rank *r, const float *first)
{
    Plain plain;
    plain_create(&plain, &c->spec, TEST_OPTIONS.seed, &TEST_ADAMW, r->stream);
    size_t n = (size_t)model_numel(plain.model);
    float *average = malloc(n * sizeof *average), *accumulated = calloc(n, sizeof *accumulated);
    check(average != NULL && accumulated != NULL, "no memory for gradients");
    for (int step = 0; step < c->steps; step++) {
        float *grads[64];
        for (int rank = 0; rank < r->world; rank++) {
            Batch batch = batch_of(c, r, step, rank);
            train_batch(&c->spec, &plain.run, plain.model, &batch);
            grads[rank] = plain_grads(&plain);
            need(plain_adamw_zero_grad(plain.adamw));
            batch_destroy(&batch);
        }
        if (step == 0) {
            for (int rank = 0; rank < r->world; rank++)
                for (size_t i = 0; i < n; i++) accumulated[i] += grads[rank][i];
            for (size_t i = 0; i < n; i++) accumulated[i] /= (float)r->world;
            double distance = relative_distance(first, accumulated, n);
            check(distance <= 1e-6,
                  "the first gradient differs from the accumulated one by %g of its "
                  "norm, want at most 1e-6%s",
                  distance, gradient_cause(&plain, r->world, first, accumulated, grads, n));
        }
        tree_average(average, grads, r->world, n);
        set_plain_grads(&plain, average);
        step_plain(c, &plain);
        for (int rank = 0; rank < r->world; rank++) free(grads[rank]);
    }
    free(average);
    free(accumulated);
    float *values = plain_params(&plain);
    plain_destroy(&plain);
    return values;
}

static void different_body(const Rank *r, void *arg)
{
    const Claim *c = arg;
    Sharded s;
    float *first = NULL;
    sharded_create(&s, &c->spec, &TEST_OPTIONS, &TEST_ADAMW, r);
    for (int step = 0; step < c->steps; step++) {
        Batch batch = batch_of(c, r, step, r->rank);
        train_batch(&c->spec, &s.run, s.model, &batch);
        if (step == 0) first = sharded_grads(&s);
        step_sharded(c, &s);
        batch_destroy(&batch);
    }
    float *got = sharded_params(&s);
    size_t n = (size_t)model_numel(s.model);
    sharded_destroy(&s);
    if (r->rank == 0) {
        float *want = train_micro_batches(c, r, first);
        check_trained(
            c,
            "parameters after training on W ranks' data, against one process that did "
            "the micro-batches one after the other",
            got, want, n,
            "the first step's gradient was right: what does the optimizer make of it, and "
            "what does a second step find that the first one left?");
        free(got);
        free(want);
    }
    free(first);
}

void claim_different_data(Spec spec, int world, int steps)
{
    Claim c = {.spec = spec, .steps = steps};
    c = allow_other_order(c, world);
    run_ranks(world, different_body, &c);
}

static void first_body(const Rank *r, void *arg)
{
    const Claim *c = arg;
    Sharded s;
    sharded_create(&s, &c->spec, &TEST_OPTIONS, NULL, r);
    Batch batch = batch_of(c, r, 0, r->rank);
    train_batch(&c->spec, &s.run, s.model, &batch);
    float *first = sharded_grads(&s);
    batch_destroy(&batch);
    sharded_destroy(&s);
    if (r->rank == 0) free(train_micro_batches(c, r, first));
    free(first);
}

void claim_first_gradient(Spec spec, int world)
{
    Claim c = {.spec = spec, .steps = 1};
    run_ranks(world, first_body, &c);
}

// ---- Padding ----

static void padding_body(const Rank *r, void *arg)
{
    const Claim *c = arg;
    for (int align = 0; align <= 1; align++) {
        FsdpOptions options = TEST_OPTIONS;
        AdamWConfig adamw = TEST_ADAMW;
        Sharded s;
        options.align_shards = align;
        adamw.weight_decay = 0.5f;
        sharded_create(&s, &c->spec, &options, &adamw, r);
        check_padding(&s, "after init");
        for (int step = 0; step < 3; step++) {
            Batch batch = batch_create(&c->spec, (uint64_t)(step * r->world + r->rank));
            train_batch(&c->spec, &s.run, s.model, &batch);
            check_padding(&s, "after a backward");
            step_sharded(c, &s);
            check_padding(&s, "after an optimizer step");
            batch_destroy(&batch);
        }
        sharded_destroy(&s);
    }
}

void claim_padding(Spec spec, int world)
{
    Claim c = {.spec = spec};
    run_ranks(world, padding_body, &c);
}

// ---- Memory ----

static void live_body(const Rank *r, void *arg)
{
    const Claim *c = arg;
    Sharded s;
    Sizes sizes;
    size_t whole = 0;
    size_t before = gpulog_live_bytes(r->device);
    sharded_create(&s, &c->spec, &TEST_OPTIONS, &TEST_ADAMW, r);
    size_t want = 16 * (size_t)sharded_padded(&s) / (size_t)r->world;
    size_t got = gpulog_live_bytes(r->device) - before;
    sizes_of(&sizes, s.model, r->world);
    for (int i = 0; i < sizes.n; i++) whole += sizes.size[i].bytes;
    check(got == want,
          "parameters, gradients and Adam's states take %zu bytes on this rank, want "
          "16 · %lld / %d = %zu%s",
          got, (long long)sharded_padded(&s), r->world, want,
          arrays_cause(got, 4, whole / (size_t)r->world, whole));
    for (int step = 0; step < 2; step++) {
        Batch batch = batch_create(&c->spec, (uint64_t)step);
        train_batch(&c->spec, &s.run, s.model, &batch);
        step_sharded(c, &s);
        batch_destroy(&batch);
        got = gpulog_live_bytes(r->device) - before;
        check(got == want, "after step %d %zu bytes are live on this rank, want %zu%s", step, got,
              want, bytes_cause(got - want, &sizes));
    }
    sharded_destroy(&s);
    check(gpulog_live_bytes(r->device) == before, "taking everything down left %zu bytes%s",
          gpulog_live_bytes(r->device) - before,
          left_cause(gpulog_live_bytes(r->device) - before, &sizes));
}

void claim_live_bytes(Spec spec, int world)
{
    Claim c = {.spec = spec};
    run_ranks(world, live_body, &c);
}

// The largest unit but the root, in bytes.
static size_t largest_block(const Sharded *s)
{
    size_t largest = 0;
    for (int i = 0; i < s->model->n_children; i++) {
        const FsdpUnit *unit = fsdp_unit(s->model->children[i]);
        if (unit != NULL && whole_bytes(unit) > largest) largest = whole_bytes(unit);
    }
    return largest;
}

// Whole units at a time: the root and two others, in a backward their gradients too.
static size_t units_bytes(const Sharded *s, bool backward)
{
    return (whole_bytes(fsdp_unit(s->model)) + 2 * largest_block(s)) * (backward ? 2 : 1);
}

static void peak_body(const Rank *r, void *arg)
{
    const Claim *c = arg;
    Sharded s;
    size_t activations = activation_bytes(&c->spec, r, c->backward);
    Batch batch = batch_create(&c->spec, 1);
    sharded_create(&s, &c->spec, &TEST_OPTIONS, NULL, r);
    size_t live = gpulog_live_bytes(r->device);
    gpulog_reset_peak(r->device);
    if (c->backward)
        train_batch(&c->spec, &s.run, s.model, &batch);
    else
        forward_batch(&c->spec, &s.run, s.model, &batch);
    check_figures();
    size_t bound = live + activations + units_bytes(&s, c->backward);
    Sizes sizes;
    sizes_of(&sizes, s.model, r->world);
    check(
        gpulog_peak_bytes(r->device) <= bound,
        "a %s of %d layers took %zu bytes at its peak, %zu more than shards, activations, the root "
        "and two units%s",
        c->backward ? "step" : "forward", c->spec.layers, gpulog_peak_bytes(r->device),
        gpulog_peak_bytes(r->device) - bound,
        bytes_cause(gpulog_peak_bytes(r->device) - bound, &sizes));
    batch_destroy(&batch);
    sharded_destroy(&s);
}

static void claim_peak_of(Spec spec, int world, bool backward)
{
    // The smallest batch: activations peak elsewhere in a step than buffers do, and large ones
    // would hide a buffer too many.
    spec.B = 1;
    if (spec.gpt2) spec.T = 2;
    Claim c = {.spec = spec, .backward = backward};
    run_ranks(world, peak_body, &c);
}

void claim_forward_peak(Spec spec, int world)
{
    claim_peak_of(spec, world, false);
}

void claim_peak(Spec spec, int world)
{
    claim_peak_of(spec, world, true);
}

// ---- Communication ----

// Bytes this rank sent to gather. W broadcasts, or sends to every other rank, are as good as an
// all-gather and send as much.
static uint64_t gathered_bytes(void)
{
    return gpulog_traffic(GPU_ALL_GATHER).sent + gpulog_traffic(GPU_BROADCAST).sent +
           gpulog_traffic(GPU_SEND).sent;
}

// The unit's elements with padding, counted from its parameters.
static int64_t padded_of(const FsdpUnit *unit, int world)
{
    int64_t numel = 0;
    for (int i = 0; i < unit->flat.layout.n; i++) numel += meta_numel(unit->flat.layout.params[i]);
    return (numel + world - 1) / world * world;
}

static void traffic_body(const Rank *r, void *arg)
{
    const Claim *c = arg;
    static const char *const NAME[] = {"auto", "always", "never"};
    for (FsdpReshard reshard = FSDP_RESHARD_AUTO; reshard <= FSDP_RESHARD_NEVER; reshard++) {
        Sharded s;
        FsdpOptions options = TEST_OPTIONS;
        options.reshard_after_forward = reshard;
        sharded_create(&s, &c->spec, &options, &TEST_ADAMW, r);
        Batch batch = batch_create(&c->spec, 1);
        uint64_t others =
            4 * (uint64_t)(r->world - 1); // bytes of an element, times whom it goes to
        uint64_t part = others * (uint64_t)(sharded_padded(&s) / r->world);
        // What is gathered a second time: all, all but the root, nothing.
        uint64_t root = others * (uint64_t)(padded_of(fsdp_unit(s.model), r->world) / r->world);
        uint64_t again = reshard == FSDP_RESHARD_ALWAYS ? part
                         : reshard == FSDP_RESHARD_AUTO ? part - root
                                                        : 0;
        for (int step = 0; step < 2; step++) {
            gpulog_reset_traffic();
            train_batch(&c->spec, &s.run, s.model, &batch);
            step_sharded(c, &s);
            uint64_t gathered = gathered_bytes();
            // A reduce for each rank's shard sends as much as a reduce-scatter.
            uint64_t reduced =
                gpulog_traffic(GPU_REDUCE_SCATTER).sent + gpulog_traffic(GPU_REDUCE).sent;
            uint64_t other = gpulog_traffic(GPU_ALL_REDUCE).sent;
            check(gathered == part + again && reduced == part && other == 0,
                  "step %d, reshard_after_forward %s: this rank sent %llu bytes in all-gathers, "
                  "%llu in reduce-scatters, %llu otherwise; want %llu + %llu, %llu and 0%s",
                  step, NAME[reshard], (unsigned long long)gathered, (unsigned long long)reduced,
                  (unsigned long long)other, (unsigned long long)part, (unsigned long long)again,
                  (unsigned long long)part,
                  reshard == FSDP_RESHARD_AUTO ? ""
                                               : traffic_cause(gathered, reduced, other, part,
                                                               reshard == FSDP_RESHARD_ALWAYS));
        }
        batch_destroy(&batch);
        sharded_destroy(&s);
    }
}

void claim_traffic(Spec spec, int world)
{
    Claim c = {.spec = spec};
    run_ranks(world, traffic_body, &c);
}

static void reshard_body(const Rank *r, void *arg)
{
    const Claim *c = arg;
    float *params[2];
    size_t peak[2], n = 0;
    uint64_t sent[2];
    for (int reshard = 0; reshard <= 1; reshard++) {
        Sharded s;
        FsdpOptions options = TEST_OPTIONS;
        options.reshard_after_forward = reshard ? FSDP_RESHARD_ALWAYS : FSDP_RESHARD_NEVER;
        sharded_create(&s, &c->spec, &options, &TEST_ADAMW, r);
        n = (size_t)model_numel(s.model);
        gpulog_reset_traffic();
        gpulog_reset_peak(r->device);
        for (int step = 0; step < c->steps; step++) {
            Batch batch = batch_create(&c->spec, (uint64_t)(step * r->world + r->rank));
            train_batch(&c->spec, &s.run, s.model, &batch);
            step_sharded(c, &s);
            batch_destroy(&batch);
        }
        peak[reshard] = gpulog_peak_bytes(r->device);
        sent[reshard] = gathered_bytes();
        params[reshard] = sharded_params(&s);
        sharded_destroy(&s);
    }
    check(sent[0] < sent[1],
          "keeping the parameters sends %llu bytes in all-gathers, resharding %llu: keeping "
          "must send fewer",
          (unsigned long long)sent[0], (unsigned long long)sent[1]);
    check(peak[0] > peak[1],
          "keeping the parameters has a peak of %zu bytes, resharding of %zu: keeping must "
          "take more",
          peak[0], peak[1]);
    if (r->rank == 0)
        check_trained(c, "parameters with reshard_after_forward, against those without", params[1],
                      params[0], n, NULL);
    free(params[0]);
    free(params[1]);
}

void claim_reshard(Spec spec, int world, int steps)
{
    Claim c = {.spec = spec, .steps = steps};
    run_ranks(world, reshard_body, &c);
}
