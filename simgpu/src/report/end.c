/* end.c: what simgpu does when a process ends by exit.
 *
 * A process that was forked ends with all that its parent had for its own end: handlers of exit and
 * destructors of libraries. oneDNN's alone copy some hundred pages to free what no longer matters,
 * a tenth of a short rank's processor time. A launcher may do without them (simgpu_quick_end); then
 * simgpu's own parts, which may have been registered before the fork too, are still run.
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

// Called when the program starts, and under locks of the owners' own: never twice at a time.
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
