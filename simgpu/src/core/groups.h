/* core/groups.h: limits of control groups: of the one this process is in, and of those above it. */
#ifndef SIMGPU_GROUPS_H
#define SIMGPU_GROUPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_GROUP_LINE 4096

// A small file as a text, cut where it is longer; false: there is none. Without malloc, and so
// without a trace in what a program's own memory is measured by.
bool sim_read_text(const char *path, char *text, size_t size);

// What a limit is, of one group; controller "": version 2. SIZE_MAX: there is none.
typedef size_t (*SimGroupLimit)(const char *root, const char *controller, const char *path);
// The least limit of all groups; `groups` is /proc/self/cgroup, `root` /sys/fs/cgroup.
size_t sim_least_of_groups(const char *groups, const char *root, const char *controller,
                           SimGroupLimit limit);
// The first line of a group's file that begins with `key` ("": the first of all), without it;
// false: there is none.
bool sim_group_value(const char *root, const char *controller, const char *path, const char *name,
                     const char *key, char line[SIM_GROUP_LINE]);
static inline bool sim_group_line(const char *root, const char *controller, const char *path,
                                  const char *name, char line[SIM_GROUP_LINE])
{
    return sim_group_value(root, controller, path, name, "", line);
}

#endif
