/* report/hooks.h: calls into rooms above, or into parts that a program may not link: memory/,
 * streams/, nccl/, blas/. A part adds its hooks when it is first used.
 */
#ifndef SIMGPU_HOOKS_H
#define SIMGPU_HOOKS_H

#include <cuda_runtime_api.h>
#include <stdatomic.h>
#include <stdbool.h>

struct SimLeaks; // core/leak.h

// A hook that is NULL is not called.
typedef struct SimHooks {
    void (*visit)(struct SimLeaks *leaks); // notes what is alive when the process ends
    void (*end)(void);                     // the program ends well, with no report before
    // The host waits for a stream that has no work.
    void (*idle_wait)(const char *call, cudaStream_t stream, const void *site);
    void (*fatal)(void); // a report ends the process
    atomic_bool added;
    struct SimHooks *next;
} SimHooks;
void sim_hooks_add(SimHooks *hooks); // does nothing from the second time on
const SimHooks *sim_hooks(void);     // the first of them

// ---- end.c ----

// Registers a function that runs when the process ends by exit, with the status. The last one
// registered runs first.
void sim_on_end(void (*run)(int status));

#endif
