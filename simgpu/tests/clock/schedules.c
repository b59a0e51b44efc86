/* schedules.c: what right and worse schedules of a step cost on the clock, against the calculation
 * by hand of handouts/4_backward.md ("What this is worth"): four blocks, a forward of 1 ms, a
 * backward of 2 ms, an all-gather and a reduce-scatter of 0.8 ms each; one communicator, and a
 * stream for each kind of work.
 *
 * The program below is FSDP's order of calls and nothing else. The test calculates the times of the
 * blocks on its own, collective after collective, and compares the table of the handout too.
 */
#include <stdlib.h>
#include <unistd.h>

#include "harness.h"
#include "simgpu.h"

#define MACHINE "simgpu/tests/clock/machines/blocks.machine"
#define MB ((size_t)1000000)
#define GATHERED (8 * MB / 10)
enum { BLOCKS = 4 };

typedef struct Schedule {
    const char *name;
    bool ahead;         // the next block's all-gather is queued before this one computes
    bool keeps_last;    // its backward is the first
    int gathers;        // of each block, for each of its passes
    bool reduces_first; // … is queued after this block's reduce-scatter
    double hand;        // ms, by the handout
} Schedule;

static const Schedule schedules[] = {
    {"right", true, true, 1, false, 13.6},
    {"without prefetch", false, true, 1, false, 20.8},
    {"frees early", true, false, 1, false, 14.4},
    {"gathers twice", true, true, 2, false, 17.0},
    {"reduces before it gathers ahead", true, true, 1, true, 18.4},
};
#define SCHEDULES (sizeof schedules / sizeof schedules[0])

// ---- The program ----

typedef struct Step {
    const Schedule *schedule;
    const Rank *rank;
    cudaStream_t gather, reduce;
    float *gathered[BLOCKS], *grad;
    unsigned char *work;
    cudaEvent_t is_gathered[BLOCKS], is_computed, is_reduced;
} Step;

static void order(cudaEvent_t event, cudaStream_t before, cudaStream_t after)
{
    need_cuda(cudaEventRecord(event, before));
    need_cuda(cudaStreamWaitEvent(after, event, 0));
}

static void gather(const Step *s, int block)
{
    float *own = s->gathered[block] + (size_t)s->rank->rank * GATHERED / 2 / sizeof *own;
    for (int i = 0; i < s->schedule->gathers; i++)
        need_nccl(ncclAllGather(own, s->gathered[block], GATHERED / 2 / sizeof *own, ncclFloat,
                                s->rank->comm, s->gather));
    need_cuda(cudaEventRecord(s->is_gathered[block], s->gather));
}

static void compute(const Step *s, int block, int milliseconds)
{
    need_cuda(cudaStreamWaitEvent(s->rank->stream, s->is_gathered[block], 0));
    SimgpuOp op = SIMGPU_BEGIN("kernel_compute", s->rank->stream);
    simgpu_write(&op, s->work, (size_t)milliseconds * MB);
    need_cuda(simgpu_end(&op));
}

// A block's all-gather before it is needed, where that was not queued ahead.
static void gather_late(const Step *s, int block)
{
    order(s->is_computed, s->rank->stream, s->gather);
    gather(s, block);
}

static void reduce(const Step *s)
{
    order(s->is_computed, s->rank->stream, s->reduce);
    size_t count = GATHERED / 2 / sizeof *s->grad;
    need_nccl(ncclReduceScatter(s->grad, s->grad + (size_t)s->rank->rank * count, count, ncclFloat,
                                ncclSum, s->rank->comm, s->reduce));
}

static void forward(const Step *s)
{
    for (int i = 0; i < BLOCKS; i++) {
        if (i == 0 || !s->schedule->ahead) gather_late(s, i);
        if (i + 1 < BLOCKS && s->schedule->ahead) gather(s, i + 1);
        compute(s, i, 1);
    }
}

static void backward(const Step *s)
{
    for (int i = BLOCKS - 1; i >= 0; i--) {
        bool last = i == BLOCKS - 1, ahead = s->schedule->ahead && !s->schedule->reduces_first;
        if (last ? !s->schedule->keeps_last : !s->schedule->ahead) gather_late(s, i);
        if (i > 0 && ahead) gather(s, i - 1);
        compute(s, i, 2);
        reduce(s);
        if (i > 0 && s->schedule->reduces_first) gather(s, i - 1);
    }
}

static cudaStream_t make_stream(void)
{
    cudaStream_t stream;
    need_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

static void body(const Rank *r, void *arg)
{
    Step s = {.schedule = ((void **)arg)[0], .rank = r};
    float *ms = ((void **)arg)[1];
    cudaEvent_t begin, end;
    s.gather = make_stream();
    s.reduce = make_stream();
    for (int i = 0; i < BLOCKS; i++) {
        need_cuda(cudaEventCreate(&s.is_gathered[i]));
        need_cuda(cudaMalloc((void **)&s.gathered[i], GATHERED));
        need_cuda(cudaMemsetAsync(s.gathered[i], 0, GATHERED, r->stream));
    }
    need_cuda(cudaEventCreate(&s.is_computed));
    need_cuda(cudaEventCreate(&s.is_reduced));
    need_cuda(cudaEventCreate(&begin));
    need_cuda(cudaEventCreate(&end));
    need_cuda(cudaMalloc((void **)&s.grad, GATHERED));
    need_cuda(cudaMemsetAsync(s.grad, 0, GATHERED, r->stream));
    need_cuda(cudaMalloc((void **)&s.work, 2 * MB));
    need_cuda(cudaDeviceSynchronize());
    need_cuda(cudaEventRecord(begin, r->stream));
    forward(&s);
    backward(&s);
    order(s.is_reduced, s.reduce, r->stream);
    need_cuda(cudaEventRecord(end, r->stream));
    need_cuda(cudaEventSynchronize(end));
    need_cuda(cudaEventElapsedTime(&ms[r->rank], begin, end));
}

// ---- By hand ----

static double later(double one, double other)
{
    return one < other ? other : one;
}

// ms. `comm`: when the communicator has done what was queued; `at`: when compute has.
static double by_hand(const Schedule *s)
{
    const double g = 0.8 * s->gathers, r = 0.8;
    double there = g, comm = g, at = 0; // there: when the next block's parameters are
    for (int i = 0; i < BLOCKS; i++) {
        double begins = later(at, there);
        at = begins + 1;
        if (i + 1 < BLOCKS) comm = there = s->ahead ? comm + g : at + g;
    }
    comm = later(comm, at) + (s->keeps_last ? 0 : g);
    there = s->keeps_last ? at : comm;
    for (int i = BLOCKS - 1; i >= 0; i--) {
        bool ahead = s->ahead && !s->reduces_first;
        double begins = later(at, there);
        if (i > 0 && ahead) there = comm = comm + g;
        at = begins + 2;
        if (i > 0 && !s->ahead) { // the compute of this block first, then both
            comm = later(comm, at) + r;
            there = comm = comm + g;
            continue;
        }
        comm = later(comm, at) + r;
        if (i > 0 && s->reduces_first) there = comm = comm + g;
    }
    return later(comm, at);
}

TEST(test_schedules_cost_what_the_hand_says)
{
    float *ms = shared_alloc(2 * sizeof *ms);
    double right = 0;
    if (access(MACHINE, R_OK) != 0) skip(); // not in the kit's folder
    setenv("SIMGPU_MACHINE", MACHINE, 1);
    for (size_t i = 0; i < SCHEDULES; i++) {
        const void *of[] = {&schedules[i], ms};
        double hand = by_hand(&schedules[i]);
        run_ranks(2, body, of);
        print_message("%s: %.3f ms, by hand %.1f\n", schedules[i].name, (double)ms[0], hand);
        if (hand < schedules[i].hand - 1e-9 || hand > schedules[i].hand + 1e-9)
            fail_msg("%s: %.1f ms by hand, %.1f in the handout", schedules[i].name, hand,
                     schedules[i].hand);
        if ((double)ms[0] < 0.95 * hand || (double)ms[0] > 1.05 * hand)
            fail_msg("%s takes %.3f ms, by hand %.1f", schedules[i].name, (double)ms[0], hand);
        if (i == 0) right = (double)ms[0];
        if (i > 0) assert_true((double)ms[0] > 1.05 * right);
    }
    unsetenv("SIMGPU_MACHINE");
}

SUITE_MAIN("clock/schedules")
