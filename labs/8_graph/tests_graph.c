/* Lab 8, captured: what a capture leaves as it was, and launches against eager steps. */
#include "harness.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "backend.h"
#include "failing.h"
#include "per_parameter.h"
#include "strategies.h"
#include "tests.h"

enum { STEPS = 30 };

static void check_not_capturing(const Sharded *s, const char *when)
{
    cudaStream_t streams[] = {s->ctx.compute_stream, s->ctx.all_gather_stream,
                              s->ctx.reduce_scatter_stream};
    static const char *const NAME[] = {"compute", "all-gather", "reduce-scatter"};
    for (int i = 0; i < 3; i++) {
        enum cudaStreamCaptureStatus status;
        need_cuda(cudaStreamIsCapturing(streams[i], &status));
        check(status == cudaStreamCaptureStatusNone,
              "step_graph_capture leaves the %s stream captured %s", NAME[i], when);
    }
}

// ---- A capture ----

static void *allocate(void *device)
{
    float *p = NULL;
    bool works = cudaSetDevice(*(const int *)device) == cudaSuccess &&
                 cudaMalloc((void **)&p, sizeof *p) == cudaSuccess && cudaFree(p) == cudaSuccess;
    return works ? device : NULL;
}

// A pass in which another thread allocates, as it may, and then this one, which may not.
static Status allocating_pass(void *device)
{
    pthread_t thread;
    void *works = NULL;
    float *p = NULL;
    check(pthread_create(&thread, NULL, allocate, device) == 0 && pthread_join(thread, &works) == 0,
          "no thread");
    check(works != NULL,
          "step_graph_capture: meanwhile another thread's cudaMalloc fails: the mode "
          "of cudaStreamBeginCapture says whose calls are forbidden");
    CUDA_TRY(cudaMalloc((void **)&p, sizeof *p));
    CUDA_TRY(cudaFree(p));
    return OK;
}

static Status empty_pass(void *arg)
{
    return OK;
}

static void check_failed(const Sharded *s, const StepGraph *graph, Status status, const char *what)
{
    check(status != OK, "%s, and step_graph_capture returns OK", what);
    check(graph->graph == NULL && graph->exec == NULL, "%s: step_graph_capture leaves a graph",
          what);
    check_not_capturing(s, "after a capture that failed");
}

static void capture_body(Sharded *s, const Rank *r, void *arg)
{
    Steps t;
    StepGraph graph;
    size_t n;
    steps_create(&t, s, 2, r);
    StepGraphOptions options = {steps_pass, &t, 0.5f, false};
    need(step_graph_create(&graph, &s->adamw, &options));
    need_refused(step_graph_launch(&graph), "no step is captured");
    need(step_graph_warm_up(&graph));
    float *want = steps_state(s, &n);
    t.fails = 2;
    backend_ignore_reports(); // of streams that a pass which fails has not joined
    need_failure(step_graph_capture(&graph), ERR_ARGUMENT, "the pass fails");
    check_failed(s, &graph, ERR_ARGUMENT, "the pass fails");
    need(fsdp_reshard_all(s->model));
    t.fails = 0;
    int device = r->device;
    graph.options.pass = allocating_pass;
    graph.options.arg = &device;
    check_failed(s, &graph, step_graph_capture(&graph), "the pass calls cudaMalloc");
    graph.options = options;
    backend_listen();
    uint64_t first = gpulog_length();
    need(step_graph_capture(&graph));
    check_no_host_wait(first, "in a capture");
    check(graph.graph != NULL && graph.exec != NULL, "step_graph_capture has left no graph");
    check_not_capturing(s, "after a capture");
    cudaGraph_t was = graph.graph;
    need_refused(step_graph_capture(&graph), "is captured already");
    check(graph.graph == was, "a capture that was refused has changed the graph");
    float *got = steps_state(s, &n);
    check_equal("what a capture leaves of shards, gradients and moments", got, want, n);
    check(s->adamw.t == 1, "a capture has counted a step: opt->t is %d", s->adamw.t);
    free(got);
    free(want);
    step_graph_destroy(&graph);
    steps_destroy(&t);
}

// Each call of a capture fails once, and each of a launch.
static void failing_body(Sharded *s, const Rank *r, void *arg)
{
    StepGraph graph;
    StepGraphOptions options = {empty_pass, NULL, 0.5f, false};
    Status status;
    need(step_graph_create(&graph, &s->adamw, &options));
    need(step_graph_warm_up(&graph));
    backend_ignore_reports();
    for (int n = 1;; n++) {
        FAILS_AT(n, status = step_graph_capture(&graph));
        if (failing_call() == NULL) break;
        check_failed(s, &graph, status, failing_call());
    }
    need(status);
    for (int n = 1;; n++) {
        FAILS_AT(n, status = step_graph_launch(&graph));
        if (failing_call() == NULL) break;
        bool launched = strncmp(failing_call(), "cudaEventRecord", 15) == 0;
        check(status != OK, "%s fails, and step_graph_launch returns OK", failing_call());
        check(s->adamw.t == 1 || launched, "%s fails, and step_graph_launch has counted a step",
              failing_call());
    }
    need(status);
    backend_listen();
    step_graph_destroy(&graph);
}

TEST(a_capture_runs_nothing)
{
    run_steps(spec_mlp(3), capture_body, NULL, 1, 2, 3);
    run_steps(spec_mlp(3), failing_body, NULL, 1, 2);
}

// ---- Launches ----

static int times_written;

static void count_written(FsdpRoot *root)
{
    times_written++;
}

// A launch was logged from here on.
static void check_launch(const StepGraph *graph, uint64_t from)
{
    GpuLogEntry entry;
    bool recorded = false;
    for (uint64_t e = from; e < gpulog_length(); e++) {
        if (!gpulog_get(e, &entry)) continue;
        check(entry.op != GPU_STREAM_SYNC && entry.op != GPU_DEVICE_SYNC,
              "step_graph_launch waits for more than the last launch");
        recorded |= entry.op == GPU_EVENT_RECORD && entry.event == graph->launched;
    }
    check(recorded, "step_graph_launch does not record graph->launched: step_graph_destroy would "
                    "not wait for this launch");
}

static void replay_body(Sharded *s, const Rank *r, void *arg)
{
    const Training *k = arg;
    Steps t;
    StepGraph graph;
    size_t n;
    float norm, *want = steps_eagerly(&s->spec, k, r, &norm);
    steps_create(&t, s, k->rounds, r);
    need_cuda(cudaDeviceSynchronize());
    size_t live = gpulog_live_bytes(r->device);
    StepGraphOptions options = {steps_pass, &t, k->max_norm, false};
    need(step_graph_create(&graph, &s->adamw, &options));
    s->root->ops.shards_written = count_written;
    times_written = 0;
    for (int i = 1; i <= k->steps; i++) {
        s->adamw.config.lr = rate_of(i);
        if (i == 1) need(step_graph_warm_up(&graph));
        if (i == 2) need(step_graph_capture(&graph));
        uint64_t from = gpulog_length();
        if (i > 1) need(step_graph_launch(&graph));
        if (i > 1) check_launch(&graph, from);
        check(s->adamw.t == i, "after %d steps opt->t is %d", i, s->adamw.t);
        check(times_written == i,
              "step_graph_launch: %d steps write the shards, and call fsdp_shards_written %d times",
              i, times_written);
    }
    float *got = steps_state(s, &n);
    check_equal("shards, gradients and moments after launches", got, want, n);
    check(*graph.norm == norm, "graph->norm is %.9g, task 5's %.9g", (double)*graph.norm,
          (double)norm);
    free(got);
    free(want);
    step_graph_destroy(&graph);
    need_cuda(cudaDeviceSynchronize());
    check(gpulog_live_bytes(r->device) == live, "a graph's destruction leaves %zu bytes",
          gpulog_live_bytes(r->device) - live);
    steps_destroy(&t);
}

// One graph for the first micro-batch, which steps nothing, and one for the second.
static void accumulated_body(Sharded *s, const Rank *r, void *arg)
{
    const Training *k = arg;
    Steps both, first, second;
    StepGraph graph[2];
    size_t n;
    float norm, *want = steps_eagerly(&s->spec, k, r, &norm);
    steps_create(&both, s, 2, r);
    first = second = both;
    second.batch[0] = both.batch[1];
    second.keeps = true;
    StepGraphOptions options[] = {{steps_pass, &first, 0.0f, true},
                                  {steps_pass, &second, k->max_norm, false}};
    for (int i = 0; i < 2; i++) need(step_graph_create(&graph[i], &s->adamw, &options[i]));
    // The gradient is of the mean of two: each pass scales by that, and runs one.
    first.rounds = second.rounds = 1;
    first.of = second.of = 2;
    for (int i = 1; i <= k->steps; i++) {
        s->adamw.config.lr = rate_of(i);
        for (int g = 0; g < 2; g++) {
            if (i == 1) need(step_graph_warm_up(&graph[g]));
            if (i == 2) need(step_graph_capture(&graph[g]));
            uint64_t from = gpulog_length();
            if (i > 1) need(step_graph_launch(&graph[g]));
            if (i > 1) check_launch(&graph[g], from);
            if (g == 0) check_no_host_wait(from, "in a launch that accumulates");
        }
        check(s->adamw.t == i, "after %d steps of two micro-batches opt->t is %d", i, s->adamw.t);
    }
    float *got = steps_state(s, &n);
    check_equal("shards, gradients and moments after launches of two graphs", got, want, n);
    free(got);
    free(want);
    for (int i = 1; i >= 0; i--) step_graph_destroy(&graph[i]);
    steps_destroy(&both);
}

// Under a strategy: some eager steps, then the same from the same state by launches.
static void strategy_body(Wrapped *w, const Case *c, const Rank *r)
{
    Sharded s = {.spec = c->spec,
                 .run = w->run,
                 .model = w->model,
                 .ctx = w->ctx,
                 .root = w->root,
                 .adamw = w->adamw,
                 .rank = r->rank,
                 .world = r->world};
    Steps t;
    StepGraph graph;
    size_t n;
    steps_create(&t, &s, 1, r);
    StepGraphOptions options = {steps_pass, &t, 0.05f, false};
    need(step_graph_create(&graph, &s.adamw, &options));
    need(step_graph_warm_up(&graph));
    float *begin = steps_state(&s, &n), *want = NULL, *got;
    for (int i = 0; i < 4; i++) steps_eager(&t, 0.05f);
    want = steps_state(&s, &n);
    steps_restore(&s, begin);
    s.adamw.t = 1;
    need(step_graph_capture(&graph));
    for (int i = 0; i < 4; i++) need(step_graph_launch(&graph));
    got = steps_state(&s, &n);
    check_equal("shards, gradients and moments after launches under a strategy", got, want, n);
    free(begin);
    free(want);
    free(got);
    step_graph_destroy(&graph);
    steps_destroy(&t);
}

// What cannot be in a graph, or in a group, is refused in a line.
static const MixedPrecisionPolicy BF16 = {DTYPE_BF16, DTYPE_F32, DTYPE_F32, true};

static void refused_body(Wrapped *w, const Case *c, const Rank *r)
{
    static StepPass pass[2];
    static const StepCosts costs = {1, 1, 1, 0};
    static const PrefetchOptions ahead = {1, 1, 0};
    StepGraph graph;
    StepGraphOptions options = {.pass = steps_pass, .max_norm = -1.0f};
    need_refused(step_graph_create(&graph, &w->adamw, &options), "a clip to a norm of -1");
    options.max_norm = 0.0f;
    need_refused(step_graph_create(&graph, &w->adamw, &options), "has a precision");
    need_refused(regroup_apply(w->model, pass, &costs, 0), "gathers in another way");
    need(recompute_remove(w->model));
    need(precision_remove(w->model));
    need(prefetch_apply(w->model, &ahead));
    need_refused(regroup_apply(w->model, pass, &costs, 0), "has a prefetch");
    need(prefetch_remove(w->model));
    need(regroup_apply(w->model, pass, &costs, 0));
    need_refused(regroup_apply(w->model, pass, &costs, 0), "is regrouped already");
    need_refused(strategy_remove(w->model), "call regroup_remove first");
    need(regroup_remove(w->model));
    need_refused(regroup_remove(w->model), "is not regrouped");
}

TEST(replay_trains_as_eager)
{
    Training clipped = {0.05f, 1, STEPS}, plain = {0.0f, 2, 4}, two = {0.05f, 2, 6};
    run_steps(spec_mlp(3), replay_body, &clipped, 1, 2, 3, 4, 8);
    run_steps(spec_gpt2(2), replay_body, &plain, 2);
    run_steps(spec_mlp(3), accumulated_body, &two, 1, 2);
    static const int SHAPES[][3] = {// strategy, ranks, replicas
                                    {STRATEGY_DDP, 2, 2},
                                    {STRATEGY_ZERO1, 2, 1},
                                    {STRATEGY_ZERO2, 3, 1},
                                    {STRATEGY_ZERO3, 4, 2}};
    for (size_t i = 0; i < sizeof SHAPES / sizeof SHAPES[0]; i++) {
        Case c = case_of(spec_mlp(3), (Strategy)SHAPES[i][0], SHAPES[i][1], SHAPES[i][2], 1);
        run_wrapped(SHAPES[i][1], strategy_body, &c);
    }
    static const PrefetchOptions two_ahead = {2, 2, 0};
    Case others = case_of(spec_mlp(4), STRATEGY_ZERO3, 4, 1, 1);
    others.prefetch = &two_ahead;
    others.recompute = RECOMPUTE_BLOCKS;
    run_wrapped(4, strategy_body, &others);
    others.prefetch = NULL;
    others.options.reshard_ranks = 2;
    run_wrapped(4, strategy_body, &others);
    others.options.reshard_ranks = 0;
    others.layout = per_parameter_layout;
    run_wrapped(3, strategy_body, &others);
    others.layout = NULL;
    others.policy = &BF16;
    run_wrapped(2, refused_body, &others);
}
