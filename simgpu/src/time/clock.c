/* clock.c: the clock of this process: its recorder, guarded by one lock, and the calls of its
 * threads.
 *
 * A call is only logged. Sometimes, when the host waits anyway, the logged calls are recorded
 * (clock_feed.c), and the engine runs as far as it can, so that few calls stay unresolved.
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

#include "core/config.h"
#include "core/error.h"
#include "log_writer.h"
#include "report/hooks.h"
#include "time/ranges.h"
#include "time/trace.h"

#define TURN 256        // calls between two turns of the engine, where the host waits
#define LATE 8192       // … and where it does not
#define FEW 256         // unrecorded calls of a rank that waits for others
#define MANY 50000      // unresolved calls: then the others are asked to proceed
#define ROOM (4 * LATE) // entries of the log from which on they are recorded later than logged

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static SimRecorder *recorder;
static const SimPeers *_Atomic peers;
static _Atomic uint32_t own_bell;
static _Atomic uint64_t turned_at; // the log's length at the last turn
static size_t log_room;
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

static atomic_int at_the_lock; // threads that wait for it: they are about to call

void sim_clock_lock(void)
{
    atomic_fetch_add(&at_the_lock, 1);
    pthread_mutex_lock(&lock);
    atomic_fetch_sub(&at_the_lock, 1);
}

void sim_clock_lock_again(void)
{
    pthread_mutex_lock(&lock);
}

bool sim_clock_is_awaited(void)
{
    return atomic_load(&at_the_lock) > 0;
}

void sim_clock_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

bool sim_clock_is_finished(void)
{
    return atomic_load(&finished);
}

// ---- The board, which nccl/ provides ----

static void board_arrived(void *arg, const SimCall *call, SimPs when)
{
    if (peers) peers->board.arrived(peers->board.arg, call, when);
}

static bool board_start(void *arg, const SimCall *call, SimPs *when)
{
    return !peers || peers->board.start(peers->board.arg, call, when);
}

static SimPs board_missing(void *arg, const SimCall *call)
{
    return peers ? peers->board.missing(peers->board.arg, call) : SIM_FOREVER;
}

static void board_until(void *arg, SimPs when, SimPs request)
{
    if (peers) peers->board.until(peers->board.arg, when, request);
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

static void on_end(int status)
{
    if (!peers) sim_clock_finish(status);
}

SimRecorder *sim_clock_recorder(void)
{
    static const SimBoard board = {board_arrived, board_start, board_until, board_missing, NULL};
    if (recorder) return recorder;
    recorder =
        sim_recorder_new(sim_config()->machine, &sim_config()->spread, &board, launcher_rank());
    sim_record_on_span(recorder, span_hook, span_arg);
    sim_threads_begin();
    sim_on_end(on_end);
    return recorder;
}

SimRecorder *sim_clock_fed_recorder(void)
{
    sim_feed_all(sim_clock_recorder());
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

// The next time at which something happens here, or that others need.
SimPs sim_clock_next(void)
{
    SimPs next = sim_engine_next(sim_recorder_engine(recorder));
    SimPs wanted = peers && peers->is_wanted() ? peers->wanted() : SIM_FOREVER;
    return next < wanted ? next : wanted;
}

void sim_clock_turn(void)
{
    SimEngine *engine = sim_recorder_engine(sim_clock_recorder());
    uint64_t length = gpulog_length();
    atomic_store(&turned_at, length);
    if (sim_feed_behind(length) > log_room / 2)
        sim_feed_all(recorder); // before they are overwritten
    do {
        if (peers) peers->look();
        do sim_engine_run(engine, peers ? peers->wanted() : 0);
        while (sim_engine_wants_calls(engine) && sim_feed_some(recorder));
        if (!peers || !peers->is_hopeless(sim_engine_is_stuck(engine))) break;
        sim_engine_give_up(engine);
    } while (true);
    sim_record_tell(recorder);
    if (!sim_clock_has_waiters()) sim_record_tidy(recorder);
    if (peers) peers->publish();
}

// Ranks meet at a collective anyway. What one has published there lets the others resolve one
// more collective at their next one: so few calls stay unresolved, and no rank must ask another.
static bool is_wanted(void)
{
    return peers && peers->is_wanted();
}

static bool is_turn_due(uint64_t length, bool waits, bool meets)
{
    if (is_wanted() || (meets && peers)) return true;
    return length - atomic_load(&turned_at) >= (waits ? TURN : LATE);
}

static void turn_when_due(void)
{
    bool wanted = is_wanted();
    sim_clock_turn();
    if (!wanted && peers && sim_feed_behind(gpulog_length()) > MANY) peers->ask(sim_clock_next());
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

bool sim_clock_other_waiters(void)
{
    return atomic_load(&local_waiters) > 1;
}

// The same for a call that the log does not have.
static void after_call(void)
{
    if (is_wanted()) sim_clock_turn();
    bool ring = sim_clock_has_waiters();
    sim_clock_unlock();
    if (ring) sim_clock_ring();
}

// ---- Calls ----

// Whether the engine stops at the calling thread's clock. If it does not, also after queries, the
// call is recorded at once: else the engine could pass it.
static _Thread_local bool has_called;

// Without the lock: bad input ends the process.
static void begin(void)
{
    log_room = gpulog_room();
    if (sim_trace_begin(sim_clock_machine())) sim_clock_on_span(sim_trace_span, NULL);
}

void sim_clock_log(GpuLogEntry *entry)
{
    static pthread_once_t begun = PTHREAD_ONCE_INIT;
    pthread_once(&begun, begin);
    entry->thread = gpulog_thread();
    entry->scope = sim_scope();
    if (!sim_clock_on() || atomic_load(&finished)) {
        gpulog_write(entry);
        return;
    }
    bool locks = log_room < ROOM || !has_called;
    if (locks) sim_clock_lock();
    if (locks) sim_clock_thread();
    entry->index = gpulog_write(entry);
    if (locks) has_called = sim_record_has_called(sim_clock_fed_recorder(), entry->thread);
    bool meets = entry->collective.comm && !entry->collective.group_left;
    bool due = is_turn_due(entry->index + 1, entry->host_waits, meets);
    if (due && !locks) sim_clock_lock();
    if (due) turn_when_due();
    if (due || locks) sim_clock_unlock();
    if (sim_clock_has_waiters()) sim_clock_ring();
}

void sim_clock_pin(int device)
{
    if (!sim_clock_on() || atomic_load(&finished)) return;
    sim_clock_lock();
    int thread = sim_clock_thread();
    sim_record_call(sim_clock_fed_recorder(), thread, device, sim_clock_machine()->host.pin);
    after_call();
}

void sim_clock_forget_event(cudaEvent_t event)
{
    if (!sim_clock_on()) return;
    sim_clock_lock();
    if (recorder) sim_feed_forget_event(event);
    sim_clock_unlock();
}

void sim_clock_forget_stream(int device, uint32_t number)
{
    if (!sim_clock_on()) return;
    sim_clock_lock();
    if (recorder) sim_feed_forget_stream(device, number);
    sim_clock_unlock();
}

void sim_clock_set_rank(int device, int rank)
{
    if (!sim_clock_on()) return;
    sim_clock_lock();
    sim_record_set_rank(sim_clock_fed_recorder(), device, rank);
    sim_clock_unlock();
}

// ---- The program really waits, or is about to ----

static int begin_wait(void)
{
    sim_clock_lock();
    int thread = sim_clock_thread();
    sim_clock_fed_recorder();
    return thread;
}

static void end_wait(void)
{
    sim_clock_turn();
    sim_clock_unlock();
}

void sim_clock_before_operation(GpuLogEntry *entry)
{
    if (!sim_clock_on() || atomic_load(&finished)) return;
    entry->thread = begin_wait();
    sim_record_before_operation(recorder, entry);
    end_wait();
}

void sim_clock_before_comm(uint64_t comm, int rank)
{
    if (!sim_clock_on() || atomic_load(&finished)) return;
    int thread = begin_wait();
    sim_record_before_comm(recorder, thread, comm, rank);
    end_wait();
}

void sim_clock_before_wait(GpuLogEntry *entry)
{
    if (!sim_clock_on() || atomic_load(&finished)) return;
    entry->thread = begin_wait();
    sim_record_before_wait(recorder, entry);
    end_wait();
}

void sim_clock_inside(bool inside)
{
    if (!sim_clock_on() || atomic_load(&finished)) return;
    sim_clock_lock();
    sim_clock_thread();
    sim_thread_inside(inside ? 1 : -1);
    if (inside && peers && sim_feed_behind(gpulog_length()) > FEW) sim_clock_turn();
    sim_clock_unlock();
}

// ---- Questions ----

// A query of a thread that has made only queries waits until the process has run for a second and a
// second has passed; at most a minute.
static const SimPatience ASKER = {.seconds = 1.0, .processor = 1.0, .most = 60.0};

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
    bool earlier = !reached || (q->ends[0].end <= q->at.end && q->ends[1].end <= q->at.end);
    q->done = ended && earlier;
    return q->answered = reached || ended; // an item that is not reached is later than an ended one
}

// Queries at the thread's clock. One that has only queried does not wait long for other clocks.
static bool answer_now(Question *q, int thread)
{
    bool called = sim_record_has_called(recorder, thread);
    sim_resolve(is_answered, q, called ? NULL : &ASKER);
    return q->answered && q->done;
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
    sim_clock_fed_recorder();
    Question q = {.of = {item_of(entry)}};
    q.of[1] = q.of[0];
    q.clock = sim_record_query(recorder, thread, entry->device);
    bool ready = waited_for;
    if (waited_for)
        sim_record_join(recorder, thread, q.of[0]);
    else
        ready = answer_now(&q, thread);
    after_call();
    return ready;
}

bool sim_clock_elapsed(cudaEvent_t start, cudaEvent_t end, int device, bool waited_for, float *ms)
{
    if (atomic_load(&finished)) return false;
    sim_clock_lock();
    int thread = sim_clock_thread();
    sim_clock_fed_recorder();
    Question q = {
        .of = {sim_record_event_end(recorder, start), sim_record_event_end(recorder, end)}};
    if (waited_for)
        for (int i = 0; i < 2; i++) sim_record_join(recorder, thread, q.of[i]);
    q.clock = sim_record_clock(recorder, thread);
    bool ready = answer_now(&q, thread);
    if (ready) *ms = (float)((double)(int64_t)(q.ends[1].end - q.ends[0].end) / 1e9);
    if (!ready) sim_record_query(sim_clock_fed_recorder(), thread, device);
    after_call();
    return ready;
}

// ---- The end ----

static const SimPatience AT_THE_END = {.seconds = 30.0, .most = 30.0};

static bool nobody_needs_more(void *arg)
{
    const SimEngine *engine = sim_recorder_engine(recorder);
    if (sim_feed_behind(gpulog_length())) return false;
    if (!span_hook) return sim_engine_calls_to_come(engine) == 0;
    return sim_record_all_told(recorder);
}

void sim_clock_last_call(void)
{
    if (!sim_config_ready() || !sim_clock_on() || sim_is_forked() || atomic_load(&finished)) return;
    sim_clock_lock();
    if (recorder) sim_threads_over();
    if (recorder) sim_clock_turn();
    sim_clock_unlock();
}

void sim_clock_finish(int status)
{
    if (!sim_config_ready() || !sim_clock_on() || sim_is_forked()) return;
    sim_clock_lock();
    if (recorder && !atomic_exchange(&finished, true)) {
        sim_threads_over();
        if (status == 0) sim_resolve(nobody_needs_more, NULL, &AT_THE_END);
        if (peers) peers->over();
        if (span_hook) span_hook(NULL, span_arg);
    }
    sim_clock_unlock();
}
