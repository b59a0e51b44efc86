/* disk_calls.h: definitions, for one file of a program (disk.h): the calls that change the disk.
 *
 * In a library they would be linked into programs that only call them. A write goes on to pwrite64,
 * which is simgpu's where the program is linked with it.
 */
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "disk.h"

ssize_t pwrite(int fd, const void *bytes, size_t n, off_t at)
{
    disk_note_file(DISK_WRITE, fd, NULL);
    return pwrite64(fd, bytes, n, at);
}

int fsync(int fd)
{
    disk_note_file(DISK_SYNC, fd, NULL);
    return (int)syscall(SYS_fsync, fd);
}

int rename(const char *from, const char *to)
{
    disk_note(DISK_RENAME, from, to);
    return (int)syscall(SYS_renameat2, -100, from, -100, to, 0);
}

int mkdir(const char *path, mode_t mode)
{
    disk_note(DISK_MKDIR, path, "");
    return (int)syscall(SYS_mkdirat, -100, path, mode);
}

int unlinkat(int fd, const char *name, int flags)
{
    disk_note_file(DISK_REMOVE, fd, name);
    return (int)syscall(SYS_unlinkat, fd, name, flags);
}
