/* core/groups.c: finds the control groups of this process. See groups.h.
 *
 * /proc/self/cgroup has the group's path below /sys/fs/cgroup. The limits of all groups above it
 * apply, too. In a container the path may be one of the host, which does not exist here: then the
 * folder itself is the group (cgroups(7), and the kernel's
 * Documentation/admin-guide/cgroup-v2.rst).
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/groups.h"

enum { PATH = 4096, TEXT = 16384 };

bool sim_read_text(const char *path, char *text, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t n = 0;
    if (fd < 0) return false;
    for (ssize_t got; n < size - 1 && (got = read(fd, text + n, size - 1 - n)) > 0;)
        n += (size_t)got;
    text[n] = '\0';
    close(fd);
    return true;
}

// Returns the next line of *at without its end, and moves *at past it; NULL: there is none.
static char *next_line(char **at)
{
    char *line = *at, *end = strchr(line, '\n');
    if (*line == '\0') return NULL;
    *at = end != NULL ? end + 1 : line + strlen(line);
    if (end != NULL) *end = '\0';
    return line;
}

bool sim_group_value(const char *root, const char *controller, const char *path, const char *name,
                     const char *key, char line[SIM_GROUP_LINE])
{
    char file[4 * PATH], text[TEXT], *at = text, *found;
    size_t n = strlen(key);
    snprintf(file, sizeof file, "%s/%s%s/%s", root, controller, path, name);
    if (!sim_read_text(file, text, sizeof text)) return false;
    while ((found = next_line(&at)) != NULL && strncmp(found, key, n) != 0) continue;
    if (found != NULL) snprintf(line, SIM_GROUP_LINE, "%s", found + n);
    return found != NULL;
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

// Whether a list of names with commas between them has this one.
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
    char text[TEXT], *at = text, *line;
    size_t least = SIZE_MAX;
    if (!sim_read_text(groups, text, sizeof text)) return least;
    while ((line = next_line(&at)) != NULL) { // NUMBER:CONTROLLERS:/path
        char *controllers = strchr(line, ':'), *path;
        if (controllers == NULL || (path = strchr(++controllers, ':')) == NULL) continue;
        *path++ = '\0';
        if (controllers[0] != '\0' && !has_name(controllers, controller)) continue;
        size_t one = least_above(root, controllers, path, limit);
        if (one < least) least = one;
    }
    return least;
}
