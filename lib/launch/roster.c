/* roster.c: tells simgpu which process is which rank. If a rank ends before it has made a
 * communicator, the others learn of it by this alone. The roster is a file in memory, whose lines
 * simgpu/README.md describes under "For launchers". Parent and child both write that the child has
 * been started: so the line is there before the child reads it, and also if the child dies at once.
 * On real GPUs nobody reads it.
 */
#define _GNU_SOURCE // memfd_create
#include "roster.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "watch.h"

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

void roster_fold_reports(int roster)
{
    add_line(roster, "fold reports\n");
}

// Writes the ranks that are set as "0, 2 and 4 to 7".
static void print_ranks(const bool *made, int size)
{
    int begin[MAX_RANKS], end[MAX_RANKS], n = 0;

    for (int i = 0; i < size; i++) {
        if (!made[i]) continue;
        bool goes_on = i > 0 && made[i - 1] && // two alone are no range
                       ((i > 1 && made[i - 2]) || (i + 1 < size && made[i + 1]));
        if (!goes_on) begin[n++] = i;
        end[n - 1] = i;
    }
    for (int i = 0; i < n; i++) {
        fprintf(stderr, "%s%d", i == 0 ? "" : i == n - 1 ? " and " : ", ", begin[i]);
        if (end[i] > begin[i]) fprintf(stderr, " to %d", end[i]);
    }
}

static FILE *open_lines(int roster)
{
    char path[40];

    snprintf(path, sizeof path, "/proc/self/fd/%d", roster);
    return roster >= 0 ? fopen(path, "re") : NULL; // with a place of its own
}

// Counts the ranks whose lines have the key, if the first of these lines ends at `end`; else 0.
static int ranks_with(FILE *lines, const char *key, long end, bool made[MAX_RANKS])
{
    char line[512], other[17];
    int rank, n = 0;

    rewind(lines);
    while (fgets(line, sizeof line, lines)) {
        if (sscanf(line, "report %d %16s", &rank, other) != 2 || strcmp(other, key) != 0) continue;
        if (rank < 0 || rank >= MAX_RANKS || (n == 0 && ftell(lines) != end)) return 0;
        n += !made[rank];
        made[rank] = true;
    }
    return n;
}

void roster_tell_folded(int roster)
{
    FILE *lines = open_lines(roster), *again = open_lines(roster);
    char line[512], key[17];
    int title;

    while (lines && again && fgets(line, sizeof line, lines)) {
        bool made[MAX_RANKS] = {false};
        if (sscanf(line, "report %*d %16s %n", key, &title) != 1) continue;
        if (ranks_with(again, key, ftell(lines), made) < 2) continue;
        line[strcspn(line, "\n")] = 0;
        fprintf(stderr, "simgpu: ranks ");
        print_ranks(made, MAX_RANKS);
        fprintf(stderr, " made this report, printed once: %s (SIMGPU_REPORTS=all prints each)\n",
                line + title);
    }
    if (lines) fclose(lines);
    if (again) fclose(again);
}
