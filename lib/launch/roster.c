/* Which process is which rank, for simgpu: where a rank ends before it has made a communicator, the
 * others know of it by this alone. The roster is a file in memory, in lines; simgpu/README.md, "For
 * launchers", says which. Parent and child both write that the child has been started, so that it
 * is there before the child looks and also where the child dies at once. NCCL knows of no such
 * thing, and on real GPUs nobody reads it.
 */
#define _GNU_SOURCE // memfd_create
#include "roster.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

// Appends a line in one write, so that lines of several processes do not run into each other.
static void add_line(int roster, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add_line(int roster, const char *format, ...)
{
    char line[64];
    va_list args;

    va_start(args, format);
    int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    ssize_t ignored = roster >= 0 ? write(roster, line, (size_t)n) : 0;
    (void)ignored;
}

int roster_open(int size)
{
    int roster = memfd_create("ranks", MFD_CLOEXEC);

    if (roster >= 0) fcntl(roster, F_SETFL, O_APPEND);
    add_line(roster, "simgpu-world 1 %d\n", size);
    return roster;
}

void roster_close(int roster)
{
    if (roster >= 0) close(roster);
}

void roster_join(int roster, int rank, bool stays_open)
{
    char path[40];

    if (roster < 0) return;
    if (stays_open) fcntl(roster, F_SETFD, 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", roster);
    setenv("SIMGPU_WORLD", path, 1);
    roster_started(roster, rank, getpid());
}

void roster_started(int roster, int rank, pid_t pid)
{
    add_line(roster, "%d %d\n", rank, (int)pid);
}

void roster_ended(int roster, int rank, bool killed, int code)
{
    add_line(roster, "%d %s %d\n", rank, killed ? "killed" : "exited", code);
}
