/* core/processors.c: how many processors the machine has, and how many a rank may use: its share of
 * those that it may run on (taskset, a container's set), and of the time that its control group
 * grants (docker --cpus, a pod's limit). Threads beyond that only take the time from each other.
 *
 * A control group's limit is a quota of microseconds per period: "QUOTA PERIOD" in cpu.max (version
 * 2 of cgroups), or cpu.cfs_quota_us and cpu.cfs_period_us (version 1). /proc/self/cgroup has the
 * group's path below /sys/fs/cgroup; a limit of any group above it holds too. In a container the
 * path may be the host's, which is not there: then the folder itself is the group (cgroups(7), and
 * the kernel's Documentation/admin-guide/cgroup-v2.rst).
 */
#define _GNU_SOURCE // sched_getaffinity
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/threads.h"

enum { PATH = 4096, LINE = 4096 };

size_t sim_processors(void)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (size_t)n : 1;
}

// The first line of the file root/controller/path/name; false: there is none.
static bool read_line(const char *root, const char *controller, const char *path, const char *name,
                      char *line)
{
    char file[4 * PATH];
    snprintf(file, sizeof file, "%s/%s%s/%s", root, controller, path, name);
    FILE *from = fopen(file, "r");
    bool got = from != NULL && fgets(line, LINE, from) != NULL;
    if (from != NULL) fclose(from);
    return got;
}

// Of one group, in processors, rounded up; 0: no limit.
static size_t quota_of(const char *root, const char *controller, const char *path)
{
    char line[LINE];
    double quota = 0, period = 0;
    if (controller[0] == '\0') {
        if (!read_line(root, "", path, "cpu.max", line)) return 0;
        if (sscanf(line, "%lf %lf", &quota, &period) != 2) return 0; // "max 100000"
    } else {
        if (!read_line(root, controller, path, "cpu.cfs_quota_us", line)) return 0;
        quota = strtod(line, NULL); // -1: none
        if (!read_line(root, controller, path, "cpu.cfs_period_us", line)) return 0;
        period = strtod(line, NULL);
    }
    if (!(quota > 0) || !(period > 0) || quota / period > 1e6) return 0;
    size_t whole = (size_t)(quota / period);
    return whole + ((double)whole * period < quota);
}

// The least limit of the group and of those above it.
static size_t quota_above(const char *root, const char *controller, char *path)
{
    size_t least = 0;
    for (;;) {
        size_t one = quota_of(root, controller, path);
        if (one > 0 && (least == 0 || one < least)) least = one;
        char *end = strrchr(path, '/');
        if (end == NULL) return least;
        *end = '\0';
    }
}

// Whether a list with commas between its names has this one.
static bool has_name(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = list; at != NULL; at = strchr(at, ',')) {
        if (*at == ',') at++;
        if (strncmp(at, name, n) == 0 && (at[n] == ',' || at[n] == '\0')) return true;
    }
    return false;
}

size_t sim_quota(const char *groups, const char *root)
{
    FILE *from = fopen(groups, "r");
    char line[LINE];
    size_t least = 0;
    if (from == NULL) return 0;
    while (fgets(line, sizeof line, from) != NULL) { // NUMBER:CONTROLLERS:/path
        char *controllers = strchr(line, ':'), *path;
        line[strcspn(line, "\n")] = '\0';
        if (controllers == NULL || (path = strchr(++controllers, ':')) == NULL) continue;
        *path++ = '\0';
        if (controllers[0] != '\0' && !has_name(controllers, "cpu")) continue;
        size_t one = quota_above(root, controllers, path);
        if (one > 0 && (least == 0 || one < least)) least = one;
    }
    fclose(from);
    return least;
}

// Those that this process may run on.
static size_t allowed_processors(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) || CPU_COUNT(&set) == 0) return sim_processors();
    return (size_t)CPU_COUNT(&set);
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
