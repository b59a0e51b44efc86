/* parallel.c: simgpu_parallel: which pieces a body gets, on which threads, nested, from several
 * threads at once and after a fork.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"
#include "simgpu.h"

// What a body notes of its calls.
typedef struct Calls {
    size_t n, grain;
    atomic_int seen[4096], calls, wrong;
} Calls;

static void note(void *arg, size_t begin, size_t end)
{
    Calls *c = arg;
    atomic_fetch_add(&c->calls, 1);
    bool all = begin == 0 && end == c->n;
    bool piece = begin % c->grain == 0 && end - begin <= c->grain &&
                 (end == c->n || end - begin == c->grain);
    if (begin >= end || end > c->n || (!all && !piece)) atomic_fetch_add(&c->wrong, 1);
    for (size_t i = begin; i < end; i++) atomic_fetch_add(&c->seen[i], 1);
}

static void with_threads(int world, int threads, RankBody body, void *arg)
{
    char text[8];
    snprintf(text, sizeof text, "%d", threads);
    setenv("SIMGPU_THREADS", text, 1);
    run_ranks(world, body, arg);
    unsetenv("SIMGPU_THREADS");
}

static void each_number_once(const Rank *r, void *arg)
{
    static const size_t sizes[][2] = {{0, 1},   {1, 1},    {5, 5},      {6, 5},     {4096, 1},
                                      {13, 64}, {777, 10}, {4095, 512}, {4096, 512}};
    Calls *c = calloc(1, sizeof *c);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        c->n = sizes[s][0];
        c->grain = sizes[s][1];
        atomic_store(&c->calls, 0);
        for (size_t i = 0; i < 4096; i++) atomic_store(&c->seen[i], 0);
        simgpu_parallel(c->n, c->grain, note, c);
        check(atomic_load(&c->wrong) == 0, "%zu by %zu: a call has no piece", c->n, c->grain);
        int calls = atomic_load(&c->calls), threads = *(int *)arg;
        int pieces = (int)((c->n + c->grain - 1) / c->grain);
        check(calls == (threads > 1 || c->n == 0 ? pieces : 1), "%zu by %zu: %d calls", c->n,
              c->grain, calls);
        for (size_t i = 0; i < 4096; i++)
            check(atomic_load(&c->seen[i]) == (i < c->n), "%zu by %zu: number %zu is in %d calls",
                  c->n, c->grain, i, atomic_load(&c->seen[i]));
    }
    free(c);
}
TEST(test_each_number_once)
{
    static const int threads[] = {1, 2, 3, 16, 33};
    for (size_t i = 0; i < sizeof threads / sizeof *threads; i++) {
        int n = threads[i];
        with_threads(1, n, each_number_once, &n);
    }
}

// ---- Which threads ----

static int threads_of_process(void)
{
    int n = 0;
    DIR *tasks = opendir("/proc/self/task");
    check(tasks != NULL, "there is no /proc");
    for (struct dirent *e; (e = readdir(tasks)) != NULL;) n += e->d_name[0] != '.';
    closedir(tasks);
    return n;
}

// A piece for each of so many threads: none ends before all have begun.
typedef struct Meeting {
    int threads;
    atomic_int there, blocked;
    pthread_t caller;
} Meeting;

static void meet(void *arg, size_t begin, size_t end)
{
    Meeting *m = arg;
    sigset_t mask;
    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    if (!pthread_equal(pthread_self(), m->caller) && sigismember(&mask, SIGUSR1) &&
        !sigismember(&mask, SIGSEGV))
        atomic_fetch_add(&m->blocked, 1);
    atomic_fetch_add(&m->there, 1);
    while (atomic_load(&m->there) < m->threads) sched_yield();
}

// The pool's threads take part, all of them, again and again; the program's signals are not theirs.
static void meet_all(int threads)
{
    for (int round = 0; round < 20; round++) {
        Meeting m = {.threads = threads, .caller = pthread_self()};
        simgpu_parallel((size_t)threads, 1, meet, &m);
        check(atomic_load(&m.there) == threads, "%d were there", atomic_load(&m.there));
        check(atomic_load(&m.blocked) == threads - 1, "%d workers block SIGUSR1 and no SIGSEGV",
              atomic_load(&m.blocked));
        if (round % 5 == 0) usleep(5000); // so long that the workers sleep
    }
}

static void all_take_part(const Rank *r, void *arg)
{
    const int threads = *(int *)arg;
    Calls *c = calloc(1, sizeof *c);
    int before = threads_of_process();
    c->n = c->grain = 100;
    simgpu_parallel(c->n, c->grain, note, c);
    check(threads_of_process() == before, "one piece has started threads");
    for (int n = 2; n <= threads; n += 3) meet_all(n); // fewer pieces than threads, too
    meet_all(threads);
    check(threads_of_process() == before + threads - 1, "%d threads, not %d and %d workers",
          threads_of_process(), before, threads - 1);
    free(c);
}
TEST(test_all_take_part)
{
    static const int worlds[][2] = {{2, 4}, {1, 16}};
    for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++) {
        int threads = worlds[i][1];
        with_threads(worlds[i][0], threads, all_take_part, &threads);
    }
}

// What each thread of a job gets first; none goes on before all have something.
enum { FIRST_THREADS = 16, FIRST_PART = 4 };
typedef struct Firsts {
    int threads, job;
    atomic_int there;
    pthread_t thread[FIRST_THREADS];
    size_t piece[FIRST_THREADS];
} Firsts;

static void note_first(void *arg, size_t begin, size_t end)
{
    static _Thread_local int job;
    Firsts *f = arg;
    if (job == f->job) return;
    job = f->job;
    int i = atomic_fetch_add(&f->there, 1);
    f->thread[i] = pthread_self();
    f->piece[i] = begin;
    while (atomic_load(&f->there) < f->threads) sched_yield();
}

static size_t first_of(const Firsts *f, pthread_t thread)
{
    for (int i = 0; i < f->threads; i++)
        if (pthread_equal(f->thread[i], thread)) return f->piece[i];
    return SIZE_MAX;
}

static void begins_with_its_own(const Rank *r, void *arg)
{
    Firsts f[20] = {{0}};
    int threads = *(int *)arg;
    for (int job = 0; job < 20; job++) {
        f[job].threads = threads;
        f[job].job = job + 1;
        simgpu_parallel((size_t)threads * FIRST_PART, 1, note_first, &f[job]);
        check(first_of(&f[job], pthread_self()) == 0, "the caller began with piece %zu",
              first_of(&f[job], pthread_self()));
        for (int i = 0; i < threads; i++) {
            size_t first = f[job].piece[i], before = first_of(&f[0], f[job].thread[i]);
            check(first % FIRST_PART == 0, "%d threads: one began with piece %zu", threads, first);
            check(first == before, "%d threads: one began with piece %zu, and before with %zu",
                  threads, first, before);
        }
    }
}
TEST(test_begins_with_its_own)
{
    static const int worlds[] = {2, 3, FIRST_THREADS};
    for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++) {
        int threads = worlds[i];
        with_threads(1, threads, begins_with_its_own, &threads);
    }
}

static void one_thread_starts_none(const Rank *r, void *arg)
{
    Calls *c = calloc(1, sizeof *c);
    int before = threads_of_process();
    c->n = 4096;
    c->grain = 1;
    simgpu_parallel(c->n, c->grain, note, c);
    check(threads_of_process() == before, "a process of one thread has started others");
    free(c);
}
TEST(test_one_thread_starts_none)
{
    with_threads(1, 1, one_thread_starts_none, NULL);
}

// ---- Within a piece, beside each other, after a fork ----

typedef struct Inner {
    pthread_t thread;
    atomic_int *wrong;
} Inner;

static void inner(void *arg, size_t begin, size_t end)
{
    const Inner *i = arg;
    if (begin != 0 || end != 8 || !pthread_equal(pthread_self(), i->thread))
        atomic_fetch_add(i->wrong, 1);
}

static void outer(void *arg, size_t begin, size_t end)
{
    Inner i = {pthread_self(), arg};
    simgpu_parallel(8, 1, inner, &i);
}

static void within_a_piece(const Rank *r, void *arg)
{
    atomic_int wrong = 0;
    for (int round = 0; round < 50; round++) simgpu_parallel(16, 1, outer, &wrong);
    check(atomic_load(&wrong) == 0, "%d calls within a piece were shared", atomic_load(&wrong));
    meet_all(3);
}
TEST(test_within_a_piece)
{
    with_threads(1, 3, within_a_piece, NULL);
}

static void square(void *arg, size_t begin, size_t end)
{
    uint64_t *x = arg;
    for (size_t i = begin; i < end; i++) x[i] = i * i;
}

static void *squares(void *arg)
{
    enum { MANY = 3001 };
    uint64_t *x = malloc(MANY * sizeof *x);
    for (int round = 0; round < 200; round++) {
        for (size_t i = 0; i < MANY; i++) x[i] = 0;
        simgpu_parallel(MANY, 100, square, x);
        for (size_t i = 0; i < MANY; i++)
            if (x[i] != i * i) atomic_fetch_add((atomic_int *)arg, 1);
    }
    free(x);
    return NULL;
}

static void beside_each_other(const Rank *r, void *arg)
{
    enum { CALLERS = 4 };
    pthread_t caller[CALLERS];
    atomic_int wrong = 0;
    for (int i = 0; i < CALLERS; i++)
        check(pthread_create(&caller[i], NULL, squares, &wrong) == 0, "no thread");
    for (int i = 0; i < CALLERS; i++) pthread_join(caller[i], NULL);
    check(atomic_load(&wrong) == 0, "%d numbers were not there", atomic_load(&wrong));
}
TEST(test_beside_each_other)
{
    with_threads(1, 3, beside_each_other, NULL);
}

// The child has none of its parent's workers, and starts its own.
static void after_a_fork(const Rank *r, void *arg)
{
    meet_all(3);
    pid_t child = fork();
    check(child >= 0, "no process");
    if (child == 0) {
        meet_all(3);
        _exit(7);
    }
    int status;
    check(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7,
          "the child ended with status %#x", (unsigned)status);
    meet_all(3);
}
TEST(test_after_a_fork)
{
    with_threads(1, 3, after_a_fork, NULL);
}

SUITE_MAIN("threads of a kernel")
