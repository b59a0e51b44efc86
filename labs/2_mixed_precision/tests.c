/* Lab 2, mixed precision: which type is where, what each cast rounds, what travels, and when a step
 * is left out.
 *
 * Trainings are compared with the oracle of strategies.h, which rounds by the definition of the types
 * (half_numbers.h). A small model of integers is computed from scratch.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "draw_model.h"
#include "harness.h"
#include "kernels.h"
#include "narrow.h"
#include "precision.h"
#include "strategies.h"

static const DType F32 = DTYPE_F32, BF16 = DTYPE_BF16, F16 = DTYPE_F16;

static const Strategy ALL[] = {STRATEGY_DDP, STRATEGY_ZERO1, STRATEGY_ZERO2, STRATEGY_ZERO3};
static const DType PAIRS[][2] = {{DTYPE_BF16, DTYPE_F32}, {DTYPE_BF16, DTYPE_BF16},
                                 {DTYPE_F16, DTYPE_F32},  {DTYPE_F16, DTYPE_F16},
                                 {DTYPE_F32, DTYPE_BF16}, {DTYPE_F32, DTYPE_F32}};
enum { N_PAIRS = sizeof PAIRS / sizeof PAIRS[0] };

// The policy of these types; floats go in and come out.
static const MixedPrecisionPolicy *policy_of(DType param, DType reduce)
{
    static MixedPrecisionPolicy all[3][3];
    all[param][reduce] = (MixedPrecisionPolicy){param, reduce, DTYPE_F32, true};
    return &all[param][reduce];
}

static Case typed(Spec spec, DType param, DType reduce, Strategy strategy, int world)
{
    Case c = case_of(spec, strategy, world, 1, 1);
    c.policy = policy_of(param, reduce);
    return c;
}

// What fp16 is divided by before the sum, of some factors: worked out by hand from FSDP2's rule.
static float before_of(DType type, int factor)
{
    static const int BEFORE[] = {0, 1, 2, 2, 2, 2, 4, 2, 4, 2, 4, 2, 4};
    return type == F16 ? (float)BEFORE[factor] : 1.0f;
}

// ---- What travels ----

static void travel_body(const Rank *r, void *arg)
{
    const Case *c = arg;
    Wrapped w;
    DType type = c->policy->param_dtype;
    case_wrap(&w, c, r);
    for (int u = 0; u < w.root->n_units; u++) {
        FsdpUnit *unit = w.root->units[u];
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
        check_on_stream(first, w.ctx.all_gather_stream, "the cast or the all-gather",
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
        check(flat->layout.params[0]->data.dtype == type,
              "the parameters are views of another type than %s", type_name(type));
        need(fsdp_reshard(unit));
        need(fsdp_free_all_gather(w.root));
        check(gpulog_live_bytes(r->device) == before, "a reshard has left %zu bytes",
              gpulog_live_bytes(r->device) - before);
        free(shard);
        free(got);
        free(after);
    }
    case_unwrap(&w, r);
}

static void parameters_travel_narrow(void **state)
{
    for (int world = 1; world <= 8; world++) {
        Case c = typed(spec_mlp(3), world % 2 ? BF16 : F16, F32, STRATEGY_ZERO3, world);
        run_ranks(world, travel_body, &c);
    }
    Case ddp = typed(spec_mlp(3), BF16, F32, STRATEGY_DDP, 2);
    run_ranks(2, travel_body, &ddp);
}

// ---- Against the oracle ----

static void training_follows_the_oracle(void **state)
{
    for (int i = 0; i < N_PAIRS; i++) {
        int world = 1 + (i + 3) % 4;
        Case c = typed(spec_mlp(3), PAIRS[i][0], PAIRS[i][1], STRATEGY_ZERO3, world);
        run_case(world, &c);
        c = typed(spec_mlp(3), PAIRS[i][0], PAIRS[i][1], ALL[i % 3], 4);
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

static void micro_batches_accumulate_in_reduce_dtype(void **state)
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
}

static void divide_before_body(const Rank *r, void *arg)
{
    for (int factor = 1; factor <= 12; factor++)
        for (int i = 0; i < 3; i++) {
            const DType types[] = {F32, BF16, F16};
            float got = precision_divide_before(types[i], (float)factor);
            check(got == before_of(types[i], factor),
                  "a sum in %s that is divided by %d is divided by %g before, want %g",
                  type_name(types[i]), factor, (double)got, (double)before_of(types[i], factor));
        }
    float odd = precision_divide_before(F16, 2.5f);
    check(odd == 1.0f, "a factor of 2.5 has no whole divisor, and is divided by %g before",
          (double)odd);
}

static void fp16_divides_before_and_after(void **state)
{
    run_ranks(1, divide_before_body, NULL);
    for (int world = 2; world <= 8; world += 3) {
        Case c = typed(spec_mlp(3), F16, F16, world == 5 ? STRATEGY_DDP : STRATEGY_ZERO3, world);
        c.rounds = 2;
        run_case(world, &c);
        c.options.divide_factor = 6.0f;
        c.policy = policy_of(BF16, F16);
        run_case(world, &c);
    }
}

// ---- Integers, from scratch: no kernel and no GEMM has a part in what is expected ----

enum { ROWS = 3, INS = 6, MID = 5, OUTS = 4 };

// Small whole numbers that a place decides: -1, 0 or 1.
static int whole_at(int what, int rank, int i)
{
    return (i * 7 + i / 3 + what * 5 + rank * 11) % 3 - 1;
}

typedef struct Whole {
    int w1[MID][INS], b1[MID], w2[OUTS][MID], b2[OUTS];
} Whole;

// The gradient of Σ dout·y on one rank: y = W2·(W1·x + b1) + b2.
static void whole_gradient(Whole *g, const Whole *m, int rank)
{
    for (int row = 0; row < ROWS; row++) {
        int x[INS], h[MID], dy[OUTS], dh[MID] = {0};
        for (int i = 0; i < INS; i++) x[i] = whole_at(1, rank, row * INS + i);
        for (int o = 0; o < OUTS; o++) dy[o] = whole_at(2, rank, row * OUTS + o);
        for (int k = 0; k < MID; k++) {
            h[k] = m->b1[k];
            for (int i = 0; i < INS; i++) h[k] += m->w1[k][i] * x[i];
        }
        for (int o = 0; o < OUTS; o++)
            for (int k = 0; k < MID; k++) {
                g->w2[o][k] += dy[o] * h[k];
                dh[k] += dy[o] * m->w2[o][k];
            }
        for (int o = 0; o < OUTS; o++) g->b2[o] += dy[o];
        for (int k = 0; k < MID; k++) {
            g->b1[k] += dh[k];
            for (int i = 0; i < INS; i++) g->w1[k][i] += dh[k] * x[i];
        }
    }
}

static Module *whole_model(void)
{
    Module *children[] = {linear_create("a", INS, MID, true, 0.1f),
                          linear_create("b", MID, OUTS, true, 0.1f)};
    return sequence_create("whole", 2, children);
}

// Which numbers of m are a parameter's: the four are back to back in it, in the model's order.
static int *whole_of(Whole *m, const Param *param)
{
    if (strcmp(param->name, "a.weight") == 0) return &m->w1[0][0];
    if (strcmp(param->name, "a.bias") == 0) return m->b1;
    return strcmp(param->name, "b.weight") == 0 ? &m->w2[0][0] : m->b2;
}

// Has this rank's shards hold the numbers, or compares its gradients with numbers / world.
static void whole_shards(FsdpRoot *root, Whole *m, int world, bool compare)
{
    for (int u = 0; u < root->n_units; u++) {
        const FlatParam *flat = &root->units[u]->flat;
        const Buffer *buffer = compare ? &flat->sharded_grad : &flat->sharded_param;
        float *shard = fetch(buffer->data, (size_t)buffer->numel);
        for (int j = 0; j < flat->layout.n; j++) {
            int64_t begin, end, at;
            flat_param_range_in_shard(&flat->layout, j, flat->layout.rank, &begin, &end, &at);
            for (int64_t e = begin; e < end; e++) {
                float want = (float)whole_of(m, flat->layout.params[j])[e];
                float *here = &shard[at + e - begin];
                check(!compare || *here == want / (float)world,
                      "of whole numbers, the gradient of %s[%lld] is %.9g, want %g / %d: every sum "
                      "is exact in every type",
                      flat->layout.params[j]->name, (long long)e, (double)*here, (double)want,
                      world);
                *here = want;
            }
        }
        if (!compare) send_to(buffer->data, shard, (size_t)buffer->numel);
        free(shard);
    }
}

static void whole_body(const Rank *r, void *arg)
{
    const Case *c = arg;
    Wrapped w;
    Whole m, sum = {0};
    float x[ROWS * INS], dout[ROWS * OUTS], *out = NULL, *din = NULL;
    memset(&w, 0, sizeof w);
    for (int i = 0; i < (int)(sizeof m / sizeof(int)); i++) ((int *)&m)[i] = whole_at(0, 0, i);
    need(nn_run_create(&w.run, r->stream));
    need(mesh_2d(&w.mesh, r->comm, c->replicas));
    need(fsdp_context_create(&w.ctx, &w.mesh, r->stream));
    w.model = whole_model();
    if (c->options.strategy != STRATEGY_DDP)
        need(fully_shard(w.model->children[0], &w.ctx, &TEST_OPTIONS));
    need(fully_shard(w.model, &w.ctx, &TEST_OPTIONS));
    need(strategy_apply(w.model, &c->options));
    need(precision_apply(w.model, c->policy));
    w.root = fsdp_unit(w.model)->root;
    whole_shards(w.root, &m, r->world, false);
    for (int i = 0; i < ROWS * INS; i++) x[i] = (float)whole_at(1, r->rank, i);
    for (int i = 0; i < ROWS * OUTS; i++) dout[i] = (float)whole_at(2, r->rank, i);
    float *in = alloc_typed(F32, ROWS * INS), *grad = alloc_typed(F32, ROWS * OUTS);
    send_to(in, x, ROWS * INS);
    send_to(grad, dout, ROWS * OUTS);
    w.run.B = ROWS;
    w.run.T = 1;
    for (int k = 0; k < c->rounds; k++) {
        need(strategy_micro_batch(w.model, k, c->rounds));
        need(module_forward(w.model, &w.run, in, &out));
        need(module_backward(w.model, &w.run, grad, &din));
        need_cuda(cudaFreeAsync(din, r->stream));
        for (int rank = 0; rank < r->world; rank++) whole_gradient(&sum, &m, rank);
    }
    need_cuda(cudaDeviceSynchronize());
    whole_shards(w.root, &sum, r->world, true);
    need_cuda(cudaFree(in));
    need_cuda(cudaFree(grad));
    need(precision_remove(w.model));
    need(strategy_remove(w.model));
    fsdp_unwrap(w.model);
    module_destroy(w.model);
    need(fsdp_context_destroy(&w.ctx));
    need(mesh_destroy(&w.mesh, r->comm));
    need(nn_run_destroy(&w.run));
}

static void whole_numbers_are_exact(void **state)
{
    for (int world = 1; world <= 8; world++)
        for (int i = 0; i < 2; i++) {
            const DType *pair = PAIRS[(world + 3 * i) % N_PAIRS];
            Case c = typed(spec_mlp(3), pair[0], pair[1], ALL[(world + i) % 4], world);
            c.rounds = 1 + world % 2;
            run_ranks(world, whole_body, &c);
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
    const GpuOp ops[] = {GPU_ALL_GATHER, GPU_REDUCE_SCATTER, GPU_ALL_REDUCE};
    const uint64_t wants[] = {f.gathered, f.scattered, f.reduced};
    for (int i = 0; i < 3; i++)
        check(gpulog_traffic(ops[i]).sent == wants[i],
              "a step of %d micro-batches sent %llu bytes in %ss, want %llu", c->rounds,
              (unsigned long long)gpulog_traffic(ops[i]).sent, gpulog_op_name(ops[i]),
              (unsigned long long)wants[i]);
    size_t params = case_peak(first, GPU_UNSHARDED_PARAM), grads = case_peak(first, GPU_UNSHARDED_GRAD);
    size_t sums = case_peak(first, GPU_COMMUNICATION);
    check(params == f.params, "at most %zu bytes of parameters are unsharded at a time, want %zu",
          params, f.params);
    check(grads == f.grads, "at most %zu bytes of gradients are unsharded at a time, want %zu",
          grads, f.grads);
    check(sums == f.sums,
          "at most %zu bytes hold sums that the replicas are still to add, want %zu", sums, f.sums);
    check(gpulog_live_bytes(r->device) - before == f.held,
          "after the step %zu bytes are left that were not there before it",
          gpulog_live_bytes(r->device) - before - f.held);
    case_unwrap(&w, r);
}

static void bytes_are_the_formula(void **state)
{
    Spec spec = spec_gpt2(3);
    spec.dim = 24; // bytes that 8 ranks divide
    for (int i = 0; i < 3 * N_PAIRS; i++) {
        Case c = typed(spec, PAIRS[i / 3][0], PAIRS[i / 3][1], ALL[i % 4], 4);
        c.rounds = 1 + i % 2;
        c.options.reduce_every_time = i % 3 == 0 && ALL[i % 4] != STRATEGY_ZERO1;
        if (ALL[i % 4] >= STRATEGY_ZERO2 && i % 5 == 0) c.replicas = 2;
        run_ranks(4, costs_body, &c);
    }
    for (int world = 1; world <= 8; world *= 2) {
        Case c = typed(spec, BF16, F32, STRATEGY_ZERO3, world);
        run_ranks(world, costs_body, &c);
        c = typed(spec, BF16, world == 8 ? BF16 : F32, STRATEGY_DDP, world);
        run_ranks(world, costs_body, &c);
    }
}

// ---- The masters, the ends of the model, and what does not go together ----

static Status count_visit(const Param *param, const float *values, void *arg)
{
    ++*(int *)arg;
    return OK;
}

static Status compare_master(const Param *param, const float *values, void *arg)
{
    const Plain *plain = arg;
    static Layout all;
    layout_module(&all, plain->model, false, 1, LAYOUT_WHOLE);
    for (int i = 0; i < all.n; i++) {
        size_t n = all.begin[i + 1] - all.begin[i];
        if (strcmp(all.param[i]->name, param->name) != 0) continue;
        float *want = fetch(all.param[i]->data.data, n);
        check(memcmp(values, want, n * sizeof *want) == 0,
              "the full state has %s[0] = %.9g, and its master is %.9g: it is gathered from the "
              "shards in float",
              param->name, (double)values[0], (double)want[0]);
        free(want);
    }
    return OK;
}

static void masters_body(const Rank *r, void *arg)
{
    const Case *c = arg;
    Wrapped w;
    Plain plain;
    int visits = 0;
    plain_create(&plain, &c->spec, TEST_OPTIONS.seed, NULL, r->stream);
    int n_params = meta_params(plain.model, NULL, 0);
    case_wrap(&w, c, r);
    for (int round = 0; round < 2; round++) { // the second after a forward in the policy's type
        size_t live = gpulog_live_bytes(r->device);
        need(fsdp_full_state(w.model, compare_master, &plain));
        check(gpulog_live_bytes(r->device) == live, "fsdp_full_state has left %zu bytes",
              gpulog_live_bytes(r->device) - live);
        case_train(&w, c, r, round);
        check(w.root->units[0]->flat.unsharded_param.dtype == c->policy->param_dtype,
              "after fsdp_full_state the units are gathered in another type than the policy's");
    }
    need(fsdp_unshard(w.root->units[1]));
    need(fsdp_wait_for_unshard(w.root->units[1]));
    check(fsdp_full_state(w.model, count_visit, &visits) == ERR_ARGUMENT,
          "the full state of a unit that is unsharded in %s was taken for its masters",
          type_name(c->policy->param_dtype));
    check(strstr(check_last(), "fsdp_reshard_all(root) first") != NULL, "the line says: %s",
          check_last());
    need(fsdp_reshard_all(w.model));
    need(fsdp_full_state(w.model, count_visit, &visits));
    check(visits == (r->rank == 0 ? n_params : 0), "the visitor has had %d parameters of %d",
          visits, n_params);
    case_unwrap(&w, r);
    plain_destroy(&plain);
}

static void the_full_state_is_the_masters(void **state)
{
    Case c = typed(spec_mlp(3), BF16, F32, STRATEGY_ZERO3, 3);
    run_ranks(3, masters_body, &c);
}

// That no module computes in another type than it did, and that the model trains as before.
static void check_restored(Wrapped *w, const Case *c, const Rank *r, int children)
{
    check(w->model->n_children == children && w->model->out_type == F32 &&
              w->model->children[0]->out_type == F32,
          "a policy that was refused or taken off has left a layer or a type");
    check(w->root->precision == NULL && w->root->full_state == NULL,
          "a policy that was refused or taken off has left something in the root");
    for (int u = 0; u < w->root->n_units; u++)
        check(w->root->units[u]->flat.unsharded_param.dtype == F32 &&
                  w->root->units[u]->all_gather == fsdp_all_gather,
              "unit %s still gathers as a policy said", w->root->units[u]->flat.name);
    case_train(w, c, r, 0);
    need(fsdp_adamw_step(&w->adamw));
}

static void refuse(Wrapped *w, MixedPrecisionPolicy policy, const char *line)
{
    Status status = precision_apply(w->model, &policy);
    check(status == ERR_ARGUMENT && strstr(check_last(), line) != NULL,
          "status %d and \"%s\", want ERR_ARGUMENT and a line with: %s", status, check_last(),
          line);
}

static void refusals_body(const Rank *r, void *arg)
{
    const Case *c = arg;
    const MixedPrecisionPolicy bf16 = {BF16, F32, F32, true};
    Wrapped w;
    case_wrap(&w, c, r);
    int children = w.model->n_children;
    need(strategy_remove(w.model));
    refuse(&w, bf16, "call strategy_apply before precision_apply");
    need(strategy_apply(w.model, &c->options));
    refuse(&w, (MixedPrecisionPolicy){BF16, (DType)7, F32, true}, "7 is no DType");
    need(fsdp_unshard(w.root->units[1]));
    refuse(&w, bf16, "in the middle of a step");
    need(fsdp_reshard_all(w.model));
    Module *cast = cast_create("narrow", w.model->out_dim, F16, F32), *last;
    int at = w.model->n_children - 1;
    last = w.model->children[at];
    w.model->children[at] = cast;
    refuse(&w, bf16, "takes another type than");
    w.model->children[at] = last;
    module_destroy(cast);
    check_restored(&w, c, r, children);
    need(precision_apply(w.model, &bf16));
    refuse(&w, bf16, "has a precision already");
    check(strategy_remove(w.model) == ERR_ARGUMENT &&
              strstr(check_last(), "call precision_remove before") != NULL,
          "a strategy was taken off under a precision: %s", check_last());
    need(precision_remove(w.model));
    check(precision_remove(w.model) == ERR_ARGUMENT, "no precision was taken off");
    check_restored(&w, c, r, children);
    case_unwrap(&w, r);
}

static void types_body(const Rank *r, void *arg)
{
    const Case *c = arg;
    Wrapped w;
    Buffer out;
    Batch batch = case_batch(c, 0, r->rank, 0);
    case_wrap(&w, c, r);
    DType in = c->policy->cast_forward_inputs ? F32 : c->policy->param_dtype;
    check(w.model->in_type == in && w.model->out_type == c->policy->output_dtype,
          "the model takes %s and gives %s, want %s and %s", type_name(w.model->in_type),
          type_name(w.model->out_type), type_name(in), type_name(c->policy->output_dtype));
    size_t n = (size_t)c->spec.B * (size_t)c->spec.in_dim;
    float *x = fetch(batch.in, n);
    void *input = alloc_typed(in, n);
    send_typed(in, input, x, n);
    w.run.B = c->spec.B;
    w.run.T = 1;
    need(module_forward_typed(w.model, &w.run, input, &out));
    check(out.dtype == c->policy->output_dtype, "the output is %s", type_name(out.dtype));
    need(module_discard(w.model, &w.run));
    need(fsdp_reshard_all(w.model));
    need_cuda(cudaFree(input));
    free(x);
    batch_destroy(&batch);
    case_unwrap(&w, r);
}

static void a_policy_suits_the_model(void **state)
{
    Case c = case_of(spec_mlp(3), STRATEGY_ZERO3, 2, 1, 1);
    run_ranks(2, refusals_body, &c);
    for (int i = 0; i < 8; i++) {
        const MixedPrecisionPolicy policy = {i & 1 ? F16 : BF16, F32, i & 2 ? F32 : BF16,
                                             (i & 4) != 0};
        c.policy = &policy;
        run_ranks(2, types_body, &c);
    }
}

// ---- Loss scaling ----

// What a step may change on this rank: shards and moments, back to back; their length in *n.
static float *state_of(const Wrapped *w, size_t *n)
{
    size_t all = 0;
    for (int u = 0; u < w->root->n_units; u++)
        all += 3 * (size_t)w->root->units[u]->flat.layout.shard_numel;
    float *values = malloc((all + 1) * sizeof *values);
    check(values != NULL, "no memory for %zu numbers", all);
    *n = all;
    all = 0;
    for (int u = 0; u < w->root->n_units; u++) {
        const FlatParam *flat = &w->root->units[u]->flat;
        const float *from[] = {flat->sharded_param.data, w->adamw.m[u], w->adamw.v[u]};
        for (int i = 0; i < 3; i++) {
            float *part = fetch(from[i], (size_t)flat->layout.shard_numel);
            memcpy(values + all, part, (size_t)flat->layout.shard_numel * sizeof *part);
            all += (size_t)flat->layout.shard_numel;
            free(part);
        }
    }
    return values;
}

// A step of a training loop; `spoil` makes this rank's gradient too large for fp16.
static void scaled_step(Wrapped *w, LossScaler *scaler, const Case *c, const Rank *r, int step,
                        bool spoil)
{
    size_t n = (size_t)c->spec.B * (size_t)c->spec.T * (size_t)c->spec.vocab;
    float *logits, *dlogits, *din, loss;
    Batch batch = case_batch(c, step, r->rank, 0);
    w->run.B = c->spec.B;
    w->run.T = c->spec.T;
    need(fsdp_zero_grad(w->model, &w->ctx));
    need(module_forward(w->model, &w->run, batch.in, &logits));
    need(cross_entropy(&w->run, logits, batch.targets, c->spec.B * c->spec.T, c->spec.vocab, &loss,
                       &dlogits));
    if (scaler != NULL) need(loss_scaler_scale(scaler, dlogits, n, r->stream));
    if (spoil) need_cuda(kernel_scale(dlogits, 1e12f, n, r->stream));
    need(module_backward(w->model, &w->run, dlogits, &din));
    need_cuda(cudaFreeAsync(dlogits, r->stream));
    if (din != NULL) need_cuda(cudaFreeAsync(din, r->stream));
    batch_destroy(&batch);
}

static void overflow_body(const Rank *r, void *arg)
{
    const Case *c = arg;
    Wrapped w;
    LossScaler scaler = LOSS_SCALER_DEFAULTS;
    size_t n, again;
    scaler.scale = 1024.0f;
    case_wrap(&w, c, r);
    need(loss_scaler_create(&scaler, w.model));
    for (int step = 0; step < 4; step++) {
        bool left_out = step == 1 || step == 3;
        int t = w.adamw.t;
        float scale = scaler.scale, *before = state_of(&w, &n);
        scaled_step(&w, &scaler, c, r, step, left_out && r->rank == r->world - 1);
        gpulog_reset_traffic();
        need(loss_scaler_unscale(&scaler));
        GpuTraffic traffic = gpulog_traffic(GPU_ALL_REDUCE);
        bool asks = w.mesh.shard.size > 1;
        check(
            traffic.calls == (uint64_t)asks && traffic.bytes == 4 * (uint64_t)asks,
            "loss_scaler_unscale made %llu all-reduces of %llu bytes, want %d of 4: one, over the "
            "ranks that shard",
            (unsigned long long)traffic.calls, (unsigned long long)traffic.bytes, (int)asks);
        check(scaler.found_inf == left_out,
              "step %d: rank %d says that a gradient is %sfinite, where that of the last rank is "
              "%sfinite: all ranks say the same",
              step, r->rank, scaler.found_inf ? "not " : "", left_out ? "not " : "");
        need(loss_scaler_step(&scaler, &w.adamw));
        need(loss_scaler_update(&scaler));
        need_cuda(cudaDeviceSynchronize());
        float *after = state_of(&w, &again);
        bool same = n == again && memcmp(before, after, n * sizeof *before) == 0;
        check(
            same == left_out && w.adamw.t == t + !left_out,
            "step %d: parameters and moments %s and t went from %d to %d: a step that is left out "
            "changes nothing, any other does",
            step, same ? "are as before" : "have changed", t, w.adamw.t);
        check(scaler.scale == (left_out ? scale / 2.0f : scale),
              "step %d: the scale went from %g to %g", step, (double)scale, (double)scaler.scale);
        free(before);
        free(after);
    }
    loss_scaler_destroy(&scaler);
    case_unwrap(&w, r);
}

static void an_overflow_leaves_the_step_out_everywhere(void **state)
{
    for (int i = 0; i < 4; i++) {
        Case c = typed(spec_mlp(3), F16, i % 2 ? F32 : F16, ALL[i], 3);
        run_ranks(3, overflow_body, &c);
    }
    Case hsdp = typed(spec_mlp(3), F16, F16, STRATEGY_ZERO3, 4);
    hsdp.replicas = 2;
    run_ranks(4, overflow_body, &hsdp);
    Case one = typed(spec_mlp(3), F16, F16, STRATEGY_ZERO3, 1);
    run_ranks(1, overflow_body, &one);
}

// The gradients of the rank's shards.
static float *gradients_of(const Wrapped *w, size_t *n)
{
    float *values = NULL;
    *n = 0;
    for (int u = 0; u < w->root->n_units; u++) {
        const Buffer *grad = &w->root->units[u]->flat.sharded_grad;
        float *part = fetch(grad->data, (size_t)grad->numel);
        values = realloc(values, (*n + (size_t)grad->numel + 1) * sizeof *values);
        check(values != NULL, "no memory for gradients");
        memcpy(values + *n, part, (size_t)grad->numel * sizeof *part);
        *n += (size_t)grad->numel;
        free(part);
    }
    return values;
}

static void unscale_body(const Rank *r, void *arg)
{
    const Case *c = arg;
    Wrapped w;
    LossScaler scaler = LOSS_SCALER_DEFAULTS;
    size_t n, again;
    scaler.scale = 4096.0f;
    case_wrap(&w, c, r);
    need(loss_scaler_create(&scaler, w.model));
    scaled_step(&w, NULL, c, r, 0, false);
    need_cuda(cudaDeviceSynchronize());
    float *want = gradients_of(&w, &n);
    scaled_step(&w, &scaler, c, r, 0, false);
    need_cuda(cudaDeviceSynchronize());
    float *scaled = gradients_of(&w, &again);
    for (size_t i = 0; i < n; i++)
        check(scaled[i] == 4096.0f * want[i],
              "with a scale of 4096 gradient %zu is %.9g, and without %.9g: the loss's gradient is "
              "multiplied, once",
              i, (double)scaled[i], (double)want[i]);
    need(loss_scaler_unscale(&scaler));
    float *got = gradients_of(&w, &again);
    for (size_t i = 0; i < n; i++)
        check(got[i] == want[i], "unscaled, gradient %zu is %.9g, want %.9g: that without a scale",
              i, (double)got[i], (double)want[i]);
    free(want);
    free(scaled);
    free(got);
    loss_scaler_destroy(&scaler);
    case_unwrap(&w, r);
}

static void gradients_are_scaled_and_unscaled(void **state)
{
    Case c = typed(spec_mlp(3), BF16, F32, STRATEGY_ZERO2, 2); // powers of two change no bit
    run_ranks(2, unscale_body, &c);
}

static void refused(const char *call, Status status, const char *line)
{
    const char *said = status == OK ? "nothing" : check_last();
    check(status == ERR_ARGUMENT && strstr(said, line) != NULL,
          "%s gave status %d and said: %s; want ERR_ARGUMENT and a line with: %s", call, status,
          said, line);
}

// A step with gradients of zero, one of them infinite where `spoil`.
static void step_of_zeros(Wrapped *w, LossScaler *scaler, bool spoil)
{
    const Buffer *grad = &w->root->units[w->root->n_units - 1]->flat.sharded_grad;
    float bad[] = {spoil ? INFINITY : 0.0f};
    need(fsdp_zero_grad(w->model, &w->ctx));
    need_cuda(cudaDeviceSynchronize());
    send_to((float *)grad->data + grad->numel - 1, bad, 1);
    need(loss_scaler_step(scaler, &w->adamw));
    refused("loss_scaler_step", loss_scaler_step(scaler, &w->adamw), "this step was taken already");
    refused("loss_scaler_unscale", loss_scaler_unscale(scaler), "are unscaled already");
    refused("loss_scaler_scale", loss_scaler_scale(scaler, grad->data, 1, w->ctx.compute_stream),
            "are unscaled already");
    need(loss_scaler_update(scaler));
    refused("loss_scaler_update", loss_scaler_update(scaler), "nothing was unscaled");
}

static void scale_body(const Rank *r, void *arg)
{
    const Case *c = arg;
    static const char STEPS[] = "gggbggbbggggggggggggggg"; // good and bad
    Wrapped w;
    LossScaler bad[] = {{.scale = 0.0f, .growth_factor = 2, .backoff_factor = 0.5f, 0},
                        {.scale = INFINITY, .growth_factor = 2, .backoff_factor = 0.5f, 1},
                        {.scale = 1, .growth_factor = 1, .backoff_factor = 0.5f, 1},
                        {.scale = 1, .growth_factor = 2, .backoff_factor = 1.0f, 1},
                        {.scale = 1, .growth_factor = 2, .backoff_factor = 0.5f, 0}};
    LossScaler scaler = {
        .scale = 0x1p125f, .growth_factor = 4.0f, .backoff_factor = 0.25f, .growth_interval = 3};
    case_wrap(&w, c, r);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        check(loss_scaler_create(&bad[i], w.model) == ERR_ARGUMENT, "scaler %zu was made", i);
    need(loss_scaler_create(&scaler, w.model));
    float want = scaler.scale;
    int good = 0;
    for (size_t i = 0; STEPS[i] != '\0'; i++) {
        step_of_zeros(&w, &scaler, STEPS[i] == 'b');
        good = STEPS[i] == 'b' ? 0 : good + 1;
        if (STEPS[i] == 'b') want /= 4.0f;
        if (good == 3 && want < 0x1p126f) want *= 4.0f;
        if (good == 3) good = 0;
        check(
            scaler.scale == want && scaler.growth_tracker == good,
            "after step %zu of %s (g: finite) the scale is %g and the tracker %d, want %g and %d: "
            "times 0.25 after b, times 4 after three g, and never infinite",
            i + 1, STEPS, (double)scaler.scale, scaler.growth_tracker, (double)want, good);
    }
    loss_scaler_destroy(&scaler);
    case_unwrap(&w, r);
}

static void the_scale_shrinks_and_grows(void **state)
{
    Case c = typed(spec_mlp(2), F16, F32, STRATEGY_ZERO3, 2);
    run_ranks(2, scale_body, &c);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(parameters_travel_narrow),
    cmocka_unit_test(training_follows_the_oracle),
    cmocka_unit_test(micro_batches_accumulate_in_reduce_dtype),
    cmocka_unit_test(fp16_divides_before_and_after),
    cmocka_unit_test(whole_numbers_are_exact),
    cmocka_unit_test(bytes_are_the_formula),
    cmocka_unit_test(the_full_state_is_the_masters),
    cmocka_unit_test(a_policy_suits_the_model),
    cmocka_unit_test(gradients_are_scaled_and_unscaled),
    cmocka_unit_test(an_overflow_leaves_the_step_out_everywhere),
    cmocka_unit_test(the_scale_shrinks_and_grows),
};
SUITE_MAIN("mixed_precision", tests)
