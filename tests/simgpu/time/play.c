/* play.c: runs a program on simgpu, a process for each of the program's, and reads the times there.
 *
 * Every record has an event of its own, unless the step says otherwise, so that all of them can be
 * read in the end.
 *
 * Interface: play, simgpu_has_times (program.h).
 */
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness.h"
#include "program.h"
#include "simgpu.h"
#include "time/time.h"

// Messages of a group need buffers of their own.
enum { BUFFER = (3 + 2 * MAX_CALLS) * MAX_BYTES, LIMIT = 60 };

// What the processes of a run share.
static struct {
    sem_t ids_are_made;
    ncclUniqueId id[MAX_COMMS];
    Times times;
} * shared;

// What a process has.
static const Program *program;
static int process;
static ncclComm_t comms[MAX_COMMS][MAX_RANKS];
static cudaStream_t streams[MAX_RANKS][STREAMS];
static cudaEvent_t events[MAX_RANKS][EVENTS]; // by slot
static cudaEvent_t of_record[MAX_STEPS];
static char *device_buffer[MAX_RANKS], *pinned_buffer[MAX_RANKS];
static void *memory[3][MAX_RANKS][BLOCKS]; // stream-ordered, cudaMalloc's, pinned
static char pageable_buffer[MAX_RANKS][MAX_BYTES];

static bool is_mine(int rank)
{
    return program->world.process[rank] == process;
}

// ---- The world ----

static void make_ids(const World *w)
{
    if (process == 0) {
        for (int i = 0; i < w->n_comms; i++) need_nccl(ncclGetUniqueId(&shared->id[i]));
        for (int i = 0; i < w->n_processes; i++) sem_post(&shared->ids_are_made);
    }
    while (sem_wait(&shared->ids_are_made)) continue;
}

static void make_comm(const World *w, int number)
{
    const Comm *c = &w->comm[number];
    need_nccl(ncclGroupStart());
    for (int r = 0; r < w->n_ranks; r++) {
        int member = member_of(c, r);
        if (!is_mine(r) || (member < 0 && !c->split)) continue;
        need_cuda(cudaSetDevice(r));
        if (c->split)
            need_nccl(ncclCommSplit(comms[0][r], member < 0 ? NCCL_SPLIT_NOCOLOR : 0, member,
                                    &comms[number][r], NULL));
        else
            need_nccl(ncclCommInitRank(&comms[number][r], c->n, shared->id[number], member));
    }
    need_nccl(ncclGroupEnd());
}

static void make_world(const World *w)
{
    for (int i = 0; i < w->n_ranks * STREAMS; i++) {
        int rank = w->made[i] / STREAMS, stream = w->made[i] % STREAMS;
        bool blocking = stream == BLOCKING_A || stream == BLOCKING_B;
        if (!is_mine(rank) || stream == LEGACY) continue;
        need_cuda(cudaSetDevice(rank));
        need_cuda(cudaStreamCreateWithFlags(&streams[rank][stream],
                                            blocking ? cudaStreamDefault : cudaStreamNonBlocking));
    }
    make_ids(w);
    for (int i = 0; i < w->n_comms; i++) make_comm(w, i);
    for (int r = 0; r < w->n_ranks; r++) {
        if (!is_mine(r)) continue;
        need_cuda(cudaSetDevice(r));
        need_cuda(cudaMalloc((void **)&device_buffer[r], BUFFER));
        need_cuda(cudaMallocHost((void **)&pinned_buffer[r], MAX_BYTES));
    }
}

static void destroy_world(const World *w)
{
    for (int i = 0; i < program->n; i++)
        if (of_record[i] && !program->step[i].again) need_cuda(cudaEventDestroy(of_record[i]));
    for (int r = 0; r < w->n_ranks; r++) {
        if (!is_mine(r)) continue;
        need_cuda(cudaSetDevice(r));
        for (int i = 0; i < BLOCKS; i++) {
            need_cuda(cudaFree(memory[0][r][i]));
            need_cuda(cudaFree(memory[1][r][i]));
            need_cuda(cudaFreeHost(memory[2][r][i]));
        }
        need_cuda(cudaFree(device_buffer[r]));
        need_cuda(cudaFreeHost(pinned_buffer[r]));
        for (int i = 0; i < STREAMS; i++)
            if (streams[r][i]) need_cuda(cudaStreamDestroy(streams[r][i]));
        for (int i = w->n_comms - 1; i >= 0; i--)
            if (comms[i][r]) need_nccl(ncclCommDestroy(comms[i][r]));
    }
    need_cuda(cudaSetDevice(process));
}

// ---- Calls of one rank ----

static cudaError_t kernel(const Step *s, char *device, cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel", stream);
    simgpu_read(&op, device, (size_t)s->read);
    simgpu_write(&op, device + MAX_BYTES, (size_t)s->write);
    simgpu_update(&op, device + 2 * MAX_BYTES, (size_t)s->update);
    if (s->flops) simgpu_cost(&op, (uint64_t)s->flops, GPU_F32);
    return simgpu_end(&op);
}

static void copy_between(const Step *s, cudaStream_t stream)
{
    int to = s->rank;
    for (int r = 0; r < program->world.n_ranks && s->from == s->rank; r++)
        if (is_mine(r) && r != s->from) to = r;
    need_cuda(cudaMemcpyPeerAsync(device_buffer[to], to, device_buffer[s->from] + MAX_BYTES,
                                  s->from, (size_t)s->read, stream));
}

static void copy(const Step *s, cudaStream_t stream)
{
    char *device = device_buffer[s->rank], *pinned = pinned_buffer[s->rank];
    char *pageable = pageable_buffer[s->rank];
    size_t bytes = (size_t)s->read;
    enum cudaMemcpyKind to = cudaMemcpyHostToDevice, from = cudaMemcpyDeviceToHost;
    switch (s->kind) {
    case COPY_ASYNC:
        need_cuda(cudaMemcpyAsync(device, device + MAX_BYTES, bytes, cudaMemcpyDefault, stream));
        break;
    case TO_DEVICE_PINNED: need_cuda(cudaMemcpyAsync(device, pinned, bytes, to, stream)); break;
    case TO_DEVICE_PAGEABLE: need_cuda(cudaMemcpyAsync(device, pageable, bytes, to, stream)); break;
    case TO_DEVICE: need_cuda(cudaMemcpy(device, pageable, bytes, to)); break;
    case FROM_DEVICE_PINNED: need_cuda(cudaMemcpyAsync(pinned, device, bytes, from, stream)); break;
    case FROM_DEVICE_PAGEABLE:
        need_cuda(cudaMemcpyAsync(pageable, device, bytes, from, stream));
        break;
    case FROM_DEVICE: need_cuda(cudaMemcpy(pageable, device, bytes, from)); break;
    default: copy_between(s, stream); break;
    }
}

static void change_memory(const Step *s, cudaStream_t stream)
{
    int kind = s->kind <= FREE_ASYNC ? 0 : s->kind <= FREE ? 1 : 2;
    void **block = &memory[kind][s->rank][s->slot], *old = *block;
    *block = NULL;
    switch (s->kind) {
    case ALLOC_ASYNC: need_cuda(cudaMallocAsync(block, 64, stream)); break;
    case FREE_ASYNC: need_cuda(cudaFreeAsync(old, stream)); break;
    case MALLOC: need_cuda(cudaMalloc(block, 64)); break;
    case FREE: need_cuda(cudaFree(old)); break;
    case PIN: need_cuda(cudaMallocHost(block, 64)); break;
    default: need_cuda(cudaFreeHost(old)); break;
    }
}

static void record(const Step *s, int at, cudaStream_t stream)
{
    cudaEvent_t *event = &events[s->rank][s->slot];
    if (!s->again) need_cuda(cudaEventCreate(event));
    of_record[at] = *event;
    need_cuda(cudaEventRecord(*event, stream));
}

static void query(int at, cudaError_t answer)
{
    check(answer == cudaSuccess || answer == cudaErrorNotReady, "step %d, a query: %s", at,
          cudaGetErrorString(answer));
    shared->times.ready[at] = answer == cudaSuccess;
}

static void call_cuda(const Step *s, int at)
{
    cudaStream_t stream = streams[s->rank][s->stream];
    cudaEvent_t event = events[s->kind == WAIT ? s->from : s->rank][s->slot % EVENTS];
    char *device = device_buffer[s->rank];
    need_cuda(cudaSetDevice(s->rank));
    switch (s->kind) {
    case KERNEL: need_cuda(kernel(s, device, stream)); break;
    case MEMSET_ASYNC: need_cuda(cudaMemsetAsync(device, 0, (size_t)s->read, stream)); break;
    case MEMSET: need_cuda(cudaMemset(device, 0, (size_t)s->read)); break;
    case ALLOC_ASYNC:
    case FREE_ASYNC:
    case MALLOC:
    case FREE:
    case PIN:
    case UNPIN: change_memory(s, stream); break;
    case RECORD: record(s, at, stream); break;
    case WAIT: need_cuda(cudaStreamWaitEvent(stream, event, 0)); break;
    case STREAM_SYNC: need_cuda(cudaStreamSynchronize(stream)); break;
    case EVENT_SYNC: need_cuda(cudaEventSynchronize(event)); break;
    case DEVICE_SYNC: need_cuda(cudaDeviceSynchronize()); break;
    case STREAM_QUERY: query(at, cudaStreamQuery(stream)); break;
    case EVENT_QUERY: query(at, cudaEventQuery(event)); break;
    default: copy(s, stream); break;
    }
}

// ---- Calls of NCCL ----

static ncclResult_t call_nccl(const Step *s, int number, int rank)
{
    const Call *c = &s->call[number];
    const Comm *members = &program->world.comm[c->comm];
    int member = member_of(members, rank);
    size_t all = (size_t)c->bytes / sizeof(float), each = all / (size_t)members->n;
    float *send = (float *)(device_buffer[rank] + (3 + 2 * number) * MAX_BYTES);
    float *recv = send + MAX_BYTES / sizeof *send;
    ncclComm_t comm = comms[c->comm][rank];
    cudaStream_t stream = streams[rank][c->stream[member]];
    switch (c->op) {
    case ALL_GATHER: return ncclAllGather(send, recv, each, ncclFloat, comm, stream);
    case REDUCE_SCATTER:
        return ncclReduceScatter(send, recv, each, ncclFloat, ncclSum, comm, stream);
    case ALL_REDUCE: return ncclAllReduce(send, recv, all, ncclFloat, ncclSum, comm, stream);
    case BROADCAST: return ncclBroadcast(send, recv, all, ncclFloat, c->root, comm, stream);
    case REDUCE: return ncclReduce(send, recv, all, ncclFloat, ncclSum, c->root, comm, stream);
    default:
        if (member == c->root) return ncclSend(send, all, ncclFloat, c->to, comm, stream);
        return ncclRecv(recv, all, ncclFloat, c->root, comm, stream);
    }
}

// The calls of the step that a thread makes: of all the process's ranks, or of one. In a group,
// where they are several.
static void call_all(const Step *s, int only_rank)
{
    int n = 0;
    for (int grouped = 0; grouped < 2; grouped++) { // first they are counted
        if (grouped && n > 1) need_nccl(ncclGroupStart());
        for (int i = 0; i < s->n_calls; i++)
            for (int r = 0; r < program->world.n_ranks; r++) {
                if (!is_mine(r) || (only_rank >= 0 && r != only_rank)) continue;
                if (!calls(&program->world, &s->call[i], r)) continue;
                if (!grouped) n++;
                if (!grouped) continue;
                need_cuda(cudaSetDevice(r));
                need_nccl(call_nccl(s, i, r));
            }
    }
    if (n > 1) need_nccl(ncclGroupEnd());
}

// ---- Threads ----

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t news = PTHREAD_COND_INITIALIZER;
static int not_begun; // threads of the phase that have not made their first call

typedef struct Part {
    pthread_t thread;
    int from, to; // steps
    int rank;     // only this one's calls; -1: all of the process
    bool began;
} Part;

static void has_begun(Part *part)
{
    if (part->began) return;
    part->began = true;
    pthread_mutex_lock(&lock);
    not_begun--;
    pthread_cond_broadcast(&news);
    pthread_mutex_unlock(&lock);
}

static bool does(const Part *part, const Step *s)
{
    return part->rank < 0 ? process_takes_part(program, s, process)
                          : takes_part(program, s, part->rank);
}

static void *run_part(void *arg)
{
    Part *part = arg;
    for (int i = part->from; i < part->to; i++) {
        const Step *s = &program->step[i];
        if (!does(part, s)) continue;
        if (s->kind == NCCL)
            call_all(s, part->rank);
        else
            call_cuda(s, i);
        has_begun(part);
    }
    has_begun(part);
    // A first call begins no earlier than the end of a thread that has ended: so nobody ends before
    // all have begun.
    pthread_mutex_lock(&lock);
    while (not_begun > 0) pthread_cond_wait(&news, &lock);
    pthread_mutex_unlock(&lock);
    return NULL;
}

// The second thread, and what it has to do; NULL: nothing.
static struct {
    pthread_t thread;
    bool there, stop;
    Part *part;
} second;

static void *be_second(void *arg)
{
    pthread_mutex_lock(&lock);
    for (;;) {
        while (!second.part && !second.stop) pthread_cond_wait(&news, &lock);
        if (!second.part) break;
        pthread_mutex_unlock(&lock);
        run_part(second.part);
        pthread_mutex_lock(&lock);
        second.part = NULL;
        pthread_cond_broadcast(&news);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void run_second(Part *part)
{
    if (!second.there) {
        check(pthread_create(&second.thread, NULL, be_second, NULL) == 0, "no thread");
        second.there = true;
    }
    pthread_mutex_lock(&lock);
    second.part = part;
    pthread_cond_broadcast(&news);
    while (second.part) pthread_cond_wait(&news, &lock);
    pthread_mutex_unlock(&lock);
}

static void stop_second(void)
{
    if (!second.there) return;
    pthread_mutex_lock(&lock);
    second.stop = true;
    pthread_cond_broadcast(&news);
    pthread_mutex_unlock(&lock);
    pthread_join(second.thread, NULL);
}

// A phase of steps [from, to).
static void run_phase(Mode mode, int from, int to)
{
    Part parts[MAX_RANKS];
    int n = 0;
    for (int r = 0; r < program->world.n_ranks && mode == THREAD_A_DEVICE; r++)
        if (is_mine(r)) parts[n++] = (Part){.from = from, .to = to, .rank = r};
    if (mode != THREAD_A_DEVICE) parts[n++] = (Part){.from = from, .to = to, .rank = -1};
    not_begun = n;
    if (mode == FIRST_THREAD) {
        run_part(&parts[0]);
        return;
    }
    if (mode == SECOND_THREAD) {
        run_second(&parts[0]);
        return;
    }
    for (int i = 0; i < n; i++)
        check(pthread_create(&parts[i].thread, NULL, run_part, &parts[i]) == 0, "no thread");
    for (int i = 0; i < n; i++) pthread_join(parts[i].thread, NULL);
}

static void run_steps(void)
{
    for (int from = 0; from < program->n;) {
        int to = from;
        const Phase *phase = NULL;
        for (; to < program->n; to++) {
            const Step *s = &program->step[to];
            if (!process_takes_part(program, s, process)) continue;
            if (phase && phase->number != s->phase[process].number) break;
            phase = &s->phase[process];
        }
        if (phase) run_phase(phase->mode, from, to);
        from = to;
    }
    stop_second();
}

// ---- A process ----

// The entries of a device in the log are its calls, in the program's order. Calls that the log does
// not have are passed over. False: there is none any more.
static bool next_in_log(int rank, int *step, int *call)
{
    static struct {
        int step, call;
    } at[MAX_RANKS];
    for (; at[rank].step < program->n; at[rank].step++, at[rank].call = 0) {
        const Step *s = &program->step[at[rank].step];
        if (is_query(s->kind) || s->kind == PIN || s->kind == UNPIN) continue;
        for (int n = s->kind == NCCL ? s->n_calls : 1; at[rank].call < n; at[rank].call++) {
            if (s->kind == NCCL ? !calls(&program->world, &s->call[at[rank].call], rank)
                                : s->rank != rank)
                continue;
            *step = at[rank].step;
            *call = at[rank].call++;
            return true;
        }
    }
    return false;
}

static void hear_span(const SimSpan *span, void *arg)
{
    static bool has_buffer[MAX_RANKS]; // whose allocation is the first entry
    if (!span || strstr(span->entry->name, "Query")) return;
    int rank = span->entry->device, step, call;
    if (!has_buffer[rank]) {
        has_buffer[rank] = true;
        return;
    }
    if (!next_in_log(rank, &step, &call)) return;
    Kind kind = program->step[step].kind;
    shared->times.span[step][kind == NCCL ? call * MAX_RANKS + rank : 0] =
        (Span){span->queued, span->returned, span->ready, span->start, span->end};
    if (kind == RECORD) shared->times.at[step] = span->end;
}

static void body(const Rank *r, void *arg)
{
    program = arg;
    process = r->rank;
    check(r->device == r->rank, "the harness gave rank %d device %d", r->rank, r->device);
    sim_clock_on_span(hear_span, NULL);
    make_world(&program->world);
    run_steps();
    for (int rank = 0; rank < program->world.n_ranks; rank++)
        if (is_mine(rank)) {
            need_cuda(cudaSetDevice(rank));
            need_cuda(cudaDeviceSynchronize());
        }
    destroy_world(&program->world);
}

bool simgpu_has_times(void)
{
    return true;
}

// What the processes find in their environment.
static void set_environment(const World *w, const char *file)
{
    char slow[32], jitter[64];
    snprintf(slow, sizeof slow, "%d:%d%%", w->slow_rank, w->slow_percent);
    snprintf(jitter, sizeof jitter, "%d%%:%llu", w->jitter_percent,
             (unsigned long long)w->jitter_seed);
    setenv("SIMGPU_MACHINE", file, 1);
    setenv("SIMGPU_CHECK", "fast", 1); // the bytes do not matter here, and so no race does
    if (w->slow_percent) setenv("SIMGPU_SLOW", slow, 1);
    if (w->jitter_percent) setenv("SIMGPU_JITTER", jitter, 1);
}

static void clear_environment(void)
{
    static const char *const names[] = {"SIMGPU_MACHINE", "SIMGPU_CHECK", "SIMGPU_SLOW",
                                        "SIMGPU_JITTER"};
    for (int i = 0; i < 4; i++) unsetenv(names[i]);
}

char *play(const Program *p, Times *times)
{
    char file[] = "/tmp/machine-XXXXXX";
    int fd = mkstemp(file);
    FILE *out = fd < 0 ? NULL : fdopen(fd, "w");
    if (!out) return strdup("no temporary file for the machine");
    write_machine(out, &p->world.machine);
    fclose(out);
    set_environment(&p->world, file);
    if (!shared) shared = shared_alloc(sizeof *shared);
    memset(&shared->times, 0, sizeof shared->times);
    sem_init(&shared->ids_are_made, 1, 0);
    char *message = run_ranks_message(p->world.n_processes, LIMIT, body, (void *)p);
    sem_destroy(&shared->ids_are_made);
    unlink(file);
    clear_environment();
    *times = shared->times;
    return message;
}
