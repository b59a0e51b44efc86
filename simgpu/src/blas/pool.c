/* pool.c: threads that share the blocks of a product.
 *
 * A block is one piece of work, whoever does it, so results do not depend on how many threads there
 * are, nor on who is free. One caller has the threads at a time; a second one does its pieces
 * itself. The threads are made when they are first wanted, sleep in between, and end with the
 * process; a forked child makes its own.
 *
 * Interface: simblas_share.
 */
#include <signal.h>

#include "blas.h"

#define MOST_WORKERS 255

static struct {
    pthread_mutex_t mine; // held by the caller that has the threads
    pthread_mutex_t lock; // of everything below
    pthread_cond_t wake, done;
    int workers;
    int wanted; // how many of them may work on this
    int next, pieces, left;
    void (*work)(void *arg, int piece);
    void *arg;
} pool = {PTHREAD_MUTEX_INITIALIZER,
          PTHREAD_MUTEX_INITIALIZER,
          PTHREAD_COND_INITIALIZER,
          PTHREAD_COND_INITIALIZER,
          0,
          0,
          0,
          0,
          0,
          NULL,
          NULL};

// Works until no piece is left to begin. The caller holds the lock.
static void work_off(void)
{
    while (pool.next < pool.pieces) {
        int piece = pool.next++;
        void (*work)(void *, int) = pool.work;
        void *arg = pool.arg;
        pthread_mutex_unlock(&pool.lock);
        work(arg, piece);
        pthread_mutex_lock(&pool.lock);
        if (--pool.left == 0) pthread_cond_signal(&pool.done);
    }
}

static void *work_on(void *number)
{
    pthread_mutex_lock(&pool.lock);
    for (;;) {
        if ((int)(intptr_t)number < pool.wanted) work_off();
        pthread_cond_wait(&pool.wake, &pool.lock);
    }
    return NULL;
}

// No signal of the program's goes to one of these threads. Fewer than wanted is no error.
static void make_workers(int wanted)
{
    sigset_t all, before;
    pthread_t thread;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (pool.workers < wanted && pool.workers < MOST_WORKERS) {
        if (pthread_create(&thread, NULL, work_on, (void *)(intptr_t)pool.workers)) break;
        pthread_detach(thread);
        pool.workers++;
        simgpu_helper_threads(1); // it never calls a collective
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

// A fork leaves the child the locks as they were, and no threads.
static void start_anew(void)
{
    pthread_mutex_init(&pool.mine, NULL);
    pthread_mutex_init(&pool.lock, NULL);
    pthread_cond_init(&pool.wake, NULL);
    pthread_cond_init(&pool.done, NULL);
    pool.workers = pool.wanted = pool.next = pool.pieces = pool.left = 0;
}
static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, start_anew);
}

void simblas_share(int threads, int pieces, void (*work)(void *arg, int piece), void *arg)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    int wanted = (threads < pieces ? threads : pieces) - 1;
    if (wanted < 1 || pthread_mutex_trylock(&pool.mine)) {
        for (int i = 0; i < pieces; i++) work(arg, i);
        return;
    }
    pthread_mutex_lock(&pool.lock);
    pool.work = work;
    pool.arg = arg;
    pool.next = 0;
    pool.pieces = pool.left = pieces;
    pool.wanted = wanted;
    make_workers(wanted);
    pthread_cond_broadcast(&pool.wake);
    work_off();
    while (pool.left > 0) pthread_cond_wait(&pool.done, &pool.lock);
    pool.pieces = pool.wanted = 0;
    pthread_mutex_unlock(&pool.lock);
    pthread_mutex_unlock(&pool.mine);
}
