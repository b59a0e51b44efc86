/* ticker.h: a thread that does one thing now and then, until it is stopped. For what must go on
 * beside a program that may hang: the watch of a communicator, a time limit.
 *
 * The thread blocks all signals, which are the program's own business. It is gone before exit()
 * runs the handlers that were there before it; a forked child has none.
 */
#ifndef SHARDLAB_TICKER_H
#define SHARDLAB_TICKER_H

#include <pthread.h>
#include <stdbool.h>

#include "check.h"

typedef struct Ticker {
    void (*tick)(void);   // every `period` seconds, with the lock held
    void (*forked)(void); // in a forked child: what the ticker looked after is not there; or NULL
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_t thread;
    double period;
    bool running, listed;
    struct Ticker *next;
} Ticker;
#define TICKER(tick_fn, forked_fn)                                                                 \
    {                                                                                              \
        .tick = (tick_fn), .forked = (forked_fn), .lock = PTHREAD_MUTEX_INITIALIZER,               \
        .wake = PTHREAD_COND_INITIALIZER                                                           \
    }

// The first tick comes after one period. Does nothing for one that runs already.
Status ticker_start(Ticker *ticker, double period);
// Returns when no tick is running and none will come. Does nothing for one that does not run.
void ticker_stop(Ticker *ticker);

// For what the tick and others share.
void ticker_lock(Ticker *ticker);
void ticker_unlock(Ticker *ticker);

#endif
