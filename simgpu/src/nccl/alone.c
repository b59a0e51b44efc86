/* alone.c: whether another process can know an id that this one has made.
 *
 * An id reaches another process through a child, written bytes, a socket or shared memory. If the
 * system shows that none of these exists, no other process has the id: a thread that waits for
 * ranks waits for ranks of this process.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/groups.h"
#include "nccl/alone.h"

SimTraces sim_traces(void)
{
    char text[1024];
    SimTraces traces = {UINT64_MAX, 0};
    unsigned long minor = 0, major = 0;
    char *at = sim_read_text("/proc/self/io", text, sizeof text) ? strstr(text, "wchar:") : NULL;
    if (at) traces.written = strtoull(at + 6, NULL, 10);
    at = sim_read_text("/proc/self/stat", text, sizeof text) ? strrchr(text, ')') : NULL;
    // state, 6 numbers; page faults: its own minor ones and its children's, the same for major ones
    if (at && sscanf(at, ") %*c %*d %*d %*d %*d %*d %*u %*u %lu %*u %lu", &minor, &major) == 2)
        traces.child_faults = minor + major;
    return traces;
}

static bool has_children(void)
{
    siginfo_t info;
    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 || errno != ECHILD;
}

static bool has_sockets(void)
{
    char path[300], to[16];
    DIR *files = opendir("/proc/self/fd");
    bool found = files == NULL;
    for (struct dirent *e; files && !found && (e = readdir(files));) {
        if (e->d_name[0] == '.' || atoi(e->d_name) <= STDERR_FILENO) continue;
        snprintf(path, sizeof path, "/proc/self/fd/%s", e->d_name);
        found = readlink(path, to, sizeof to) > 7 && strncmp(to, "socket:", 7) == 0;
    }
    if (files) closedir(files);
    return found;
}

// Whether there is memory that other processes could map, apart from simgpu's own.
static bool has_shared_memory(void)
{
    char line[8192];
    FILE *maps = fopen("/proc/self/maps", "re");
    bool found = maps == NULL;
    while (maps && !found && fgets(line, sizeof line, maps)) {
        const char *rights = strchr(line, ' ');
        found = rights && rights[2] == 'w' && rights[4] == 's' && !strstr(line, "/memfd:simgpu-");
    }
    if (maps) fclose(maps);
    return found;
}

bool sim_is_alone(const SimTraces *then)
{
    SimTraces now = sim_traces();
    return now.written != UINT64_MAX && now.written - then->written < sizeof(ncclUniqueId) &&
           now.child_faults == then->child_faults && !has_children() && !has_sockets() &&
           !has_shared_memory();
}
