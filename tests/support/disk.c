/* disk.c: see disk.h. */
#include "disk.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "harness.h"

static Disk *joined;
static int own_rank;

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

void disk_note(DiskCall call, const char *path, const char *to)
{
    if (joined == NULL) return;
    int n = __atomic_add_fetch(&joined->n, 1, __ATOMIC_SEQ_CST);
    if (n == joined->kill_at) disk_kill_all();
    if (n > DISK_MAX) return;
    DiskEntry *entry = &joined->entry[n - 1];
    *entry = (DiskEntry){.rank = own_rank, .call = call};
    snprintf(entry->path, sizeof entry->path, "%s", path);
    snprintf(entry->to, sizeof entry->to, "%s", to);
}

void disk_note_file(DiskCall call, int fd, const char *name)
{
    char link[64], path[600], whole[1200];
    if (joined == NULL) return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    path[n > 0 ? n : 0] = '\0';
    snprintf(whole, sizeof whole, name != NULL ? "%s/%s" : "%s", path, name);
    disk_note(call, whole, "");
    if (call == DISK_WRITE && joined->slow_rank == own_rank) usleep(20000);
}
