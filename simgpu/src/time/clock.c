/* clock.c: the clock of this process: its recorder behind one lock, and what its threads do.
 *
 * A call adds to the recorder and goes on. Now and then, where the host waits anyway, the engine
 * runs as far as it can, so that what is not resolved stays little.
 *
 * Interface: time.h, clock.h.
 */
#define _GNU_SOURCE
#include "time/clock.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "report/report.h"
#include "streams/streams.h"
#include "time/trace.h"

#define TURN 256    // calls between two turns of the engine, where the host waits
#define LATE 8192   // … and where it does not
#define MANY 100000 // items that are not resolved: then the others are asked to go on
#define SLEEP_SECONDS 1.0
#define UNSEEN_SECONDS 0.5 // what a thread did between two looks so far apart, nobody knows

// A thread of the program, by its number in the log.
typedef struct Sleeper {
    int number, tid;
    bool alive;
    SimItem clock; // when it was last looked at
    double since;  // it sleeps; 0: it was not seen asleep
    double looked; // when that was last seen
} Sleeper;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static SimRecorder *recorder;
static const SimPeers *peers;
static _Atomic uint32_t own_bell;
static unsigned since_turn;
static Sleeper *sleepers;
static int n_sleepers;
static pthread_key_t thread_key;
static SimSpanHook span_hook;
static void *span_arg;
static atomic_bool finished;

bool sim_clock_on(void)
{
    return sim_config()->machine != NULL;
}

const SimMachine *sim_clock_machine(void)
{
    return sim_config()->machine;
}

void sim_clock_lock(void)
{
    pthread_mutex_lock(&lock);
}

void sim_clock_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

// ---- The board, which nccl/ brings in ----

static void board_arrived(void *arg, const SimCall *call, SimPs when)
{
    if (peers) peers->board.arrived(peers->board.arg, call, when);
}

static bool board_start(void *arg, const SimCall *call, SimPs *when)
{
    return !peers || peers->board.start(peers->board.arg, call, when);
}

static void board_until(void *arg, SimPs when)
{
    if (peers) peers->board.until(peers->board.arg, when);
}

void sim_clock_meet_peers(const SimPeers *those)
{
    peers = those;
}

const SimPeers *sim_clock_peers(void)
{
    return peers;
}

// ---- The recorder ----

static int launcher_rank(void)
{
    static const char *const names[] = {"RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "PMI_RANK"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *text = getenv(names[i]);
        if (text && *text) return atoi(text);
    }
    return -1;
}

static void on_end(int status, void *arg)
{
    if (!peers) sim_clock_finish(status);
}

static void thread_ended(void *arg)
{
    int number = (int)(intptr_t)arg - 1;
    if (sim_is_forked() || atomic_load(&finished)) return;
    sim_clock_lock();
    if (recorder) sim_record_thread_ended(recorder, number);
    for (int i = 0; i < n_sleepers; i++)
        if (sleepers[i].number == number) sleepers[i].alive = false;
    sim_clock_unlock();
    sim_clock_ring();
}

SimRecorder *sim_clock_recorder(void)
{
    static const SimBoard board = {board_arrived, board_start, board_until, NULL};
    if (recorder) return recorder;
    recorder =
        sim_recorder_new(sim_config()->machine, &sim_config()->spread, &board, launcher_rank());
    sim_record_on_span(recorder, span_hook, span_arg);
    pthread_key_create(&thread_key, thread_ended);
    on_exit(on_end, NULL);
    return recorder;
}

void sim_clock_on_span(SimSpanHook hook, void *arg)
{
    sim_clock_lock();
    span_hook = hook;
    span_arg = arg;
    if (recorder) sim_record_on_span(recorder, hook, arg);
    sim_clock_unlock();
}

// ---- Threads ----

// The calling thread's number in the log. It is known here from its first call on.
int sim_clock_thread(void)
{
    static _Thread_local bool known;
    int number = sim_log_thread();
    if (known) return number;
    known = true;
    sim_clock_recorder();
    pthread_setspecific(thread_key, (void *)(intptr_t)(number + 1));
    int i = 0;
    while (i < n_sleepers && sleepers[i].alive) i++;
    if (i == n_sleepers) {
        Sleeper *more = realloc(sleepers, ((size_t)i + 1) * sizeof *more);
        if (!more) return number;
        sleepers = more;
        n_sleepers++;
    }
    sleepers[i] = (Sleeper){.number = number, .tid = (int)syscall(SYS_gettid), .alive = true};
    return number;
}

static bool is_asleep(int tid)
{
    char path[64], line[256];
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, line, sizeof line - 1);
    if (fd >= 0) close(fd);
    if (n <= 0) return true; // it is gone
    line[n] = 0;
    const char *name_end = strrchr(line, ')');
    return name_end && name_end[1] == ' ' && (name_end[2] == 'S' || name_end[2] == 'Z');
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

// The program's first thread counts from the start, also where it has not called yet.
static void know_first_thread(void)
{
    for (int i = 0; i < n_sleepers; i++)
        if (sleepers[i].number == 0) return;
    Sleeper *more = realloc(sleepers, ((size_t)n_sleepers + 1) * sizeof *more);
    if (!more) return;
    sleepers = more;
    sleepers[n_sleepers++] = (Sleeper){.number = 0, .tid = (int)getpid(), .alive = true};
}

bool sim_clock_give_up_sleepers(int but)
{
    bool gave_up = false;
    double now = seconds();
    know_first_thread();
    for (int i = 0; i < n_sleepers; i++) {
        Sleeper *s = &sleepers[i];
        if (!s->alive || s->number == but || !sim_record_stands(recorder, s->number)) continue;
        SimItem clock = sim_record_at(recorder, s->number);
        bool asleep = is_asleep(s->tid);
        bool unseen = s->since == 0 || clock != s->clock || now - s->looked > UNSEEN_SECONDS;
        if (!asleep || unseen) s->since = asleep ? now : 0;
        s->clock = clock;
        s->looked = now;
        if (!asleep || now - s->since < SLEEP_SECONDS) continue;
        sim_record_give_up(recorder, s->number);
        s->since = 0;
        gave_up = true;
    }
    return gave_up;
}

// ---- Turns ----

void sim_clock_ring(void)
{
    _Atomic uint32_t *bell = peers ? peers->bell : &own_bell;
    atomic_fetch_add(bell, 1);
    syscall(SYS_futex, bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

_Atomic uint32_t *sim_clock_bell(void)
{
    return peers ? peers->bell : &own_bell;
}

void sim_clock_turn(void)
{
    SimEngine *engine = sim_recorder_engine(sim_clock_recorder());
    since_turn = 0;
    do {
        if (peers) peers->look();
        sim_engine_run(engine, peers ? peers->wanted() : 0);
        if (!peers || !peers->is_hopeless(sim_engine_is_stuck(engine))) break;
        sim_engine_give_up(engine);
    } while (true);
    sim_record_tidy(recorder);
    if (peers) peers->publish();
}

static void turn_if_due(bool waits)
{
    bool wanted = peers && peers->is_wanted();
    since_turn++;
    if (!wanted && since_turn < (waits ? TURN : LATE)) return;
    sim_clock_turn();
    if (!wanted && peers && sim_engine_items(sim_recorder_engine(recorder)) > MANY) peers->ask();
}

// Others of this process may wait for the caller's clock.
static atomic_int local_waiters;

void sim_clock_local_waiter(int change)
{
    atomic_fetch_add(&local_waiters, change);
}

bool sim_clock_has_waiters(void)
{
    return atomic_load(&local_waiters) > 0;
}

static void after_call(bool waits)
{
    turn_if_due(waits);
    bool ring = atomic_load(&local_waiters) > 0;
    sim_clock_unlock();
    if (ring) sim_clock_ring();
}

// ---- Calls ----

// Not with the lock: bad input ends the process.
static void begin_trace(void)
{
    if (sim_trace_begin(sim_clock_machine())) sim_clock_on_span(sim_trace_span, NULL);
}

void sim_clock_log(GpuLogEntry *entry)
{
    static pthread_once_t traced = PTHREAD_ONCE_INIT;
    pthread_once(&traced, begin_trace);
    entry->thread = sim_log_thread();
    if (!sim_clock_on() || atomic_load(&finished)) {
        sim_log_write(entry);
        return;
    }
    sim_clock_lock();
    sim_clock_thread();
    entry->index = sim_log_write(entry);
    sim_record_entry(sim_clock_recorder(), entry);
    after_call(entry->host_waits);
}

void sim_clock_pin(void)
{
    if (!sim_clock_on() || atomic_load(&finished)) return;
    sim_clock_lock();
    int thread = sim_clock_thread();
    sim_record_call(sim_clock_recorder(), thread, sim_current_device(),
                    sim_clock_machine()->host.pin);
    after_call(false);
}

void sim_clock_forget_event(cudaEvent_t event)
{
    if (!sim_clock_on()) return;
    sim_clock_lock();
    if (recorder) sim_record_forget_event(recorder, event);
    sim_clock_unlock();
}

void sim_clock_set_rank(int device, int rank)
{
    if (!sim_clock_on()) return;
    sim_clock_lock();
    sim_record_set_rank(sim_clock_recorder(), device, rank);
    sim_clock_unlock();
}

// ---- Questions ----

#define PATIENCE 0.02 // seconds that a query of a thread waits which has only asked

typedef struct Question {
    SimItem clock, of[2];
    bool answered, done; // all of them have ended by then
    SimTimes at, ends[2];
} Question;

static bool is_answered(void *arg)
{
    Question *q = arg;
    const SimEngine *engine = sim_recorder_engine(recorder);
    bool ended = true, reached = sim_engine_times(engine, q->clock, &q->at);
    for (int i = 0; i < 2; i++) ended &= sim_engine_times(engine, q->of[i], &q->ends[i]);
    q->done = ended && reached && q->ends[0].end <= q->at.end && q->ends[1].end <= q->at.end;
    return q->answered = reached;
}

// Asks at the thread's clock. A thread that has only asked is answered as far as things are known.
static bool ask(Question *q, int thread)
{
    static _Thread_local bool again; // the last one was not answered in time
    bool called = sim_record_has_called(recorder, thread);
    sim_resolve(is_answered, q, called ? 1e9 : again ? 2 * SLEEP_SECONDS : PATIENCE);
    again = !q->answered;
    if (q->answered) return q->done;
    const SimEngine *engine = sim_recorder_engine(recorder);
    return sim_engine_times(engine, q->of[0], &q->ends[0]) &&
           sim_engine_times(engine, q->of[1], &q->ends[1]);
}

static SimItem item_of(const GpuLogEntry *entry)
{
    return entry->op == GPU_EVENT_SYNC ? sim_record_event_end(recorder, entry->event)
                                       : sim_record_stream_end(recorder, entry);
}

bool sim_clock_query(const GpuLogEntry *entry, bool waited_for)
{
    if (atomic_load(&finished)) return true;
    sim_clock_lock();
    int thread = sim_clock_thread();
    sim_clock_recorder();
    Question q = {.of = {item_of(entry)}};
    q.of[1] = q.of[0];
    q.clock = sim_record_query(recorder, thread, entry->device);
    bool ready = waited_for;
    if (waited_for)
        sim_record_join(recorder, thread, q.of[0]);
    else
        ready = ask(&q, thread);
    after_call(false);
    return ready;
}

bool sim_clock_elapsed(cudaEvent_t start, cudaEvent_t end, int device, bool waited_for, float *ms)
{
    if (atomic_load(&finished)) return false;
    sim_clock_lock();
    int thread = sim_clock_thread();
    sim_clock_recorder();
    Question q = {
        .of = {sim_record_event_end(recorder, start), sim_record_event_end(recorder, end)}};
    if (waited_for)
        for (int i = 0; i < 2; i++) sim_record_join(recorder, thread, q.of[i]);
    q.clock = sim_record_clock(recorder, thread);
    bool ready = ask(&q, thread);
    if (ready) *ms = (float)((double)(int64_t)(q.ends[1].end - q.ends[0].end) / 1e9);
    if (!ready) sim_record_query(recorder, thread, device);
    after_call(false);
    return ready;
}

// ---- The end ----

static bool nobody_needs_more(void *arg)
{
    const SimEngine *engine = sim_recorder_engine(recorder);
    if (!span_hook) return sim_engine_calls_to_come(engine) == 0;
    return sim_record_all_told(recorder);
}

void sim_clock_finish(int status)
{
    if (!sim_config_ready() || !sim_clock_on() || sim_is_forked()) return;
    sim_clock_lock();
    if (recorder && !atomic_exchange(&finished, true)) {
        for (int i = 0; i < n_sleepers; i++)
            if (sleepers[i].alive) sim_record_thread_ended(recorder, sleepers[i].number);
        sim_record_thread_ended(recorder, 0);
        if (status == 0) sim_resolve(nobody_needs_more, NULL, 30.0);
        if (peers) peers->over();
        if (span_hook) span_hook(NULL, span_arg);
    }
    sim_clock_unlock();
}
