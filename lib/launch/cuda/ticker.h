/* ticker.h: a thread that calls a function periodically until it is stopped, for work beside a
 * program that may hang: the watch of a communicator, a time limit.
 *
 * The thread blocks all signals and leaves them to the program. It ends before exit() runs the
 * handlers that were installed before it. A forked child has no ticker.
 */
#ifndef SHARDLAB_TICKER_H
#define SHARDLAB_TICKER_H

#include <pthread.h>
#include <stdbool.h>

#include "check.h"

typedef struct Ticker {
    void (*tick)(void);   // every `period` seconds, with the lock held
    void (*forked)(void); // in a forked child, where the watched things do not exist; or NULL
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
// Returns when no tick is running and none will come. Does nothing if the ticker is not running.
void ticker_stop(Ticker *ticker);

// Locks the data that the tick shares with others.
void ticker_lock(Ticker *ticker);
void ticker_unlock(Ticker *ticker);

#endif
