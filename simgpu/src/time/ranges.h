/* time/ranges.h: NVTX's ranges: nested names that a thread gives to what it does. */
#ifndef SIMGPU_RANGES_H
#define SIMGPU_RANGES_H

// A range, and the one around it; never freed, since spans are drawn later.
typedef struct GpuLogScope {
    const char *name;
    const struct GpuLogScope *outer; // NULL: none
    int depth;                       // 1: the outermost
} SimScope;

// The calling thread's innermost range; NULL: it is in none, or no trace is written.
const SimScope *sim_scope(void);
// Enters a range, if a trace is written, and leaves the innermost one; their depth, from 0.
int sim_scope_push(const char *name);
int sim_scope_pop(void);

#endif
