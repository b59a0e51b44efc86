/* disk_calls.h: definitions, for one file of a program (disk.h): the calls that change the disk,
 * and reads.
 *
 * In a library they would be linked into programs that only call them. A write goes on to pwrite64,
 * a read to pread64, which are simgpu's where the program is linked with it.
 */
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "disk.h"

ssize_t pwrite(int fd, const void *bytes, size_t n, off_t at)
{
    if (disk_note_file(DISK_WRITE, fd, NULL)) return -1;
    return pwrite64(fd, bytes, n, at);
}

ssize_t pread(int fd, void *bytes, size_t n, off_t at)
{
    if (disk_note_read(fd, n, at)) return -1;
    return pread64(fd, bytes, n, at);
}

int fsync(int fd)
{
    if (disk_note_file(DISK_SYNC, fd, NULL)) return -1;
    return (int)syscall(SYS_fsync, fd);
}

int rename(const char *from, const char *to)
{
    if (disk_note(DISK_RENAME, from, to)) return -1;
    return (int)syscall(SYS_renameat2, -100, from, -100, to, 0);
}

int mkdir(const char *path, mode_t mode)
{
    if (disk_note(DISK_MKDIR, path, "")) return -1;
    return (int)syscall(SYS_mkdirat, -100, path, mode);
}

int unlinkat(int fd, const char *name, int flags)
{
    if (disk_note_file(DISK_REMOVE, fd, name)) return -1;
    return (int)syscall(SYS_unlinkat, fd, name, flags);
}

int rmdir(const char *path)
{
    if (disk_note(DISK_REMOVE, path, "")) return -1;
    return (int)syscall(SYS_unlinkat, -100, path, 0x200); // AT_REMOVEDIR
}
