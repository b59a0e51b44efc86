/* watch.h: starts the processes of ranks so that each can be ended with its children, and waits for
 * all of them up to a limit. launch_ranks and the launcher program share it.
 */
#ifndef SHARDLAB_WATCH_H
#define SHARDLAB_WATCH_H

#include "launch.h"

#define Status CHECKED_STATUS // as check.h says

#define MAX_RANKS 512

typedef struct Watch {
    int size;
    RankEnd *ends; // (size) pid filled in; how and code are filled in as ranks end
    double limit;  // seconds; 0: none
    int roster;    // of the ranks (roster.h)
    int signals;   // a signalfd whose signals go on to the ranks; -1: none
    int first_bad; // out: the rank that ended badly first; -1: none did
    // Looks at a rank that has ended; may correct how and code; returns whether it ended badly.
    bool (*ended)(int rank, RankEnd *end, void *arg);
    void *arg;
} Watch;

// Forks ranks 0 to size - 1, which run be(rank, arg) and do not return. Each has a process group of
// its own, which ends with the parent. Returns size, or the rank for which fork failed (errno says
// why); then no rank is left.
int watch_fork(int size, int roster, RankEnd *ends, void (*be)(int rank, void *arg), void *arg);
// Waits until every rank has ended, and ends the ranks that exceed the limit.
Status watch_ranks(Watch *watch);

#undef Status

#endif
