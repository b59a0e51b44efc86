/* Lab 4, memory. First half, recomputation: what a forward keeps, what is computed again and when,
 * and that no result, no hook and no message is another one for it.
 *
 * Trainings are compared with the oracle of strategies.h; bytes with the handout's formulas, which
 * are written down here once more.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "draw_model.h"
#include "narrow.h"
#include "recompute.h"
#include "snapshot.h"
#include "tests.h"

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

static void keeps_body(Wrapped *w, const Case *c, const Rank *r)
{
    Saved saved = saved_by(c);
    size_t kept = forward_keeps(w, c, r), want = kept_after_forward(&saved, c->recompute);
    size_t without = kept_after_forward(&saved, RECOMPUTE_NONE);
    check(kept == want,
          "after a forward that computes %s again %zu bytes of activations are kept, want %zu%s",
          KIND_NAMES[c->recompute], kept, want,
          kept < want       ? ": an output, or what another module saved, was freed"
          : kept != without ? ": a part of what was saved is still there"
          : c->recompute == RECOMPUTE_BLOCKS ? ": nothing was freed (recompute_block_forward)"
                                             : ": nothing was freed (recompute_attention_forward)");
}

TEST(a_block_keeps_its_input_and_output)
{
    for (int i = 0; i < 4; i++) {
        Case c = again(spec_gpt2(1 + i), RECOMPUTE_BLOCKS, ALL[i], 1 + i);
        run_wrapped(1 + i, keeps_body, &c);
    }
}

static void once_body(Wrapped *w, const Case *c, const Rank *r)
{
    static const char SOFTMAX[] = "kernel_causal_softmax_forward";
    uint64_t first = gpulog_length();
    int n = 0;
    case_train(w, c, r, 0);
    for (int64_t at = gpulog_find(GPU_KERNEL, SOFTMAX, first); at >= 0; n++)
        at = gpulog_find(GPU_KERNEL, SOFTMAX, (uint64_t)at + 1);
    check(n == 2 * c->spec.layers,
          "the weights of %d attentions are made %d times in a step, want twice each: in the "
          "forward, and by recompute_attention_backward",
          c->spec.layers, n);
}

TEST(attention_frees_its_weights)
{
    Case once = again(spec_gpt2(3), RECOMPUTE_ATTENTION, STRATEGY_ZERO3, 1);
    run_wrapped(1, once_body, &once);
    for (int i = 0; i < 3; i++) {
        Case c = again(spec_gpt2(3), RECOMPUTE_ATTENTION, ALL[1 + i], 2);
        run_wrapped(2, keeps_body, &c);
        c.rounds = 2;
        run_case(2, &c);
    }
    Case c = again(spec_gpt2(2), RECOMPUTE_ATTENTION, STRATEGY_DDP, 3);
    run_case(3, &c);
    RULE(a_failed_pass_is_over, RECOMPUTE_ATTENTION, false);
}

static void peak_body(Wrapped *w, const Case *c, const Rank *r)
{
    Saved saved = saved_by(c);
    uint64_t first = gpulog_length();
    case_train(w, c, r, 0);
    need_cuda(cudaDeviceSynchronize());
    size_t peak = case_peak(first, GPU_ACTIVATION), want = peak_of(&saved, c->recompute);
    check(peak == want,
          "a step of %d blocks that computes %s again has %zu bytes of activations at a time, want "
          "%zu: the handout's table",
          c->spec.layers, KIND_NAMES[c->recompute], peak, want);
}

TEST(activation_peak_is_the_formula)
{
    static const MixedPrecisionPolicy bf16 = {DTYPE_BF16, DTYPE_F32, DTYPE_F32, true};
    for (int i = 0; i < 12; i++) {
        Case c = again(spec_gpt2(1 + i % 4), KINDS[i % 3], ALL[i % 4], 2);
        if (i % 2) c.spec.T = 40, c.spec.dim = 6; // the weights are most of it
        c.policy = i > 7 ? &bf16 : NULL;
        c.rounds = 1 + i % 2;
        run_wrapped(2, peak_body, &c);
    }
}

// ---- Against the oracle ----

TEST(recomputed_gradients_are_the_same)
{
    static const MixedPrecisionPolicy policies[] = {{DTYPE_BF16, DTYPE_F32, DTYPE_F32, true},
                                                    {DTYPE_F16, DTYPE_F16, DTYPE_F32, true}};
    for (int world = 1; world <= 8; world += world == 6 ? 2 : 1) {
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
static Status check_whose_pass(Module *module, void *arg)
{
    Nested *t = arg;
    FsdpRoot *root = t->w.root;
    check(root->iter_forward_root == root->units[0],
          "while %s runs its forward%s, the outermost forward is %s's, want that of the root: "
          "run_again sets it",
          module->name, t->forwards ? "" : " again",
          root->iter_forward_root == NULL ? "NULL" : root->iter_forward_root->flat.name);
    check(root->extensions->recomputes == !t->forwards,
          "root->extensions->recomputes is %d while %s runs its forward%s: run_again sets it, and "
          "takes it back",
          (int)root->extensions->recomputes, module->name,
          t->forwards ? " for the first time" : " again");
    t->again += !t->forwards;
    return t->fails && !t->forwards ? fail(ERR_IO, "as it is meant to") : OK;
}

// After the backward of the same.
static Status look_after(Module *module, void *arg)
{
    const FsdpRoot *root = ((Nested *)arg)->w.root;
    check(
        !root->extensions->recomputes && root->iter_forward_root == NULL,
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
        before[i] = module_add_hook(attention, HOOK_PRE_FORWARD, check_whose_pass, t);
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
    check_set_silent(true);
    check(nested_pass(t, r) == ERR_IO,
          "a forward that ran again failed, and its backward does not return its status");
    check_set_silent(false);
    check(!w->root->extensions->recomputes && w->root->iter_forward_root == NULL,
          "after a forward that failed while it ran again, root->extensions->recomputes is %d: "
          "run_again takes "
          "it "
          "back, failed or not",
          (int)w->root->extensions->recomputes);
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

TEST(inner_units_are_gathered_in_order)
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
    run_worlds(nested_body, &zero3, 2, 3);
    RULE(a_failed_pass_is_over, RECOMPUTE_BLOCKS, false);
    Nested zero2 = {.c = case_of(spec_gpt2(2), STRATEGY_ZERO2, 2, 1, 1),
                    .sequence = "0123456"
                                "RRRRRRR",
                    .plain = "0123456"
                             "RRRRRRR"};
    run_ranks(2, nested_body, &zero2);
}

static void traffic_body(Wrapped *w, const Case *c, const Rank *r)
{
    GpuTraffic sent[2][3];
    static const GpuOp OPS[] = {GPU_ALL_GATHER, GPU_REDUCE_SCATTER, GPU_ALL_REDUCE};
    for (int i = 0; i < 2; i++) {
        gpulog_reset_traffic();
        case_train(w, c, r, 0);
        need_cuda(cudaDeviceSynchronize());
        for (int k = 0; k < 3; k++) sent[i][k] = gpulog_traffic(OPS[k]);
        if (i == 0) need(recompute_remove(w->model));
    }
    for (int k = 0; k < 3; k++)
        check(sent[0][k].calls == sent[1][k].calls && sent[0][k].sent == sent[1][k].sent,
              "with recomputation a step has %llu %ss of %llu bytes, without %llu of %llu: a block "
              "that is a unit is unsharded when its forward runs again",
              (unsigned long long)sent[0][k].calls, gpulog_op_name(OPS[k]),
              (unsigned long long)sent[0][k].sent, (unsigned long long)sent[1][k].calls,
              (unsigned long long)sent[1][k].sent);
}

TEST(recomputed_blocks_send_no_more)
{
    for (int i = 0; i < 8; i++) {
        Case c = again(i % 2 ? spec_mlp(4) : spec_gpt2(2), KINDS[1], ALL[i % 4], 1 + i);
        c.rounds = 1 + i / 4;
        run_wrapped(1 + i, traffic_body, &c);
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
        snprintf(model->children[2]->name, sizeof model->children[2]->name, "second");
        for (int last = 1; last <= 2; last++) // a name makes no block
            snprintf(model->children[model->n_children - last]->name, sizeof model->name, "h.9");
        bool blocks = WANT[i].kind == RECOMPUTE_BLOCKS;
        int *children = &model->children[1]->n_children, all = *children;
        if (blocks) *children = 1;
        int n = recompute_modules(model, WANT[i].kind, found, 2);
        check(n == WANT[i].n, "%d modules of %s compute %s again, want %d%s", n, model->name,
              KIND_NAMES[WANT[i].kind], WANT[i].n,
              blocks ? ": recompute_modules finds each child that has children, as h.0, which here "
                       "has one"
                     : "");
        check(recompute_modules(model, WANT[i].kind, NULL, 0) == n,
              "with room for no module other ones are found");
        check(n == 0 || (strcmp(found[0]->name, WANT[i].first) == 0 && found[1] != found[0]),
              "the first module that computes again is %s, want %s", n > 0 ? found[0]->name : "",
              WANT[i].first);
        check(found[2] == NULL, "recompute_modules writes past the end of `out`");
        *children = all;
        module_destroy(model);
    }
}

static void refusals_body(Wrapped *w, const Case *c, const Rank *r)
{
    float *out = NULL;
    Batch batch = case_batch(c, 0, r->rank, 0);
    w->run.B = c->spec.B;
    w->run.T = c->spec.T;
    need_refused_whole(w->model, &w->adamw, recompute_apply(w->model, RECOMPUTE_NONE),
                       "is not a kind of recomputation");
    need_refused_whole(w->model, &w->adamw, recompute_apply(w->model, RECOMPUTE_ATTENTION),
                       "has no attention that keeps its weights");
    need(module_forward(w->model, &w->run, batch.in, &out));
    need_refused_whole(w->model, &w->adamw, recompute_apply(w->model, RECOMPUTE_BLOCKS),
                       "in the middle of a pass");
    need(module_discard(w->model, &w->run));
    need(fsdp_reshard_all(w->model));
    need_refused_whole(w->model, &w->adamw, recompute_remove(w->model), "does not recompute");
    Snapshot *before = snapshot_take(w->model, &w->adamw);
    need(recompute_apply(w->model, RECOMPUTE_BLOCKS));
    need_refused_whole(w->model, &w->adamw, recompute_apply(w->model, RECOMPUTE_BLOCKS),
                       "recomputes already");
    need(recompute_remove(w->model));
    snapshot_check_at(__FILE__, __LINE__, before, w->model, &w->adamw,
                      "recompute_apply and recompute_remove");
    case_train(w, c, r, 0);
    batch_destroy(&batch);
}

TEST(blocks_and_attentions_are_found)
{
    run_ranks(1, modules_body, NULL);
    Case c = case_of(spec_mlp(3), STRATEGY_ZERO3, 2, 1, 1);
    run_wrapped(2, refusals_body, &c);
}

SUITE_MAIN("memory")
