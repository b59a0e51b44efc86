/* disk.c: see disk.h. */
#include "disk.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "harness.h"

static Disk *joined;
static int own_rank;
static int calls_left; // until one fails; 0: none does
static bool disk_gone;

Disk *disk_open(void)
{
    Disk *disk = shared_alloc(sizeof *disk);
    memset(disk, 0, sizeof *disk);
    disk->slow_rank = -1;
    return disk;
}

void disk_join(Disk *disk, int rank)
{
    own_rank = rank;
    disk->pids[rank] = getpid();
    joined = disk;
}

void disk_kill_all(void)
{
    int own = getpid();
    for (int i = 0; joined != NULL && i < DISK_RANKS; i++)
        if (joined->pids[i] > 0 && joined->pids[i] != own) kill(joined->pids[i], SIGKILL);
    kill(own, SIGKILL);
}

void disk_fail(int n, bool gone)
{
    calls_left = n;
    disk_gone = gone;
}

static bool note(DiskEntry noted)
{
    if (joined == NULL) return false;
    noted.rank = own_rank;
    int n = __atomic_add_fetch(&joined->n, 1, __ATOMIC_SEQ_CST);
    if (n == joined->kill_at) disk_kill_all();
    if (n <= DISK_MAX) joined->entry[n - 1] = noted;
    if (calls_left == 0 || --calls_left > 0) return false;
    calls_left = disk_gone;
    if (joined->failed == 0) joined->failed = n;
    errno = EIO;
    return true;
}

bool disk_note(DiskCall call, const char *path, const char *to)
{
    DiskEntry noted = {.call = call};
    snprintf(noted.path, sizeof noted.path, "%s", path);
    snprintf(noted.to, sizeof noted.to, "%s", to);
    return note(noted);
}

// The file's path, and a name in it.
static void path_of(int fd, const char *name, char *whole, size_t size)
{
    char link[64], path[600];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    path[n > 0 ? n : 0] = '\0';
    snprintf(whole, size, name != NULL ? "%s/%s" : "%s", path, name);
}

bool disk_note_file(DiskCall call, int fd, const char *name)
{
    DiskEntry noted = {.call = call};
    path_of(fd, name, noted.path, sizeof noted.path);
    bool fails = note(noted);
    if (call == DISK_WRITE && joined != NULL && joined->slow_rank == own_rank) usleep(20000);
    return fails;
}

bool disk_note_read(int fd, size_t bytes, off_t at)
{
    DiskEntry noted = {.call = DISK_READ, .at = (long)at, .bytes = (long)bytes};
    if (joined == NULL || !joined->reads) return false;
    path_of(fd, NULL, noted.path, sizeof noted.path);
    return note(noted);
}
