/* core/processors.c: how many processors the machine has, and how many a rank may use: its share of
 * those on which it may run (taskset, a container's set), and of the time that its control group
 * grants (docker --cpus, a pod's limit). More threads than that only slow each other down.
 *
 * A control group's limit is a quota of microseconds per period: "QUOTA PERIOD" in cpu.max (version
 * 2 of cgroups), or cpu.cfs_quota_us and cpu.cfs_period_us (version 1).
 */
#define _GNU_SOURCE // sched_getaffinity
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/groups.h"
#include "core/threads.h"

size_t sim_processors(void)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (size_t)n : 1;
}

// The limit of one group, in processors, rounded up; SIZE_MAX: none.
static size_t quota_of(const char *root, const char *controller, const char *path)
{
    char line[SIM_GROUP_LINE];
    double quota = 0, period = 0;
    if (controller[0] == '\0') {
        if (!sim_group_line(root, "", path, "cpu.max", line)) return SIZE_MAX;
        if (sscanf(line, "%lf %lf", &quota, &period) != 2) return SIZE_MAX; // "max 100000"
    } else {
        if (!sim_group_line(root, controller, path, "cpu.cfs_quota_us", line)) return SIZE_MAX;
        quota = strtod(line, NULL); // -1: none
        if (!sim_group_line(root, controller, path, "cpu.cfs_period_us", line)) return SIZE_MAX;
        period = strtod(line, NULL);
    }
    if (!(quota > 0) || !(period > 0) || quota / period > 1e6) return SIZE_MAX;
    size_t whole = (size_t)(quota / period);
    return whole + ((double)whole * period < quota);
}

// The number of processors on which this process may run.
static size_t allowed_processors(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) || CPU_COUNT(&set) == 0) return sim_processors();
    return (size_t)CPU_COUNT(&set);
}

size_t sim_quota(const char *groups, const char *root)
{
    size_t least = sim_least_of_groups(groups, root, "cpu", quota_of);
    return least == SIZE_MAX ? 0 : least;
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

size_t sim_share(size_t ranks, bool bound)
{
    size_t allowed = allowed_processors(), quota = sim_quota("/proc/self/cgroup", "/sys/fs/cgroup");
    size_t share = bound ? smaller(sim_processors() / ranks, allowed) : allowed / ranks;
    if (quota > 0) share = smaller(share, quota / ranks);
    return share > 0 ? share : 1;
}
