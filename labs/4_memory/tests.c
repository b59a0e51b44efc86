/* Lab 4, memory. First half, recomputation: what a forward keeps, what is computed again and when,
 * and that no result, no hook and no message is another one for it.
 *
 * Trainings are compared with the oracle of strategies.h; bytes with the handout's formulas, which
 * are written down here once more.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend.h"
#include "draw_model.h"
#include "harness.h"
#include "host_kernels.h"
#include "kernels.h"
#include "narrow.h"
#include "recompute.h"
#include "strategies.h"
#include "times.h"

static const Strategy ALL[] = {STRATEGY_DDP, STRATEGY_ZERO1, STRATEGY_ZERO2, STRATEGY_ZERO3};
static const RecomputeKind KINDS[] = {RECOMPUTE_NONE, RECOMPUTE_BLOCKS, RECOMPUTE_ATTENTION};
static const char *const KIND_NAMES[] = {"nothing", "blocks", "attention's weights"};

static Case again(Spec spec, RecomputeKind kind, Strategy strategy, int world)
{
    Case c = case_of(spec, strategy, world, 1, 1);
    c.recompute = kind;
    return c;
}

// ---- Bytes of activations ----

// What a GPT-2 saves: of a block without its output, of that its weights, and while the weights are
// made again; an output of C columns; the last normalisation; the logits, of all types.
typedef struct Saved {
    size_t inside, weights, at_weights, out, norm, logits, narrow_logits;
    size_t blocks;
} Saved;

static Saved saved_by(const Case *c)
{
    const Spec *s = &c->spec;
    size_t N = (size_t)s->B * (size_t)s->T, C = (size_t)s->dim, V = (size_t)s->vocab;
    size_t b = c->policy == NULL ? 4 : (size_t)dtype_bytes(c->policy->param_dtype);
    size_t weights = b * N * (size_t)s->heads * (size_t)s->T;
    return (Saved){.inside = b * 15 * N * C + 16 * N + weights,
                   .weights = weights,
                   .at_weights = b * 6 * N * C + 8 * N + weights,
                   .out = b * N * C,
                   .norm = b * N * C + 8 * N,
                   .logits = 4 * N * V,
                   .narrow_logits = b < 4 ? b * N * V : 0,
                   .blocks = (size_t)s->layers};
}

// After the model's forward.
static size_t kept_after_forward(const Saved *a, RecomputeKind kind)
{
    size_t of_block = a->inside;
    if (kind == RECOMPUTE_BLOCKS) of_block = 0;
    if (kind == RECOMPUTE_ATTENTION) of_block = a->inside - a->weights;
    return (a->blocks + 1) * a->out + a->blocks * of_block + a->norm + a->logits + a->narrow_logits;
}

static size_t larger(size_t x, size_t y)
{
    return x > y ? x : y;
}

static size_t peak_of(const Saved *a, RecomputeKind kind)
{
    size_t all = kept_after_forward(a, kind), base = (a->blocks + 1) * a->out + a->logits;
    if (kind == RECOMPUTE_BLOCKS) return larger(all, base + a->inside);
    if (kind == RECOMPUTE_ATTENTION)
        return larger(all, base + (a->blocks - 1) * (a->inside - a->weights) + a->at_weights);
    return all;
}

// Forward alone. The bytes of activations that it leaves.
static size_t forward_keeps(Wrapped *w, const Case *c, const Rank *r)
{
    float *logits = NULL;
    Batch batch = case_batch(c, 0, r->rank, 0);
    w->run.B = c->spec.B;
    w->run.T = c->spec.T;
    size_t before = gpulog_live_bytes(r->device);
    need(module_forward(w->model, &w->run, batch.in, &logits));
    size_t kept = gpulog_live_bytes(r->device) - before;
    for (int u = 0; u < w->root->n_units; u++) {
        const Buffer *param = &w->root->units[u]->flat.unsharded_param;
        if (param->data != NULL && !flat_param_is_shard(&w->root->units[u]->flat))
            kept -= buffer_bytes(param);
    }
    need(module_discard(w->model, &w->run));
    need(fsdp_reshard_all(w->model));
    check(gpulog_live_bytes(r->device) == before,
          "a forward without a backward, discarded, has left %zu bytes",
          gpulog_live_bytes(r->device) - before);
    batch_destroy(&batch);
    return kept;
}

static void keeps_body(const Rank *r, void *arg)
{
    const Case *c = arg;
    Wrapped w;
    case_wrap(&w, c, r);
    Saved saved = saved_by(c);
    size_t kept = forward_keeps(&w, c, r), want = kept_after_forward(&saved, c->recompute);
    size_t without = kept_after_forward(&saved, RECOMPUTE_NONE);
    check(kept == want,
          "after a forward that computes %s again %zu bytes of activations are kept, want %zu%s",
          KIND_NAMES[c->recompute], kept, want,
          kept != without                    ? ""
          : c->recompute == RECOMPUTE_BLOCKS ? ": nothing was freed (recompute_block_forward)"
                                             : ": nothing was freed (recompute_attention_forward)");
    case_unwrap(&w, r);
}

static void a_block_keeps_its_input_and_output(void **state)
{
    for (int i = 0; i < 4; i++) {
        Case c = again(spec_gpt2(1 + i), RECOMPUTE_BLOCKS, ALL[i], 1 + i);
        run_ranks(1 + i, keeps_body, &c);
    }
}

static void attention_frees_its_weights(void **state)
{
    for (int i = 0; i < 3; i++) {
        Case c = again(spec_gpt2(3), RECOMPUTE_ATTENTION, ALL[1 + i], 2);
        run_ranks(2, keeps_body, &c);
        c.rounds = 2;
        run_case(2, &c);
    }
    Case c = again(spec_gpt2(2), RECOMPUTE_ATTENTION, STRATEGY_DDP, 3);
    run_case(3, &c);
}

static void peak_body(const Rank *r, void *arg)
{
    const Case *c = arg;
    Wrapped w;
    case_wrap(&w, c, r);
    Saved saved = saved_by(c);
    uint64_t first = gpulog_length();
    case_train(&w, c, r, 0);
    need_cuda(cudaDeviceSynchronize());
    size_t peak = case_peak(first, GPU_ACTIVATION), want = peak_of(&saved, c->recompute);
    check(peak == want,
          "a step of %d blocks that computes %s again has %zu bytes of activations at a time, want "
          "%zu: the handout's table",
          c->spec.layers, KIND_NAMES[c->recompute], peak, want);
    case_unwrap(&w, r);
}

static void activations_peak_as_the_formula(void **state)
{
    static const MixedPrecisionPolicy bf16 = {DTYPE_BF16, DTYPE_F32, DTYPE_F32, true};
    for (int i = 0; i < 12; i++) {
        Case c = again(spec_gpt2(1 + i % 4), KINDS[i % 3], ALL[i % 4], 2);
        if (i % 2) c.spec.T = 40, c.spec.dim = 6; // the weights are most of it
        c.policy = i > 7 ? &bf16 : NULL;
        c.rounds = 1 + i % 2;
        run_ranks(2, peak_body, &c);
    }
}

// ---- Against the oracle ----

static void no_gradient_is_another_one(void **state)
{
    static const MixedPrecisionPolicy policies[] = {{DTYPE_BF16, DTYPE_F32, DTYPE_F32, true},
                                                    {DTYPE_F16, DTYPE_F16, DTYPE_F32, true}};
    for (int world = 1; world <= 8; world++) {
        Case c = again(spec_mlp(3), RECOMPUTE_BLOCKS, ALL[world % 4], world);
        if (world % 3 == 0) c.spec = spec_gpt2(2);
        c.rounds = 1 + world % 2;
        c.options.reduce_every_time = world % 4 >= 2;
        if (world > 5) c.policy = &policies[world % 2];
        run_case(world, &c);
    }
    Case llama = again(spec_llama(2, true), RECOMPUTE_BLOCKS, STRATEGY_ZERO3, 2);
    run_case(2, &llama);
    Case hsdp = again(spec_mlp(3), RECOMPUTE_BLOCKS, STRATEGY_ZERO3, 4);
    hsdp.replicas = 2;
    hsdp.rounds = 2;
    hsdp.partial = true;
    run_case(4, &hsdp);
    Case slices = again(spec_mlp(4), RECOMPUTE_BLOCKS, STRATEGY_ZERO3, 4);
    slices.options.reshard_ranks = 2;
    run_case(4, &slices);
    Spec spec = draw_mlp(4);
    int world = drawn_world(&spec, 1, 8);
    Case c = again(spec, RECOMPUTE_BLOCKS, draw_of(ALL), world);
    run_case(world, &c);
}

// ---- Units below a block ----

// Units: the model 0, then h.0 (1), its attention (2) and MLP (3), h.1 (4), its two (5, 6).
enum { UNITS = 7 };

typedef struct Nested {
    Case c;
    const char *sequence; // of a step: the unit that an all-gather is of, R for a reduce-scatter
    const char *plain;    // the same without recomputation
    Wrapped w;
    bool forwards, fails; // what the hook below is to expect, and to do
    int again;            // forwards that ran again
} Nested;

static void nested_wrap(Nested *t, const Rank *r)
{
    Wrapped *w = &t->w;
    FsdpOptions fsdp = {.seed = 42};
    memset(w, 0, sizeof *w);
    need(nn_run_create(&w->run, r->stream));
    need(case_mesh(w, &t->c, r));
    w->model = spec_create(&t->c.spec);
    for (int i = 1; i <= 2; i++) {
        Module *block = w->model->children[i];
        need(fully_shard(block->children[1], &w->ctx, &fsdp));
        need(fully_shard(block->children[3], &w->ctx, &fsdp));
        need(fully_shard(block, &w->ctx, &fsdp));
    }
    need(fully_shard(w->model, &w->ctx, &fsdp));
    need(strategy_apply(w->model, &t->c.options));
    w->root = fsdp_unit(w->model)->root;
    check(w->root->n_units == UNITS, "the model has %d units", w->root->n_units);
    need(fsdp_adamw_create(&w->adamw, w->model, &w->ctx, &TEST_ADAMW));
}

// All-gathers by unit and reduce-scatters since `first`, in order.
static void sequence_since(const Wrapped *w, uint64_t first, char *text, size_t size)
{
    size_t n = 0;
    for (uint64_t i = first; i < gpulog_length() && n + 1 < size; i++) {
        GpuLogEntry entry;
        if (!gpulog_get(i, &entry)) continue;
        if (entry.op == GPU_REDUCE_SCATTER) text[n++] = 'R';
        if (entry.op != GPU_ALL_GATHER) continue;
        for (int u = 0; u < w->root->n_units; u++)
            if (w->root->units[u]->flat.sharded_param.data == entry.range[0].ptr)
                text[n++] = (char)('0' + u);
    }
    text[n] = '\0';
}

// Before the forward of a unit below a block: whose pass is it?
static Status look(Module *module, void *arg)
{
    Nested *t = arg;
    FsdpRoot *root = t->w.root;
    check(root->iter_forward_root == root->units[0],
          "while %s runs its forward%s, the outermost forward is %s's, want that of the root: "
          "run_again sets it",
          module->name, t->forwards ? "" : " again",
          root->iter_forward_root == NULL ? "nobody" : root->iter_forward_root->flat.name);
    check(
        root->recomputes == !t->forwards,
        "root->recomputes is %d while %s runs its forward%s: run_again sets it, and takes it back",
        (int)root->recomputes, module->name, t->forwards ? " for the first time" : " again");
    t->again += !t->forwards;
    return t->fails && !t->forwards ? ERR_ARGUMENT : OK;
}

// After the backward of the same.
static Status look_after(Module *module, void *arg)
{
    const FsdpRoot *root = ((Nested *)arg)->w.root;
    check(
        !root->recomputes && root->iter_forward_root == NULL,
        "in the backward of %s a forward is still taken to run again: run_again takes back what it "
        "has set",
        module->name);
    return OK;
}

static Status nested_pass(Nested *t, const Rank *r)
{
    Wrapped *w = &t->w;
    float *logits = NULL, *dlogits = NULL, loss;
    Batch batch = case_batch(&t->c, 0, r->rank, 0);
    w->run.B = t->c.spec.B;
    w->run.T = t->c.spec.T;
    need(fsdp_zero_grad(w->model, &w->ctx));
    t->forwards = true;
    need(module_forward(w->model, &w->run, batch.in, &logits));
    need(cross_entropy(&w->run, logits, batch.targets, w->run.B * w->run.T, t->c.spec.vocab, &loss,
                       &dlogits));
    t->forwards = false;
    Status status = module_backward(w->model, &w->run, dlogits, NULL);
    need_cuda(cudaFreeAsync(dlogits, r->stream));
    need_cuda(cudaDeviceSynchronize());
    batch_destroy(&batch);
    return status;
}

static void nested_body(const Rank *r, void *arg)
{
    Nested *t = arg;
    Wrapped *w = &t->w;
    char text[64];
    size_t n, m;
    nested_wrap(t, r);
    uint64_t first = gpulog_length();
    need(nested_pass(t, r));
    sequence_since(w, first, text, sizeof text);
    check(strcmp(text, t->plain) == 0, "without recomputation a step has %s, want %s", text,
          t->plain);
    float *want = case_gradients(w, &n);
    need(recompute_apply(w->model, RECOMPUTE_BLOCKS));
    Hook *before[2], *after[2];
    for (int i = 0; i < 2; i++) {
        Module *attention = w->model->children[1 + i]->children[1];
        before[i] = module_add_hook(attention, HOOK_PRE_FORWARD, look, t);
        after[i] = module_add_hook(attention, HOOK_POST_BACKWARD, look_after, t);
    }
    first = gpulog_length();
    need(nested_pass(t, r));
    check_no_race(first);
    sequence_since(w, first, text, sizeof text);
    check(strcmp(text, t->sequence) == 0,
          "all-gathers (a digit, the unit) and reduce-scatters (R) of a step come as %s, want %s",
          text, t->sequence);
    check(t->again == 2, "%d forwards of attentions ran again, want 2: each once", t->again);
    float *got = case_gradients(w, &m);
    check(n == m && memcmp(got, want, n * sizeof *got) == 0,
          "with units below the blocks the gradients are others than without recomputation");
    t->fails = true;
    check(nested_pass(t, r) == ERR_ARGUMENT,
          "a forward that failed again was taken for a good one");
    check(!w->root->recomputes && w->root->iter_forward_root == NULL,
          "after a forward that failed while it ran again, root->recomputes is %d: run_again takes "
          "it "
          "back, failed or not",
          (int)w->root->recomputes);
    need(module_discard(w->model, &w->run));
    need(fsdp_reshard_all(w->model));
    for (int i = 0; i < 2; i++) {
        module_remove_hook(w->model->children[1 + i]->children[1], before[i]);
        module_remove_hook(w->model->children[1 + i]->children[1], after[i]);
    }
    free(want);
    free(got);
    case_unwrap(w, r);
}

static void hooks_of_units_below_do_not_count_twice(void **state)
{
    Nested zero3 = {.c = case_of(spec_gpt2(2), STRATEGY_ZERO3, 2, 1, 1),
                    .sequence = "0123456"
                                "4"
                                "65"
                                "65R"
                                "1RR"
                                "32"
                                "32R"
                                "RRR",
                    .plain = "0123456"
                             "4"
                             "6"
                             "5R"
                             "1RR"
                             "3"
                             "2R"
                             "RRR"};
    run_ranks(2, nested_body, &zero3);
    run_ranks(3, nested_body, &zero3);
    Nested zero2 = {.c = case_of(spec_gpt2(2), STRATEGY_ZERO2, 2, 1, 1),
                    .sequence = "0123456"
                                "RRRRRRR",
                    .plain = "0123456"
                             "RRRRRRR"};
    run_ranks(2, nested_body, &zero2);
}

static void traffic_body(const Rank *r, void *arg)
{
    const Case *c = arg;
    Wrapped w;
    case_wrap(&w, c, r);
    GpuTraffic sent[2][3];
    static const GpuOp OPS[] = {GPU_ALL_GATHER, GPU_REDUCE_SCATTER, GPU_ALL_REDUCE};
    for (int i = 0; i < 2; i++) {
        gpulog_reset_traffic();
        case_train(&w, c, r, 0);
        need_cuda(cudaDeviceSynchronize());
        for (int k = 0; k < 3; k++) sent[i][k] = gpulog_traffic(OPS[k]);
        if (i == 0) need(recompute_remove(w.model));
    }
    for (int k = 0; k < 3; k++)
        check(sent[0][k].calls == sent[1][k].calls && sent[0][k].sent == sent[1][k].sent,
              "with recomputation a step has %llu %ss of %llu bytes, without %llu of %llu: a block "
              "that is a unit is unsharded when its forward runs again",
              (unsigned long long)sent[0][k].calls, gpulog_op_name(OPS[k]),
              (unsigned long long)sent[0][k].sent, (unsigned long long)sent[1][k].calls,
              (unsigned long long)sent[1][k].sent);
    case_unwrap(&w, r);
}

static void a_block_costs_no_message(void **state)
{
    for (int i = 0; i < 8; i++) {
        Case c = again(i % 2 ? spec_mlp(4) : spec_gpt2(2), KINDS[1], ALL[i % 4], 1 + i);
        c.rounds = 1 + i / 4;
        run_ranks(1 + i, traffic_body, &c);
    }
}

// ---- Which modules ----

static void modules_body(const Rank *r, void *arg)
{
    static const struct {
        bool llama;
        RecomputeKind kind;
        int n;
        const char *first;
    } WANT[] = {{false, RECOMPUTE_BLOCKS, 3, "h.0"},
                {false, RECOMPUTE_ATTENTION, 3, "attn"},
                {false, RECOMPUTE_NONE, 0, ""},
                {true, RECOMPUTE_BLOCKS, 2, "h.0"},
                {true, RECOMPUTE_ATTENTION, 0, ""}};
    for (size_t i = 0; i < sizeof WANT / sizeof WANT[0]; i++) {
        Spec spec = WANT[i].llama ? spec_llama(2, true) : spec_gpt2(3);
        Module *model = spec_create(&spec), *found[8] = {NULL};
        int n = recompute_modules(model, WANT[i].kind, found, 2);
        check(n == WANT[i].n, "%d modules of %s compute %s again, want %d", n, model->name,
              KIND_NAMES[WANT[i].kind], WANT[i].n);
        check(recompute_modules(model, WANT[i].kind, NULL, 0) == n,
              "with room for no module other ones are found");
        check(n == 0 || (strcmp(found[0]->name, WANT[i].first) == 0 && found[1] != found[0]),
              "the first module that computes again is %s, want %s", n > 0 ? found[0]->name : "",
              WANT[i].first);
        check(found[2] == NULL, "recompute_modules writes past the end of `out`");
        module_destroy(model);
    }
}

static void refuse(Wrapped *w, RecomputeKind kind, const char *line)
{
    Status status = recompute_apply(w->model, kind);
    check(status == ERR_ARGUMENT && strstr(check_last(), line) != NULL,
          "status %d and \"%s\", want ERR_ARGUMENT and a line with: %s", status, check_last(),
          line);
}

static void refusals_body(const Rank *r, void *arg)
{
    const Case *c = arg;
    Wrapped w;
    float *out = NULL;
    Batch batch = case_batch(c, 0, r->rank, 0);
    case_wrap(&w, c, r);
    w.run.B = c->spec.B;
    w.run.T = c->spec.T;
    refuse(&w, RECOMPUTE_NONE, "is no kind of recomputation");
    refuse(&w, RECOMPUTE_ATTENTION, "has no attention that keeps its weights");
    need(module_forward(w.model, &w.run, batch.in, &out));
    refuse(&w, RECOMPUTE_BLOCKS, "in the middle of a pass");
    need(module_discard(w.model, &w.run));
    need(fsdp_reshard_all(w.model));
    check(recompute_remove(w.model) == ERR_ARGUMENT, "what is not on was taken off");
    need(recompute_apply(w.model, RECOMPUTE_BLOCKS));
    refuse(&w, RECOMPUTE_BLOCKS, "recomputes already");
    need(recompute_remove(w.model));
    check(w.root->recompute == NULL && w.model->children[0]->around == NULL,
          "recomputation that was taken off has left something");
    case_train(&w, c, r, 0);
    batch_destroy(&batch);
    case_unwrap(&w, r);
}

static void blocks_and_attentions_are_found(void **state)
{
    run_ranks(1, modules_body, NULL);
    Case c = case_of(spec_mlp(3), STRATEGY_ZERO3, 2, 1, 1);
    run_ranks(2, refusals_body, &c);
}

// ---- Offload ----

static Case offloaded(Spec spec, Strategy strategy, int world)
{
    Case c = case_of(spec, strategy, world, 1, 1);
    c.offload = true;
    return c;
}

static void offloaded_training_follows_the_oracle(void **state)
{
    static const MixedPrecisionPolicy policies[] = {{DTYPE_BF16, DTYPE_F32, DTYPE_F32, true},
                                                    {DTYPE_F16, DTYPE_F16, DTYPE_F32, true}};
    for (int world = 1; world <= 8; world++) {
        Case c = offloaded(spec_mlp(3), ALL[1 + world % 3], world);
        c.rounds = 1 + world % 3;
        c.options.reduce_every_time = c.options.strategy != STRATEGY_ZERO1 && world % 4 < 2;
        if (world % 3 == 1) c.policy = &policies[world % 2];
        run_case(world, &c);
        c.options.reduce_every_time = c.options.strategy != STRATEGY_ZERO1;
        c.rounds = 2;
        c.policy = NULL;
        run_case(world, &c);
    }
    Case gpt2 = offloaded(spec_gpt2(2), STRATEGY_ZERO3, 2);
    run_case(2, &gpt2);
}

static void replicas_are_added_before_the_copy(void **state)
{
    for (int i = 0; i < 4; i++) {
        Case c = offloaded(spec_mlp(3), i % 2 ? STRATEGY_ZERO2 : STRATEGY_ZERO3, i < 2 ? 4 : 6);
        c.replicas = 2;
        c.rounds = 1 + i;
        c.partial = i > 1;
        c.options.reduce_every_time = i == 1;
        run_case(i < 2 ? 4 : 6, &c);
    }
}

// Whether the entry copies between this device and the host, to the device or from it.
static bool is_copy(const GpuLogEntry *entry, bool to_device)
{
    if (entry->op != GPU_COPY) return false;
    return to_device ? entry->from == GPULOG_HOST && entry->to >= 0
                     : entry->to == GPULOG_HOST && entry->from >= 0;
}

// The entries of the log since `first`: copies to the device, and all-gathers. Returns how many
// there are of those that `what` asks for.
static int find_entries(uint64_t first, GpuOp what, bool to_device, uint64_t *out, int max)
{
    int n = 0;
    for (uint64_t i = first; i < gpulog_length(); i++) {
        GpuLogEntry entry;
        if (!gpulog_get(i, &entry)) continue;
        bool wanted =
            what == GPU_COPY ? is_copy(&entry, to_device) && !entry.host_waits : entry.op == what;
        if (wanted && n < max) out[n] = i;
        n += wanted;
    }
    return n;
}

static void check_copy(const Wrapped *w, const FlatParam *flat, uint64_t at)
{
    GpuLogEntry entry;
    check(gpulog_get(at, &entry), "the log has no entry %llu", (unsigned long long)at);
    check(entry.stream == w->root->offload->to_device,
          "the copy of %s's shard is queued on another stream than the one to the device: "
          "offload_all_gather",
          flat->name);
    check(entry.bytes == buffer_bytes(&flat->sharded_param),
          "%zu bytes of %s cross the bus, want %zu: the rank's shard, in float", entry.bytes,
          flat->name, buffer_bytes(&flat->sharded_param));
}

static void gathers_body(const Rank *r, void *arg)
{
    const Case *c = arg;
    Wrapped w;
    uint64_t copies[8], gathers[8], first;
    case_wrap(&w, c, r);
    for (int u = 0; u < w.root->n_units; u++) {
        FsdpUnit *unit = w.root->units[u];
        FlatParam *flat = &unit->flat;
        size_t n = (size_t)flat->layout.shard_numel;
        const float *shard = flat->sharded_param.data;
        first = gpulog_length();
        need(fsdp_unshard(unit));
        check(flat->sharded_param.data == shard, "after an all-gather %s's shard is not the host's",
              flat->name);
        need(fsdp_wait_for_unshard(unit));
        need_cuda(cudaDeviceSynchronize());
        check_no_race(first);
        check(find_entries(first, GPU_COPY, true, copies, 8) == 1,
              "%s was copied to the device %d times in a stream's order, want once: "
              "offload_all_gather",
              flat->name, find_entries(first, GPU_COPY, true, copies, 8));
        check_copy(&w, flat, copies[0]);
        if (find_entries(first, GPU_ALL_GATHER, true, gathers, 8) == 1)
            check(log_ordered(copies[0], gathers[0]),
                  "the all-gather of %s does not wait for the copy of its shard", flat->name);
        DType type = flat->unsharded_param.dtype;
        float *got = fetch_typed(type, flat->unsharded_param.data, (size_t)flat->layout.padded);
        for (size_t i = 0; i < n; i++)
            check(got[(size_t)flat->layout.rank * n + i] == half_float(type, shard[i]),
                  "element %zu of %s's shard is %.9g on the host and was gathered as %.9g", i,
                  flat->name, (double)shard[i], (double)got[(size_t)flat->layout.rank * n + i]);
        free(got);
        need(fsdp_reshard(unit));
    }
    case_unwrap(&w, r);
}

static void overlap_body(const Rank *r, void *arg)
{
    const Case *c = arg;
    Wrapped w;
    uint64_t copies[64], gathers[64];
    case_wrap(&w, c, r);
    uint64_t first = gpulog_length();
    case_train(&w, c, r, 0);
    need_cuda(cudaDeviceSynchronize());
    int n = find_entries(first, GPU_COPY, true, copies, 64);
    check(n == find_entries(first, GPU_ALL_GATHER, true, gathers, 64),
          "%d shards were copied to the device for %d all-gathers", n,
          find_entries(first, GPU_ALL_GATHER, true, gathers, 64));
    for (int i = 0; i + 1 < n; i++) // between the passes the host reads the loss
        check(
            i + 1 == w.root->n_units || !log_ordered(gathers[i], copies[i + 1]),
            "copy %d to the device waits for all-gather %d, and could overlap it: the copy before "
            "it is freed after it is queued (offload_all_gather)",
            i + 1, i);
    for (int i = 0; i + 2 < n; i++)
        check(log_ordered(gathers[i], copies[i + 2]),
              "copy %d to the device does not wait for all-gather %d: three copies are there at a "
              "time",
              i + 2, i);
    case_unwrap(&w, r);
}

static void shards_are_copied_in_front_of_the_gather(void **state)
{
    static const MixedPrecisionPolicy bf16 = {DTYPE_BF16, DTYPE_F32, DTYPE_F32, true};
    for (int world = 1; world <= 4; world++) {
        Case c = offloaded(spec_mlp(4), STRATEGY_ZERO3, world);
        run_ranks(world, gathers_body, &c);
        c.policy = &bf16;
        run_ranks(world, gathers_body, &c);
    }
}

// ---- Bytes and waits ----

// Of the handout's tables, in bytes.
typedef struct OffloadFigures {
    size_t params, grads;        // shards on the device, at most
    size_t unsharded;            // parameters unsharded at most
    uint64_t to_device, to_host; // over the bus in a step
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

static void offload_bytes_body(const Rank *r, void *arg)
{
    const Case *c = arg;
    Wrapped w;
    size_t before = gpulog_live_bytes(r->device);
    case_wrap(&w, c, r);
    OffloadFigures f = offload_figures(&w, c, r->world);
    check(gpulog_live_bytes(r->device) == before,
          "shards and moments take %zu bytes of the device, want 0: they are on the host",
          gpulog_live_bytes(r->device) - before);
    uint64_t first = gpulog_length();
    gpulog_reset_traffic();
    case_train(&w, c, r, 0);
    need(fsdp_adamw_step(&w.adamw));
    need_cuda(cudaDeviceSynchronize());
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
              "%llu bytes %s, want %llu: the handout's table", (unsigned long long)rows[i].got,
              rows[i].what, (unsigned long long)rows[i].want);
    GpuTraffic with = gpulog_traffic(GPU_ALL_GATHER), sums = gpulog_traffic(GPU_REDUCE_SCATTER);
    fsdp_adamw_destroy(&w.adamw);
    if (w.root->precision != NULL) need(precision_remove(w.model));
    need(offload_remove(w.model));
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

static void bytes_of_offload_are_the_formula(void **state)
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
}

// How often the host waited since `first`, but for reading the loss.
static int host_waits(uint64_t first)
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
        n += strncmp(place, "nn/cross_entropy.c:", 19) != 0;
    }
    return n;
}

static void waits_body(const Rank *r, void *arg)
{
    const Case *c = arg;
    Wrapped w;
    case_wrap(&w, c, r);
    for (int round = 0; round < c->rounds; round++) {
        float *logits = NULL, *dlogits = NULL;
        Batch batch = case_batch(c, 0, r->rank, round);
        w.run.B = c->spec.B;
        w.run.T = c->spec.T;
        need(strategy_micro_batch(w.model, round, c->rounds));
        need(module_forward(w.model, &w.run, batch.in, &logits));
        need(cross_entropy(&w.run, logits, batch.targets, w.run.B * w.run.T, c->spec.vocab, NULL,
                           &dlogits));
        uint64_t first = gpulog_length();
        need(module_backward(w.model, &w.run, dlogits, NULL));
        int waits = host_waits(first), want = round == c->rounds - 1;
        check(waits == want,
              "in the backward of micro-batch %d of %d the host waits %d times, want %d: once, at "
              "the end of the last",
              round, c->rounds, waits, want);
        need_cuda(cudaFreeAsync(dlogits, r->stream));
        need_cuda(cudaStreamSynchronize(r->stream));
        batch_destroy(&batch);
    }
    // The gradients are there without another wait.
    double sum = 0.0;
    for (int u = 0; u < w.root->n_units; u++)
        for (int64_t i = 0; i < w.root->units[u]->flat.layout.shard_numel; i++)
            sum += ((const float *)w.root->units[u]->flat.sharded_grad.data)[i] != 0.0f;
    check(sum > 0.0, "after the backward the host has no gradient");
    case_unwrap(&w, r);
}

static void the_host_waits_once(void **state)
{
    for (int world = 1; world <= 3; world++) {
        Case c = offloaded(spec_mlp(4), STRATEGY_ZERO3, world);
        c.rounds = world;
        c.options.reduce_every_time = world == 3;
        run_ranks(world, waits_body, &c);
    }
}

// ---- On the clock ----

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
            bool works =
                op == GPU_KERNEL || op == GPU_BLAS || (op >= GPU_ALL_GATHER && op <= GPU_RECV);
            hidden = works && times[k].begin < times[i].end && times[k].end > times[i].begin;
        }
        n += hidden;
    }
    return n;
}

static void copies_overlap_on_the_clock(void **state)
{
    enum { WORLD = 2, LEAST_TO_DEVICE = 4, LEAST_TO_HOST = 2 };
    Clocked *run = shared_alloc(WORLD * sizeof *run);
    TimesLog *logs = calloc(WORLD, sizeof *logs);
    Times *times = calloc(WORLD * TIMES_MOST, sizeof *times);
    assert_non_null(logs);
    assert_non_null(times);
    for (int world = 2; world <= 3; world++) {
        Case c = offloaded(spec_mlp(4), STRATEGY_ZERO3, world);
        run_ranks(world, overlap_body, &c);
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
                     "their own, and nobody waits for one before it is needed",
                     to_device, to_host, LEAST_TO_DEVICE, LEAST_TO_HOST);
    }
    free(logs);
    free(times);
}

// ---- The host's work ----

static void host_step_body(const Rank *r, void *arg)
{
    for (size_t n = 1; n < 200; n += 37) {
        float *host[4], *device[4];
        for (int k = 0; k < 4; k++) {
            host[k] = malloc(n * sizeof(float));
            check(host[k] != NULL, "no memory");
            for (size_t i = 0; i < n; i++)
                host[k][i] = 0.01f * (float)((int)(i * 7 + (size_t)k * 5) % 23 - (k == 3 ? 0 : 11));
            need_cuda(cudaMalloc((void **)&device[k], n * sizeof(float)));
            send_to(device[k], host[k], n);
        }
        for (int t = 1; t < 4; t++) {
            need_cuda(kernel_adamw(device[0], device[1], device[2], device[3], n, 1e-3f, 0.9f,
                                   0.99f, 1e-8f, 0.1f, t, r->stream));
            host_adamw(host[0], host[1], host[2], host[3], n, 1e-3f, 0.9f, 0.99f, 1e-8f, 0.1f, t);
        }
        for (int k = 0; k < 4; k++) {
            float *got = fetch(device[k], n);
            check_near("AdamW by the host and by the kernel", host[k], got, n,
                       backend_sums_in_tree_order(2) ? 0.0 : 1e-6);
            need_cuda(cudaFree(device[k]));
            free(host[k]);
            free(got);
        }
    }
}

static void norm_body(const Rank *r, void *arg)
{
    const Case *c = arg;
    Wrapped w;
    case_wrap(&w, c, r);
    float norm, clipped, step = c->rounds > 1 ? 0.25f : 4.0f;
    double want = 0.0;
    // Rank k's gradients are k + 1, each element; the padding is 0.
    for (int u = 0; u < w.root->n_units; u++) {
        const FlatLayout *layout = &w.root->units[u]->flat.layout;
        float *grad = w.root->units[u]->flat.sharded_grad.data;
        for (int64_t i = 0; i < flat_valid_numel(layout, layout->rank); i++)
            grad[i] = step * (float)(layout->rank + 1);
        for (int k = 0; k < layout->world; k++)
            want += (double)flat_valid_numel(layout, k) * pow(step * (k + 1), 2.0);
    }
    need(fsdp_grad_norm(w.model, &w.ctx, &norm));
    check(fabs((double)norm - sqrt(want)) <= 1e-6 * sqrt(want),
          "the norm of all ranks' gradients is %.9g, want %.9g%s", (double)norm, sqrt(want),
          r->world > 1 ? ": each rank knows its own shards alone, and replicas count once" : "");
    need(fsdp_clip_grad_norm(w.model, &w.ctx, 2.0f * norm, &clipped));
    need(fsdp_clip_grad_norm(w.model, &w.ctx, 0.5f * norm, &clipped));
    check(clipped == norm, "clipping says a norm of %.9g, want %.9g", (double)clipped,
          (double)norm);
    for (int u = 0; u < w.root->n_units; u++) {
        const FlatLayout *layout = &w.root->units[u]->flat.layout;
        const float *grad = w.root->units[u]->flat.sharded_grad.data;
        for (int64_t i = 0; i < flat_valid_numel(layout, layout->rank); i++)
            check(grad[i] == 0.5f * norm / norm * (step * (float)(layout->rank + 1)),
                  "clipped to half, a gradient of %g is %.9g",
                  (double)(step * (float)(layout->rank + 1)), (double)grad[i]);
    }
    need(fsdp_zero_grad(w.model, &w.ctx));
    need(fsdp_grad_norm(w.model, &w.ctx, &norm));
    check(norm == 0.0f, "zeroed gradients have a norm of %g", (double)norm);
    case_unwrap(&w, r);
}

static void the_host_steps_and_clips(void **state)
{
    run_ranks(1, host_step_body, NULL);
    for (int world = 1; world <= 8; world++) {
        Case c = offloaded(spec_mlp(3), STRATEGY_ZERO3, world);
        if (world % 4 == 0) c.replicas = 2;
        c.rounds = 1 + world % 2;
        run_ranks(world, norm_body, &c);
    }
}

// ---- What does not go together, and what is left ----

static void refuse_offload(Wrapped *w, const char *line)
{
    Status status = offload_apply(w->model);
    check(status == ERR_ARGUMENT && strstr(check_last(), line) != NULL,
          "status %d and \"%s\", want ERR_ARGUMENT and a line with: %s", status, check_last(),
          line);
}

static void suits_body(const Rank *r, void *arg)
{
    const MixedPrecisionPolicy bf16 = {DTYPE_BF16, DTYPE_F32, DTYPE_F32, true};
    Case c = case_of(spec_mlp(3), STRATEGY_ZERO3, r->world, 1, 1);
    Wrapped w;
    case_wrap(&w, &c, r);
    need(fsdp_unshard(w.root->units[1]));
    refuse_offload(&w, "in the middle of a step");
    need(fsdp_reshard_all(w.model));
    need(precision_apply(w.model, &bf16));
    refuse_offload(&w, "call offload_apply before precision_apply");
    need(precision_remove(w.model));
    need(offload_apply(w.model));
    refuse_offload(&w, "is offloaded already");
    check(fsdp_adamw_step(&w.adamw) == ERR_ARGUMENT &&
              strstr(check_last(), "was made before offload_apply") != NULL,
          "an optimizer on the device was taken: %s", check_last());
    FsdpAdamW host;
    need(fsdp_adamw_create(&host, w.model, &w.ctx, &TEST_ADAMW));
    check(offload_remove(w.model) == ERR_ARGUMENT &&
              strstr(check_last(), "fsdp_adamw_destroy") != NULL,
          "shards were moved back under an optimizer of the host's: %s", check_last());
    case_train(&w, &c, r, 0);
    need(fsdp_adamw_step(&host));
    need(fsdp_sgd_step(w.model, &w.ctx, 0.1f, 0.1f));
    fsdp_adamw_destroy(&host);
    need(offload_remove(w.model));
    check(offload_remove(w.model) == ERR_ARGUMENT, "what is not on was taken off");
    check(w.root->units[0]->all_gather == fsdp_all_gather && w.root->shard_ops == NULL,
          "offload that was taken off has left something");
    case_train(&w, &c, r, 1);
    need(fsdp_adamw_step(&w.adamw));
    case_unwrap(&w, r);
    Case ddp = case_of(spec_mlp(3), STRATEGY_DDP, r->world, 1, 1);
    case_wrap(&w, &ddp, r);
    refuse_offload(&w, "DDP keeps everything on the device");
    case_unwrap(&w, r);
}

static void slices_body(const Rank *r, void *arg)
{
    Case c = case_of(spec_mlp(3), STRATEGY_ZERO3, r->world, 1, 1);
    Wrapped w;
    c.options.reshard_ranks = 2;
    case_wrap(&w, &c, r);
    refuse_offload(&w, "reshard_ranks keeps slices");
    case_unwrap(&w, r);
}

static void offload_suits_the_strategy(void **state)
{
    run_ranks(2, suits_body, NULL);
    run_ranks(4, slices_body, NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(blocks_and_attentions_are_found),
    cmocka_unit_test(a_block_keeps_its_input_and_output),
    cmocka_unit_test(no_gradient_is_another_one),
    cmocka_unit_test(activations_peak_as_the_formula),
    cmocka_unit_test(a_block_costs_no_message),
    cmocka_unit_test(hooks_of_units_below_do_not_count_twice),
    cmocka_unit_test(attention_frees_its_weights),
    cmocka_unit_test(shards_are_copied_in_front_of_the_gather),
    cmocka_unit_test(offloaded_training_follows_the_oracle),
    cmocka_unit_test(replicas_are_added_before_the_copy),
    cmocka_unit_test(bytes_of_offload_are_the_formula),
    cmocka_unit_test(the_host_waits_once),
    cmocka_unit_test(copies_overlap_on_the_clock),
    cmocka_unit_test(the_host_steps_and_clips),
    cmocka_unit_test(offload_suits_the_strategy),
};
SUITE_MAIN("memory", tests)
