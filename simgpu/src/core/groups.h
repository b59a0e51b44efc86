/* core/groups.h: the limits of the control group of this process and of the groups above it. */
#ifndef SIMGPU_GROUPS_H
#define SIMGPU_GROUPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_GROUP_LINE 4096

// Reads a small file as a text, cut to size; false: there is none. It does not call malloc, so that
// measurements of the program's memory do not see it.
bool sim_read_text(const char *path, char *text, size_t size);

// Reads the limit of one group; controller "": version 2. SIZE_MAX: there is none.
typedef size_t (*SimGroupLimit)(const char *root, const char *controller, const char *path);
// The least limit of all groups; `groups` is /proc/self/cgroup, `root` /sys/fs/cgroup.
size_t sim_least_of_groups(const char *groups, const char *root, const char *controller,
                           SimGroupLimit limit);
// Finds the first line of a group's file that begins with `key` ("": the first line), and gives the
// text after the key; false: there is none.
bool sim_group_value(const char *root, const char *controller, const char *path, const char *name,
                     const char *key, char line[SIM_GROUP_LINE]);
static inline bool sim_group_line(const char *root, const char *controller, const char *path,
                                  const char *name, char line[SIM_GROUP_LINE])
{
    return sim_group_value(root, controller, path, name, "", line);
}

#endif
