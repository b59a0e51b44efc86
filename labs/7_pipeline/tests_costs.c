/* Lab 7, pipeline: what a step holds and sends, which messages wait for each other, the bubble.
 */
#include <math.h>
#include <stdio.h>

#include "bubble.h"
#include "tests.h"

// ---- What a step holds and sends ----

// Of one stage of an MLP; bytes.
typedef struct Formula {
    size_t activations; // of one micro-batch, from its forward to its backward
    size_t message;     // one activation, or its gradient
    int sent, received; // messages
} Formula;

static Formula formula_of(const Case *c, const Wrapped *w)
{
    size_t row = sizeof(float) * (size_t)c->spec.B, h = (size_t)c->spec.dim;
    bool first = w->ranks.stage == 0, last = w->ranks.stage == c->stages - 1;
    size_t blocks = (size_t)(w->model->n_children - last);
    Formula f = {.message = row * h};
    f.activations = row * (blocks * 2 * h + (first ? 0 : h) + (last ? (size_t)c->spec.vocab : 0));
    f.sent = f.received = c->rounds * (!first + !last);
    return f;
}

static void check_messages(const Case *c, const Wrapped *w, const Rank *r, uint64_t first,
                           const Formula *f)
{
    int sent = 0, received = 0, ranks = w->ranks.group.size;
    for (uint64_t i = first; i < gpulog_length(); i++) {
        GpuLogEntry e;
        if (!gpulog_get(i, &e) || (e.op != GPU_SEND && e.op != GPU_RECV)) continue;
        if (e.op == GPU_SEND) sent++;
        if (e.op == GPU_RECV) received++;
        check(e.bytes == f->message, "a message has %zu bytes, want %zu", e.bytes, f->message);
        check(e.collective.peer == r->rank - ranks || e.collective.peer == r->rank + ranks,
              "rank %d has a message to or from rank %d: its neighbours are %d and %d, in rank_in",
              r->rank, e.collective.peer, r->rank - ranks, r->rank + ranks);
        check(e.stream == w->pipeline->stream,
              "a message is not on pipeline->stream: in send_and_receive");
    }
    check(sent == f->sent && received == f->received,
          "stage %d of %d sent %d messages and received %d in %d micro-batches, want %d of "
          "each" LIKELY "pipeline_transfer says what goes where, pipeline_step when",
          w->ranks.stage, c->stages, sent, received, c->rounds, f->sent);
}

// What a rank has sent of tied parameters: in each step the elements that its shards have of them.
void check_tied_bytes(Wrapped *w, const Case *c, const Rank *r, int step)
{
    size_t sent = 0, want = 0;
    for (uint64_t i = 0; i < gpulog_length(); i++) {
        GpuLogEntry e;
        if (gpulog_get(i, &e) && e.op == GPU_SEND && e.stream != w->pipeline->stream)
            sent += e.sent;
    }
    for (int i = 0; i < w->pipeline->n_shared; i++) {
        const PipelineShared *shared = &w->pipeline->shared[i];
        const FlatLayout *layout = &shared->unit->flat.layout;
        for (int k = 0; k < layout->n; k++) {
            int64_t begin, end, at;
            flat_param_range_in_shard(layout, k, layout->rank, &begin, &end, &at);
            if (layout->params[k] == shared->param) want += sizeof(float) * (size_t)(end - begin);
        }
    }
    want *= (size_t)(step + 1);
    check(sent == want,
          "stage %d sent %zu bytes of tied gradients up to step %d, want %zu: its own elements, "
          "once in each" LIKELY "pipeline_step calls pipeline_sum_ties once, and that swap_pieces",
          w->ranks.stage, sent, step, want);
}

// Elements, padding included: of all units of a stage, of its root, of the two others that follow
// each other and are the largest (2u, of equal blocks); and the ranks that shard.
typedef struct Sizes {
    size_t P, R, two, S;
} Sizes;

static Sizes sizes_of(const Wrapped *w)
{
    Sizes of = {.S = (size_t)w->ranks.group.size};
    size_t before = 0;
    for (int i = 0; i < w->root->n_units; i++) {
        size_t padded = (size_t)w->root->units[i]->flat.layout.padded;
        of.P += padded;
        if (i == 0) of.R = padded;
        if (i == 0) continue;
        if (of.two < before + padded) of.two = before + padded;
        before = padded;
    }
    return of;
}

// What FSDP sends within the stage: bytes and calls, as the handout's table has them.
static const char *flags_cause(const Wrapped *w)
{
    int backwards = 0;
    for (int i = 0; i < w->pipeline->n_actions; i++)
        if (w->pipeline->actions[i].backward && w->pipeline->actions[i].micro_batch != backwards++)
            return LIKELY "pipeline_schedule must have the backwards in the order of micro-batches";
    return LIKELY "pipeline_micro_batch sets the flags of the backward that comes next: in "
                  "pipeline_backward";
}

static void check_collectives(const Case *c, const Wrapped *w, uint64_t first)
{
    int gathers = 0, scatters = 0, want, units = w->root->n_units;
    size_t sent = 0;
    for (uint64_t i = first; i < gpulog_length(); i++) {
        GpuLogEntry e;
        if (!gpulog_get(i, &e)) continue;
        gathers += e.op == GPU_ALL_GATHER;
        scatters += e.op == GPU_REDUCE_SCATTER;
        if (e.op == GPU_ALL_GATHER || e.op == GPU_REDUCE_SCATTER) sent += e.sent;
    }
    bool alone = w->ranks.group.size == 1;
    want = c->options.strategy == STRATEGY_ZERO3 ? c->rounds * (2 * units - 1) : units;
    check(gathers == (alone ? 0 : want),
          "a step of %d micro-batches made %d all-gathers, want %d%s", c->rounds, gathers,
          alone ? 0 : want, flags_cause(w));
    check(scatters == (alone ? 0 : units),
          "a step of %d micro-batches made %d reduce-scatters, want %d, by the last one%s",
          c->rounds, scatters, alone ? 0 : units, flags_cause(w));
    Sizes of = sizes_of(w);
    size_t gathered =
        c->options.strategy == STRATEGY_ZERO3 ? (size_t)c->rounds * (2 * of.P - of.R) : of.P;
    size_t bytes = 4 * (gathered + of.P) / of.S * (of.S - 1);
    check(sent == bytes, "a step's all-gathers and reduce-scatters sent %zu bytes, want %zu%s",
          sent, bytes, flags_cause(w));
}

static void check_unsharded(const Case *c, const Wrapped *w, uint64_t first)
{
    Sizes of = sizes_of(w);
    size_t params = 4 * (c->options.strategy == STRATEGY_ZERO3 ? of.R + of.two : of.P),
           grads = 4 * of.P;
    size_t most = case_peak(first, GPU_UNSHARDED_PARAM);
    if (of.S == 1) params = grads = 0; // the shard is all of it
    check(most == params, "stage %d has %zu bytes of unsharded parameters at most, want %zu",
          w->ranks.stage, most, params);
    most = case_peak(first, GPU_UNSHARDED_GRAD);
    check(c->rounds == 1 || most == grads,
          "stage %d has %zu bytes of unsharded gradients at most, want %zu", w->ranks.stage, most,
          grads);
}

static void costs_body(const Rank *r, void *arg)
{
    const Case *c = arg;
    Wrapped w;
    size_t before = gpulog_live_bytes(r->device), padded = 0;
    case_wrap(&w, c, r);
    need_cuda(cudaDeviceSynchronize());
    for (int u = 0; u < w.root->n_units; u++)
        padded += (size_t)w.root->units[u]->flat.layout.shard_numel;
    bool last = w.ranks.stage == c->stages - 1;
    size_t held = gpulog_live_bytes(r->device) - before;
    size_t want = 16 * padded + (last ? (size_t)c->rounds * sizeof(float) : 0);
    check(held == want, "stage %d holds %zu bytes, want %zu: 16 for each parameter of its shard",
          w.ranks.stage, held, want);
    for (int step = 0; step < 2; step++) {
        uint64_t first = gpulog_length();
        case_train(&w, c, r, step);
        need_cuda(cudaDeviceSynchronize());
        check_all_freed(first);
        Formula f = formula_of(c, &w);
        int flight = c->kind == PIPELINE_GPIPE ? c->rounds : c->stages - w.ranks.stage;
        if (flight > c->rounds) flight = c->rounds;
        size_t peak = case_peak(first, GPU_ACTIVATION);
        check(
            peak == (size_t)flight * f.activations,
            "%s, stage %d of %d, %d micro-batches: at most %zu bytes are activations, want %zu: of "
            "%d micro-batches%s",
            kind_name(c->kind), w.ranks.stage, c->stages, c->rounds, peak,
            (size_t)flight * f.activations, flight,
            w.pipeline->n_slots != flight ? LIKELY "pipeline_in_flight says another number" : "");
        check_messages(c, &w, r, first, &f);
        check_collectives(c, &w, first);
        check_unsharded(c, &w, first);
    }
    case_unwrap(&w, r);
    check(gpulog_live_bytes(r->device) == before, "the pipeline has left memory");
}

TEST(activations_in_flight)
{
    for (int stages = 1; stages <= 4; stages++)
        for (int n = 1; n <= CASE_ROUNDS; n += stages % 2 == 0 ? 3 : 2)
            for (int i = 0; i < 2; i++) {
                Case c = cut_of(spec_mlp(6), stages, n, KINDS[i]);
                run_ranks(stages, costs_body, &c);
            }
}

TEST(stages_cost_the_formula)
{
    static const Strategy SHARDS[] = {STRATEGY_ZERO1, STRATEGY_ZERO2, STRATEGY_ZERO3};
    for (int i = 0; i < 6; i++) {
        Case c = cut_of(spec_mlp(6), 1 + i % 4, 1 + i, KINDS[i % 2]);
        c.options.strategy = SHARDS[i % 3];
        run_ranks(c.stages * 2, costs_body, &c);
    }
}

// ---- Transfers ----

// What each of the three stages of a pipeline needs and gives, and to whom.
static void needs_body(Wrapped *w, const Case *c, const Rank *r)
{
    static const char *const NAME[] = {"in", "out", "out_grad", "in_grad"};
    const MicroBatch batch = {.B = 5};
    Pipeline *p = w->pipeline;
    PipelineSlot *slot = pipeline_slot(p, 0);
    Buffer *const buffers[] = {&slot->in, &slot->out, &slot->out_grad, &slot->in_grad};
    p->run = &w->run;
    p->batches = &batch;
    for (int i = 0; i < 4; i++) {
        int stage = -1, want = w->ranks.stage + (i == 0 || i == 3 ? -1 : 1);
        bool before = i % 2 == 0, none = want < 0 || want >= c->stages;
        const PipelineAction action = {i >= 2, 0};
        const Buffer *got = pipeline_transfer(p, action, before, &stage);
        check(got == (none ? NULL : buffers[i]) && (none || stage == want),
              "pipeline_transfer: %s a %s stage %d of %d has %s slot->%s, and the other stage is "
              "%d: want %s%s of stage %d",
              before ? "before" : "after", i >= 2 ? "backward" : "forward", w->ranks.stage,
              c->stages,
              got == NULL         ? "no buffer, not"
              : got == buffers[i] ? ""
                                  : "not",
              NAME[i], stage, none ? "no buffer: there is no " : "slot->",
              none ? "buffer" : NAME[i], want);
        if (none || !before) continue;
        int columns = i == 0 ? w->model->in_dim : w->model->out_dim;
        int64_t numel = (int64_t)batch.B * w->run.T * columns;
        check(got->numel == numel && got->dtype == DTYPE_F32 && got->data == NULL,
              "pipeline_transfer: stage %d receives %lld elements into slot->%s, want %lld floats",
              w->ranks.stage, (long long)got->numel, NAME[i], (long long)numel);
        *buffers[i] = (Buffer){NULL, DTYPE_F32, 0};
    }
}

TEST(what_an_action_needs)
{
    Case c = cut_of(spec_mlp(4), 3, 1, PIPELINE_1F1B);
    run_wrapped(3, needs_body, &c);
    RULE(sizes_beyond_32_bits);
}

// Where a stage has something to send and something to receive at a time, it is one operation; and
// compute does not wait for what it does not need.
static void transfers_body(Wrapped *w, const Case *c, const Rank *r)
{
    StageBatches batches;
    stage_batches_create(&batches, w, c, 0);
    uint64_t first = gpulog_length();
    need(pipeline_step(w->pipeline, &w->run, batches.batch, 1.0f, NULL));
    check_no_host_wait(first, "in a step");
    need_cuda(cudaDeviceSynchronize());
    check_no_race(first);
    stage_batches_destroy(&batches);
    int together = 0, want = 0;
    for (uint64_t i = first; i < gpulog_length(); i++) {
        GpuLogEntry e;
        if (!gpulog_get(i, &e) || e.op != GPU_SEND) continue;
        together += e.collective.group != 0 && e.collective.group_left > 0;
    }
    // Between two actions of different sorts, or of a stage in the middle: one each.
    for (int i = 0; i + 1 < 2 * c->rounds; i++) {
        int to, from;
        Buffer *sent = pipeline_transfer(w->pipeline, w->pipeline->actions[i], false, &to);
        Buffer *received = pipeline_transfer(w->pipeline, w->pipeline->actions[i + 1], true, &from);
        want += sent != NULL && received != NULL;
    }
    check(together == want,
          "stage %d of %d: %d sends are one operation with a receive, want %d: where there is both "
          "between two actions, send_and_receive queues them in one group",
          w->ranks.stage, c->stages, together, want);
}

TEST(transfers_go_both_ways)
{
    for (int stages = 2; stages <= 4; stages++)
        for (int i = 0; i < 2; i++) {
            Case c = cut_of(spec_mlp(5), stages, 5, KINDS[i]);
            run_wrapped(stages, transfers_body, &c);
        }
    RULE(received_buffers_go_first);
}

// ---- The bubble ----

TEST(bubble_is_the_formula)
{
    static const int SHAPES[][2] = {{1, 4}, {2, 1}, {2, 4}, {2, 16},
                                    {3, 5}, {4, 2}, {4, 8}, {4, 16}};
    for (size_t i = 0; i < sizeof SHAPES / sizeof SHAPES[0]; i++) {
        for (int kind = 0; kind < 2; kind++) {
            int stages = SHAPES[i][0], n = SHAPES[i][1];
            double idle, ideal = bubble_ideal(stages, n);
            if (!bubble_of(BUBBLE_EQUAL, KINDS[kind], stages, n, &idle)) return;
            if (fabs(idle - ideal) > 0.02 * ideal + 1e-6)
                fail_msg("%s: %d stages of equal layers are idle for %.4f of a step of %d "
                         "micro-batches, want (p - 1)/(n + p - 1) = %.4f",
                         kind_name(KINDS[kind]), stages, idle, n, ideal);
        }
    }
}
