/* dry.c: a dry run of training is the executed run without its arithmetic: the same operations in
 * the same order, with the same bytes and messages, the same memory by category, the same virtual
 * time. So is that of one rank alone among phantoms.
 */
#include <stdlib.h>
#include <string.h>

#include "times.h"
#include "training.h"

#define MOST_WORLD 8
#define MACHINE "h100x8"

// What a rank did.
typedef struct Done {
    uint64_t names;                        // of all operations, in their order
    size_t peak, category[GPU_CATEGORIES]; // bytes that live after the steps
    GpuTraffic traffic[GPU_RECV + 1];
    float step_ms; // by the process's own clock
    TimesLog log;
} Done;

static uint64_t hash(uint64_t so_far, const char *name)
{
    for (; *name; name++) so_far = (so_far ^ (unsigned char)*name) * 0x100000001b3u;
    return (so_far ^ 0xff) * 0x100000001b3u;
}

static void note_log(Done *done)
{
    GpuLogEntry entry;
    for (uint64_t i = 0; i < gpulog_length(); i++) {
        check(gpulog_get(i, &entry), "the log has lost entry %llu", (unsigned long long)i);
        done->names = hash(done->names, entry.name);
        GpuCategory now = gpulog_category_of(entry.range[0].ptr);
        if (entry.op == GPU_ALLOC) done->category[now] += entry.bytes;
        if (entry.op == GPU_FREE) done->category[now] -= entry.bytes;
    }
    for (int op = GPU_ALL_GATHER; op <= GPU_RECV; op++)
        done->traffic[op] = gpulog_traffic((GpuOp)op);
    times_copy(&done->log);
}

static void train_body(const Rank *r, void *arg)
{
    Done *done = (Done *)arg + r->rank;
    Spec spec = spec_gpt2(3);
    Sharded s;
    cudaEvent_t begin, end;
    Batch batch = batch_create(&spec, 1 + (uint64_t)r->rank);
    sharded_create(&s, &spec, &TEST_OPTIONS, &TEST_ADAMW, r);
    need_cuda(cudaEventCreate(&begin));
    need_cuda(cudaEventCreate(&end));
    for (int step = 0; step < 2; step++) {
        need_cuda(cudaEventRecord(begin, r->stream));
        train_batch(&spec, &s.run, s.model, &batch);
        need(fsdp_adamw_step(&s.adamw));
        need(fsdp_zero_grad(s.model, &s.ctx));
        need_cuda(cudaEventRecord(end, r->stream));
    }
    need_cuda(cudaDeviceSynchronize());
    need_cuda(cudaEventElapsedTime(&done->step_ms, begin, end));
    done->peak = gpulog_peak_bytes(r->device);
    note_log(done);
    need_cuda(cudaEventDestroy(begin));
    need_cuda(cudaEventDestroy(end));
    sharded_destroy(&s);
    batch_destroy(&batch);
}

// But for what differs from run to run: addresses, handles, numbers of communicators.
static bool is_same(const GpuLogEntry *a, const GpuLogEntry *b)
{
    const GpuCollective *c = &a->collective, *d = &b->collective;
    bool same = a->op == b->op && a->device == b->device && a->host_waits == b->host_waits &&
                a->blocking_stream == b->blocking_stream && a->bytes == b->bytes &&
                a->sent == b->sent && a->pool == b->pool && a->thread == b->thread &&
                a->stream_number == b->stream_number && a->to == b->to && a->from == b->from &&
                a->flops == b->flops && a->type == b->type && a->category == b->category &&
                a->n_ranges == b->n_ranges && c->call == d->call && c->group == d->group &&
                c->group_left == d->group_left && c->ranks == d->ranks && c->rank == d->rank &&
                c->peer == d->peer && c->nodes == d->nodes && !c->comm == !d->comm &&
                memcmp(&a->product, &b->product, sizeof a->product) == 0;
    for (int i = 0; i < a->n_ranges && same; i++)
        same = a->range[i].bytes == b->range[i].bytes && a->range[i].access == b->range[i].access;
    return same;
}

// step: by the clocks of the processes.
static void compare(const Done *executed, const Done *dry, int world, bool step)
{
    for (int rank = 0; rank < world; rank++) {
        const Done *a = &executed[rank], *b = &dry[rank];
        assert_true(a->log.n > 100 && !a->log.full);
        assert_int_equal(a->log.n, b->log.n);
        for (int i = 0; i < a->log.n; i++)
            if (!is_same(&a->log.entry[i], &b->log.entry[i]))
                fail_msg("W %d, rank %d: entry %d (%s) is not that of the executed run", world,
                         rank, i, gpulog_op_name(a->log.entry[i].op));
        assert_true(a->names == b->names);
        assert_int_equal(a->peak, b->peak);
        assert_memory_equal(a->category, b->category, sizeof a->category);
        assert_memory_equal(a->traffic, b->traffic, sizeof a->traffic);
        assert_true(a->category[GPU_SHARDED_PARAM] > 0 && a->category[GPU_OPTIMIZER_STATE] > 0);
        assert_true(a->step_ms > 0.0f && (!step || a->step_ms == b->step_ms));
    }
}

static void compare_times(const Done *executed, const Done *dry, int world)
{
    size_t n = (size_t)world * TIMES_MOST;
    Times *times = calloc(2 * n, sizeof *times);
    TimesLog *logs = calloc((size_t)world, sizeof *logs);
    assert_true(times != NULL && logs != NULL);
    for (int which = 0; which < 2; which++) {
        for (int i = 0; i < world; i++) logs[i] = (which ? dry : executed)[i].log;
        const char *wrong = times_replay(MACHINE, logs, world, times + (size_t)which * n);
        if (wrong != NULL) fail_msg("%s", wrong);
    }
    assert_true(times[logs[0].n - 1].end > 0);
    assert_memory_equal(times, times + n, n * sizeof *times);
    free(times);
    free(logs);
}

TEST(training_is_the_same_dry)
{
#ifdef BACKEND_CUDA // whose kernels ask nobody whether to run
    skip();
#endif
    Done *executed = shared_alloc(MOST_WORLD * sizeof *executed);
    Done *dry = shared_alloc(MOST_WORLD * sizeof *dry);
    Done *alone = shared_alloc(MOST_WORLD * sizeof *alone);
    setenv("SIMGPU_MACHINE", MACHINE, 1);
    for (int world = 1; world <= MOST_WORLD; world++) {
        memset(executed, 0, MOST_WORLD * sizeof *executed);
        memset(dry, 0, MOST_WORLD * sizeof *dry);
        memset(alone, 0, MOST_WORLD * sizeof *alone);
        run_ranks(world, train_body, executed);
        setenv("SIMGPU_DRY", "1", 1);
        run_ranks(world, train_body, dry);
        unsetenv("SIMGPU_DRY");
        compare(executed, dry, world, true);
        compare_times(executed, dry, world);
        setenv("SIMGPU_DRY", "1", 1);
        setenv("SIMGPU_PHANTOMS", "1", 1);
        run_ranks(world, train_body, alone); // none of which knows of another
        unsetenv("SIMGPU_PHANTOMS");
        unsetenv("SIMGPU_DRY");
        compare(dry, alone, world, false);
        compare_times(dry, alone, world);
    }
    unsetenv("SIMGPU_MACHINE");
}

SUITE_MAIN("dry")
