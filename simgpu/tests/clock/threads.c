/* threads.c: the virtual clock of processes with several threads, some of which sleep: against
 * calculations by hand on the machine of round_machine.h.
 */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "round_machine.h"
#include "run.h"
#include "time/recorder.h"

#define HAND_ON 0.6 // seconds: a dozen looks at who sleeps
#define RING 16
#define WORK 30e-6 // seconds for which each keeps the token

// Threads hand a token around, so that one of them runs at any time; then one of them makes its
// first call. One more asks for a time that is later than the clock of the first thread, which
// sleeps in a join.
typedef struct Scene {
    int pipe[RING][2];
    cudaStream_t asked, called;
    cudaEvent_t begin, end, late;
    unsigned char *memory;
} Scene;

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static bool hand_on(const Scene *s, int from, char *token)
{
    for (double until = seconds() + WORK; seconds() < until;) continue;
    return write(s->pipe[(from + 1) % RING][1], token, 1) == 1;
}

typedef struct Place {
    const Scene *scene;
    int number;
} Place;

static void *be_in_the_ring(void *arg)
{
    const Scene *s = ((Place *)arg)->scene;
    int place = ((Place *)arg)->number;
    for (char token = 1; token;)
        check(read(s->pipe[place][0], &token, 1) == 1 && hand_on(s, place, &token), "the token");
    return NULL;
}

static void *hand_on_and_call(void *arg)
{
    Scene *s = arg;
    char token = 1;
    for (double until = seconds() + HAND_ON; seconds() < until;)
        check(hand_on(s, 0, &token) && read(s->pipe[0][0], &token, 1) == 1, "the token");
    need_cuda(cudaSetDevice(1));
    need_cuda(cudaEventRecord(s->late, s->called));
    token = 0;
    check(hand_on(s, 0, &token), "the last token");
    return NULL;
}

static void ask_until_done(cudaEvent_t event)
{
    while (cudaEventQuery(event) == cudaErrorNotReady) continue;
    cudaGetLastError();
}

static void *query_until_end(void *arg)
{
    Scene *s = arg;
    need_cuda(cudaSetDevice(0));
    kernel_fill(s->memory, MB, s->asked);
    ask_until_done(s->end);
    return NULL;
}

static pthread_t begin(void *(*body)(void *), void *arg)
{
    pthread_t thread;
    check(pthread_create(&thread, NULL, body, arg) == 0, "no thread");
    return thread;
}

RANK_TEST(test_nobody_is_released_while_one_runs, 1)
{
    Scene s = {.asked = r->stream};
    Place place[RING];
    pthread_t thread[RING + 1];
    float ms;
    need_cuda(cudaMalloc((void **)&s.memory, MB));
    kernel_fill(s.memory, MB, s.asked);
    need_cuda(cudaEventCreate(&s.end));
    need_cuda(cudaEventRecord(s.end, s.asked));
    need_cuda(cudaSetDevice(1));
    need_cuda(cudaStreamCreateWithFlags(&s.called, cudaStreamNonBlocking));
    need_cuda(cudaEventCreate(&s.begin));
    need_cuda(cudaEventCreate(&s.late));
    need_cuda(cudaEventRecord(s.begin, s.called)); // the first thread's last call before it joins
    for (int i = 0; i < RING; i++) {
        place[i] = (Place){&s, i};
        check(pipe(s.pipe[i]) == 0, "no pipe");
    }
    for (int i = 1; i < RING; i++) thread[i] = begin(be_in_the_ring, &place[i]);
    thread[0] = begin(hand_on_and_call, &s);
    thread[RING] = begin(query_until_end, &s);
    for (int i = 0; i <= RING; i++) pthread_join(thread[i], NULL);
    need_cuda(cudaDeviceSynchronize());
    need_cuda(cudaEventElapsedTime(&ms, s.begin, s.late));
    check(ms == 500e-6F, "a thread's first call: %.9g ms after the first thread's, not 500 ns",
          (double)ms);
}

// ---- A thread that only asks ----

#define STARVED_MS 1500

typedef struct Asker {
    cudaEvent_t end;
    cudaError_t answer;
} Asker;

static void *ask_once(void *arg)
{
    Asker *asker = arg;
    asker->answer = cudaEventQuery(asker->end);
    cudaGetLastError();
    return NULL;
}

// The first thread neither runs nor sleeps for a while, as on a machine that has no time for it:
// its parent waits like that for a child of vfork. Its clock is 200 ns before the kernel's end,
// which is when a query of a new thread asks: so the answer is "ready", however long that takes.
RANK_TEST(test_an_answer_takes_its_time, 1)
{
    unsigned char *p;
    cudaEvent_t more;
    Asker asker = {.answer = cudaErrorUnknown};
    need_cuda(cudaMalloc((void **)&p, MB));
    need_cuda(cudaEventCreate(&asker.end));
    need_cuda(cudaEventCreate(&more));
    need_cuda(cudaDeviceSynchronize());
    kernel_fill(p, 700000, r->stream); // 2.7 us
    need_cuda(cudaEventRecord(asker.end, r->stream));
    for (int i = 0; i < 4; i++) need_cuda(cudaEventRecord(more, r->stream));
    pthread_t thread = begin(ask_once, &asker);
    pid_t child = vfork();
    if (child == 0) {
        poll(NULL, 0, STARVED_MS);
        _exit(0);
    }
    check(child > 0 && waitpid(child, NULL, 0) == child, "no child");
    need_cuda(cudaStreamSynchronize(r->stream));
    pthread_join(thread, NULL);
    check(asker.answer == cudaSuccess, "a thread that only asks is told \"%s\"",
          cudaGetErrorName(asker.answer));
}

// ---- A first call that really waits ----

#define US UINT64_C(1000000) // picoseconds
#define RECEIVED (20 * US)

// The other rank's host has come to its receive; that is all that is known of it.
static void hear_nothing(void *arg, const SimCall *call, SimPs when)
{
}

static bool has_received(void *arg, const SimCall *call, SimPs *when)
{
    *when = call->meeting ? RECEIVED : SIM_FOREVER / 2;
    return call->meeting;
}

static void hear_until(void *arg, SimPs when, SimPs request)
{
}

// The second thread's first call is to be queued after a message, and awaits its receiver; the
// first thread sleeps. The engine must stand at the second one's clock: its call is still to come.
TEST(test_a_first_call_that_waits_holds_the_engine)
{
    static const SimBoard board = {hear_nothing, has_received, hear_until, NULL, NULL};
    const SimMachine *machine = round_machine();
    SimRecorder *r = sim_recorder_new(machine, NULL, &board, 0);
    cudaStream_t stream = (cudaStream_t)(uintptr_t)16;
    GpuLogEntry send = {.op = GPU_SEND, .name = "ncclSend", .stream = stream, .bytes = MB};
    send.collective = (GpuCollective){.comm = 7, .ranks = 2, .peer = 1, .call = 1};
    GpuLogEntry kernel = {.op = GPU_KERNEL, .name = "kernel", .stream = stream, .thread = 1};
    sim_record_entry(r, &send);
    sim_record_before_operation(r, &kernel);
    sim_record_release(r, 0, 100 * US);
    sim_engine_run(sim_recorder_engine(r), 100 * US);
    assert_true(sim_record_stands(r, 1));
    assert_true(sim_engine_now(sim_recorder_engine(r)) == RECEIVED + machine->host.collective);
    sim_recorder_free(r);
}

// ---- A first thread that sleeps while another one meets a rank ----

#define RANKS 3          // at most; each has a device for its third thread too
#define LATE_SECONDS 0.4 // four times what a sleeper is left alone

typedef struct Meeting {
    const Rank *r;
    ncclComm_t comm; // of the second thread's call
    float *x;
    unsigned char *memory;
    cudaStream_t own, other; // the latter of the third thread, whose device is one of its own
    cudaEvent_t end;
    int pipe[2]; // the third thread's answer
} Meeting;

static Meeting meeting_of(const Rank *r)
{
    Meeting m = {.r = r, .comm = r->comm};
    check(pipe(m.pipe) == 0, "no pipe");
    need_cuda(cudaMalloc((void **)&m.x, sizeof *m.x));
    need_cuda(cudaMemsetAsync(m.x, 0, sizeof *m.x, r->stream));
    need_cuda(cudaStreamCreateWithFlags(&m.own, cudaStreamNonBlocking));
    need_cuda(cudaSetDevice(r->device + RANKS));
    need_cuda(cudaMalloc((void **)&m.memory, MB));
    need_cuda(cudaStreamCreateWithFlags(&m.other, cudaStreamNonBlocking));
    need_cuda(cudaEventCreate(&m.end));
    need_cuda(cudaSetDevice(r->device));
    return m;
}

static void *meet(void *arg)
{
    const Meeting *m = arg;
    need_cuda(cudaSetDevice(m->r->device));
    need_nccl(ncclAllReduce(m->x, m->x, 1, ncclFloat, ncclSum, m->comm, m->r->stream));
    return NULL;
}

static void *ask_beside(void *arg)
{
    const Meeting *m = arg;
    need_cuda(cudaSetDevice(m->r->device + RANKS));
    kernel_fill(m->memory, MB, m->other);
    need_cuda(cudaEventRecord(m->end, m->other));
    ask_until_done(m->end);
    check(write(m->pipe[1], "!", 1) == 1, "no answer is told");
    return NULL;
}

static void end_meeting(const Meeting *m)
{
    need_cuda(cudaStreamSynchronize(m->r->stream));
    need_cuda(cudaStreamSynchronize(m->own));
    close(m->pipe[0]);
    close(m->pipe[1]);
}

static ncclComm_t comm_without(const Rank *r, int rank)
{
    ncclComm_t comm = NULL;
    int color = r->rank == rank ? NCCL_SPLIT_NOCOLOR : 0;
    need_nccl(ncclCommSplit(r->comm, color, r->rank, &comm, NULL));
    return comm;
}

// The first thread of rank 0 sleeps in a join until the second one has met rank 1, which is late in
// fact and not on the clock; the third one asks for a later time, and so does rank 2, which waits
// for rank 0. The first thread's next call begins when the hosts have met, not a picosecond later.
RANK_TEST(test_a_late_rank_moves_no_clock, RANKS)
{
    Meeting m = meeting_of(r);
    ncclComm_t without_2 = comm_without(r, 2), without_1 = comm_without(r, 1);
    cudaEvent_t before, after;
    float ms;
    need_cuda(cudaEventCreate(&before));
    need_cuda(cudaEventCreate(&after));
    need_cuda(cudaEventRecord(before, m.own));
    m.comm = r->rank == 2 ? without_1 : without_2;
    if (r->rank == 1) {
        for (double until = seconds() + LATE_SECONDS; seconds() < until;) continue; // not asleep
        meet(&m);
    } else {
        pthread_t meets = begin(meet, &m), asks = begin(ask_beside, &m);
        pthread_join(meets, NULL);
        need_cuda(cudaEventRecord(after, m.own));
        m.comm = without_1;
        if (r->rank == 0) meet(&m);
        pthread_join(asks, NULL);
        need_cuda(cudaEventSynchronize(after));
        need_cuda(cudaEventElapsedTime(&ms, before, after));
        check(r->rank == 2 || ms == 2500e-6F,
              "the call after a join: %.9g ms after the one before it, not 2.5 us", (double)ms);
    }
    end_meeting(&m);
    if (without_1) need_nccl(ncclCommDestroy(without_1));
    if (without_2) need_nccl(ncclCommDestroy(without_2));
}

// The first threads of two ranks sleep until the third ones have an answer; the second threads wait
// for the calls that the other rank's first thread makes then. All are as far as the others: one
// has to let its first thread go on, or nobody ever does.
RANK_TEST(test_sleepers_let_each_other_go, 2)
{
    Meeting m = meeting_of(r);
    ncclComm_t more;
    char answer;
    float *y;
    need_cuda(cudaMalloc((void **)&y, sizeof *y));
    need_cuda(cudaMemsetAsync(y, 0, sizeof *y, m.own));
    need_nccl(ncclCommSplit(r->comm, 0, r->rank, &more, NULL));
    m.comm = r->rank ? more : r->comm;
    pthread_t meets = begin(meet, &m), asks = begin(ask_beside, &m);
    check(read(m.pipe[0], &answer, 1) == 1, "there is no answer");
    need_nccl(ncclAllReduce(y, y, 1, ncclFloat, ncclSum, r->rank ? r->comm : more, m.own));
    pthread_join(meets, NULL);
    pthread_join(asks, NULL);
    end_meeting(&m);
    need_nccl(ncclCommDestroy(more));
}

// ---- Threads that come and go ----

typedef struct Caller {
    const Rank *r;
    float *x;
} Caller;

static void *call_once(void *arg)
{
    const Caller *c = arg;
    need_cuda(cudaSetDevice(c->r->device));
    need_nccl(ncclAllReduce(c->x, c->x, 1, ncclFloat, ncclSum, c->r->comm, c->r->stream));
    need_cuda(cudaStreamSynchronize(c->r->stream));
    return NULL;
}

static void *call_nothing(void *arg)
{
    free(malloc(100));
    return NULL;
}

// By how many kilobytes memory that the process has touched grows.
static long grown_by_threads(void *(*body)(void *), Caller *c, int n)
{
    pthread_t thread;
    long before = kilobytes("RssAnon:");
    check(before > 0, "/proc/self/status does not say RssAnon");
    for (int i = 0; i < n; i++) {
        check(pthread_create(&thread, NULL, body, c) == 0, "no thread");
        check(pthread_join(thread, NULL) == 0, "no join");
    }
    return kilobytes("RssAnon:") - before;
}

// A table that each thread left behind would be 4 KiB. A sanitizer keeps as much of any thread.
static void leaves_nothing(const Rank *r, void *arg)
{
    enum { THREADS = 1000 };
    Caller c = {.r = r};
    need_cuda(cudaMalloc((void **)&c.x, sizeof *c.x));
    need_cuda(cudaMemsetAsync(c.x, 0, sizeof *c.x, r->stream));
    grown_by_threads(call_once, &c, THREADS);
    long own = grown_by_threads(call_nothing, &c, THREADS);
    long grown = grown_by_threads(call_once, &c, THREADS) - own;
    check(grown < 1024, "%d threads left %ld KiB more than threads that call nothing", THREADS,
          grown);
    need_cuda(cudaFree(c.x));
}

TEST(test_a_thread_that_ended_leaves_nothing)
{
    setenv("SIMGPU_LOG", "100", 1); // it grows until it is full
    run_ranks(1, leaves_nothing, NULL);
    unsetenv("SIMGPU_LOG");
}

// ---- One call each ----

typedef struct OneCall {
    ncclComm_t comm;
    cudaStream_t stream;
    float *x;
    int device;
    double after; // seconds
} OneCall;

static void *make_one_call(void *arg)
{
    const OneCall *c = arg;
    for (double until = seconds() + c->after; seconds() < until;) continue;
    need_cuda(cudaSetDevice(c->device));
    need_nccl(ncclAllReduce(c->x, c->x, 1, ncclFloat, ncclSum, c->comm, c->stream));
    return NULL;
}

// The first thread and a new one make one call each, for a device each, and nothing else orders
// them: whoever calls first, the new thread begins where the first one was before its call.
static void call_each(const Rank *r, void *arg)
{
    OneCall call[2];
    ncclComm_t comm[2];
    cudaEvent_t from, to;
    const double *after = arg;
    float ms;
    need_nccl(ncclCommInitAll(comm, 2, NULL));
    for (int d = 0; d < 2; d++) {
        call[d] = (OneCall){.comm = comm[d], .device = d, .after = after[d]};
        need_cuda(cudaSetDevice(d));
        need_cuda(cudaMalloc((void **)&call[d].x, sizeof(float)));
        call[d].stream = make_stream(cudaStreamNonBlocking);
        need_cuda(cudaMemsetAsync(call[d].x, 0, sizeof(float), call[d].stream));
    }
    need_cuda(cudaEventCreate(&from));
    need_cuda(cudaEventCreate(&to));
    need_cuda(cudaEventRecord(from, call[1].stream));
    pthread_t second = begin(make_one_call, &call[0]);
    make_one_call(&call[1]);
    pthread_join(second, NULL);
    need_cuda(cudaEventRecord(to, call[1].stream));
    need_cuda(cudaEventSynchronize(to));
    need_cuda(cudaEventElapsedTime(&ms, from, to));
    // The memset ends 1.5 us and 4 ps after the record's request, the sum 12 us and 40 ps after it.
    check(ms == 10500036e-9F, "%.9g ms from the memset to the sum, not 10.500036 us", (double)ms);
    for (int d = 0; d < 2; d++) {
        need_nccl(ncclCommDestroy(comm[d]));
        need_cuda(cudaSetDevice(d));
        need_cuda(cudaStreamDestroy(call[d].stream));
        need_cuda(cudaFree(call[d].x));
    }
    need_cuda(cudaEventDestroy(from));
    need_cuda(cudaEventDestroy(to));
}

TEST(test_one_call_of_each_of_two_threads)
{
    for (int i = 0; i < 24; i++) { // by up to 1.7 ms, either of them
        double late[2] = {0, 0};
        late[i % 2] = 1e-6 * (double)(i * i * i / 7);
        run_ranks(1, call_each, late);
    }
}

int main(int argc, char **argv)
{
    use_round_machine();
    return suite_main(argc, argv, "clock/threads");
}
