/* time/ranges.h: what a thread says it is about, one inside of the other: NVTX's ranges. */
#ifndef SIMGPU_RANGES_H
#define SIMGPU_RANGES_H

// The innermost range that a thread was in; kept for good, as spans are drawn later.
typedef struct GpuLogScope {
    const char *name;
    const struct GpuLogScope *outer; // NULL: none
    int depth;                       // 1: the outermost
} SimScope;

// The calling thread's; NULL: it is in none, or nobody draws them.
const SimScope *sim_scope(void);
// Enters a range, if a trace is written, and leaves the innermost one; their depth, from 0.
int sim_scope_push(const char *name);
int sim_scope_pop(void);

#endif
