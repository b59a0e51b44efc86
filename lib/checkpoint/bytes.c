/* bytes.c: reads and writes all of some bytes; names for messages. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "internal.h"

const char *shown(const char *name)
{
    static _Thread_local char buffers[4][84];
    static _Thread_local unsigned turn;
    char *text = buffers[turn++ % 4];
    snprintf(text, sizeof buffers[0], "%.80s", name);
    for (char *c = text; *c != '\0'; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = '?';
    return text;
}

Status write_all(int fd, const char *path, const void *bytes, size_t n, off_t at)
{
    for (size_t done = 0; done < n;) {
        ssize_t now = pwrite(fd, (const char *)bytes + done, n - done, at + (off_t)done);
        if (now < 0 && errno == EINTR) continue;
        if (now <= 0)
            return fail(ERR_IO, "%s: cannot write %zu bytes at byte %lld: %s", path, n - done,
                        (long long)at + (long long)done, now < 0 ? strerror(errno) : "no space");
        done += (size_t)now;
    }
    return OK;
}

Status read_all(int fd, const char *path, void *bytes, size_t n, off_t at)
{
    for (size_t done = 0; done < n;) {
        ssize_t now = pread(fd, (char *)bytes + done, n - done, at + (off_t)done);
        if (now < 0 && errno == EINTR) continue;
        if (now <= 0)
            return fail(ERR_IO, "%s: cannot read %zu bytes at byte %lld: %s", path, n - done,
                        (long long)at + (long long)done,
                        now < 0 ? strerror(errno) : "the file ends before them");
        done += (size_t)now;
    }
    return OK;
}
