/* trace.c: what SIMGPU_TRACE writes, for spans that are made up: tracks, arrows, counters, one file
 * of several processes, and what is left when one of them is killed.
 */
#include <errno.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nccl.h>

#include "../heard.h"
#include "time/ranges.h"
#include "time/trace.h"
#include "trace_read.h"

static char folder[64], file[80];

static void name_file(const char *name)
{
    snprintf(folder, sizeof folder, "/tmp/traceXXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(file, sizeof file, "%s/%s", folder, name);
    setenv("SIMGPU_TRACE", file, 1);
}

static void remove_file(void)
{
    char parts[96];
    snprintf(parts, sizeof parts, "%s.parts", file);
    bool left = access(parts, F_OK) == 0;
    unlink(file);
    bool more = rmdir(folder) != 0;
    if (left || more) fail_msg("%s is not alone in its folder", file);
}

// ---- Spans ----

static uint64_t next_index;

static void record_entry(SimSpan span, GpuLogEntry entry)
{
    entry.index = next_index++;
    entry.site = (const void *)record_entry;
    span.entry = &entry;
    if (!span.record) span.record = SIM_NO_ENTRY;
    sim_trace_span(&span, NULL);
}

static GpuLogEntry operation(GpuOp op, const char *name, int stream)
{
    return (GpuLogEntry){.op = op,
                         .name = name,
                         .stream = (cudaStream_t)(uintptr_t)(0x1000 * stream),
                         .stream_number = (uint32_t)stream,
                         .collective.peer = -1};
}

#define US ((SimPs)1000000)
static SimSpan times(int rank, SimPs called, SimPs start, SimPs end)
{
    return (SimSpan){.rank = rank,
                     .called = called * US,
                     .queued = called * US + 1,
                     .returned = called * US + 1,
                     .ready = start * US,
                     .start = start * US,
                     .end = end * US};
}

static void memory(int rank, GpuOp op, const void *ptr, size_t bytes, GpuCategory category,
                   SimPs at)
{
    GpuLogEntry e = operation(op, op == GPU_ALLOC ? "cudaMallocAsync" : "cudaFreeAsync", 1);
    e.n_ranges = 1;
    e.range[0] = (GpuRange){ptr, bytes, GPU_WRITE};
    e.category = category;
    e.pool = true;
    record_entry(times(rank, at, at, at), e);
}

static void collective(int rank, int ranks, SimPs called, SimPs ready, SimPs start, SimPs end)
{
    SimCollectiveCost cost = {
        .latency = 10 * US, .algorithm = "ring", .protocol = "ll", .ideal = 450e9};
    GpuLogEntry e = operation(GPU_ALL_GATHER, "ncclAllGather", 2);
    e.collective = (GpuCollective){.comm = 7, .call = 1, .ranks = ranks, .rank = rank, .peer = -1};
    e.bytes = 4000000;
    e.sent = 1000000;
    SimSpan span = times(rank, called, start, end);
    span.ready = ready * US;
    span.cost = &cost;
    record_entry(span, e);
}

// A kernel, an all-gather on another stream, a record, a wait, a kernel after it.
static void a_step(int rank, int ranks)
{
    const char *x = (const char *)0x500000;
    next_index = 0;
    memory(rank, GPU_ALLOC, x, 100, GPU_TEMPORARY, 1);
    memory(rank, GPU_ALLOC, x + 4096, 1000, GPU_TEMPORARY, 2);
    record_entry(times(rank, 3, 10, 20), operation(GPU_KERNEL, "kernel_a", 1));
    collective(rank, ranks, 4, 12 + (SimPs)rank, 12 + (SimPs)ranks - 1 + 10, 40 + (SimPs)rank);
    record_entry(times(rank, 5, 40 + (SimPs)rank, 40 + (SimPs)rank),
                 operation(GPU_EVENT_RECORD, "record", 2));
    SimSpan wait = times(rank, 6, 40 + (SimPs)rank, 40 + (SimPs)rank);
    wait.record = 4;
    record_entry(wait, operation(GPU_STREAM_WAIT, "cudaStreamWaitEvent", 1));
    record_entry(times(rank, 7, 40 + (SimPs)rank, 60), operation(GPU_KERNEL, "kernel_b", 1));
    memory(rank, GPU_FREE, x, 100, GPU_UNSHARDED_PARAM, 61);
}

static void begin(void)
{
    char error[300];
    if (!sim_trace_begin(sim_machine("h100x8", error, sizeof error))) _exit(3);
}

static int *meeting; // shared: how many processes have come

// Runs body(rank) in so many processes, one after the other's start; the statuses must be as
// wanted.
static void run(int ranks, void (*body)(int rank, int ranks), int killed)
{
    pid_t pid[8];
    *meeting = 0;
    for (int r = 0; r < ranks; r++) {
        pid[r] = fork();
        assert_true(pid[r] >= 0);
        if (pid[r] > 0) continue;
        alarm(60);
        body(r, ranks);
        _exit(0);
    }
    for (int r = 0; r < ranks; r++) {
        int status;
        assert_int_equal(waitpid(pid[r], &status, 0), pid[r]);
        if (r == killed)
            assert_true(WIFSIGNALED(status));
        else if (status != 0)
            fail_msg("rank %d ended with %#x", r, status);
    }
}

static void meet(int n)
{
    __atomic_add_fetch(meeting, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(meeting, __ATOMIC_SEQ_CST) < n) usleep(1000);
}

static void whole_life(int rank, int ranks)
{
    begin();
    meet(ranks);
    a_step(rank, ranks);
    sim_trace_span(NULL, NULL);
}

static const Event *named(const TraceRead *t, int type, const char *name, int nth)
{
    for (size_t i = 0; i < t->n; i++)
        if (t->event[i].type == type && strcmp(t->event[i].name, name) == 0 && nth-- == 0)
            return &t->event[i];
    fail_msg("no \"%s\" in the trace", name);
    return NULL;
}

static int count_of(const TraceRead *t, int type, const char *name)
{
    int n = 0;
    for (size_t i = 0; i < t->n; i++)
        n += t->event[i].type == type && strcmp(t->event[i].name, name) == 0;
    return n;
}

TEST(test_one_file_of_all_ranks)
{
    name_file("step.perfetto");
    run(4, whole_life, -1);
    TraceRead t = trace_read(file);
    trace_check(&t, true);
    for (int r = 0; r < 4; r++) {
        char name[16];
        snprintf(name, sizeof name, "rank %d", r);
        assert_int_equal(count_of(&t, 0, name), 1);
    }
    assert_int_equal(count_of(&t, 1, "transfer"), 4);
    // The last rank waits for nobody.
    assert_int_equal(count_of(&t, 1, "waits for other ranks"), 3);
    const Event *gather = named(&t, 1, "ncclAllGather", 1); // the first is the host's call
    while (gather->bytes != 4000000) gather++;
    assert_non_null(strstr(gather->text, "ring, ll"));
    assert_true(gather->ideal == 450);
    // 1 MB in 25 us of the first rank, from when the last one came.
    assert_true(gather->achieved > 39 && gather->achieved < 41);
    assert_int_equal(count_of(&t, 1, "wait for event"), 4);
    assert_true(named(&t, 1, "wait for event", 0)->ns == 20000);
    assert_int_equal(count_of(&t, 3, "event record"), 4);
    trace_free(&t);
    remove_file();
}

TEST(test_memory_by_category)
{
    name_file("step.perfetto");
    run(2, whole_life, -1);
    TraceRead t = trace_read(file);
    trace_check(&t, true);
    // From its allocation on it was what its free says.
    const Event *track = named(&t, 0, "memory: unsharded parameters", 0);
    uint64_t values[4][2], n = 0;
    for (size_t i = 0; i < t.n; i++)
        if (t.event[i].type == 4 && t.event[i].track == track->track) {
            assert_true(n < 4);
            values[n][0] = t.event[i].ns;
            values[n++][1] = t.event[i].value;
        }
    assert_int_equal(n, 2);
    assert_true(values[0][0] == 1000 && values[0][1] == 100);
    assert_true(values[1][0] == 61000 && values[1][1] == 0);
    track = named(&t, 0, "memory: reserved", 0);
    uint64_t last = 0;
    for (size_t i = 0; i < t.n; i++)
        if (t.event[i].type == 4 && t.event[i].track == track->track) last = t.event[i].value;
    assert_int_equal(last, 1100); // nobody has synchronised
    trace_free(&t);
    remove_file();
}

// ---- NVTX's ranges ----

// A call in no range, two in "inner" within "step", one in "step" alone, one in another range; that
// one is never left.
static void ranged_calls(int rank, int ranks)
{
    static SimScope step = {"step", NULL, 1}, inner = {"inner", &step, 2},
                    other = {"other", NULL, 1};
    const SimScope *scopes[] = {NULL, &inner, &inner, &step, NULL, &other};
    begin();
    next_index = 0;
    for (SimPs i = 0; i < 6; i++) {
        GpuLogEntry e = operation(GPU_KERNEL, "kernel_a", 1);
        e.scope = scopes[i];
        record_entry(times(rank, 10 + i, 20 + 2 * i, 21 + 2 * i), e);
    }
    sim_trace_span(NULL, NULL);
}

TEST(test_ranges_lie_around_calls)
{
    static const struct {
        const char *name;
        uint64_t begin, end, depth;
    } wanted[] = {
        {"step", 11000, 13000, 0}, {"inner", 11000, 12000, 1}, {"other", 15000, 15000, 0}};
    name_file("step.perfetto");
    run(1, ranged_calls, -1);
    TraceRead t = trace_read(file);
    trace_check(&t, true);
    for (size_t w = 0; w < sizeof wanted / sizeof *wanted; w++) {
        assert_int_equal(count_of(&t, 1, wanted[w].name), 1);
        const Event *from = named(&t, 1, wanted[w].name, 0), *to = from;
        uint64_t open = 1;
        while (open > 0) {
            to++;
            assert_true(to < t.event + t.n);
            if (to->track == from->track && to->type == 1) open++;
            if (to->track == from->track && to->type == 2) open--;
        }
        assert_true(from->ns == wanted[w].begin);
        if (to->ns / 1000 * 1000 != wanted[w].end)
            fail_msg("%s ends at %zu ns", wanted[w].name, (size_t)to->ns);
    }
    trace_free(&t);
    remove_file();
}

// ---- Messages of a group overlap on their stream ----

static void a_group(int rank, int ranks)
{
    SimCollectiveCost cost = {
        .latency = US, .algorithm = "p2p", .protocol = "simple", .ideal = 1e9};
    begin();
    meet(ranks);
    next_index = 0;
    for (int i = 0; i < 2; i++) {
        GpuLogEntry e = operation(i == rank ? GPU_SEND : GPU_RECV, "message", 1);
        e.collective = (GpuCollective){
            .comm = 3, .call = 1, .ranks = 2, .rank = rank, .peer = 1 - rank, .group = 5};
        e.bytes = e.sent = 100;
        SimSpan span = times(rank, 1 + (SimPs)i, 20, 30 + (SimPs)i);
        span.ready = 10 * US;
        span.cost = &cost;
        record_entry(span, e);
    }
    sim_trace_span(NULL, NULL);
}

TEST(test_what_overlaps_has_a_track_more)
{
    name_file("group.perfetto");
    run(2, a_group, -1);
    TraceRead t = trace_read(file);
    trace_check(&t, true);
    assert_int_equal(count_of(&t, 0, "stream 1"), 2);
    assert_int_equal(count_of(&t, 0, "stream 1 (2)"), 2);
    trace_free(&t);
    remove_file();
}

// ---- A rank that dies ----

static void dies(int rank, int ranks)
{
    begin();
    if (rank == 1)
        for (int i = 0; i < 2000; i++) a_step(rank, ranks); // more than is buffered
    meet(ranks);
    if (rank == 1) raise(SIGKILL);
    usleep(100000);
    a_step(rank, ranks);
    sim_trace_span(NULL, NULL);
}

TEST(test_a_rank_that_dies)
{
    name_file("dead.perfetto");
    run(3, dies, 1);
    TraceRead t = trace_read(file);
    assert_int_equal(count_of(&t, 0, "rank 0"), 1);
    assert_int_equal(count_of(&t, 0, "rank 2"), 1);
    assert_true(count_of(&t, 1, "kernel_a") > 1000);
    trace_free(&t);
    remove_file();
}

// The last one alive is killed: the file is there without it, and the next run begins again.
static void dies_last(int rank, int ranks)
{
    begin();
    meet(ranks);
    if (rank == 1) usleep(300000);
    if (rank == 1) raise(SIGKILL);
    a_step(rank, ranks);
    sim_trace_span(NULL, NULL);
}

TEST(test_the_last_one_dies)
{
    name_file("dead.perfetto");
    run(2, dies_last, 1);
    TraceRead t = trace_read(file);
    assert_int_equal(count_of(&t, 0, "rank 0"), 1);
    trace_free(&t);
    run(2, whole_life, -1);
    t = trace_read(file);
    trace_check(&t, true);
    assert_int_equal(count_of(&t, 0, "rank 0"), 1);
    trace_free(&t);
    remove_file();
}

// ---- A program ----

#define MEMORIES 64

// What a rank's log says.
typedef struct Logged {
    int n, kernels, collectives;
    uint64_t allocated[MEMORIES]; // after each allocation and free
} Logged;

__attribute__((noinline)) static cudaError_t kernel_fill(void *p, size_t bytes, cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_fill", stream);
    void *data = simgpu_write(&op, p, bytes);
    if (simgpu_ready(&op)) memset(data, 0, bytes);
    return simgpu_end(&op);
}

static void a_program(const Rank *r, void *arg)
{
    Logged *logged = (Logged *)arg + r->rank;
    cudaStream_t gathers;
    cudaEvent_t done;
    float *shard, *whole;
    size_t n = 1 << 16;
    need_cuda(cudaStreamCreateWithFlags(&gathers, cudaStreamNonBlocking));
    gpulog_name_stream(gathers, "the gathers");
    need_cuda(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
    need_cuda(cudaMalloc((void **)&shard, n * sizeof *shard));
    need_cuda(kernel_fill(shard, n * sizeof *shard, r->stream));
    need_cuda(cudaStreamSynchronize(r->stream));
    for (int i = 0; i < 3; i++) {
        size_t all = n * (size_t)r->world * sizeof *whole;
        need_cuda(cudaMallocAsync((void **)&whole, all, gathers));
        gpulog_category(whole + 5, GPU_UNSHARDED_PARAM);
        need_nccl(ncclAllGather(shard, whole, n, ncclFloat, r->comm, gathers));
        need_cuda(cudaEventRecord(done, gathers));
        need_cuda(cudaStreamWaitEvent(r->stream, done, 0));
        need_cuda(kernel_fill(whole, all, r->stream));
        need_cuda(cudaEventRecord(done, r->stream));
        need_cuda(cudaStreamWaitEvent(gathers, done, 0));
        need_cuda(cudaFreeAsync(whole, gathers));
        need_cuda(cudaDeviceSynchronize()); // else the next allocation is at the same instant
    }
    need_cuda(cudaFree(shard));
    need_cuda(cudaEventDestroy(done));
    need_cuda(cudaStreamDestroy(gathers));
    GpuLogEntry e;
    for (uint64_t i = 0, now = 0; gpulog_get(i, &e); i++) {
        logged->kernels += strcmp(e.name, "kernel_fill") == 0;
        logged->collectives += e.op == GPU_ALL_GATHER;
        if (e.op != GPU_ALLOC && e.op != GPU_FREE) continue;
        now += e.op == GPU_ALLOC ? e.bytes : 0 - e.bytes;
        check(logged->n < MEMORIES, "too many allocations");
        logged->allocated[logged->n++] = now;
    }
}

static void equals_the_log(const TraceRead *t, int rank, const Logged *logged)
{
    char name[16];
    snprintf(name, sizeof name, "rank %d", rank);
    const Event *process = named(t, 0, name, 0);
    int n = 0, kernels = 0, gathers = 0, unsharded = 0;
    for (size_t i = 0; i < t->n; i++) {
        const Event *e = &t->event[i], *track = e->type ? trace_track(t, e->track) : NULL;
        if (!track || track->parent != process->track) continue;
        bool host = strcmp(track->name, "host") == 0;
        kernels += e->type == 1 && !host && strcmp(e->name, "kernel_fill") == 0;
        gathers += e->type == 1 && strcmp(track->name, "the gathers") == 0 &&
                   strcmp(e->name, "ncclAllGather") == 0;
        unsharded += e->type == 4 && strcmp(track->name, "memory: unsharded parameters") == 0;
        if (e->type != 4 || strcmp(track->name, "memory: allocated") != 0) continue;
        if (n < logged->n && e->value != logged->allocated[n])
            fail_msg("rank %d: value %d of what is allocated is %llu, %llu by the log", rank, n,
                     (unsigned long long)e->value, (unsigned long long)logged->allocated[n]);
        n++;
    }
    assert_true(n >= logged->n);
    assert_int_equal(kernels, logged->kernels);
    assert_int_equal(gathers, 3);
    assert_int_equal(unsharded, 6);
}

TEST(test_of_a_program)
{
    Logged *logged = shared_alloc(3 * sizeof *logged);
    name_file("program.perfetto");
    run_ranks(3, a_program, logged);
    unsetenv("SIMGPU_TRACE");
    TraceRead t = trace_read(file);
    trace_check(&t, true);
    for (int r = 0; r < 3; r++) equals_the_log(&t, r, &logged[r]);
    trace_free(&t);
    remove_file();
}

// ---- JSON ----

TEST(test_json)
{
    char command[512];
    name_file("step.json");
    run(2, whole_life, -1);
    snprintf(command, sizeof command,
             "${PYTHON:-python3} -c 'import json, sys\n"
             "depth, flows = {}, {}\n"
             "for e in json.load(open(sys.argv[1]))[\"traceEvents\"]:\n"
             "    key, ph = (e[\"pid\"], e[\"tid\"]), e[\"ph\"]\n"
             "    depth[key] = depth.get(key, 0) + {\"B\": 1, \"E\": -1}.get(ph, 0)\n"
             "    assert depth[key] >= 0\n"
             "    if ph in \"stf\": flows.setdefault(e[\"id\"], []).append(ph)\n"
             "assert not any(depth.values()) and len(flows) == 3, flows\n"
             "assert all(f == [\"s\", \"f\"] for f in flows.values()), flows' %s",
             file);
    assert_int_equal(system(command), 0);
    remove_file();
}

// ---- Bad input ----

static void refused(const char *path, const char *words)
{
    int status;
    setenv("SIMGPU_TRACE", path, 1);
    const char *text = stderr_of(begin, &status);
    if (!strstr(text, words)) fail_msg("no \"%s\" in: %s", words, text);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) != 0);
    if (strchr(text, '\n') != strrchr(text, '\n')) fail_msg("more than a line: %s", text);
}

TEST(test_refuses_what_cannot_be_written)
{
    refused("/no/such/folder/x.perfetto", "SIMGPU_TRACE is \"/no/such/folder/x.perfetto\"");
    refused("/tmp", "Is a directory");
    char path[5000];
    memset(path, 'x', sizeof path - 1);
    path[0] = '/';
    path[sizeof path - 1] = 0;
    refused(path, "too long");
}

int main(int argc, char **argv)
{
    meeting = shared_alloc(sizeof *meeting);
    return suite_main(argc, argv, "clock/trace");
}
