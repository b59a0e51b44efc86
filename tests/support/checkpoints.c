/* checkpoints.c: see checkpoints.h.
 */
#define _GNU_SOURCE
#include "checkpoints.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

// ---- Values ----

// Exact in float: no two (id, part, step) of small models share a value at one element.
static float value_of(const Param *param, int64_t i, int part, int step)
{
    return (float)((i % 4096) + 4096 * (part + 3 * (int)(param->id % 32))) + 0.0625f * (float)step;
}

static float *part_of(const Sharded *s, int u, int part)
{
    return part == 0   ? s->root->units[u]->flat.sharded_param.data
           : part == 1 ? s->adamw.m[u]
                       : s->adamw.v[u];
}

static int64_t numel_of(const Param *param)
{
    int64_t n = 1;
    for (int d = 0; d < param->ndim; d++) n *= param->shape[d];
    return n;
}

// What unit u's shard of `part` must hold on this rank, shard_numel elements; free it.
static float *expected(const Sharded *s, int u, int part, int step)
{
    const FlatLayout *layout = &s->root->units[u]->flat.layout;
    int64_t n = layout->shard_numel, at = -(int64_t)s->rank * n;
    float *values = calloc((size_t)n, sizeof *values);
    for (Param **param = layout->params; param < layout->params + layout->n; param++) {
        int64_t numel = numel_of(*param);
        for (int64_t i = 0; i < numel; i++, at++)
            if (at >= 0 && at < n) values[at] = value_of(*param, i, part, step);
    }
    return values;
}

void state_fill(Sharded *s, int step)
{
    need_cuda(cudaDeviceSynchronize()); // the copies below are on another stream
    for (int u = 0; u < s->root->n_units; u++) {
        for (int part = 0; part < (s->adamw.ctx != NULL ? 3 : 1); part++) {
            float *values = expected(s, u, part, step);
            send_to(part_of(s, u, part), values,
                    (size_t)s->root->units[u]->flat.layout.shard_numel);
            free(values);
        }
    }
    if (s->adamw.ctx != NULL) s->adamw.t = step;
}

void state_check(const Sharded *s, int step, const char *when)
{
    static const char *const PARTS[] = {"parameters", "first moments", "second moments"};
    for (int u = 0; u < s->root->n_units; u++) {
        const FlatParam *flat = &s->root->units[u]->flat;
        int64_t n = flat->layout.shard_numel;
        for (int part = 0; part < (s->adamw.ctx != NULL ? 3 : 1); part++) {
            float *want = expected(s, u, part, step), *got = fetch(part_of(s, u, part), (size_t)n);
            for (int64_t i = 0; i < n; i++)
                check(memcmp(&got[i], &want[i], sizeof *got) == 0,
                      "%s: the %s of unit %s: element %lld of rank %d's shard is %g, want %g", when,
                      PARTS[part], flat->name, (long long)i, s->rank, (double)got[i],
                      (double)want[i]);
            free(want);
            free(got);
        }
    }
    if (s->adamw.ctx != NULL)
        check(s->adamw.t == step, "%s: the optimizer has done %d steps, want %d", when, s->adamw.t,
              step);
}

int state_step(const Sharded *s)
{
    return s->adamw.t;
}

// ---- The disk ----

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

static void write_down(DiskCall call, const char *path, const char *to)
{
    if (joined == NULL) return;
    int n = __atomic_add_fetch(&joined->n, 1, __ATOMIC_SEQ_CST);
    if (n == joined->kill_at) disk_kill_all();
    if (n > DISK_MAX) return;
    DiskEntry *entry = &joined->entry[n - 1];
    entry->rank = own_rank;
    entry->call = call;
    snprintf(entry->path, sizeof entry->path, "%s", path);
    snprintf(entry->to, sizeof entry->to, "%s", to);
}

static const char *path_of(int fd)
{
    static _Thread_local char path[256];
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    path[n > 0 ? n : 0] = '\0';
    return path;
}

ssize_t pwrite(int fd, const void *bytes, size_t n, off_t at)
{
    if (joined != NULL) write_down(DISK_WRITE, path_of(fd), "");
    if (joined != NULL && joined->slow_rank == own_rank) usleep(20000);
    return syscall(SYS_pwrite64, fd, bytes, n, at);
}

int fsync(int fd)
{
    if (joined != NULL) write_down(DISK_SYNC, path_of(fd), "");
    return (int)syscall(SYS_fsync, fd);
}

int rename(const char *from, const char *to)
{
    write_down(DISK_RENAME, from, to);
    return (int)syscall(SYS_renameat2, -100, from, -100, to, 0);
}

int mkdir(const char *path, mode_t mode)
{
    write_down(DISK_MKDIR, path, "");
    return (int)syscall(SYS_mkdirat, -100, path, mode);
}

int unlinkat(int fd, const char *name, int flags)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", joined != NULL ? path_of(fd) : "", name);
    write_down(DISK_REMOVE, path, "");
    return (int)syscall(SYS_unlinkat, fd, name, flags);
}
