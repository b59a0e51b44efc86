/* parallel.c: the threads of a process that share the work of a kernel or of a matrix product.
 *
 * The first job that is worth sharing starts a pool of at most SIMGPU_THREADS - 1 workers. The
 * workers share one job at a time: a thread that finds them busy with another thread's job does its
 * own job alone. (A process has one such thread per device.) A job that begins within a piece of
 * another is also done by its own thread alone. The result of a piece does not depend on the thread
 * that computes it.
 *
 * The pieces of a job are in parts, and each thread begins with its own part: it did the same part
 * of the last kernel, so its cache often holds what this kernel reads there. A thread whose part is
 * done helps with the others. A job has places: one for each worker that it can use, at most one
 * less than its pieces. A worker that comes too late for a place stays out of the job, and the
 * caller waits only for workers that have entered. An idle worker polls for a job for a moment and
 * then sleeps. Waking a worker often takes longer than computing a piece, so the caller wakes
 * workers only for the places that are left when each polling worker has taken one. A forked
 * process has no workers and starts its own.
 *
 * Interface: simgpu_parallel.
 */
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/config.h"
#include "core/threads.h"
#include "simgpu.h"

enum { MOST_PARTS = 16 };

typedef struct Job {
    void (*body)(void *arg, size_t begin, size_t end);
    void *arg;
    size_t n, grain, pieces, parts;
    atomic_size_t next[MOST_PARTS]; // for each part: its first piece that nobody has taken
} Job;

// The state of the pool in one word: how many workers are in the job, how many places are free, and
// the number of the job.
#define INSIDE(state) ((state)&0xfff)
#define ONE_PLACE ((uint64_t)1 << 12)
#define PLACES (0xfff * ONE_PLACE)
#define ONE_JOB ((uint64_t)1 << 24)

static struct Pool {
    // All workers poll `state`. It has its own cache line, together with `job`, which changes with
    // it.
    _Alignas(SIM_CACHE_LINE) _Atomic uint64_t state;
    Job *job;
    // How many workers poll for a job, and how many wait for the bell: a futex, rung when a job has
    // more places than there are workers polling.
    _Alignas(SIM_CACHE_LINE) atomic_int looking;
    atomic_int asleep;
    atomic_uint bell;
    _Alignas(SIM_CACHE_LINE) pthread_mutex_t owner; // held by the thread whose job it is
    int workers;                                    // started
    pthread_mutex_t lock;                           // guards what follows
    pthread_cond_t arrived;                         // the owner waits for it
    atomic_int waits;                               // whether the owner waits for `arrived`
    int ready;                                      // workers that have registered
} pool;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Thread_local bool inside; // whether this thread is in a job: a job that it begins now, it
                                  // does alone
static _Thread_local size_t self; // 0: whoever calls; the workers are 1, 2, 3 …

// How many times a thread polls before it sleeps. If it has a processor to itself, that takes about
// as long as a matrix product, 0.4 to 1 ms; if not, 20 to 50 us.
enum { LOOKS = 20000, LOOKS_CROWDED = 1000 };

static int looks(void)
{
    return sim_config()->crowded ? LOOKS_CROWDED : LOOKS;
}

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
    pthread_cond_init(&pool.arrived, NULL);
    pool.job = NULL;
    pool.workers = pool.ready = 0;
    atomic_store(&pool.state, 0);
    atomic_store(&pool.looking, 0);
    atomic_store(&pool.asleep, 0);
    atomic_store(&pool.waits, 0);
}

static void make_pool(void)
{
    clear_pool();
    pthread_atfork(NULL, NULL, clear_pool);
}

static size_t first_piece(const Job *job, size_t part)
{
    return part * job->pieces / job->parts;
}

// Reads the counter before it adds to it: many threads find a part that is finished, and a write
// would remove the counter from the caches of all others.
static void take_part(Job *job, size_t part)
{
    atomic_size_t *next = &job->next[part];
    size_t piece, end = first_piece(job, part + 1);
    while (atomic_load(next) < end && (piece = atomic_fetch_add(next, 1)) < end) {
        size_t begin = piece * job->grain;
        job->body(job->arg, begin, job->n - begin < job->grain ? job->n : begin + job->grain);
    }
}

static void take_pieces(Job *job)
{
    size_t own = self * job->parts / (size_t)sim_config()->threads;
    for (size_t i = 0; i < job->parts; i++) take_part(job, (own + i) % job->parts);
}

// ---- Workers ----

// Whether there is a job with a free place that this worker has not been in; `seen` is the state at
// its last job.
static bool is_new(uint64_t state, uint64_t seen)
{
    return (state & PLACES) != 0 && state / ONE_JOB != seen / ONE_JOB;
}

// Takes a place in such a job; false: there is none.
static bool enter(uint64_t *seen)
{
    uint64_t state = atomic_load(&pool.state);
    while (is_new(state, *seen)) {
        if (!atomic_compare_exchange_weak(&pool.state, &state, state + 1 - ONE_PLACE)) continue;
        *seen = state;
        return true;
    }
    return false;
}

// Polls for a job for a while.
static bool find_job(uint64_t *seen)
{
    bool in;
    atomic_fetch_add(&pool.looking, 1);
    for (int i = looks(); !(in = enter(seen)) && i > 0; i--) look_away();
    atomic_fetch_sub(&pool.looking, 1);
    return in;
}

// Sleeps until the bell rings; returns at once if there is a new job already. A thread that opens a
// job writes the state and then reads how many sleep. A worker counts itself as asleep, notes the
// bell and then reads the state. So one of the two sees the other.
static void sleep_until_bell(uint64_t seen)
{
    atomic_fetch_add(&pool.asleep, 1);
    unsigned bell = atomic_load(&pool.bell);
    if (!is_new(atomic_load(&pool.state), seen))
        syscall(SYS_futex, &pool.bell, FUTEX_WAIT_PRIVATE, bell, NULL, NULL, 0);
    atomic_fetch_sub(&pool.asleep, 1);
}

static void leave(void)
{
    uint64_t before = atomic_fetch_sub(&pool.state, 1);
    if (INSIDE(before) > 1 || (before & PLACES) || !atomic_load(&pool.waits)) return;
    pthread_mutex_lock(&pool.lock);
    pthread_cond_signal(&pool.arrived);
    pthread_mutex_unlock(&pool.lock);
}

static void *work(void *arg)
{
    uint64_t seen = 0;
    inside = true;
    self = (size_t)arg;
    sim_worker_here();
    pthread_mutex_lock(&pool.lock);
    pool.ready++;
    pthread_cond_signal(&pool.arrived);
    pthread_mutex_unlock(&pool.lock);
    for (;;) {
        while (!find_job(&seen)) sleep_until_bell(seen);
        take_pieces(pool.job);
        leave();
    }
    return NULL;
}

// Workers block all signals, which are for the program's threads, except those that their own
// faults raise.
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

// Starts workers until there are `wanted`, or as many as the system grants. When it returns, each
// has registered itself as a worker, so that it is not counted among the program's threads.
static void start_workers(int wanted)
{
    sigset_t before;
    block_signals(&before);
    for (pthread_t thread; pool.workers < wanted; pool.workers++) {
        if (pthread_create(&thread, NULL, work, (void *)(size_t)(pool.workers + 1))) break;
        pthread_detach(thread);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_mutex_lock(&pool.lock);
    while (pool.ready < pool.workers) pthread_cond_wait(&pool.arrived, &pool.lock);
    pthread_mutex_unlock(&pool.lock);
}

// ---- The thread whose job it is ----

static void open_job(Job *job, int places)
{
    pool.job = job;
    uint64_t number = atomic_load(&pool.state) / ONE_JOB + 1;
    atomic_store(&pool.state, number * ONE_JOB | (uint64_t)places * ONE_PLACE);
    int more = places - atomic_load(&pool.looking);
    if (more <= 0 || atomic_load(&pool.asleep) == 0) return;
    atomic_fetch_add(&pool.bell, 1);
    syscall(SYS_futex, &pool.bell, FUTEX_WAKE_PRIVATE, more, NULL, NULL, 0);
}

static void close_job(void)
{
    uint64_t state = atomic_fetch_and(&pool.state, ~PLACES);
    for (int i = looks(); i > 0 && INSIDE(state) > 0; i--) {
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

static void divide(Job *job, size_t threads)
{
    job->pieces = (job->n - 1) / job->grain + 1;
    job->parts = job->pieces < threads ? job->pieces : threads;
    if (job->parts > MOST_PARTS) job->parts = MOST_PARTS;
    for (size_t part = 0; part < job->parts; part++)
        atomic_init(&job->next[part], first_piece(job, part));
}

// False: the workers are busy with another thread's job.
static bool share(Job *job, int threads)
{
    pthread_once(&once, make_pool);
    if (pthread_mutex_trylock(&pool.owner)) return false;
    if (pool.workers < threads - 1) start_workers(threads - 1);
    divide(job, (size_t)threads);
    size_t others = job->pieces - 1;
    inside = true;
    open_job(job, others < (size_t)pool.workers ? (int)others : pool.workers);
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
        Job job = {.body = body, .arg = arg, .n = n, .grain = grain};
        if (share(&job, threads)) return;
    }
    body(arg, 0, n);
}
