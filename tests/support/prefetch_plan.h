/* prefetch_plan.h: what a prefetch queues, calculated by hand: which units are in flight after each
 * hook, and how many bytes are unsharded at most. It knows sizes and the order in which hooks run,
 * and nothing of the library's code.
 */
#ifndef TESTS_PREFETCH_PLAN_H
#define TESTS_PREFETCH_PLAN_H

#include "prefetch.h"

enum { PLAN_UNITS = 16, PLAN_HOOKS = 128 };

typedef struct PlanList {
    int n, unit[PLAN_UNITS];
} PlanList;

// Up to the lists all is the caller's to set, at any time; unit 0 is the root.
typedef struct Plan {
    int n;
    int64_t bytes[PLAN_UNITS]; // of the unsharded parameter
    PrefetchOptions options;
    bool keeps_all, evaluates; // after a forward all units stay; or none, nor the root
    PlanList forward[PLAN_UNITS], backward[PLAN_UNITS];
    PlanList order; // of the last forward; plan_begin makes it 0, 1, 2 …
    enum { AWAY, COMING, HERE } state[PLAN_UNITS];
    int open, begun[PLAN_HOOKS], n_begun; // passes that run; this forward's units
    bool follows;                         // they are the first of `order`
    int ended[PLAN_HOOKS], n_ended;       // as forwards ended, and have had no backward yet
    int64_t live, retired, peak;          // bytes: unsharded; of those, left to free; the most
    int gathers;                          // all-gathers queued
    PlanList gathered;                    // of these units, by the last hook, in this order
} Plan;

void plan_begin(Plan *p);
// All hooks of the unit at this point have run.
void plan_hook(Plan *p, int unit, HookPoint point);
int64_t plan_in_flight(const Plan *p);

#endif
