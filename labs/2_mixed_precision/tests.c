/* Lab 2, mixed precision: which type is where, what each cast rounds, what travels, and when a step
 * is left out.
 *
 * Trainings are compared with the oracle of strategies.h, which rounds by the definition of the
 * types (half_numbers.h). A small model of integers is computed from scratch.
 */
#include <stdlib.h>
#include <string.h>

#include "draw_model.h"
#include "tests.h"

// What fp16 is divided by before the sum, of some factors: worked out by hand from FSDP2's rule.
static float before_of(DType type, int factor)
{
    static const int BEFORE[] = {0, 1, 2, 2, 2, 2, 4, 2, 4, 2, 4, 2, 4};
    return type == F16 ? (float)BEFORE[factor] : 1.0f;
}
// ---- What travels ----

static void travel_body(Wrapped *w, const Case *c, const Rank *r)
{
    DType type = c->policy->param_dtype;
    for (int u = 0; u < w->root->n_units; u++) {
        FsdpUnit *unit = w->root->units[u];
        FlatParam *flat = &unit->flat;
        size_t n = (size_t)flat->layout.shard_numel, all = (size_t)flat->layout.padded;
        float *shard = fetch(flat->sharded_param.data, n);
        size_t before = gpulog_live_bytes(r->device);
        uint64_t first = gpulog_length();
        gpulog_reset_traffic();
        need(fsdp_unshard(unit));
        check(gpulog_live_bytes(r->device) - before == all * (size_t)dtype_bytes(type),
              "an unsharded parameter of %zu elements takes %zu bytes, want %zu: %s, and no memory "
              "for a cast",
              all, gpulog_live_bytes(r->device) - before, all * (size_t)dtype_bytes(type),
              type_name(type));
        uint64_t want = (uint64_t)(flat->layout.world - 1) * n * (uint64_t)dtype_bytes(type);
        check(gpulog_traffic(GPU_ALL_GATHER).sent == want,
              "an all-gather of shards of %zu elements sent %llu bytes, want %llu: the cast to %s "
              "comes first",
              n, (unsigned long long)gpulog_traffic(GPU_ALL_GATHER).sent, (unsigned long long)want,
              type_name(type));
        need(fsdp_wait_for_unshard(unit));
        need_cuda(cudaDeviceSynchronize());
        check_no_race(first);
        check_on_stream(first, w->ctx.all_gather_stream, "the cast or the all-gather",
                        "the all-gather stream");
        float *got = fetch_typed(type, flat->unsharded_param.data, all);
        for (size_t i = 0; i < n; i++)
            check(got[(size_t)flat->layout.rank * n + i] == half_float(type, shard[i]),
                  "element %zu of this rank's shard of %s is %.9g and was gathered as %.9g, want "
                  "%.9g: rounded to %s, in its rank's place",
                  i, flat->name, (double)shard[i], (double)got[(size_t)flat->layout.rank * n + i],
                  (double)half_float(type, shard[i]), type_name(type));
        float *after = fetch(flat->sharded_param.data, n);
        check(memcmp(shard, after, n * sizeof *shard) == 0,
              "an unshard has changed the shard of %s: the masters stay floats", flat->name);
        check(flat->unsharded_grad.dtype == (r->world == 1 ? F32 : c->policy->reduce_dtype),
              "the unsharded gradient is of %s: set_types gives it the type of the reduction",
              type_name(flat->unsharded_grad.dtype));
        check(flat->layout.params[0]->data.dtype == type,
              "the parameters are views of another type than %s", type_name(type));
        need(fsdp_reshard(unit));
        need(fsdp_free_all_gather(w->root));
        check(gpulog_live_bytes(r->device) == before, "a reshard has left %zu bytes",
              gpulog_live_bytes(r->device) - before);
        free(shard);
        free(got);
        free(after);
    }
}

TEST(parameters_travel_narrow)
{
    for (int world = 1; world <= 8; world++) {
        Case c = typed(spec_mlp(3), world % 2 ? BF16 : F16, F32, STRATEGY_ZERO3, world);
        run_wrapped(world, travel_body, &c);
    }
    Case ddp = typed(spec_mlp(3), BF16, F32, STRATEGY_DDP, 2);
    run_wrapped(2, travel_body, &ddp);
}

// ---- Against the oracle ----

static void divide_before_body(const Rank *r, void *arg)
{
    for (int factor = 1; factor <= 12; factor++)
        for (int i = 0; i < 3; i++) {
            const DType types[] = {F32, BF16, F16};
            float got = precision_divide_before(types[i], (float)factor);
            check(got == before_of(types[i], factor),
                  "a sum in %s that is divided by %d is divided by %g before, want %g: "
                  "precision_divide_before",
                  type_name(types[i]), factor, (double)got, (double)before_of(types[i], factor));
        }
    float odd = precision_divide_before(F16, 2.5f);
    check(odd == 1.0f, "a factor of 2.5 has no whole divisor, and is divided by %g before",
          (double)odd);
}

TEST(a_factor_has_two_parts)
{
    run_ranks(1, divide_before_body, NULL);
}

// A unit's gradient, 3 everywhere, in two pieces from its end. One rank adds it to its shard of 1s.
static void ready_body(Wrapped *w, const Case *c, const Rank *r)
{
    FsdpUnit *unit = w->root->units[1];
    const Buffer *grad = &unit->flat.unsharded_grad;
    float want = 3.0f / before_of(c->policy->reduce_dtype, r->world), one = 1.0f;
    Buffer input, shard = unit->flat.sharded_grad;
    for (int64_t i = 0; i < shard.numel && r->world == 1; i++) {
        send_to((float *)shard.data + i, &one, 1);
        want = 4.0f;
    }
    need(fsdp_unshard(unit));
    need(fsdp_wait_for_unshard(unit));
    need(precision_pre_backward(unit->module, unit));
    need_cuda(cudaDeviceSynchronize());
    size_t count = (size_t)unit->flat.unsharded_grad.numel;
    float *threes = fetch_typed(grad->dtype, grad->data, count);
    for (size_t i = 0; i < count; i++) {
        check(threes[i] == 0.0f, "element %zu of a gradient begins as %g", i, (double)threes[i]);
        threes[i] = 3.0f;
    }
    check(grad->dtype == c->policy->param_dtype, "a gradient begins in %s, want %s",
          type_name(grad->dtype), type_name(c->policy->param_dtype));
    send_typed(grad->dtype, grad->data, threes, count);
    free(threes);
    for (int64_t begin = grad->numel / 2;; begin = 0) {
        need(precision_reduce_input(unit, begin, &input));
        check(precision_of(unit)->left == begin,
              "precision_reduce_input was asked for the elements from %lld on, and `left` is %lld: "
              "what it has cast, added or divided it must leave alone the next time",
              (long long)begin, (long long)precision_of(unit)->left);
        if (begin == 0) break;
    }
    need_cuda(cudaDeviceSynchronize());
    check(input.dtype == c->policy->reduce_dtype, "what is reduced is of %s, want %s",
          type_name(input.dtype), type_name(c->policy->reduce_dtype));
    float *got = fetch_typed(input.dtype, input.data, count);
    for (size_t i = 0; i < count; i++)
        check(got[i] == want,
              "a gradient of 3 among %d ranks is made ready in two pieces, %s to %s: element %zu "
              "of %zu is %g, want %g%s",
              r->world, type_name(c->policy->param_dtype), type_name(input.dtype), i, count,
              (double)got[i], (double)want,
              r->world > 1 ? ""
                           : ": one rank adds to its sharded_grad, here 1, from the first backward "
                             "on: precision_pre_backward sets own->reduce and own->adds");
    free(got);
    need(fsdp_reshard_all(w->model));
}

TEST(a_gradient_is_made_ready)
{
    for (int i = 0; i < N_PAIRS; i += 3) {
        Case c = typed(spec_mlp(3), PAIRS[i][0], PAIRS[i][1], STRATEGY_ZERO2, i % 2 ? 4 : 2);
        run_wrapped(i % 2 ? 4 : 2, ready_body, &c);
    }
    Case alone = typed(spec_mlp(3), BF16, F32, STRATEGY_ZERO2, 1);
    run_wrapped(1, ready_body, &alone);
}

TEST(training_follows_the_oracle)
{
    for (int i = 0; i < N_PAIRS; i++) {
        int world = 1 + (i + 3) % 4;
        Case c = typed(spec_mlp(3), PAIRS[i][0], PAIRS[i][1], STRATEGY_ZERO3, world);
        run_case(world, &c);
        c = typed(spec_mlp(i == 1 ? 1 : 3), PAIRS[i][0], PAIRS[i][1], ALL[i % 3], 4);
        if (i % 2 == 1 && c.options.strategy != STRATEGY_DDP) c.replicas = 2;
        run_case(4, &c);
    }
    Case gpt2 = typed(spec_gpt2(1), BF16, F32, STRATEGY_ZERO2, 2);
    run_case(2, &gpt2);
    Case hsdp = typed(spec_mlp(3), BF16, BF16, STRATEGY_ZERO3, 6);
    hsdp.replicas = 2;
    run_case(6, &hsdp);
    Case slices = typed(spec_mlp(3), BF16, F32, STRATEGY_ZERO3, 4);
    slices.options.reshard_ranks = 2;
    run_case(4, &slices);
    Spec spec = draw_mlp(4);
    const DType *pair = PAIRS[draw(0, N_PAIRS - 1)];
    Strategy strategy = draw_of(ALL);
    int world = drawn_world(&spec, 1, 8);
    Case c = typed(spec, pair[0], pair[1], strategy, world);
    run_case(world, &c);
}

TEST(micro_batches_accumulate_in_reduce_dtype)
{
    for (size_t i = 0; i < 4; i++) {
        Case c = typed(spec_mlp(3), BF16, i % 2 ? BF16 : F32, ALL[i], 3);
        c.rounds = 3;
        run_case(3, &c);
        if (ALL[i] == STRATEGY_ZERO1) continue;
        c.options.reduce_every_time = true;
        c.policy = policy_of(BF16, F16);
        run_case(3, &c);
    }
    Case one = typed(spec_mlp(3), BF16, BF16, STRATEGY_ZERO3, 1);
    one.rounds = 3;
    run_case(1, &one);
    Case narrower = typed(spec_mlp(3), F32, BF16, STRATEGY_DDP, 2);
    narrower.rounds = 2;
    run_case(2, &narrower);
    Case partial = typed(spec_mlp(3), BF16, F16, STRATEGY_ZERO3, 4);
    partial.replicas = 2;
    partial.rounds = 3;
    partial.partial = true;
    run_case(4, &partial);
    RULE(gradients_between_micro_batches);
}

TEST(fp16_divides_before_and_after)
{
    for (int world = 2; world <= 8; world += 3) {
        Case c = typed(spec_mlp(3), F16, F16, world == 5 ? STRATEGY_DDP : STRATEGY_ZERO3, world);
        c.rounds = 2;
        run_case(world, &c);
        c.options.divide_factor = 6.0f;
        c.policy = policy_of(BF16, F16);
        run_case(world, &c);
    }
}

// ---- Memory and traffic ----

// The handout's figures, in bytes.
typedef struct Figures {
    size_t held, params, grads, sums;      // persistent; the most that is unsharded; being summed
    uint64_t gathered, scattered, reduced; // sent in a step by each rank
} Figures;

static uint64_t most_of(uint64_t x, uint64_t y)
{
    return x > y ? x : y;
}

// P: elements of all units, padded; u: of a block, the largest; R: of the root. a and b: bytes of
// an unsharded parameter, and of a gradient that is reduced.
static Figures figures_of(const Wrapped *w, const Case *c, int world)
{
    const StrategyOptions *o = &c->options;
    uint64_t P = 0, R = 0, u = 0, S = (uint64_t)(world / c->replicas), D = (uint64_t)c->replicas;
    uint64_t n = (uint64_t)c->rounds, a = (uint64_t)dtype_bytes(c->policy->param_dtype);
    uint64_t b = (uint64_t)dtype_bytes(c->policy->reduce_dtype);
    for (int i = 0; i < w->root->n_units; i++) {
        uint64_t padded = (uint64_t)w->root->units[i]->flat.layout.padded;
        P += padded;
        if (i == 0) R = padded;
        if (i > 0) u = most_of(u, padded);
    }
    bool ddp = o->strategy == STRATEGY_DDP, kept = n > 1 && !o->reduce_every_time;
    bool differ = c->policy->param_dtype != (world == 1 ? F32 : c->policy->reduce_dtype);
    uint64_t times = o->reduce_every_time ? n : 1;
    Figures f = {.held = 16 * P / S};
    f.params = a * (o->strategy == STRATEGY_ZERO3 ? R + 2 * u : P);
    if (S == 1 && a == 4) f.params = 0; // the shard itself
    f.grads = b * (ddp || kept ? P : R + 2 * u);
    if (differ) f.grads = a * R + most_of((a + b) * u, b * R);
    if (differ && kept) f.grads = b * P + a * (R + u);
    if (differ && ddp) f.grads = (a + b) * P;
    if (world == 1) f.grads = differ ? a * (ddp ? P : R + u) : 0;
    if (!ddp && D > 1) f.sums = b * (u + most_of(R, u)) / S;
    f.gathered = a * ((S - 1) * P / S * (o->strategy == STRATEGY_ZERO1 ? 1 : n));
    if (o->strategy == STRATEGY_ZERO3) f.gathered += a * ((S - 1) * (P - R) / S * n);
    f.scattered = ddp ? 0 : b * ((S - 1) * P / S * times);
    f.reduced = b * (2 * (D - 1) * (P / S) / D * times);
    return f;
}

static void costs_body(const Rank *r, void *arg)
{
    const Case *c = arg;
    Wrapped w;
    size_t before = gpulog_live_bytes(r->device);
    case_wrap(&w, c, r);
    Figures f = figures_of(&w, c, r->world);
    size_t held = gpulog_live_bytes(r->device) - before;
    check(held == f.held,
          "masters, gradients and moments take %zu bytes, want %zu: 16 for each parameter of this "
          "rank's shard",
          held, f.held);
    uint64_t first = gpulog_length();
    gpulog_reset_traffic();
    case_train(&w, c, r, 0);
    need_cuda(cudaDeviceSynchronize());
    check_all_freed(first);
    const GpuOp ops[] = {GPU_ALL_GATHER, GPU_REDUCE_SCATTER, GPU_ALL_REDUCE};
    const uint64_t wants[] = {f.gathered, f.scattered, f.reduced};
    for (int i = 0; i < 3; i++)
        check(gpulog_traffic(ops[i]).sent == wants[i],
              "a step of %d micro-batches sent %llu bytes in %ss, want %llu", c->rounds,
              (unsigned long long)gpulog_traffic(ops[i]).sent, gpulog_op_name(ops[i]),
              (unsigned long long)wants[i]);
    size_t params = case_peak(first, GPU_UNSHARDED_PARAM),
           grads = case_peak(first, GPU_UNSHARDED_GRAD);
    size_t sums = case_peak(first, GPU_COMMUNICATION);
    check(params == f.params, "at most %zu bytes of parameters are unsharded at a time, want %zu",
          params, f.params);
    check(grads == f.grads,
          "at most %zu bytes of gradients are unsharded at a time, want %zu" LIKELY
          "what was being reduced is freed before a buffer for the next sum is taken",
          grads, f.grads);
    check(sums == f.sums,
          "at most %zu bytes hold sums that the replicas are still to add, want %zu", sums, f.sums);
    case_unwrap(&w, r);
}

TEST(bytes_are_the_formula)
{
    Spec spec = spec_gpt2(3);
    spec.dim = 24; // bytes that 8 ranks divide
    Case all[3 * N_PAIRS + 1] = {{0}};
    for (int i = 0; i < 3 * N_PAIRS; i++) {
        Case c = typed(spec, PAIRS[i / 3][0], PAIRS[i / 3][1], ALL[i % 4], 4);
        c.rounds = 1 + i % 2;
        c.options.reduce_every_time = i % 3 == 0 && ALL[i % 4] != STRATEGY_ZERO1;
        if (ALL[i % 4] >= STRATEGY_ZERO2 && i % 5 == 0) c.replicas = 2;
        all[i] = c;
    }
    run_each(4, costs_body, all);
    for (int world = 1; world <= 8; world *= 2) {
        Case of[] = {typed(spec, BF16, F32, STRATEGY_ZERO3, world),
                     typed(spec, BF16, world == 8 ? BF16 : F32, STRATEGY_DDP, world),
                     {0}};
        run_each(world, costs_body, of);
    }
    RULE(policies_grow_nothing);
}

SUITE_MAIN("mixed_precision")
