/* times.c: what programs read from the virtual clock, against calculations by hand on the machine
 * of round_machine.h.
 */
#include "round_machine.h"
#include "time/time.h"

// ---- What a program measures ----

static cudaEvent_t event_here(cudaStream_t stream)
{
    cudaEvent_t e;
    need_cuda(cudaEventCreate(&e));
    need_cuda(cudaEventRecord(e, stream));
    return e;
}

// Nanoseconds from one event to another.
#define took(from, to, ns)                                                                         \
    do {                                                                                           \
        float ms_;                                                                                 \
        need_cuda(cudaEventElapsedTime(&ms_, from, to));                                           \
        check(ms_ == (float)((ns) / 1e6), "%s to %s: %.9g ms in place of %.9g", #from, #to,        \
              (double)ms_, (ns) / 1e6);                                                            \
    } while (0)

RANK_TEST(test_one_kernel, 1)
{
    unsigned char *p;
    need_cuda(cudaMalloc((void **)&p, 4 * MB));
    cudaEvent_t begin = event_here(r->stream);
    kernel_fill(p, MB, r->stream); // launched 1 us after the record, and 3 us long
    cudaEvent_t middle = event_here(r->stream);
    kernel_fill(p, 4 * MB, r->stream); // queued while the first runs: 6 us
    cudaEvent_t end = event_here(r->stream);
    need_cuda(cudaStreamSynchronize(r->stream));
    took(begin, middle, 4000.0);
    took(middle, end, 6000.0);
    took(begin, end, 10000.0);
    took(end, begin, -10000.0);
    // The host went on 1 us after the end: the next record is queued 500 ns later.
    cudaEvent_t after = event_here(r->stream);
    need_cuda(cudaEventSynchronize(after));
    took(end, after, 1500.0);
    float ms;
    kernel_fill(p, MB, r->stream);
    cudaEvent_t late = event_here(r->stream);
    check(cudaEventElapsedTime(&ms, end, late) == cudaErrorNotReady, "it is not done yet");
    int asked = 1;
    while (cudaEventElapsedTime(&ms, end, late) == cudaErrorNotReady) asked++;
    // 2.5 us are left when the record has been queued; a query costs 200 ns.
    check(asked == 13, "asked %d times", asked);
    cudaGetLastError();
}

static void queries(const Rank *r, void *arg)
{
    unsigned char *p;
    need_cuda(cudaMalloc((void **)&p, MB));
    cudaEvent_t never, begin = event_here(r->stream);
    need_cuda(cudaEventCreate(&never));
    kernel_fill(p, MB, r->stream);           // until 4 us after `begin`, queued at 1 us
    cudaEvent_t end = event_here(r->stream); // queued at 1.5 us
    int asked = 1;
    while (cudaEventQuery(end) == cudaErrorNotReady) asked++;
    check(asked == 13, "asked %d times", asked); // at 1.7, 1.9 … 4.1 us
    need_cuda(cudaStreamQuery(r->stream));
    need_cuda(cudaEventQuery(never));
    took(begin, end, 4000.0);
    kernel_fill(p, MB, r->stream);
    for (asked = 1; cudaStreamQuery(r->stream) == cudaErrorNotReady;) asked++;
    check(asked == 15, "asked %d times for the stream", asked); // 3 us after the launch
    cudaGetLastError();
}
TEST(test_queries)
{
    run_ranks(1, queries, NULL);
    setenv("SIMGPU_CHECK", "off", 1);
    run_ranks(1, queries, NULL);
    setenv("SIMGPU_CHECK", "fast", 1);
}

// ---- Collectives ----

// Two ranks: 10 us of latency, 10 us of work. Rank 0 alone asks for times; the other goes on, and
// waits for it in its next collective.
RANK_TEST(test_only_one_asks, 2)
{
    unsigned char *p;
    float *x;
    need_cuda(cudaMalloc((void **)&p, 4 * MB));
    need_cuda(cudaMalloc((void **)&x, MB));
    need_cuda(cudaMemset(x, 0, MB));
    need_cuda(cudaDeviceSynchronize());
    for (int step = 0; step < 5; step++) {
        cudaEvent_t begin = event_here(r->stream);
        for (int layer = 0; layer < 10; layer++) {
            kernel_fill(p, 4 * MB, r->stream);
            need_nccl(ncclAllReduce(x, x, MB / sizeof *x, ncclFloat, ncclSum, r->comm, r->stream));
        }
        cudaEvent_t end = event_here(r->stream);
        if (r->rank == 0) need_cuda(cudaEventSynchronize(end));
        if (r->rank == 0 && step == 0) took(begin, end, 1000.0 + 260000.0);
        cudaEventDestroy(begin);
        cudaEventDestroy(end);
    }
    need_cuda(cudaDeviceSynchronize());
}

// ---- What is forgotten ----

// What is over is forgotten where a question about it has been answered, and not before.
RANK_TEST(test_questions_are_answered, 1)
{
    cudaEvent_t begin = event_here(r->stream), event;
    need_cuda(cudaEventCreate(&event));
    for (int i = 0; i < 12000; i++) need_cuda(cudaEventRecord(event, r->stream));
    need_cuda(cudaEventQuery(event));
    took(begin, event, 12000 * 500.0);
}

enum { KERNELS = 8, RECORDS = 12000 };
typedef struct Told {
    int kernels, records;
    bool over;
} Told;

static void count_span(const SimSpan *span, void *arg)
{
    Told *told = arg;
    if (!span) told->over = true;
    if (span) told->kernels += span->entry->op == GPU_KERNEL;
    if (span) told->records += span->entry->op == GPU_EVENT_RECORD;
}

// Kernels of about a millisecond each, and meanwhile so many calls that what is over is forgotten,
// but not of what still runs.
static void long_kernels(const Rank *r, void *arg)
{
    unsigned char *p;
    cudaEvent_t event;
    cudaStream_t other;
    sim_clock_on_span(count_span, arg);
    need_cuda(cudaMalloc((void **)&p, 1000 * MB));
    need_cuda(cudaEventCreate(&event));
    need_cuda(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    for (int i = 0; i < KERNELS; i++) kernel_fill(p, 1000 * MB, r->stream);
    for (int i = 0; i < RECORDS; i++) need_cuda(cudaEventRecord(event, other));
    need_cuda(cudaDeviceSynchronize());
}
TEST(test_all_spans_are_told)
{
    Told *told = shared_alloc(sizeof *told);
    run_ranks(1, long_kernels, told);
    assert_true(told->over);
    assert_int_equal(told->kernels, KERNELS);
    assert_int_equal(told->records, RECORDS);
}

int main(int argc, char **argv)
{
    use_round_machine();
    return suite_main(argc, argv, "clock/times");
}
