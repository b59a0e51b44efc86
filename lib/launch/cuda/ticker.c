/* ticker.c: a thread that calls a function periodically. Between ticks it sleeps on a condition, so
 * that a stop takes no time. Its clock is the monotonic one.
 */
#define _GNU_SOURCE // pthread_cond_clockwait
#include "ticker.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// Defined with simgpu alone, which counts the threads that may make a rank's next call.
void simgpu_helper_threads(int change) __attribute__((weak));

static Ticker *tickers; // all that ever ran in this process
static pthread_once_t once = PTHREAD_ONCE_INIT;

void ticker_lock(Ticker *ticker)
{
    pthread_mutex_lock(&ticker->lock);
}

void ticker_unlock(Ticker *ticker)
{
    pthread_mutex_unlock(&ticker->lock);
}

static void stop_all(void)
{
    for (Ticker *t = tickers; t; t = t->next) ticker_stop(t);
}

// The child has this thread alone: no ticker runs, and no other thread holds a lock.
static void forget_all(void)
{
    for (Ticker *t = tickers; t; t = t->next) {
        pthread_mutex_init(&t->lock, NULL);
        pthread_cond_init(&t->wake, NULL);
        t->running = false;
        if (t->forked) t->forked();
    }
}

static void prepare_process(void)
{
    pthread_atfork(NULL, NULL, forget_all);
    atexit(stop_all);
}

static struct timespec later(double seconds)
{
    struct timespec t;
    double whole = (double)(long)seconds;

    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += (long)whole;
    t.tv_nsec += (long)((seconds - whole) * 1e9);
    if (t.tv_nsec >= 1000000000) {
        t.tv_sec++;
        t.tv_nsec -= 1000000000;
    }
    return t;
}

static void *run(void *arg)
{
    Ticker *ticker = arg;

    ticker_lock(ticker);
    while (ticker->running) {
        struct timespec end = later(ticker->period);
        int woken = 0;
        while (ticker->running && woken != ETIMEDOUT)
            woken = pthread_cond_clockwait(&ticker->wake, &ticker->lock, CLOCK_MONOTONIC, &end);
        if (ticker->running) ticker->tick();
    }
    ticker_unlock(ticker);
    return NULL;
}

Status ticker_start(Ticker *ticker, double period)
{
    sigset_t all, before;
    int error = 0;

    pthread_once(&once, prepare_process);
    ticker_lock(ticker);
    if (!ticker->listed) {
        ticker->next = tickers;
        tickers = ticker;
        ticker->listed = true;
    }
    if (!ticker->running) {
        ticker->period = period;
        ticker->running = true;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before); // the thread inherits it
        error = pthread_create(&ticker->thread, NULL, run, ticker);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (error) ticker->running = false;
        if (!error && simgpu_helper_threads) simgpu_helper_threads(1);
    }
    ticker_unlock(ticker);
    return error ? fail(ERR_MEMORY, "cannot start a thread: %s", strerror(error)) : OK;
}

void ticker_stop(Ticker *ticker)
{
    ticker_lock(ticker);
    bool was = ticker->running;
    ticker->running = false;
    pthread_cond_signal(&ticker->wake);
    ticker_unlock(ticker);
    if (!was) return;
    pthread_join(ticker->thread, NULL);
    if (simgpu_helper_threads) simgpu_helper_threads(-1);
}
