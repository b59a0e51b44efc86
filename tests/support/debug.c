/* debug.c: a rank that waits for a debugger before it runs a test's body.
 *
 * A test forks its ranks, so that gdb follows none but the first of its own accord. The one that
 * was asked for says its process id and looks, until it is traced; then it goes on, under gdb.
 */
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "run.h"

// Whether a debugger has this process, by /proc/self/status.
static bool is_traced(void)
{
    char line[256];
    int tracer = 0;
    FILE *status = fopen("/proc/self/status", "re");

    if (!status) return true; // nobody can tell: do not wait forever
    while (fgets(line, sizeof line, status))
        if (sscanf(line, "TracerPid: %d", &tracer) == 1) break;
    fclose(status);
    return tracer != 0;
}

void debug_wait(int rank, int world)
{
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY); // gdb is no ancestor of this process
    printf("rank %d of %d waits for a debugger: gdb -p %d\n", rank, world, (int)getpid());
    fflush(stdout);
    while (!is_traced()) usleep(20000);
}
