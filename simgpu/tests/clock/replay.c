/* replay.c: the times of worlds whose logs are written by hand, against calculations by hand, on
 * machines/round.machine (launch 1 us, a call of NCCL 2 us, kernels 2 us + 1 TB/s, links 100 GB/s
 * after 10 us, slowed by 5/4; compute slowed by 3/2).
 */
#include "time/replay.h"
#include "round_machine.h"

#define US UINT64_C(1000000) // picoseconds
#define MOST 16

typedef struct World {
    int logs;
    GpuLogEntry entry[4][MOST];
    size_t n[4];
    SimPs ready[4][MOST], start[4][MOST], end[4][MOST];
    size_t told[4];
} World;

static GpuLogEntry *add(World *w, int log, GpuLogEntry entry)
{
    if (log >= w->logs) w->logs = log + 1;
    assert_true(w->n[log] < MOST);
    entry.index = w->n[log];
    entry.type = GPU_F32;
    w->entry[log][w->n[log]] = entry;
    return &w->entry[log][w->n[log]++];
}

static void kernel(World *w, int log, uint32_t stream, size_t bytes)
{
    GpuLogEntry *e = add(w, log, (GpuLogEntry){.op = GPU_KERNEL, .name = "kernel"});
    e->stream = (cudaStream_t)(uintptr_t)(16 * stream);
    e->stream_number = stream;
    e->n_ranges = 1;
    e->range[0] = (GpuRange){(void *)4096, bytes, GPU_WRITE};
}

// The whole buffer has `bytes` bytes.
static void all_gather(World *w, int log, uint32_t stream, size_t bytes, uint64_t call, int rank,
                       int ranks)
{
    GpuLogEntry *e = add(w, log, (GpuLogEntry){.op = GPU_ALL_GATHER, .name = "ncclAllGather"});
    e->stream = (cudaStream_t)(uintptr_t)(16 * stream);
    e->stream_number = stream;
    e->bytes = bytes;
    e->collective = (GpuCollective){
        .comm = 7, .call = call, .ranks = ranks, .rank = rank, .peer = -1, .nodes = 1};
}

static void note(int log, const SimSpan *span, void *arg)
{
    World *w = arg;
    uint64_t i = span->entry->index;
    assert_true(i == w->told[log]); // in its order
    w->told[log]++;
    w->ready[log][i] = span->ready;
    w->start[log][i] = span->start;
    w->end[log][i] = span->end;
}

static const char *replay_by(World *w,
                             const char *(*how)(const SimMachine *, const SimSpread *,
                                                const SimLog *, int, SimReplayHook, void *))
{
    SimLog logs[4];
    for (int i = 0; i < w->logs; i++) logs[i] = (SimLog){.entry = w->entry[i], .n = w->n[i]};
    return how(round_machine(), NULL, logs, w->logs, note, w);
}

static const char *replay(World *w)
{
    return replay_by(w, sim_replay_logs);
}

static void want(const World *w, int log, int i, SimPs ready, SimPs start, SimPs end)
{
    if (w->ready[log][i] != ready || w->start[log][i] != start || w->end[log][i] != end)
        fail_msg("log %d, entry %d: got %llu, %llu, %llu ps, want %llu, %llu, %llu", log, i,
                 (unsigned long long)w->ready[log][i], (unsigned long long)w->start[log][i],
                 (unsigned long long)w->end[log][i], (unsigned long long)ready,
                 (unsigned long long)start, (unsigned long long)end);
}

// The late rank decides when both transfer.
TEST(test_a_late_rank)
{
    World w = {0};
    kernel(&w, 0, 1, 1000000);              // 3 us
    all_gather(&w, 0, 1, 1000000, 1, 0, 2); // 5 us
    kernel(&w, 1, 1, 10000000);             // 12 us
    all_gather(&w, 1, 1, 1000000, 1, 1, 2);
    assert_null(replay(&w));
    want(&w, 0, 0, 1 * US, 1 * US, 4 * US);
    want(&w, 0, 1, 4 * US, 23 * US, 28 * US);
    want(&w, 1, 0, 1 * US, 1 * US, 13 * US);
    want(&w, 1, 1, 13 * US, 23 * US, 28 * US);
}

// A kernel during the transfer: each slows the other, on its rank alone. Rank 0: the call at 2 us,
// the transfer from 12 us on; the kernel is queued at 3 us, alone until 12 us, then at 2/3.
TEST(test_overlap)
{
    World w = {0};
    all_gather(&w, 0, 1, 1000000, 1, 0, 2);
    kernel(&w, 0, 2, 10000000); // 12 us: 9 before the transfer, 3 · 3/2 = 4.5 beside it
    all_gather(&w, 1, 1, 1000000, 1, 1, 2);
    assert_null(replay(&w));
    want(&w, 0, 1, 3 * US, 3 * US, 16500000);
    // 4.5 us beside the kernel do 3.6 of its 5 us.
    want(&w, 0, 0, 2 * US, 12 * US, 17900000);
    want(&w, 1, 0, 2 * US, 12 * US, 17 * US);
}

// Three ranks, of which two are one process's: one log.
TEST(test_two_devices_of_a_process)
{
    World w = {0};
    all_gather(&w, 0, 1, 3000000, 1, 0, 3);
    all_gather(&w, 0, 2, 3000000, 1, 1, 3);
    for (int i = 0; i < 2; i++) {
        w.entry[0][i].device = i;
        w.entry[0][i].collective.group = 1;
        w.entry[0][i].collective.group_left = 1 - i;
    }
    all_gather(&w, 1, 1, 3000000, 1, 2, 3);
    assert_null(replay(&w));
    // The second call is made at 4 us; the transfer: 3 MB · 2/3 at 100 GB/s.
    want(&w, 0, 0, 2 * US, 14 * US, 34 * US);
    want(&w, 0, 1, 4 * US, 14 * US, 34 * US);
    want(&w, 1, 0, 2 * US, 14 * US, 34 * US);
}

TEST(test_logs_that_do_not_fit)
{
    World w = {0};
    all_gather(&w, 0, 1, 1000, 1, 0, 2);
    assert_non_null(strstr(replay(&w), "not in the logs of all its ranks"));
    all_gather(&w, 1, 1, 1000, 1, 0, 2);
    assert_non_null(strstr(replay(&w), "the same rank"));
    w.entry[1][0].collective.rank = 2;
    assert_non_null(strstr(replay(&w), "outside its ranks"));
    w.entry[1][0].collective.rank = 1;
    w.entry[1][0].device = 1 << 30;
    assert_non_null(strstr(replay(&w), "no such device"));
    w.entry[1][0].device = 0;
    w.entry[1][0].thread = -1;
    assert_non_null(strstr(replay(&w), "threads"));
    w.entry[1][0].thread = 0;
    assert_null(replay(&w));
}

// A rank of two alone: the other one arrives with it.
TEST(test_phantoms_arrive_with_the_last)
{
    World w = {0};
    kernel(&w, 0, 1, 1000000);
    all_gather(&w, 0, 1, 1000000, 1, 0, 2);
    assert_null(replay_by(&w, sim_replay_some));
    want(&w, 0, 1, 4 * US, 14 * US, 19 * US);
}

// Of nine ranks two have logs: the later of them decides. (1 MB · 8/9 at 100 GB/s)
TEST(test_the_last_of_those_with_logs)
{
    World w = {0};
    all_gather(&w, 0, 1, 900000, 1, 8, 9);
    kernel(&w, 1, 1, 10000000);
    all_gather(&w, 1, 1, 900000, 1, 3, 9);
    assert_null(replay_by(&w, sim_replay_some));
    want(&w, 0, 0, 2 * US, 23 * US, 31 * US);
    want(&w, 1, 1, 13 * US, 23 * US, 31 * US);
}

// Entries that are made when they are read: of rank 0 kernels, of both a call at the end.
enum { KERNELS = 5000 };

static void read_entry(const void *from, size_t i, GpuLogEntry *entry)
{
    const GpuLogEntry *two = from;
    *entry = two[i == (two[0].op == GPU_KERNEL ? KERNELS : 0)];
    entry->index = i;
}

static void note_last(int log, const SimSpan *span, void *arg)
{
    World *w = arg;
    assert_true(span->entry->index == w->told[log]++);
    w->ready[log][0] = span->ready;
    w->start[log][0] = span->start;
    w->end[log][0] = span->end;
}

// The host is done long before the GPU, whose kernels take 3 us each from 1 us on.
TEST(test_a_long_log_that_is_read)
{
    World w = {0};
    kernel(&w, 0, 1, 1000000);
    all_gather(&w, 0, 1, 1000000, 1, 0, 2);
    all_gather(&w, 1, 1, 1000000, 1, 1, 2);
    w.entry[1][1] = w.entry[1][0];
    const SimLog logs[] = {{.n = KERNELS + 1, .read = read_entry, .from = w.entry[0]},
                           {.n = 1, .read = read_entry, .from = w.entry[1]}};
    assert_null(sim_replay_logs(round_machine(), NULL, logs, 2, note_last, &w));
    want(&w, 0, 0, (3 * KERNELS + 1) * US, (3 * KERNELS + 11) * US, (3 * KERNELS + 16) * US);
    want(&w, 1, 0, 2 * US, (3 * KERNELS + 11) * US, (3 * KERNELS + 16) * US);
    assert_int_equal(w.told[0], KERNELS + 1);
}

// A message to a rank without a log.
TEST(test_a_message_to_a_phantom)
{
    World w = {0};
    all_gather(&w, 0, 1, 1000000, 1, 0, 9);
    w.entry[0][0].op = GPU_SEND;
    w.entry[0][0].collective.peer = 5;
    assert_null(replay_by(&w, sim_replay_some));
    want(&w, 0, 0, 2 * US, 12 * US, 22 * US);
}

// On an A100 (312 TFLOP/s in bf16, 19.5 in float): a kernel in bf16 reaches 61.5 % of the peak, one
// in float and a call of cuBLAS all of theirs.
TEST(test_kernels_on_tensor_cores)
{
    const struct {
        GpuOp op;
        GpuType type;
        uint64_t flops; // a millisecond's
    } calls[] = {{GPU_KERNEL, GPU_BF16, 191879999999},
                 {GPU_KERNEL, GPU_F32, 19500000000},
                 {GPU_BLAS, GPU_BF16, 312000000000}};
    char error[300];
    World w = {0};
    for (int i = 0; i < 3; i++) {
        kernel(&w, 0, 1, 8);
        w.entry[0][i].op = calls[i].op;
        w.entry[0][i].type = calls[i].type;
        w.entry[0][i].flops = calls[i].flops;
    }
    const SimMachine *m = sim_machine("a100x8", error, sizeof error);
    if (!m) fail_msg("%s", error);
    const SimLog log = {.entry = w.entry[0], .n = w.n[0]};
    assert_null(sim_replay_logs(m, NULL, &log, 1, note, &w));
    for (int i = 0; i < 3; i++) {
        SimPs taken = w.end[0][i] - w.start[0][i];
        if (taken != 1002 * US)
            fail_msg("call %d takes %llu ps, not 1002 us", i, (unsigned long long)taken);
    }
}

TEST(test_no_logs)
{
    World w = {0};
    assert_null(replay(&w));
}

SUITE_MAIN("replay")
