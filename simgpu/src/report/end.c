/* end.c: runs simgpu's parts of the end when a process ends by exit.
 *
 * At its end a forked process runs all that its parent had registered: exit handlers and
 * destructors of libraries. Those of oneDNN alone copy some hundred pages to free what no longer
 * matters, a tenth of a short rank's processor time. A launcher may skip them (simgpu_quick_end);
 * then simgpu's own parts, which may have been registered before the fork, still run.
 *
 * Interface: sim_on_end (hooks.h); simgpu_quick_end (simgpu.h).
 */
#define _GNU_SOURCE
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "report/hooks.h"
#include "simgpu.h"

enum { MOST = 4 };

static struct End {
    void (*run)(int status);
    bool done;
} ends[MOST];
static int n_ends;

static void run_end(int status, void *arg)
{
    struct End *end = arg;
    if (!end->done) end->run(status);
    end->done = true;
}

// Called when the program starts, and under the owners' locks: never twice at the same time.
void sim_on_end(void (*run)(int status))
{
    for (int i = 0; i < n_ends; i++)
        if (ends[i].run == run) return; // before a fork
    if (n_ends == MOST) abort();
    ends[n_ends] = (struct End){run, false};
    on_exit(run_end, &ends[n_ends++]);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
static void end_quickly(int status, void *arg)
{
    for (int i = n_ends; i-- > 0;) run_end(status, &ends[i]);
    fflush(NULL);
    _exit(status);
}
#endif

void simgpu_quick_end(void)
{
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) // which report at the end
    on_exit(end_quickly, NULL);
#endif
}
