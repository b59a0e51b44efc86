/* backend.c: the harness on simulated GPUs. */
#include "backend.h"
#include "simgpu.h"

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

const char *backend_memory_variable(void)
{
    return "SIMGPU_MEMORY";
}

bool backend_counts_host_memory(int64_t *library)
{
    *library = simgpu_host_bytes();
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
