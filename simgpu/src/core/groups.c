/* core/groups.c: finds the control groups of this process. See groups.h.
 *
 * /proc/self/cgroup has the group's path below /sys/fs/cgroup; a limit of any group above it holds
 * too. In a container the path may be the host's, which is not there: then the folder itself is the
 * group (cgroups(7), and the kernel's Documentation/admin-guide/cgroup-v2.rst).
 */
#include <stdio.h>
#include <string.h>

#include "core/groups.h"

enum { PATH = 4096 };

bool sim_group_value(const char *root, const char *controller, const char *path, const char *name,
                     const char *key, char line[SIM_GROUP_LINE])
{
    char file[4 * PATH];
    size_t n = strlen(key);
    bool got = false;
    snprintf(file, sizeof file, "%s/%s%s/%s", root, controller, path, name);
    FILE *from = fopen(file, "r");
    while (from != NULL && !got && fgets(line, SIM_GROUP_LINE, from) != NULL)
        got = strncmp(line, key, n) == 0;
    if (got) memmove(line, line + n, strlen(line + n) + 1);
    if (from != NULL) fclose(from);
    return got;
}

static size_t least_above(const char *root, const char *controller, char *path, SimGroupLimit limit)
{
    size_t least = SIZE_MAX;
    for (;;) {
        size_t one = limit(root, controller, path);
        if (one < least) least = one;
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

size_t sim_least_of_groups(const char *groups, const char *root, const char *controller,
                           SimGroupLimit limit)
{
    FILE *from = fopen(groups, "r");
    char line[SIM_GROUP_LINE];
    size_t least = SIZE_MAX;
    if (from == NULL) return least;
    while (fgets(line, sizeof line, from) != NULL) { // NUMBER:CONTROLLERS:/path
        char *controllers = strchr(line, ':'), *path;
        line[strcspn(line, "\n")] = '\0';
        if (controllers == NULL || (path = strchr(++controllers, ':')) == NULL) continue;
        *path++ = '\0';
        if (controllers[0] != '\0' && !has_name(controllers, controller)) continue;
        size_t one = least_above(root, controllers, path, limit);
        if (one < least) least = one;
    }
    fclose(from);
    return least;
}
