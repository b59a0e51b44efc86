/* resolve.c: waits for a time, and the thread that answers other processes.
 *
 * A thread that needs a time runs the engine. If the engine is at the clock of another thread, or
 * waits for ranks of other processes, the thread asks those and sleeps until there is news. A
 * process that has communicators with others has a thread to answer them, the resolver, since its
 * own threads may be in long host code: it sleeps until it is asked, runs the engine, and publishes
 * the result.
 *
 * No wait for a sleeping thread lasts forever: see "What is outside" in simgpu/pages/time.md.
 */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "simgpu.h"
#include "time/clock.h"

#define LOOK_MILLISECONDS 30 // between two checks of threads that may sleep

static bool started;

static double seconds(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

// A wait, since something was last resolved.
typedef struct Wait {
    double began, ran; // the time then, and how long the process had run
    SimItem reached;
} Wait;

// Seconds for which it is worth waiting on; 0: none.
static double left_of(Wait *wait, const SimPatience *patience, SimItem reached)
{
    if (!patience) return 1e9;
    double now = seconds(CLOCK_MONOTONIC), ran = seconds(CLOCK_PROCESS_CPUTIME_ID);
    if (wait->began == 0 || reached > wait->reached) *wait = (Wait){now, ran, reached};
    double waited = now - wait->began;
    bool patient = waited < patience->seconds || ran - wait->ran < patience->processor;
    return patient && waited < patience->most ? patience->most - waited : 0;
}

// milliseconds: 0: until the bell rings.
static void sleep_at(_Atomic uint32_t *bell, uint32_t ticket, int milliseconds)
{
    struct timespec limit = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
    syscall(SYS_futex, bell, FUTEX_WAIT, ticket, milliseconds ? &limit : NULL, NULL, 0);
}

// The threads that wait for a time, and for what. With the lock held.
typedef struct Waiter {
    bool (*done)(void *arg);
    void *arg;
    struct Waiter *next;
} Waiter;
static Waiter *waiters;

static void remove_waiter(const Waiter *waiter)
{
    Waiter **at = &waiters;
    while (*at != waiter) at = &(*at)->next;
    *at = waiter->next;
}

// Whether other ranks must proceed before anything can happen here. Those that are behind do so
// without this process; one that is not behind may in turn wait for it, and then publishes that.
static bool others_come_first(void)
{
    const SimPeers *peers = sim_clock_peers();
    SimHeld held = sim_engine_held(sim_recorder_engine(sim_clock_recorder()));
    bool wanted = peers && peers->is_wanted();
    return held == SIM_HELD_BY_RANKS_BEHIND || (held == SIM_HELD_BY_RANKS_AS_FAR && !wanted);
}

// As sim_clock_release_sleepers. But a thread that only has to wake up to have its answer may be
// about to make its first call, and nothing else would hold back the engine for that. And if other
// ranks must proceed first, a released sleeper would be later than what wakes it, perhaps one of
// them.
static bool release_sleepers(int but, bool again)
{
    if (others_come_first()) return false;
    for (const Waiter *w = waiters; w; w = w->next)
        if (w->done(w->arg)) return false;
    return sim_clock_release_sleepers(but, sim_clock_next(), again);
}

bool sim_resolve(bool (*done)(void *arg), void *arg, const SimPatience *patience)
{
    Wait wait = {0};
    Waiter waiter = {done, arg, waiters};
    int self = sim_clock_thread(), nap = LOOK_MILLISECONDS;
    const SimPeers *peers = sim_clock_peers();
    const SimEngine *engine = sim_recorder_engine(sim_clock_recorder());
    bool is_done, released = false;
    sim_clock_local_waiter(1);
    sim_thread_inside(1);
    waiters = &waiter;
    for (;;) {
        _Atomic uint32_t *bell = sim_clock_bell();
        uint32_t ticket = atomic_load(bell);
        SimPs before = sim_engine_now(engine);
        sim_clock_turn();
        if (sim_engine_now(engine) > before && sim_clock_other_waiters()) sim_clock_ring();
        is_done = done(arg);
        if (is_done) break;
        double left = left_of(&wait, patience, sim_engine_oldest(engine));
        if (left <= 0) break;
        released = release_sleepers(self, released);
        if (released) continue;
        if (peers) peers->ask(sim_clock_next());
        if (left < 1e-3 * nap) nap = (int)(left * 1e3) + 1;
        sim_clock_unlock();
        sleep_at(bell, ticket, nap);
        sim_clock_lock_again();
    }
    if (peers) peers->asked_enough();
    remove_waiter(&waiter);
    sim_thread_inside(-1);
    sim_clock_local_waiter(-1);
    return is_done;
}

// ---- The thread that answers others ----

static void *answer(void *arg)
{
    const SimPeers *peers = arg;
    for (;;) {
        uint32_t ticket = atomic_load(peers->bell);
        int nap = 0;
        sim_clock_lock();
        if (!sim_clock_has_waiters() && peers->is_wanted()) {
            bool more, released = false;
            do {
                sim_clock_turn();
                more = peers->is_wanted();
                released = more && release_sleepers(-1, released);
            } while (released);
            if (more) peers->ask(sim_clock_next());
            if (!more) peers->asked_enough();
            nap = more ? LOOK_MILLISECONDS : 0;
        }
        sim_clock_unlock();
        sleep_at(peers->bell, ticket, nap);
    }
    return NULL;
}

void sim_resolve_start(void)
{
    if (started) return;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); // the program's threads handle its signals
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_t thread;
    started = pthread_create(&thread, &attr, answer, (void *)(uintptr_t)sim_clock_peers()) == 0;
    if (started) simgpu_helper_threads(1);
    pthread_attr_destroy(&attr);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}
