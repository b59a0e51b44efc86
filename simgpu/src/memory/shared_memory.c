/* shared_memory.c: memory that other processes can map, too. See shared_memory.h. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <unistd.h>

#include "memory/device.h"
#include "memory/shared_memory.h"
#include "report/report.h"

#define SEGMENT(handle) (-2 - (handle)) // its number; and its handle, of the number

_Noreturn static void limited(const char *what, size_t bytes, size_t limit)
{
    char title[320];
    snprintf(title, sizeof title,
             "a file may have %zu bytes (ulimit -f), and simgpu keeps %s in one of %zu bytes, most "
             "of it empty, or in a System V segment, which failed, too (%s): raise the limit",
             limit, what, bytes, strerror(errno));
    sim_fatal(SIMGPU_SYSTEM, title, "%s", "");
}

// Attaches a segment, which is possible only as a whole, and keeps some bytes of it, at `to` if
// that is given. `fresh`: it is gone when no process has it attached, so at once if this fails.
static void *attach(int segment, void *to, size_t offset, size_t bytes, bool fresh)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), end = (offset + bytes + page - 1) / page * page;
    char *all = shmat(segment, NULL, 0);
    int why = errno;
    if (fresh) shmctl(segment, IPC_RMID, NULL);
    errno = why;
    if (all == MAP_FAILED) return MAP_FAILED;
    size_t whole = (sim_shared_bytes(SEGMENT(segment)) + page - 1) / page * page;
    if (offset > 0) munmap(all, offset);
    if (end < whole) munmap(all + end, whole - end);
    if (!to) return all + offset;
    return mremap(all + offset, end - offset, end - offset, MREMAP_MAYMOVE | MREMAP_FIXED, to);
}

int sim_shared_make(const char *name, size_t bytes, size_t mapped, void **at, const char *what)
{
    struct rlimit limit = {0, 0};
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < bytes) {
        int segment = shmget(IPC_PRIVATE, bytes, SHM_NORESERVE | 0600);
        if (segment < 0) limited(what, bytes, (size_t)limit.rlim_cur);
        *at = attach(segment, NULL, 0, mapped, true);
        return *at == MAP_FAILED ? -1 : SEGMENT(segment);
    }
    int file = memfd_create(name, MFD_CLOEXEC);
    if (file < 0 && errno == EMFILE) sim_no_files_left();
    if (file < 0) return -1;
    *at = MAP_FAILED;
    if (ftruncate(file, (off_t)bytes) == 0) *at = sim_shared_map(file, NULL, 0, mapped);
    if (*at != MAP_FAILED) return file;
    int why = errno;
    close(file);
    errno = why;
    return -1;
}

void *sim_shared_map(int handle, void *to, size_t offset, size_t bytes)
{
    if (!sim_shared_is_file(handle)) return attach(SEGMENT(handle), to, offset, bytes, false);
    return mmap(to, bytes, PROT_READ | PROT_WRITE,
                MAP_SHARED | MAP_NORESERVE | (to ? MAP_FIXED : 0), handle, (off_t)offset);
}

size_t sim_shared_bytes(int handle)
{
    struct stat file;
    struct shmid_ds segment;
    if (sim_shared_is_file(handle)) return fstat(handle, &file) == 0 ? (size_t)file.st_size : 0;
    return shmctl(SEGMENT(handle), IPC_STAT, &segment) == 0 ? segment.shm_segsz : 0;
}

void sim_shared_close(int handle)
{
    if (sim_shared_is_file(handle)) close(handle);
}
