/* Lab 8, the step as a graph: its parts by themselves, a step that is queued at once, and what a
 * graph's paths say. None of it captures anything.
 */
#include "harness.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "draw.h"
#include "kernels.h"
#include "tests.h"

// ---- Steps on fixed memory ----

void steps_body(const Rank *r, void *arg)
{
    const StepsRun *run = arg;
    Sharded s;
    sharded_create(&s, &run->spec, &TEST_OPTIONS, &TEST_ADAMW, r);
    run->body(&s, r, run->arg);
    sharded_destroy(&s);
}

void steps_create(Steps *t, Sharded *s, int rounds, const Rank *r)
{
    *t = (Steps){.s = s, .rounds = rounds, .of = rounds};
    for (int i = 0; i < rounds; i++)
        t->batch[i] = batch_create(&s->spec, 100 + (uint64_t)(10 * r->rank + i));
    need_cuda(cudaMalloc((void **)&t->loss, 3 * sizeof *t->loss));
    s->run.B = s->spec.B;
    s->run.T = s->spec.T;
}

void steps_destroy(Steps *t)
{
    for (int i = 0; i < t->rounds; i++) batch_destroy(&t->batch[i]);
    need_cuda(cudaFree(t->loss));
}

static Status micro_batch(Steps *t, const Batch *batch)
{
    Sharded *s = t->s;
    int rows = s->spec.B * s->spec.T;
    float *out = NULL, *dlogits = NULL, *din = NULL;
    TRY(module_forward(s->model, &s->run, batch->in, &out));
    TRY(cross_entropy_queued(&s->run, out, batch->targets, rows, s->spec.vocab,
                             1.0f / (float)(rows * t->of), t->loss, &dlogits));
    TRY(module_backward(s->model, &s->run, dlogits, &din));
    CUDA_TRY(cudaFreeAsync(dlogits, s->run.stream));
    if (din != NULL) CUDA_TRY(cudaFreeAsync(din, s->run.stream));
    return OK;
}

Status steps_pass(void *steps)
{
    Steps *t = steps;
    if (!t->keeps) TRY(fsdp_zero_grad(t->s->model, &t->s->ctx));
    for (int i = 0; i < t->rounds; i++) {
        if (t->fails > 0 && i == t->fails - 1) return fail(ERR_ARGUMENT, "the pass fails");
        TRY(micro_batch(t, &t->batch[i]));
    }
    return OK;
}

float steps_eager(Steps *t, float max_norm)
{
    float norm = 0.0f;
    need(steps_pass(t));
    if (max_norm > 0.0f) need(fsdp_clip_grad_norm(t->s->model, &t->s->ctx, max_norm, &norm));
    need(fsdp_adamw_step(&t->s->adamw));
    return norm;
}

float rate_of(int t)
{
    return 1e-3f / (float)(1 + t % 7) + 1e-5f * (float)t;
}

static size_t append(float *out, const float *device, size_t n)
{
    float *host = fetch(device, n);
    if (out != NULL) memcpy(out, host, n * sizeof *out);
    free(host);
    return n;
}

float *steps_state(const Sharded *s, size_t *n)
{
    float *all = NULL;
    need_cuda(cudaDeviceSynchronize());
    for (int pass = 0; pass < 2; pass++) {
        *n = 0;
        for (int i = 0; i < s->root->n_units; i++) {
            const FlatParam *flat = &s->root->units[i]->flat;
            size_t numel = (size_t)flat->sharded_grad.numel;
            const float *of[] = {flat->sharded_param.data, flat->sharded_grad.data, s->adamw.m[i],
                                 s->adamw.v[i]};
            for (int k = 0; k < 4; k++) *n += pass == 0 ? numel : append(all + *n, of[k], numel);
        }
        if (pass == 0) all = malloc(*n * sizeof *all);
    }
    return all;
}

void steps_restore(Sharded *s, const float *state)
{
    for (int i = 0; i < s->root->n_units; i++) {
        const FlatParam *flat = &s->root->units[i]->flat;
        size_t numel = (size_t)flat->sharded_grad.numel;
        float *of[] = {flat->sharded_param.data, flat->sharded_grad.data, s->adamw.m[i],
                       s->adamw.v[i]};
        for (int k = 0; k < 4; k++, state += numel) send_to(of[k], state, numel);
    }
    need_cuda(cudaDeviceSynchronize());
}

// ---- The numbers ----

RANK_TEST(numbers_are_the_kernels, 1)
{
    static const float BETAS[][2] = {{0.9f, 0.999f}, {0.9f, 0.95f}, {0.0f, 0.5f}, {0.99f, 0.9999f}};
    for (int t = 1; t < 2000; t += 1 + t / 3)
        for (size_t i = 0; i < sizeof BETAS / sizeof BETAS[0]; i++) {
            AdamWConfig c = {rate_of(t), BETAS[i][0], BETAS[i][1], 1e-8f, 0.1f};
            StepNumbers got = {-1, -1, -1}, want = {c.lr, 0, 0};
            // By t products, in long double: nearer than a double's rounding to the power.
            long double power[2] = {1, 1};
            for (int k = 0; k < 2 * t; k++) power[k % 2] *= (long double)BETAS[i][k % 2];
            want.unbias1 = (float)(1.0 - (double)power[0]);
            want.unbias2 = (float)(1.0 - (double)power[1]);
            step_numbers(&c, t, &got);
            if (memcmp(&got, &want, sizeof got) != 0)
                check(false,
                      "step_numbers of step %d, lr %g, betas %g and %g: %.9g, %.9g and %.9g, "
                      "must be %.9g, %.9g and %.9g",
                      t, (double)c.lr, (double)c.beta1, (double)c.beta2, (double)got.lr,
                      (double)got.unbias1, (double)got.unbias2, (double)want.lr,
                      (double)want.unbias1, (double)want.unbias2);
        }
}

// ---- The clip, and the update ----

// Gradients of the test's: of element i of unit k on this rank, other ones each time.
static void set_grads(const Sharded *s, int time, float scale)
{
    for (int k = 0; k < s->root->n_units; k++) {
        const FlatParam *flat = &s->root->units[k]->flat;
        int64_t numel = flat->sharded_grad.numel, valid = flat_valid_numel(&flat->layout, s->rank);
        float *host = calloc((size_t)numel, sizeof *host);
        for (int64_t i = 0; i < valid; i++)
            host[i] = scale * (float)((i * 7 + k * 3 + s->rank * 5 + time) % 23 - 11);
        send_to(flat->sharded_grad.data, host, (size_t)numel);
        free(host);
    }
}

typedef struct ClipCase {
    float max_norm, scale;
} ClipCase;

static void clip_body(Sharded *s, const Rank *r, void *arg)
{
    const ClipCase *c = arg;
    StepGraph graph;
    StepGraphOptions options = {.pass = steps_pass, .max_norm = c->max_norm};
    size_t n;
    need(step_graph_create(&graph, &s->adamw, &options));
    for (int time = 0; time < 3; time++) {
        float norm, clip[2];
        set_grads(s, time, c->scale);
        need(fsdp_clip_grad_norm(s->model, &s->ctx, c->max_norm, &norm));
        float *want = steps_state(s, &n);
        set_grads(s, time, c->scale);
        need_cuda(cudaDeviceSynchronize());
        uint64_t first = gpulog_length();
        need(step_clip(&graph));
        check_no_host_wait(first, "in step_clip");
        check_on_stream(first, s->ctx.compute_stream, "step_clip", "the compute stream");
        need_cuda(cudaStreamSynchronize(s->ctx.compute_stream));
        need_cuda(cudaMemcpy(clip, graph.clip, sizeof clip, cudaMemcpyDeviceToHost));
        check(clip[0] == norm, "step_clip's norm is %.9g, task 5's %.9g", (double)clip[0],
              (double)norm);
        float factor = norm > c->max_norm ? c->max_norm / norm : 1.0f;
        check(clip[1] == factor,
              "of a norm of %.9g and a limit of %g the factor is %.9g, must be "
              "%.9g",
              (double)norm, (double)c->max_norm, (double)clip[1], (double)factor);
        float *got = steps_state(s, &n);
        check_equal("what step_clip makes of the shards", got, want, n);
        free(got);
        free(want);
    }
    step_graph_destroy(&graph);
}

TEST(clip_stays_on_the_device)
{
    static const ClipCase CASES[] = {{1.0f, 0.25f}, {1e6f, 0.25f}, {0.5f, 1e-4f}};
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        ClipCase c = CASES[i];
        run_steps(spec_mlp(3), clip_body, &c, 1, 2, 3);
    }
}

static void update_body(Sharded *s, const Rank *r, void *arg)
{
    StepGraph graph;
    StepGraphOptions options = {.pass = steps_pass};
    size_t n;
    need(step_graph_create(&graph, &s->adamw, &options));
    set_grads(s, 1, 0.25f);
    for (int i = 0; i < s->root->n_units; i++) { // something that would move the padding
        const FlatParam *flat = &s->root->units[i]->flat;
        int64_t valid = flat_valid_numel(&flat->layout, s->rank), numel = flat->sharded_grad.numel;
        need_cuda(cudaMemset((float *)flat->sharded_grad.data + valid, 0x3F,
                             (size_t)(numel - valid) * sizeof(float)));
    }
    float *begin = steps_state(s, &n);
    float *given = NULL;
    // Step 5 by the kernel of task 5, then the same from the same state.
    for (int way = 0; way < 2; way++) {
        steps_restore(s, begin);
        AdamWConfig *c = &s->adamw.config;
        c->lr = rate_of(5);
        s->adamw.t = 4;
        if (way == 0) {
            need(fsdp_adamw_step(&s->adamw));
            given = steps_state(s, &n);
            continue;
        }
        StepNumbers numbers = {c->lr, (float)(1.0 - pow((double)c->beta1, 5)),
                               (float)(1.0 - pow((double)c->beta2, 5))};
        need_cuda(cudaMemcpy(graph.numbers, &numbers, sizeof numbers, cudaMemcpyHostToDevice));
        need_cuda(cudaDeviceSynchronize());
        *graph.host = (StepNumbers){7, 7, 7};
        c->lr = 100; // the numbers are those on the device
        uint64_t first = gpulog_length();
        need(step_update(&graph));
        check_no_host_wait(first, "in step_update");
        check(s->adamw.t == 4, "step_update has counted the step: opt->t is %d", s->adamw.t);
    }
    float *got = steps_state(s, &n);
    check_equal("a step's shards, gradients and moments", got, given, n);
    need(fsdp_unshard(s->root->units[1]));
    need(fsdp_wait_for_unshard(s->root->units[1]));
    need_refused(step_update(&graph), "is not sharded");
    need(fsdp_reshard_all(s->model));
    free(got);
    free(given);
    free(begin);
    step_graph_destroy(&graph);
}

TEST(update_reads_the_device)
{
    run_steps(spec_mlp(3), update_body, NULL, 1, 3);
}

// ---- A whole step ----

float *steps_eagerly(const Spec *spec, const Training *k, const Rank *r, float *norm)
{
    Sharded s;
    Steps t;
    size_t n;
    sharded_create(&s, spec, &TEST_OPTIONS, &TEST_ADAMW, r);
    steps_create(&t, &s, k->rounds, r);
    *norm = 0.0f;
    for (int i = 1; i <= k->steps; i++) {
        s.adamw.config.lr = rate_of(i);
        *norm = steps_eager(&t, k->max_norm);
    }
    float *state = steps_state(&s, &n);
    steps_destroy(&t);
    sharded_destroy(&s);
    return state;
}

static Status use_streams(const Steps *t)
{
    const FsdpContext *ctx = &t->s->ctx;
    CUDA_TRY(cudaMemsetAsync(t->loss + 1, 0, sizeof *t->loss, ctx->all_gather_stream));
    CUDA_TRY(cudaMemsetAsync(t->loss + 2, 0, sizeof *t->loss, ctx->reduce_scatter_stream));
    return OK;
}

// A pass that begins and ends on every stream, as those of strategies do.
static Status pass_on_all_streams(void *steps)
{
    TRY(use_streams(steps));
    TRY(steps_pass(steps));
    return use_streams(steps);
}

// Steps as step_graph_launch runs them, queued again each time. The state after them.
static float *queued_steps(Steps *t, StepGraph *graph, int steps, size_t *n)
{
    Sharded *s = t->s;
    const bool whole = !graph->options.accumulates;
    for (int i = 1; i <= steps; i++) {
        s->adamw.config.lr = rate_of(i);
        need_cuda(cudaDeviceSynchronize());
        uint64_t before = gpulog_length(), first = before + 1;
        need_cuda(cudaMemsetAsync(t->loss, 0, sizeof *t->loss, s->ctx.compute_stream));
        need(step_graph_warm_up(graph));
        check_no_host_wait(whole ? (uint64_t)gpulog_find(GPU_EVENT_SYNC, NULL, first) + 1 : first,
                           "in a step that is to be captured");
        GpuLogEntry entry = {0};
        int64_t copy = gpulog_find(GPU_COPY, NULL, first);
        bool numbers = copy >= 0 && gpulog_get((uint64_t)copy, &entry) &&
                       entry.range[0].ptr == (const void *)graph->numbers;
        check(numbers == whole,
              whole ? "step_queue: the first copy of a step is not that of the numbers"
                    : "step_queue: a pass that accumulates copies numbers");
        // What the compute stream gets next comes after all of the step.
        uint64_t end = gpulog_length(), begin = whole ? (uint64_t)copy : before;
        need_cuda(cudaMemsetAsync(t->loss, 0, sizeof *t->loss, s->ctx.compute_stream));
        for (uint64_t k = first; k < end; k++) {
            if (!gpulog_get(k, &entry)) continue;
            if (entry.op > GPU_BLAS && !gpulog_is_collective(entry.op)) continue;
            check(k >= begin, "step_queue: %s comes before the copy of the numbers", entry.name);
            check(k == begin || log_ordered(begin, k),
                  "step_queue: %s does not wait for the step's beginning: its stream takes no part",
                  entry.name);
            check(log_ordered(k, end),
                  "step_queue ends, and the compute stream has not waited for %s on another "
                  "stream: a capture would be unjoined",
                  entry.name);
        }
    }
    return steps_state(s, n);
}

static void queued_body(Sharded *s, const Rank *r, void *arg)
{
    const Training *k = arg;
    Steps queued;
    StepGraph graph;
    size_t n;
    float norm, *want = steps_eagerly(&s->spec, k, r, &norm);
    steps_create(&queued, s, k->rounds, r);
    StepGraphOptions options = {pass_on_all_streams, &queued, k->max_norm, false};
    need(step_graph_create(&graph, &s->adamw, &options));
    float *got = queued_steps(&queued, &graph, k->steps, &n);
    check_equal("shards, gradients and moments after steps that were queued at once", got, want, n);
    check(*graph.norm == norm, "graph->norm is %.9g, task 5's %.9g", (double)*graph.norm,
          (double)norm);
    check(s->adamw.t == k->steps, "opt->t is %d after %d steps", s->adamw.t, k->steps);
    free(got);
    free(want);
    step_graph_destroy(&graph);
    steps_destroy(&queued);
}

static void accumulating_body(Sharded *s, const Rank *r, void *arg)
{
    Steps queued;
    StepGraph graph;
    size_t n;
    steps_create(&queued, s, 1, r);
    StepGraphOptions options = {pass_on_all_streams, &queued, 0.05f, true};
    need(step_graph_create(&graph, &s->adamw, &options));
    free(queued_steps(&queued, &graph, 2, &n));
    check(s->adamw.t == 0, "opt->t is %d after passes that accumulate", s->adamw.t);
    step_graph_destroy(&graph);
    steps_destroy(&queued);
}

TEST(a_step_is_queued_at_once)
{
    Training one = {0.05f, 1, 3}, two = {0.0f, 2, 2};
    run_steps(spec_mlp(3), accumulating_body, NULL, 2);
    run_steps(spec_mlp(3), queued_body, &one, 1, 2, 3);
    run_steps(spec_gpt2(1), queued_body, &two, 2);
}

// ---- What a graph's paths say ----

enum { NODES = 40, PHASES = 8, CALLS = 10 };

// A drawn graph without cycles whose nodes are numbered in no order, with phases and collectives.
static void draw_trace(StepTrace *trace, StepMark *marks, int (*edges)[2])
{
    int name[NODES], n = draw(12, NODES), kinds[PHASES + CALLS], phases = draw(1, PHASES),
                     calls = draw(0, CALLS);
    for (int i = 0; i < n; i++) name[i] = i;
    for (int i = n - 1; i > 0; i--) {
        int k = draw(0, i), was = name[i];
        name[i] = name[k];
        name[k] = was;
    }
    *trace = (StepTrace){.n = phases + calls, .marks = marks, .n_nodes = n, .edges = edges};
    for (int i = 0; i < trace->n; i++) kinds[i] = i < phases ? STEP_FORWARD : STEP_GATHER + i % 2;
    for (int i = trace->n - 1; i > 0; i--) {
        int k = draw(0, i), was = kinds[i];
        kinds[i] = kinds[k];
        kinds[k] = was;
    }
    int phase = -1;
    for (int i = 0; i < trace->n; i++) {
        bool is_phase = kinds[i] == STEP_FORWARD;
        phase += is_phase;
        marks[i] = (StepMark){.kind = (StepKind)kinds[i],
                              .unit = draw(0, 5),
                              .bytes = draw(1, 1000),
                              .phase = phase,
                              .last = phase + draw(0, 2),
                              .node = draw_chance(95) ? draw(0, n - 1) : -1};
    }
    int percent = draw(2, 12);
    for (int a = 0; a < n; a++)
        for (int b = a + 1; b < n; b++)
            if (draw_chance(percent)) {
                edges[trace->n_edges][0] = name[a];
                edges[trace->n_edges++][1] = name[b];
            }
    for (int i = trace->n_edges - 1; i > 0; i--) {
        int k = draw(0, i), was[2] = {edges[i][0], edges[i][1]};
        memcpy(edges[i], edges[k], sizeof was);
        memcpy(edges[k], was, sizeof was);
    }
}

// The calls by Warshall's closure.
static int calls_by_hand(const StepTrace *trace, StepCall *out)
{
    static bool path[NODES][NODES];
    int n = 0;
    memset(path, 0, sizeof path);
    for (int i = 0; i < NODES; i++) path[i][i] = true;
    for (int i = 0; i < trace->n_edges; i++) path[trace->edges[i][0]][trace->edges[i][1]] = true;
    for (int k = 0; k < NODES; k++)
        for (int i = 0; i < NODES; i++)
            for (int j = 0; j < NODES; j++) path[i][j] |= path[i][k] && path[k][j];
    for (int i = 0; i < trace->n; i++) {
        const StepMark *of = &trace->marks[i];
        if (of->kind != STEP_GATHER && of->kind != STEP_REDUCE) continue;
        StepCall made = {of->kind, of->unit, of->bytes, -1, -1};
        int least = INT32_MAX;
        for (int k = 0; k < trace->n && of->node >= 0; k++) {
            const StepMark *phase = &trace->marks[k];
            if (phase->kind > STEP_BACKWARD || phase->node < 0) continue;
            if (path[phase->node][of->node] && phase->phase > made.after) made.after = phase->phase;
            // Later phases end first where they end within it.
            int order = 100 * phase->last - phase->phase;
            if (path[of->node][phase->node] && order < least) {
                least = order;
                made.before = phase->phase;
            }
        }
        out[n++] = made;
    }
    return n;
}

// A captured step's record is the schedule of tasks 3 and 4. Phases: the root, the blocks, back.
static void captured_body(Sharded *s, const Rank *r, void *arg)
{
    Steps t;
    StepGraph graph;
    StepTrace trace;
    StepCall calls[64];
    int n = 0, gathers = 0, units = s->root->n_units, last = 2 * units - 1;
    steps_create(&t, s, 1, r);
    StepGraphOptions options = {.pass = steps_pass, .arg = &t};
    need(step_graph_create(&graph, &s->adamw, &options));
    need(step_graph_warm_up(&graph));
    need(step_trace_begin(&trace, s->root));
    need(step_graph_capture(&graph));
    need(step_trace_end(&trace, graph.graph));
    need(step_calls(&trace, calls, 64, &n));
    for (int i = 0; i < n; i++) {
        const StepCall *c = &calls[i];
        bool reduces = c->kind == STEP_REDUCE;
        // A unit's forward is phase `unit`; the backward goes the other way, the root first.
        bool back = reduces || gathers >= units;
        int phase = !back ? c->unit : c->unit == 0 ? units : last + 1 - c->unit;
        gathers += !reduces;
        // An all-gather waits for what is freed before it: of the phase before the last one, where
        // that one has ended. The root begins a pass, and ends it.
        int after = phase - 2, before = phase;
        if (!back && phase < 3) after = -1;
        if (back && phase < units + 3) after = units - 1;
        if (c->unit == 0) before = phase + 1;
        if (reduces) after = c->unit == 0 ? last : phase;
        if (reduces) before = phase + 2 <= last ? phase + 2 : phase + 1 == last ? units : -1;
        if (reduces && c->unit == 0) before = -1;
        check(c->bytes == (int64_t)whole_bytes(s->root->units[c->unit]),
              "collective %d, of unit %d, moves %lld bytes", i, c->unit, (long long)c->bytes);
        check(
            c->after == after && c->before == before,
            "step_calls: %s %d, of unit %d, comes after phase %d and before %d, must be %d and %d",
            reduces ? "reduction" : "all-gather", i, c->unit, c->after, c->before, after, before);
    }
    check(n == 3 * units, "a step has %d collectives of units, must have %d", n, 3 * units);
    step_trace_free(&trace);
    step_graph_destroy(&graph);
    steps_destroy(&t);
}

typedef struct DrawnTrace {
    StepTrace trace;
    StepMark marks[PHASES + CALLS];
    int edges[NODES * NODES][2], max;
} DrawnTrace;
enum { TRACES = 200 };

static void paths_body(const Rank *r, void *arg)
{
    for (const DrawnTrace *d = arg; d < (const DrawnTrace *)arg + TRACES; d++) {
        StepCall got[CALLS + 1], want[CALLS + 1];
        int n = -1, all = calls_by_hand(&d->trace, want), max = d->max < all ? d->max : all;
        memset(got, 0x5A, sizeof got);
        memset(&want[max], 0x5A, sizeof want[max]);
        need(step_calls(&d->trace, max > 0 ? got : NULL, max, &n));
        check(n == all, "step_calls counts %d collectives of %d", n, all);
        for (int i = 0; i < max; i++)
            check(
                memcmp(&got[i], &want[i], sizeof got[i]) == 0,
                "step_calls: collective %d is unit %d's, %lld bytes, after phase %d, before phase "
                "%d; must be unit %d's, %lld bytes, after %d, before %d (-1: none)",
                i, got[i].unit, (long long)got[i].bytes, got[i].after, got[i].before, want[i].unit,
                (long long)want[i].bytes, want[i].after, want[i].before);
        check(memcmp(&got[max], &want[max], sizeof got[max]) == 0,
              "step_calls of %d collectives at most has written one more", max);
    }
}

TEST(calls_are_ordered_by_paths)
{
    static DrawnTrace traces[TRACES];
    for (int i = 0; i < TRACES; i++) {
        draw_trace(&traces[i].trace, traces[i].marks, traces[i].edges);
        traces[i].max = draw(0, 3) > 0 ? CALLS : draw(0, CALLS);
    }
    drawn("%d graphs", TRACES);
    run_ranks(1, paths_body, traces);
    run_steps(spec_mlp(5), captured_body, NULL, 2);
}

SUITE_MAIN("graph")
