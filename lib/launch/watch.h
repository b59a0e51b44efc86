/* watch.h: what launch_ranks and the launcher program share: starting a rank's process so that it
 * can be ended as a whole, and waiting for all of them against a limit.
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
    double grace;  // seconds that the others get when a rank has ended badly
    int roster;    // of the ranks (roster.h)
    int signals;   // a signalfd whose signals go on to the ranks; -1: none
    int first_bad; // out: the rank that ended badly first; -1: none did
    // Looks at a rank that has ended; may correct how and code; returns whether it ended badly.
    bool (*ended)(int rank, RankEnd *end, void *arg);
    void *arg;
} Watch;

// In the child, before anything else: a process group of its own, which ends with the parent.
void watch_join(pid_t parent);
// Waits until every rank has ended, and ends what goes on for too long.
Status watch_ranks(Watch *watch);
// Kills the first n ranks and waits for them: for a start that failed half way.
void watch_abandon(const RankEnd *ends, int n);

// Seconds on a clock that never jumps.
double watch_now(void);

#undef Status

#endif
