/* graph_drawn.c: drawn programs of streams and events, run call by call and launched as a graph:
 * memory bitwise, the log, which operation is before which, and what is reported are the same.
 *
 * GRAPH_PROGRAMS=100000 runs so many programs, with SEED=S from that seed on.
 */
#include <cublas_v2.h>
#include <nccl.h>

#include "../../include/mix.h"
#include "gpulog_order.h"
#include "heard.h"
#include "kernels.h"

enum { PROGRAMS = 1500 / SLOWER, BATCH = 250, STREAMS = 4, EVENTS = 3, BUFFERS = 4, MOST = 24 };
enum { FLOATS = 64, BYTES = FLOATS * (int)sizeof(float) };

typedef enum StepKind {
    FILL,
    SCALE,
    ADD,
    SET,
    COPY,
    AXPY,
    REDUCE,
    CALL,
    RECORD,
    WAIT,
    ALLOCATE, // the last buffer, if it is not there; else frees it
    KINDS
} StepKind;
typedef struct Step {
    StepKind kind;
    int stream, a, b, event;
} Step;
typedef struct Program {
    uint64_t seed;
    int n, streams;
    Step step[MOST];
} Program;

// What a program left.
typedef struct Outcome {
    unsigned char memory[BUFFERS - 1][BYTES];
    int calls[MOST], n_calls; // of host functions, in their order
    // Of which class something is; how often depends on how many streams, or branches, there are.
    bool reported[SIMGPU_CLASSES];
    int n;                           // operations
    GpuLogEntry entry[2 * MOST + 4]; // without what only orders them
    bool before[2 * MOST + 4][2 * MOST + 4];
} Outcome;

static cudaStream_t stream[STREAMS];
static cudaEvent_t event[EVENTS], fork_event;
static float *buffer[BUFFERS];
static ncclComm_t comm;
static cublasHandle_t handle;
static Outcome eager, launched, *now;

static Program draw_program(uint64_t seed)
{
    Program p = {.seed = seed};
    uint64_t at = 0;
#define DRAW(n) ((int)(mix_sequence(seed, 0, (int)at++) % (uint64_t)(n)))
    bool recorded[EVENTS] = {false}, there = false;
    p.streams = 1 + DRAW(STREAMS);
    p.n = 1 + DRAW(MOST);
    for (int i = 0; i < p.n; i++) {
        Step s = {.kind = DRAW(KINDS)};
        s.stream = DRAW(p.streams);
        s.event = DRAW(EVENTS);
        if (DRAW(3) == 0) s.kind = DRAW(2) ? RECORD : WAIT; // so that much is ordered
        s.a = DRAW(there ? BUFFERS : BUFFERS - 1);
        s.b = DRAW(there ? BUFFERS : BUFFERS - 1);
        if (s.a == s.b) s.b = (s.a + 1) % (BUFFERS - 1);
        if (s.kind == WAIT && !recorded[s.event]) s.kind = RECORD;
        if (s.kind == RECORD) recorded[s.event] = true;
        if (s.kind == ALLOCATE) there = !there;
        p.step[i] = s;
    }
#undef DRAW
    return p;
}

static void note_call(void *number)
{
    now->calls[now->n_calls++ % MOST] = (int)(intptr_t)number;
}

static void note_report(const SimgpuReport *report, void *arg)
{
    if (now) now->reported[report->kind] = true;
}

static void make_step(const Step *s, int number)
{
    cudaStream_t on = stream[s->stream];
    float *a = buffer[s->a], *b = buffer[s->b], factor = 0.5f + (float)number;
    switch (s->kind) {
    case FILL: need_cuda(kernel_fill(a, factor, FLOATS, on)); break;
    case SCALE: need_cuda(kernel_scale(a, factor, FLOATS / 2, on)); break;
    case ADD: need_cuda(kernel_add(a, b, FLOATS, on)); break;
    case SET: need_cuda(cudaMemsetAsync(a, number, BYTES / 2, on)); break;
    case COPY: need_cuda(cudaMemcpyAsync(a, b, BYTES, cudaMemcpyDeviceToDevice, on)); break;
    case REDUCE: need_nccl(ncclAllReduce(a, b, FLOATS, ncclFloat, ncclSum, comm, on)); break;
    case CALL: need_cuda(cudaLaunchHostFunc(on, note_call, (void *)(intptr_t)number)); break;
    case RECORD: need_cuda(cudaEventRecord(event[s->event], on)); break;
    case WAIT: need_cuda(cudaStreamWaitEvent(on, event[s->event], 0)); break;
    case AXPY:
        check(cublasSetStream(handle, on) == CUBLAS_STATUS_SUCCESS, "cublasSetStream");
        check(cublasSaxpy(handle, FLOATS, &factor, b, 1, a, 1) == CUBLAS_STATUS_SUCCESS, "axpy");
        factor = 0; // the scalar is read at the call
        break;
    case ALLOCATE:
        if (buffer[BUFFERS - 1]) {
            need_cuda(cudaFreeAsync(buffer[BUFFERS - 1], on));
            buffer[BUFFERS - 1] = NULL;
        } else {
            need_cuda(cudaMallocAsync((void **)&buffer[BUFFERS - 1], BYTES, on));
        }
        break;
    default: check(false, "step %d", (int)s->kind);
    }
}

// All streams begin after the first one, and it ends after them.
static void make_steps(const Program *p)
{
    need_cuda(cudaEventRecord(fork_event, stream[0]));
    for (int i = 1; i < p->streams; i++) need_cuda(cudaStreamWaitEvent(stream[i], fork_event, 0));
    for (int i = 0; i < p->n; i++) make_step(&p->step[i], i);
    for (int i = 1; i < p->streams; i++) {
        need_cuda(cudaEventRecord(fork_event, stream[i]));
        need_cuda(cudaStreamWaitEvent(stream[0], fork_event, 0));
    }
    Step end = {.kind = ALLOCATE};
    if (buffer[BUFFERS - 1]) make_step(&end, p->n);
}

static bool only_orders(const GpuLogEntry *e)
{
    return e->op >= GPU_EVENT_RECORD;
}

static void run_once(const Program *p, bool as_graph, int times, Outcome *out)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec = NULL;
    for (int i = 0; i < BUFFERS - 1; i++)
        need_cuda(kernel_fill(buffer[i], 1.0f + (float)i, FLOATS, stream[0]));
    need_cuda(cudaDeviceSynchronize());
    memset(out, 0, sizeof *out);
    now = out;
    if (as_graph) {
        need_cuda(cudaStreamBeginCapture(stream[0], cudaStreamCaptureModeGlobal));
        make_steps(p);
        need_cuda(cudaStreamEndCapture(stream[0], &graph));
        need_cuda(cudaGraphInstantiate(&exec, graph, 0));
        need_cuda(cudaGraphDestroy(graph));
        check(out->n_calls == 0 && !memchr(out->reported, true, sizeof out->reported),
              "a capture ran something");
    }
    uint64_t first = gpulog_length(), index[2 * MOST + 4];
    for (int i = 0; i < times; i++) {
        if (as_graph)
            need_cuda(cudaGraphLaunch(exec, stream[0]));
        else
            make_steps(p);
    }
    for (uint64_t i = first; i < gpulog_length() && out->n < 2 * MOST + 4; i++) {
        check(gpulog_get(i, &out->entry[out->n]), "the log let entry %d go", (int)(i - first));
        check(!out->entry[out->n].launch == !as_graph, "a launch that is none, or none");
        index[out->n] = i;
        if (!only_orders(&out->entry[out->n])) out->n++;
    }
    for (int i = 0; i < out->n; i++)
        for (int j = 0; j < out->n; j++) out->before[i][j] = gpulog_ordered(index[i], index[j]);
    need_cuda(cudaDeviceSynchronize());
    now = NULL;
    for (int i = 0; i < BUFFERS - 1; i++)
        need_cuda(cudaMemcpy(out->memory[i], buffer[i], BYTES, cudaMemcpyDeviceToHost));
    if (exec) need_cuda(cudaGraphExecDestroy(exec));
}

static const char *difference(void)
{
    const Outcome *a = &eager, *b = &launched;
    if (memcmp(a->memory, b->memory, sizeof a->memory) != 0) return "memory";
    if (a->n_calls != b->n_calls || memcmp(a->calls, b->calls, sizeof a->calls) != 0)
        return "host functions";
    if (a->n != b->n) return "the number of operations";
    for (int i = 0; i < a->n; i++) {
        const GpuLogEntry *x = &a->entry[i], *y = &b->entry[i];
        if (x->op != y->op || strcmp(x->name, y->name) != 0 || x->bytes != y->bytes ||
            x->sent != y->sent || x->device != y->device || x->n_ranges != y->n_ranges)
            return "an entry of the log";
        for (int r = 0; r < x->n_ranges; r++)
            if (x->range[r].bytes != y->range[r].bytes || x->range[r].access != y->range[r].access)
                return "a range";
    }
    if (memcmp(a->before, b->before, sizeof a->before) != 0) return "the order of operations";
    if (memcmp(a->reported, b->reported, sizeof a->reported) != 0) return "what is reported";
    return NULL;
}

static void describe(const Program *p, char *text, size_t size)
{
    static const char *const names[] = {"fill",   "scale", "add",    "set",  "copy",    "axpy",
                                        "reduce", "call",  "record", "wait", "allocate"};
    size_t used = 0;
    for (int i = 0; i < p->n && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "  %d: %s on %d, a %d, b %d, event %d\n",
                                 i, names[p->step[i].kind], p->step[i].stream, p->step[i].a,
                                 p->step[i].b, p->step[i].event);
}

static void run_batch(const Rank *r, void *arg)
{
    const uint64_t *batch = arg; // first seed, number
    int one = 0;
    static char text[4096];
    for (int i = 0; i < STREAMS; i++) stream[i] = make_stream(cudaStreamNonBlocking);
    for (int i = 0; i < EVENTS; i++)
        need_cuda(cudaEventCreateWithFlags(&event[i], cudaEventDisableTiming));
    need_cuda(cudaEventCreateWithFlags(&fork_event, cudaEventDisableTiming));
    for (int i = 0; i < BUFFERS - 1; i++) need_cuda(cudaMalloc((void **)&buffer[i], BYTES));
    need_nccl(ncclCommInitAll(&comm, 1, &one));
    check(cublasCreate(&handle) == CUBLAS_STATUS_SUCCESS, "cublasCreate");
    simgpu_on_report(note_report, NULL);
    for (uint64_t seed = batch[0]; seed < batch[0] + batch[1]; seed++) {
        Program p = draw_program(seed);
        int times = 1 + (int)(seed % 2);
        run_once(&p, false, times, &eager);
        run_once(&p, true, times, &launched);
        const char *what = difference();
        if (what) describe(&p, text, sizeof text);
        check(!what, "SEED=%llu GRAPH_PROGRAMS=1, %d times: %s differs\n%s",
              (unsigned long long)seed, times, what, text);
    }
}

TEST(test_launched_as_call_by_call)
{
    const char *seed = getenv("SEED"), *programs = getenv("GRAPH_PROGRAMS");
    uint64_t from = seed ? strtoull(seed, NULL, 10) : 8812;
    uint64_t n = programs ? strtoull(programs, NULL, 10) : PROGRAMS;
    setenv("SIMGPU_REPORTS", "first", 1);
    for (uint64_t at = 0; at < n; at += BATCH) {
        uint64_t batch[2] = {from + at, n - at < BATCH ? n - at : BATCH};
        run_ranks(1, run_batch, batch);
    }
}

SUITE_MAIN("simgpu/graph_drawn")
