/* settings.c: the clock, and what the environment says of how long a test takes and how much it
 * does (harness.h).
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "harness.h"

double seconds_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void pause_for(double seconds)
{
    struct timespec t = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};

    while (nanosleep(&t, &t) != 0 && errno == EINTR) continue;
}

uint64_t setting(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);

    return text && *text ? strtoull(text, NULL, 10) : otherwise;
}

// How many processes want each processor, at least 1: a machine with so many others at work is so
// much slower. The grader needs no such guess, because it asks the reference.
static double crowd(void)
{
    double load = 0, running = 0, processors = (double)sysconf(_SC_NPROCESSORS_ONLN);
    FILE *file = fopen("/proc/loadavg", "r");

    if (file && fscanf(file, "%lf %*f %*f %lf/", &load, &running) != 2) load = running = 0;
    if (file) fclose(file);
    if (running > load) load = running;
    return load > processors && processors > 0 ? load / processors : 1;
}

double time_factor(void)
{
    const char *text = getenv("SHARDLAB_TIME_FACTOR");
    char *end;
    double factor = text ? strtod(text, &end) : 0;

    return text && end != text && !*end && factor > 0 && !isinf(factor) ? factor : crowd();
}
