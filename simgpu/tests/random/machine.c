/* machine.c: runs random programs on simgpu, and keeps what the checker reports.
 *
 * All programs of a process share its streams, its memory and its communicators, as setting these
 * up costs far more than a program. Before and after each program the host waits for both devices,
 * so that no program sees another one's work, but the checker keeps what it remembers of the
 * memory: a race that it reports between programs would be a mistake, too.
 *
 * Threads 1 and 2 make the calls that a step gives them, while thread 0 waits; a rank each where
 * the step is a collective. So the calls come one after the other, and any of them from any thread.
 *
 * A report tells two calls apart by their place in the source, so each step has a function of its
 * own to make its call from: step_00, step_01 …
 *
 * Interface: machine_start, machine_stop, run_program (program.h).
 */
#include "program.h"

#include <pthread.h>
#include <string.h>

#include "harness.h"
#include "kernels.h"
#include "nccl.h"
#include "simgpu.h"

static struct {
    bool log, timed;
    bool not_ready; // the last answer that was ignored
    int rank;       // ALL_RANKS: this process has both devices
    cudaStream_t stream[N_STREAMS];
    cudaEvent_t event[N_EVENTS];
    ncclComm_t comm[N_DEVICES];    // of the program; those of
    ncclComm_t made[2][N_DEVICES]; // one process: that do not block, and that do
    char *buffer[ALL_BUFFERS];
    char pageable[BUFFER_BYTES];
} machine;

// ---- One step ----

static char *at(const Step *s, int span)
{
    return machine.buffer[s->span[span].buffer] + s->span[span].begin;
}

static float *floats(const Step *s, int span)
{
    return (float *)(void *)at(s, span);
}

// The call's place in reports is that of the step's function.
#define IN_ITS_CALLER static inline __attribute__((always_inline, artificial))

IN_ITS_CALLER cudaError_t call_kernel(const Step *s)
{
    cudaStream_t stream = machine.stream[s->stream];
    size_t n = (size_t)s->span[0].bytes / sizeof(float);
    switch (s->kind) {
    case FILL: return kernel_fill(floats(s, 0), 1, n, stream);
    case SCALE: return kernel_scale(floats(s, 0), 1, n, stream);
    case ADD: return kernel_add(floats(s, 0), floats(s, 1), n, stream);
    default: return kernel_add_out(floats(s, 0), floats(s, 1), floats(s, 2), n, stream);
    }
}

IN_ITS_CALLER cudaError_t call_copy(const Step *s)
{
    cudaStream_t stream = machine.stream[s->stream];
    const Span *x = &s->span[0], *y = &s->span[1];
    size_t n = (size_t)x->bytes, rows = (size_t)x->rows, pitch = (size_t)x->pitch;
    char *pageable = machine.pageable;
    switch (s->kind) {
    case MEMSET_ASYNC: return cudaMemsetAsync(at(s, 0), 0, n, stream);
    case MEMSET_2D_ASYNC: return cudaMemset2DAsync(at(s, 0), pitch, 0, n, rows, stream);
    case MEMSET: return cudaMemset(at(s, 0), 0, n);
    case COPY_ASYNC:
    case SEND_PINNED_ASYNC:
    case FETCH_PINNED_ASYNC:
        return cudaMemcpyAsync(at(s, 0), at(s, 1), n, cudaMemcpyDefault, stream);
    case COPY_2D_ASYNC:
        return cudaMemcpy2DAsync(at(s, 0), pitch, at(s, 1), (size_t)y->pitch, n, rows,
                                 cudaMemcpyDefault, stream);
    case SEND_ASYNC: return cudaMemcpyAsync(at(s, 0), pageable, n, cudaMemcpyDefault, stream);
    case FETCH_ASYNC: return cudaMemcpyAsync(pageable, at(s, 0), n, cudaMemcpyDefault, stream);
    case COPY:
    case SEND_PINNED:
    case FETCH_PINNED: return cudaMemcpy(at(s, 0), at(s, 1), n, cudaMemcpyDefault);
    case COPY_2D:
        return cudaMemcpy2D(at(s, 0), pitch, at(s, 1), (size_t)y->pitch, n, rows,
                            cudaMemcpyDefault);
    case SEND: return cudaMemcpy(at(s, 0), pageable, n, cudaMemcpyDefault);
    case FETCH: return cudaMemcpy(pageable, at(s, 0), n, cudaMemcpyDefault);
    case PEER:
        return cudaMemcpyPeer(at(s, 0), buffer_device[x->buffer], at(s, 1),
                              buffer_device[y->buffer], n);
    default:
        return cudaMemcpyPeerAsync(at(s, 0), buffer_device[x->buffer], at(s, 1),
                                   buffer_device[y->buffer], n, stream);
    }
}

IN_ITS_CALLER cudaError_t call_memory(const Step *s)
{
    cudaStream_t stream = machine.stream[s->stream];
    char **buffer = &machine.buffer[s->span[0].buffer];
    switch (s->kind) {
    case ALLOC_ASYNC: return cudaMallocAsync((void **)buffer, BUFFER_BYTES, stream);
    case FREE_ASYNC: return cudaFreeAsync(*buffer, stream);
    default: return cudaFree(*buffer);
    }
}

// A program asks until it is done; the first answer may be that it is not.
IN_ITS_CALLER cudaError_t ask_stream(cudaStream_t stream)
{
    cudaError_t answer;
    while ((answer = cudaStreamQuery(stream)) == cudaErrorNotReady) continue;
    return answer;
}

IN_ITS_CALLER cudaError_t ask_event(cudaEvent_t event)
{
    cudaError_t answer;
    while ((answer = cudaEventQuery(event)) == cudaErrorNotReady) continue;
    return answer;
}

// One asks once, and ignores the answer.
IN_ITS_CALLER cudaError_t ignore_answer(cudaError_t answer)
{
    machine.not_ready = answer == cudaErrorNotReady;
    return answer == cudaErrorNotReady ? cudaSuccess : answer;
}

IN_ITS_CALLER cudaError_t call_order(const Step *s)
{
    cudaStream_t stream = machine.stream[s->stream];
    cudaEvent_t event = machine.event[s->event];
    switch (s->kind) {
    case RECORD: return cudaEventRecord(event, stream);
    case WAIT: return cudaStreamWaitEvent(stream, event, 0);
    case STREAM_SYNC: return cudaStreamSynchronize(stream);
    case STREAM_QUERY: return ask_stream(stream);
    case STREAM_ASK: return ignore_answer(cudaStreamQuery(stream));
    case EVENT_ASK: return ignore_answer(cudaEventQuery(event));
    case EVENT_SYNC: return cudaEventSynchronize(event);
    case EVENT_QUERY: return ask_event(event);
    case DEVICE_SYNC: return cudaDeviceSynchronize();
    default: return cudaStreamDestroy(stream);
    }
}

// What comes of a call, which may have come back before it is over.
static ncclResult_t settled(ncclResult_t result, ncclComm_t comm)
{
    while (result == ncclInProgress) need_nccl(ncclCommGetAsyncError(comm, &result));
    return result;
}

// A rank's call of a collective.
IN_ITS_CALLER ncclResult_t call_rank(const Step *s, int r)
{
    float *send = floats(s, 2 * r), *recv = floats(s, 2 * r + 1);
    cudaStream_t stream = machine.stream[r ? s->other_stream : s->stream];
    int smaller = s->kind == REDUCE_SCATTER ? 2 * r + 1 : 2 * r;
    size_t n = (size_t)s->span[smaller].bytes / sizeof(float);
    switch (s->kind) {
    case ALL_REDUCE:
        return ncclAllReduce(send, recv, n, ncclFloat, ncclSum, machine.comm[r], stream);
    case ALL_GATHER: return ncclAllGather(send, recv, n, ncclFloat, machine.comm[r], stream);
    case REDUCE_SCATTER:
        return ncclReduceScatter(send, recv, n, ncclFloat, ncclSum, machine.comm[r], stream);
    default: return ncclBroadcast(send, recv, n, ncclFloat, 0, machine.comm[r], stream);
    }
}

IN_ITS_CALLER ncclResult_t call_message(const Step *s)
{
    cudaStream_t stream = machine.stream[s->stream];
    size_t n = (size_t)s->span[0].bytes / sizeof(float);
    if (s->kind == MESSAGE_SEND)
        return settled(ncclSend(floats(s, 0), n, ncclFloat, 1, machine.comm[0], stream),
                       machine.comm[0]);
    return settled(ncclRecv(floats(s, 0), n, ncclFloat, 0, machine.comm[1], stream),
                   machine.comm[1]);
}

// The rank whose call this thread makes; ALL_RANKS: all of them, in a group.
static __thread int part = ALL_RANKS;

IN_ITS_CALLER cudaError_t call_collective(const Step *s)
{
    int only = machine.rank != ALL_RANKS ? machine.rank : part;
    ncclResult_t result = ncclSuccess, end = ncclSuccess;
    if (only != ALL_RANKS) {
        result = settled(call_rank(s, only), machine.comm[only]);
        return result == ncclSuccess ? cudaSuccess : cudaErrorUnknown;
    }
    need_nccl(ncclGroupStart());
    for (int r = 0; r < N_DEVICES && result == ncclSuccess; r++) result = call_rank(s, r);
    end = ncclGroupEnd();
    for (int r = 0; r < N_DEVICES && result == ncclSuccess; r++)
        result = settled(end, machine.comm[r]);
    return result == ncclSuccess ? cudaSuccess : cudaErrorUnknown;
}

IN_ITS_CALLER cudaError_t call_step(const Step *s)
{
    if (kind_facts[s->kind].orders) return call_order(s);
    if (is_collective(s->kind)) return call_collective(s);
    if (is_message(s->kind)) return call_message(s) == ncclSuccess ? cudaSuccess : cudaErrorUnknown;
    if (s->kind <= SUM2) return call_kernel(s);
    return s->kind >= ALLOC_ASYNC ? call_memory(s) : call_copy(s);
}

#define STEP(n)                                                                                    \
    static __attribute__((noinline)) cudaError_t step_##n(const Step *s)                           \
    {                                                                                              \
        return call_step(s);                                                                       \
    }
STEP(00)
STEP(01)
STEP(02)
STEP(03)
STEP(04)
STEP(05)
STEP(06)
STEP(07)
STEP(08)
STEP(09)
STEP(10)
STEP(11)
STEP(12)
STEP(13)
static cudaError_t (*const steps[MAX_STEPS])(const Step *s) = {
    step_00, step_01, step_02, step_03, step_04, step_05, step_06,
    step_07, step_08, step_09, step_10, step_11, step_12, step_13,
};

// ---- Threads ----

typedef struct Worker {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t news;
    const Step *step; // NULL: nothing to do
    int number, part; // of the step; what of it is this thread's
    cudaError_t error;
    bool stop;
} Worker;
static Worker workers[N_THREADS]; // 0 is not used

static int device_for(const Step *s, int rank)
{
    return is_collective(s->kind) && rank >= 0 ? rank : device_of(s);
}

static void *be_worker(void *arg)
{
    Worker *w = arg;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        while (!w->step && !w->stop) pthread_cond_wait(&w->news, &w->lock);
        if (w->stop) break;
        part = w->part;
        w->error = cudaSetDevice(device_for(w->step, machine.rank >= 0 ? machine.rank : part));
        if (w->error == cudaSuccess) w->error = steps[w->number](w->step);
        w->step = NULL;
        pthread_cond_broadcast(&w->news);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static void hand_over(Worker *w, const Step *s, int number, int of_it)
{
    pthread_mutex_lock(&w->lock);
    w->step = s;
    w->number = number;
    w->part = of_it;
    pthread_cond_broadcast(&w->news);
    pthread_mutex_unlock(&w->lock);
}

static cudaError_t take_back(Worker *w)
{
    pthread_mutex_lock(&w->lock);
    while (w->step) pthread_cond_wait(&w->news, &w->lock);
    cudaError_t error = w->error;
    pthread_mutex_unlock(&w->lock);
    return error;
}

static cudaError_t run_step(const Step *s, int number)
{
    if (s->thread == 0 || is_of_first_thread(s)) {
        need_cuda(cudaSetDevice(device_for(s, machine.rank)));
        return steps[number](s);
    }
    Worker *w = &workers[s->thread], *other = &workers[N_THREADS - s->thread];
    bool both = is_collective(s->kind) && machine.rank == ALL_RANKS;
    hand_over(w, s, number, both ? 0 : ALL_RANKS);
    if (both) hand_over(other, s, number, 1);
    cudaError_t error = take_back(w), other_error = both ? take_back(other) : cudaSuccess;
    return error != cudaSuccess ? error : other_error;
}

static void start_workers(void)
{
    for (int t = 1; t < N_THREADS; t++) {
        workers[t] = (Worker){.number = 0};
        pthread_mutex_init(&workers[t].lock, NULL);
        pthread_cond_init(&workers[t].news, NULL);
        check(pthread_create(&workers[t].thread, NULL, be_worker, &workers[t]) == 0, "no thread");
    }
}

static void stop_workers(void)
{
    for (int t = 1; t < N_THREADS; t++) {
        pthread_mutex_lock(&workers[t].lock);
        workers[t].stop = true;
        pthread_cond_broadcast(&workers[t].news);
        pthread_mutex_unlock(&workers[t].lock);
        pthread_join(workers[t].thread, NULL);
    }
}

// ---- Reports ----

static unsigned steps_named(const char *text)
{
    unsigned named = 0;
    for (const char *at_name = text; (at_name = strstr(at_name, "(step_")); at_name++) {
        int step = (at_name[6] - '0') * 10 + at_name[7] - '0';
        if (step >= 0 && step < MAX_STEPS) named |= 1u << step;
    }
    return named;
}

static void hear_report(const SimgpuReport *report, void *arg)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // two ranks of a collective
    Heard *h = arg;
    pthread_mutex_lock(&lock);
    bool race = report->kind == SIMGPU_RACE || report->kind == SIMGPU_LIFETIME;
    if (race ? h->races == 0 : h->races + h->others == 0)
        snprintf(h->text, sizeof h->text, "%s", report->text);
    if (race && h->races < MAX_HEARD) {
        h->named[h->races] = steps_named(report->text);
        h->lifetime[h->races] = report->kind == SIMGPU_LIFETIME;
    }
    *(race ? &h->races : &h->others) += 1;
    pthread_mutex_unlock(&lock);
}

// ---- One program ----

static void wait_for_all(void)
{
    for (int d = N_DEVICES - 1; d >= 0; d--) {
        need_cuda(cudaSetDevice(d));
        need_cuda(cudaDeviceSynchronize());
    }
}

static void make_buffer(int buffer)
{
    need_cuda(cudaSetDevice(buffer_device[buffer]));
    need_cuda(cudaMalloc((void **)&machine.buffer[buffer], BUFFER_BYTES));
    need_cuda(cudaMemset(machine.buffer[buffer], 0, BUFFER_BYTES));
}

static void make_stream(int stream)
{
    StreamKind kind = stream_facts[stream].kind;
    need_cuda(cudaSetDevice(stream_facts[stream].device));
    if (kind == LEGACY)
        machine.stream[stream] = NULL;
    else if (kind == PER_THREAD)
        machine.stream[stream] = cudaStreamPerThread;
    else
        need_cuda(cudaStreamCreateWithFlags(
            &machine.stream[stream], kind == BLOCKING ? cudaStreamDefault : cudaStreamNonBlocking));
}

static void make_events(void)
{
    for (int e = 0; e < N_EVENTS; e++) {
        need_cuda(cudaSetDevice(event_device[e]));
        need_cuda(cudaEventCreateWithFlags(&machine.event[e], cudaEventDisableTiming));
    }
}

// What the program has taken away is made again, and what it made is freed.
static void tidy(const Program *p)
{
    bool live[ALL_BUFFERS];
    wait_for_all();
    for (int b = 0; b < ALL_BUFFERS; b++) live[b] = b < N_BUFFERS || b == PINNED;
    for (int i = 0; i < p->n; i++) {
        const Step *s = &p->step[i];
        if (s->kind == ALLOC_ASYNC) live[s->span[0].buffer] = true;
        if (s->kind == FREE || s->kind == FREE_ASYNC) live[s->span[0].buffer] = false;
        if (s->kind == DESTROY) make_stream(s->stream);
    }
    for (int b = 0; b < ALL_BUFFERS; b++) {
        if (b < N_BUFFERS && !live[b]) make_buffer(b);
        if (b >= N_BUFFERS && b != PINNED && live[b]) need_cuda(cudaFree(machine.buffer[b]));
    }
    for (int e = 0; e < N_EVENTS; e++) need_cuda(cudaEventDestroy(machine.event[e]));
    wait_for_all();
}

static void run_steps(const Program *p, Heard *h)
{
    bool freed[ALL_BUFFERS] = {false};
    for (int i = 0; i < p->n; i++) {
        const Step *s = &p->step[i];
        bool refused = false;
        for (int k = 0; k < kind_facts[s->kind].spans; k++) refused |= freed[s->span[k].buffer];
        machine.not_ready = false;
        cudaError_t error = run_step(s, i);
        if (machine.not_ready) h->not_ready |= 1U << i;
        if (error != cudaSuccess && !refused && !h->trouble[0])
            snprintf(h->trouble, sizeof h->trouble, "step %d: %s", i, cudaGetErrorString(error));
        if (s->kind == FREE || s->kind == FREE_ASYNC) freed[s->span[0].buffer] = true;
    }
    cudaGetLastError();
}

void run_program(const Program *p, Heard *h)
{
    memset(h, 0, offsetof(Heard, text));
    h->text[0] = h->log_text[0] = h->trouble[0] = '\0';
    h->replayed = machine.log;
    h->timed = machine.timed;
    h->not_ready = 0;
    make_events();
    uint64_t first = gpulog_length();
    simgpu_on_report(hear_report, h);
    if (machine.rank == ALL_RANKS)
        memcpy(machine.comm, machine.made[p->seed % 2], sizeof machine.comm);
    run_steps(p, h);
    if (machine.log) h->log_races = gpulog_race(first, h->log_text, sizeof h->log_text);
    tidy(p);
}

static void make_comms(bool blocking)
{
    ncclComm_t *comm = machine.made[blocking];
    ncclUniqueId id;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = blocking;
    need_nccl(ncclGetUniqueId(&id));
    need_nccl(ncclGroupStart());
    for (int r = 0; r < N_DEVICES; r++) {
        need_cuda(cudaSetDevice(r));
        need_nccl(ncclCommInitRankConfig(&comm[r], N_DEVICES, id, r, &config));
    }
    ncclResult_t end = ncclGroupEnd();
    for (int r = 0; r < N_DEVICES; r++) need_nccl(settled(end, comm[r]));
    need_cuda(cudaSetDevice(0));
}

void machine_start(bool log, bool timed, int rank, void *comm)
{
    machine.log = log;
    machine.timed = timed;
    machine.rank = rank;
    for (int s = 0; s < N_STREAMS; s++) make_stream(s);
    for (int b = 0; b < N_BUFFERS; b++) make_buffer(b);
    need_cuda(cudaMallocHost((void **)&machine.buffer[PINNED], BUFFER_BYTES));
    memset(machine.buffer[PINNED], 0, BUFFER_BYTES);
    if (rank == ALL_RANKS)
        for (int blocking = 0; blocking < 2; blocking++) make_comms(blocking);
    else
        machine.comm[rank] = comm;
    wait_for_all();
    start_workers();
}

void machine_stop(void)
{
    wait_for_all();
    stop_workers();
    simgpu_on_report(NULL, NULL);
    for (int r = 0; r < 2 * N_DEVICES && machine.rank == ALL_RANKS; r++)
        need_nccl(ncclCommDestroy(machine.made[r / N_DEVICES][r % N_DEVICES]));
    for (int b = 0; b < N_BUFFERS; b++) need_cuda(cudaFree(machine.buffer[b]));
    for (int s = 0; s < N_STREAMS; s++)
        if (stream_facts[s].kind == BLOCKING || stream_facts[s].kind == NON_BLOCKING)
            need_cuda(cudaStreamDestroy(machine.stream[s]));
    need_cuda(cudaFreeHost(machine.buffer[PINNED]));
    need_cuda(cudaSetDevice(machine.rank == ALL_RANKS ? 0 : machine.rank));
}
