/* clock_feed.c: the calls that are logged and not recorded yet.
 *
 * A call is only logged, so that between two calls the program has the processor's caches. Entries
 * are recorded in a burst when the engine has reached the clock of a thread, whose next calls it
 * needs then, or before a query or a call that the log does not have. Such a call, if nothing waits
 * for it, is kept with its place among the entries.
 *
 * All but sim_feed_behind are called with the clock's lock held.
 */
#include <stdatomic.h>
#include <string.h>

#include "log_writer.h"
#include "time/clock.h"
#include "time/tables.h"

#define BURST 64 // entries: as many as fit into the cache

// A call before the entry `index`, and after the entry before that.
typedef struct Aside {
    uint64_t index;
    enum { THREAD_BEGAN, THREAD_ENDED, FORGET_EVENT, FORGET_STREAM } kind;
    int thread;
    uint64_t in; // THREAD_BEGAN: the first thread's call
    cudaEvent_t event;
    int device; // … and number of a stream
    uint32_t number;
} Aside;

static _Atomic uint64_t fed; // entries
static Aside *asides;        // (n_asides, from first_aside on)
static size_t first_aside, n_asides, asides_room;

uint64_t sim_feed_behind(uint64_t length)
{
    uint64_t until = atomic_load_explicit(&fed, memory_order_relaxed);
    return length > until ? length - until : 0;
}

static void record_aside(SimRecorder *r, const Aside *aside)
{
    switch (aside->kind) {
    case THREAD_BEGAN: sim_record_thread_began(r, aside->thread, aside->in); break;
    case THREAD_ENDED: sim_record_thread_ended(r, aside->thread); break;
    case FORGET_EVENT: sim_record_forget_event(r, aside->event); break;
    case FORGET_STREAM: sim_record_forget_stream(r, aside->device, aside->number); break;
    }
}

static bool record_asides(SimRecorder *r, uint64_t index)
{
    bool any = false;
    for (; first_aside < n_asides && asides[first_aside].index <= index; first_aside++) {
        record_aside(r, &asides[first_aside]);
        any = true;
    }
    if (first_aside == n_asides) first_aside = n_asides = 0;
    return any;
}

// The cache lines of what an entry says of itself.
static void fetch(const GpuLogEntry *entry)
{
    for (size_t at = 0; at < offsetof(GpuLogEntry, range); at += 64)
        __builtin_prefetch((const char *)entry + at);
}

static bool feed(SimRecorder *r, uint64_t most)
{
    uint64_t from = atomic_load_explicit(&fed, memory_order_relaxed), length = gpulog_length();
    uint64_t until = length - from > most ? from + most : length;
    bool any = until > from;
    for (uint64_t i = from; i < until; i++) {
        record_asides(r, i);
        const GpuLogEntry *entry = gpulog_at(i);
        if (i + 1 < until) fetch(gpulog_at(i + 1));
        if (entry) sim_record_entry(r, entry);
    }
    atomic_store_explicit(&fed, until, memory_order_relaxed);
    if (until == length) any |= record_asides(r, length);
    return any;
}

bool sim_feed_some(SimRecorder *r)
{
    return feed(r, BURST);
}

void sim_feed_all(SimRecorder *r)
{
    feed(r, UINT64_MAX);
}

static void add(Aside aside)
{
    if (n_asides == asides_room) {
        asides_room = asides_room ? 2 * asides_room : 64;
        asides = sim_table_grow(asides, asides_room, sizeof *asides);
    }
    asides[n_asides++] = aside;
}

static _Atomic uint64_t first_is_in; // one more than the log's length when it began; 0: in none

void sim_clock_in_call(bool in)
{
    if (sim_clock_on() && gpulog_thread() == 0)
        atomic_store(&first_is_in, in ? gpulog_length() + 1 : 0);
}

// Reads the log's length first: the entry of a call that begins after that is later.
void sim_feed_thread_began(int thread)
{
    Aside aside = {.index = gpulog_length(), .kind = THREAD_BEGAN, .thread = thread};
    uint64_t in = atomic_load(&first_is_in);
    aside.in = in - 1;
    if (in) add(aside);
}

void sim_feed_thread_ended(int thread)
{
    add((Aside){.index = gpulog_length(), .kind = THREAD_ENDED, .thread = thread});
}

void sim_feed_forget_event(cudaEvent_t event)
{
    add((Aside){.index = gpulog_length(), .kind = FORGET_EVENT, .event = event});
}

void sim_feed_forget_stream(int device, uint32_t number)
{
    add((Aside){
        .index = gpulog_length(), .kind = FORGET_STREAM, .device = device, .number = number});
}
