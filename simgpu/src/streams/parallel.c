/* parallel.c: the threads of a process that share the work of a kernel or of a product.
 *
 * A pool of at most SIMGPU_THREADS - 1 workers, started by the first work that is worth sharing.
 * One piece of work is shared at a time: a thread that finds the workers busy with another one's
 * (one thread per device) does its own work alone, and so does work that begins within a piece.
 * What a piece computes does not depend on who does it, so neither is seen in results.
 *
 * Workers take pieces from a common counter. One that comes too late for a job stays out of it: the
 * caller waits for those that have entered it alone. Idle workers look for a job for a moment and
 * then sleep; a process forked meanwhile has none, and starts its own.
 *
 * Interface: simgpu_parallel.
 */
#include <signal.h>
#include <stdatomic.h>

#include "simgpu.h"
#include "streams/streams.h"

typedef struct Job {
    void (*body)(void *arg, size_t begin, size_t end);
    void *arg;
    size_t n, grain;
    atomic_size_t next; // the first number that nobody has taken
} Job;

// The state of the pool in one word: workers that are in the job, whether it is open to more, and
// the job's number.
#define INSIDE(state) ((state)&0xffff)
#define OPEN ((uint64_t)1 << 16)
#define ONE_JOB ((uint64_t)1 << 17)

static struct Pool {
    pthread_mutex_t owner; // held by the thread whose job it is
    Job *job;
    _Atomic uint64_t state;
    int workers;                  // started
    pthread_mutex_t lock;         // of what follows
    pthread_cond_t wake, arrived; // workers; the owner
    atomic_int asleep, waits;     // workers that wait for `wake`; whether the owner waits
    int ready;                    // workers that have said who they are
} pool;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Thread_local bool inside; // of a job: what this thread begins now, it does alone

enum { LOOKS = 1000 }; // before a thread sleeps: some 20 us

static void look_away(void)
{
#if defined __x86_64__
    __builtin_ia32_pause();
#elif defined __aarch64__
    __asm__ volatile("yield");
#endif
}

static void clear_pool(void)
{
    pthread_mutex_init(&pool.owner, NULL);
    pthread_mutex_init(&pool.lock, NULL);
    pthread_cond_init(&pool.wake, NULL);
    pthread_cond_init(&pool.arrived, NULL);
    pool.job = NULL;
    pool.workers = pool.ready = 0;
    atomic_store(&pool.state, 0);
    atomic_store(&pool.asleep, 0);
    atomic_store(&pool.waits, 0);
}

static void make_pool(void)
{
    clear_pool();
    pthread_atfork(NULL, NULL, clear_pool);
}

static void take_pieces(Job *job)
{
    size_t begin;
    while ((begin = atomic_fetch_add(&job->next, job->grain)) < job->n) {
        size_t end = job->n - begin < job->grain ? job->n : begin + job->grain;
        job->body(job->arg, begin, end);
    }
}

// ---- Workers ----

// A job that this worker has not been in: *seen is the last one's state.
static bool is_new(uint64_t state, uint64_t seen)
{
    return (state & OPEN) && state / ONE_JOB != seen / ONE_JOB;
}

// Waits for a job that is open, and enters it; false: it was closed meanwhile.
static bool enter(uint64_t *seen)
{
    uint64_t state = atomic_load(&pool.state);
    for (int i = 0; i < LOOKS && !is_new(state, *seen); i++) {
        look_away();
        state = atomic_load(&pool.state);
    }
    if (!is_new(state, *seen)) {
        pthread_mutex_lock(&pool.lock);
        atomic_fetch_add(&pool.asleep, 1);
        while (!is_new(state = atomic_load(&pool.state), *seen))
            pthread_cond_wait(&pool.wake, &pool.lock);
        atomic_fetch_sub(&pool.asleep, 1);
        pthread_mutex_unlock(&pool.lock);
    }
    *seen = state;
    return atomic_compare_exchange_strong(&pool.state, &state, state + 1);
}

static void leave(void)
{
    uint64_t before = atomic_fetch_sub(&pool.state, 1);
    if (INSIDE(before) > 1 || (before & OPEN) || !atomic_load(&pool.waits)) return;
    pthread_mutex_lock(&pool.lock);
    pthread_cond_signal(&pool.arrived);
    pthread_mutex_unlock(&pool.lock);
}

static void *work(void *arg)
{
    uint64_t seen = 0;
    inside = true;
    sim_worker_here();
    pthread_mutex_lock(&pool.lock);
    pool.ready++;
    pthread_cond_signal(&pool.arrived);
    pthread_mutex_unlock(&pool.lock);
    for (;;) {
        uint64_t last = seen;
        if (!enter(&seen)) {
            seen = last; // another one entered at the same moment, or the job is done
            continue;
        }
        take_pieces(pool.job);
        leave();
    }
    return NULL;
}

// The program's signals are for the program's threads; what a thread's own faults raise stays.
static void block_signals(sigset_t *before)
{
    sigset_t all;
    sigfillset(&all);
    sigdelset(&all, SIGSEGV);
    sigdelset(&all, SIGBUS);
    sigdelset(&all, SIGFPE);
    sigdelset(&all, SIGILL);
    sigdelset(&all, SIGTRAP);
    pthread_sigmask(SIG_SETMASK, &all, before);
}

// Has so many workers, or as many as the system grants, and each is known as none of the program's
// threads.
static void start_workers(int wanted)
{
    sigset_t before;
    block_signals(&before);
    for (pthread_t thread; pool.workers < wanted; pool.workers++) {
        if (pthread_create(&thread, NULL, work, NULL)) break;
        pthread_detach(thread);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_mutex_lock(&pool.lock);
    while (pool.ready < pool.workers) pthread_cond_wait(&pool.arrived, &pool.lock);
    pthread_mutex_unlock(&pool.lock);
}

// ---- The thread whose job it is ----

static void open_job(Job *job)
{
    pool.job = job;
    uint64_t number = atomic_load(&pool.state) / ONE_JOB + 1;
    atomic_store(&pool.state, number * ONE_JOB | OPEN);
    if (!atomic_load(&pool.asleep)) return;
    pthread_mutex_lock(&pool.lock);
    pthread_cond_broadcast(&pool.wake);
    pthread_mutex_unlock(&pool.lock);
}

static void close_job(void)
{
    uint64_t state = atomic_fetch_and(&pool.state, ~OPEN);
    for (int i = 0; i < LOOKS && INSIDE(state) > 0; i++) {
        look_away();
        state = atomic_load(&pool.state);
    }
    if (INSIDE(state) == 0) return;
    pthread_mutex_lock(&pool.lock);
    atomic_store(&pool.waits, 1);
    while (INSIDE(atomic_load(&pool.state)) > 0) pthread_cond_wait(&pool.arrived, &pool.lock);
    atomic_store(&pool.waits, 0);
    pthread_mutex_unlock(&pool.lock);
}

// False: the workers do another thread's job.
static bool share(Job *job, int threads)
{
    pthread_once(&once, make_pool);
    if (pthread_mutex_trylock(&pool.owner)) return false;
    if (pool.workers < threads - 1) start_workers(threads - 1);
    inside = true;
    open_job(job);
    take_pieces(job);
    close_job();
    inside = false;
    pthread_mutex_unlock(&pool.owner);
    return true;
}

void simgpu_parallel(size_t n, size_t grain, void (*body)(void *arg, size_t begin, size_t end),
                     void *arg)
{
    if (n == 0) return;
    int threads = sim_config()->threads;
    if (threads > 1 && n > grain && !inside) {
        Job job = {body, arg, n, grain, 0};
        if (share(&job, threads)) return;
    }
    body(arg, 0, n);
}
