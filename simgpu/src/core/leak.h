/* core/leak.h: what the program has not freed at its end. When its hook `visit` is called
 * (report/hooks.h), each owner of such things notes what it has. It must not wait for a lock.
 */
#ifndef SIMGPU_LEAK_H
#define SIMGPU_LEAK_H

#include <stddef.h>

typedef enum SimThing {
    THING_MEMORY,
    THING_POOL,
    THING_STREAM,
    THING_EVENT,
    THING_GRAPH,
    THING_GRAPH_EXEC,
    THING_PINNED,
    THING_COMM,
    THING_BLAS,
    SIM_THINGS
} SimThing;
typedef struct SimLeaks SimLeaks;
void sim_leak_note(SimLeaks *leaks, SimThing thing, const void *ptr, size_t bytes,
                   const void *site);
void sim_leak_reset(void); // a cudaDeviceReset took things away

#endif
