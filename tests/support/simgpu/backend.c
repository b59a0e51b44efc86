/* backend.c: the harness on simulated GPUs.
 *
 * Interface: backend.h, but for what reports.c has.
 */
#include "backend.h"

#include <stdlib.h>
#include <string.h>

// One BLAS thread a rank: suites run side by side, and threads that wait for each other spin.
void backend_prepare(void)
{
    setenv("SIMGPU_THREADS", "1", 0);
}

int backend_max_world(void)
{
    return 256; // what a test asks for beyond SIMGPU_DEVICES is refused with simgpu's own words
}

const char *backend_world_limit(void)
{
    return "";
}

double backend_time_factor(int world)
{
    return 1.0;
}

void backend_small_devices(bool small)
{
    static char *before;

    if (small) {
        const char *set = getenv("SIMGPU_MEMORY");
        before = set != NULL ? strdup(set) : NULL;
        // What a test fills is poisoned, which costs its pages: twice what the largest of them needs.
        setenv("SIMGPU_MEMORY", "8M", 1);
        return;
    }
    if (before != NULL)
        setenv("SIMGPU_MEMORY", before, 1);
    else
        unsetenv("SIMGPU_MEMORY");
    free(before);
    before = NULL;
}

bool backend_counts_host_memory(void)
{
    return true;
}

bool backend_sums_in_tree_order(int world)
{
    return true;
}

bool backend_names_missing_calls(void)
{
    return true;
}

bool backend_agrees(char *text, unsigned long size)
{
    return true;
}
