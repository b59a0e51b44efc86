/* exposed.c: the exposed time of a forward and of a backward, against a calculation by hand. See
 * exposed.h.
 *
 * What no schedule can hide, on a machine where a unit's collectives take less than its compute:
 *
 *   forward    the all-gathers of the root and of the first block, before anything can run
 *   backward   the all-gather of the root; after the last kernel, the reduce-scatters of the first
 *              block and of the root
 *
 * A share of all gathers, or of all reductions, is a share of their elements: so a solution that
 * makes them of other calls, which take longer, is held to its own. That share and 5 % more may be
 * exposed.
 */
#include "exposed.h"

#include <stdlib.h>
#include <string.h>

#include "gpulog_machine.h"
#include "machine_file.h"
#include "schedule.h"
#include "training.h"

enum { WORLD = 4, BLOCKS = 6 };
#define MARGIN 1.05

// A GPU as slow as the model is small, so that nothing is spent on launches. A unit's all-gather
// takes nearly half of its forward, so that one made of other calls (sends take twice as long) can
// be hidden too. Nothing slows anything: the calculation above is exact.
static const char MACHINE[] = SLOW_MACHINE "hbm 200 GB/s\n"
                                           "nvlink 0.8 GB/s\n"
                                           "pcie 50 GB/s\n"
                                           "nic 0.8 GB/s\n"
                                           "kernel 20 ns\n"
                                           "copy 20 ns\n"
                                           "launch 2 ns\n"
                                           "collective 2 ns\n"
                                           "enqueue 1 ns\n"
                                           "allocate 20 ns\n"
                                           "free 20 ns\n"
                                           "pin 20 ns\n"
                                           "sync 2 ns\n"
                                           "query 2 ns\n"
                                           "wake 20 ns\n"
                                           "latency 20 ns\n";

// Of one rank.
typedef struct Run {
    int begin, loss, end; // entries of the forward, of the loss, after the backward
    int records[2];       // of events before and after all of it
    float own_ms;         // from one to the other, by the process's own clock; -1: it has none
    int64_t root, block;  // elements of the flat parameters
    TimesLog log;
} Run;

static Spec spec_of(void)
{
    return (Spec){.layers = BLOCKS + 1, .B = 16, .T = 1, .in_dim = 32, .dim = 32, .vocab = 32};
}

static int record(cudaEvent_t event, cudaStream_t stream)
{
    need_cuda(cudaEventRecord(event, stream));
    return (int)gpulog_length() - 1;
}

static void body(Sharded *s, const Rank *r, void *arg)
{
    Run *run = (Run *)arg + r->rank;
    cudaEvent_t before, after;
    Batch batch = batch_create(&s->spec, 1);
    run->root = fsdp_unit(s->model)->flat.layout.padded;
    run->block = fsdp_unit(s->model->children[0])->flat.layout.padded;
    need_cuda(cudaEventCreate(&before));
    need_cuda(cudaEventCreate(&after));
    need_cuda(cudaDeviceSynchronize());
    run->records[0] = record(before, r->stream);
    run->begin = (int)gpulog_length();
    train_batch(&s->spec, &s->run, s->model, &batch);
    run->end = (int)gpulog_length();
    run->loss = (int)gpulog_find(GPU_KERNEL, "kernel_cross_entropy", (uint64_t)run->begin);
    check(run->loss > run->begin, "no loss was computed after the forward");
    run->records[1] = record(after, r->stream);
    need_cuda(cudaDeviceSynchronize());
    need_cuda(cudaEventElapsedTime(&run->own_ms, before, after));
    if (gpulog_machine() == NULL) run->own_ms = -1.0f;
    times_copy(&run->log);
    need_cuda(cudaEventDestroy(before));
    need_cuda(cudaEventDestroy(after));
    batch_destroy(&batch);
}

static bool reduces(GpuOp op)
{
    return op == GPU_REDUCE_SCATTER || op == GPU_ALL_REDUCE || op == GPU_REDUCE;
}

// The schedule of gathers alone, or of reductions alone, beside the same compute.
static Schedule schedule_part(const TimesLog *log, const Times *times, int first, int end,
                              bool reductions)
{
    Times *masked = calloc(TIMES_MOST, sizeof *masked); // of the others nothing
    assert_non_null(masked);
    for (int i = first; i < end; i++) {
        GpuOp op = log->entry[i].op;
        if (!gpulog_is_collective(op) || reduces(op) == reductions) masked[i] = times[i];
    }
    Schedule s = schedule_of(log, masked, first, end);
    free(masked);
    return s;
}

// A rank may have written anything to its run.
static bool is_sane(const Run *run)
{
    return run->begin > 0 && run->begin < run->loss && run->loss < run->end &&
           run->end <= run->log.n && run->root > 0 && run->block > 0 && run->records[0] >= 0 &&
           run->records[0] < run->log.n && run->records[1] >= 0 && run->records[1] < run->log.n;
}

// The clock of the run was that of the same machine.
static void compare_clocks(const Run *run, const Times *times)
{
    double here = (double)(times[run->records[1]].end - times[run->records[0]].end) / 1e9;
    if (run->own_ms >= 0.0f && (float)here != run->own_ms)
        fail_msg(
            "the run took %.9g ms by its own clock, and %.9g ms on the machine that the grader "
            "chose: does the program choose another one (SIMGPU_MACHINE)?",
            (double)run->own_ms, here);
}

typedef struct Exposed {
    double us, most; // of the rank that exposes most, and what may be
    bool gathers;    // all-gathers are exposed that can be hidden; else only reductions are
} Exposed;

static Exposed judge(const Run *run, const Times *times, bool backward)
{
    int first = backward ? run->loss : run->begin, end = backward ? run->end : run->loss;
    double all = (double)(run->root + BLOCKS * run->block);
    Schedule gathers = schedule_part(&run->log, times, first, end, false);
    Schedule reductions = schedule_part(&run->log, times, first, end, true);
    double both = (double)(run->root + run->block) / all, alone = (double)run->root / all;
    double least = (backward ? alone : both) * (double)gathers.communication, most = MARGIN * least;
    if (backward) least += both * (double)reductions.communication;
    Schedule s = schedule_of(&run->log, times, first, end);
    return (Exposed){(double)s.exposed / 1e6, MARGIN * least / 1e6, (double)gathers.exposed > most};
}

// A copy that the rank cannot change, without the room that its log does not fill.
static void copy_log(TimesLog *to, const TimesLog *from)
{
    int n = from->n;
    to->n = n;
    to->full = from->full;
    if (n > 0 && n <= TIMES_MOST) memcpy(to->entry, from->entry, (size_t)n * sizeof *to->entry);
}

// False: this backend has no times, or not so many GPUs.
static bool measure(bool backward, Exposed *worst)
{
    if (!ranks_fit(WORLD)) return false;
    Run *run = shared_alloc(WORLD * sizeof *run);
    Times *times = calloc((size_t)WORLD * TIMES_MOST, sizeof *times);
    TimesLog *logs = calloc(WORLD, sizeof *logs);
    assert_true(times != NULL && logs != NULL);
    setenv("SIMGPU_MACHINE", machine_file(MACHINE), 1);
    run_shape(((Shape){spec_of(), TEST_OPTIONS}), body, run, WORLD);
    unsetenv("SIMGPU_MACHINE");
    for (int i = 0; i < WORLD; i++) copy_log(&logs[i], &run[i].log);
    const char *wrong = times_replay(machine_file(MACHINE), logs, WORLD, times);
    *worst = (Exposed){0};
    if (wrong != NULL && times_are_known()) fail_msg("the ranks' logs cannot be timed: %s", wrong);
    for (int i = 0; i < WORLD && wrong == NULL; i++) {
        if (!is_sane(&run[i])) fail_msg("rank %d's log has no step of training in it", i);
        compare_clocks(&run[i], times + (size_t)i * TIMES_MOST);
        Exposed e = judge(&run[i], times + (size_t)i * TIMES_MOST, backward);
        if (e.us - e.most > worst->us - worst->most || i == 0) *worst = e;
    }
    free(times);
    free(logs);
    return wrong == NULL;
}

void rule_forward_is_hidden(void)
{
    Exposed e;
    if (measure(false, &e) && e.us > e.most)
        fail_msg("in the forward of %d blocks %s of communication are exposed on a modelled "
                 "machine, want at most %s: the rest can be hidden behind compute. Where an "
                 "all-gather waits for the compute of the unit before it, the two cannot overlap. "
                 "What does fsdp_pre_forward queue before it?",
                 BLOCKS, time_words(e.us), time_words(e.most));
}

void rule_backward_is_hidden(void)
{
    Exposed e;
    if (!measure(true, &e) || e.us <= e.most) return;
    fail_msg(
        "in the backward of %d blocks %s of communication are exposed on a modelled "
        "machine, want at most %s: the rest can be hidden behind compute. %s",
        BLOCKS, time_words(e.us), time_words(e.most),
        e.gathers
            ? "Collectives of one communicator run in the order in which they are queued: before "
              "a unit's reduce-scatter fsdp_pre_backward must queue the next unit's all-gather, "
              "and nothing may wait for that but the next unit's own backward"
            : "Only reduce-scatters are: fsdp_reduce_grad must not let the next unit's backward "
              "wait for one");
}
