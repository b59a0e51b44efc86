/* time/trace_file.c: the parts of a trace, and the file that is made of them.
 *
 * FILE.parts/PID.NUMBER is a part: records of a time, an order and an event's bytes. Its process
 * holds a lock of the file while it lives, so that the others see whether it still writes. If a
 * process begins and no part has a living process, the parts are of an earlier run, and it removes
 * them. All of this needs FILE.parts/lock.
 *
 * A process that is ending may use this in a signal handler: no malloc, no stdio.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "time/trace_file.h"

#define PARTS 1024
#define MARK 0x74726163u

typedef struct Record {
    uint64_t ns;
    uint32_t order, size, mark;
} Record;

// Where a record's bytes are, for sorting.
typedef struct Found {
    uint64_t ns;
    uint32_t order, size;
    const unsigned char *bytes;
} Found;

typedef struct Part {
    char name[48];
    unsigned char *bytes;
    size_t size;
} Part;

static struct {
    char path[PATH_MAX], folder[PATH_MAX], name[48];
    const TraceFormat *format;
    int fd; // of the part
    pid_t pid;
    bool broken, any; // a write failed; something was written
    size_t used;
    unsigned char buffer[1 << 17];
} file = {.fd = -1};

static bool wrong(char *error, size_t size, const char *doing)
{
    snprintf(error, size, "SIMGPU_TRACE is \"%.200s\": %s: %s", file.path, doing, strerror(errno));
    return false;
}

// ---- Locks ---- A process's, which end with it and which its children do not have.

static bool lock_file(int fd, bool wait)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int done;
    do done = fcntl(fd, wait ? F_SETLKW : F_SETLK, &lock);
    while (done < 0 && errno == EINTR);
    return done == 0;
}

// Whether another process holds it.
static bool is_locked(int fd)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

// Makes the folder if necessary, and takes its lock; -1: that failed.
static int lock_folder(void)
{
    char path[PATH_MAX + 8];
    snprintf(path, sizeof path, "%s/lock", file.folder);
    for (int tries = 0; tries < 1000; tries++) {
        struct stat mine, named;
        if (mkdir(file.folder, 0777) != 0 && errno != EEXIST) return -1;
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        if (fd < 0 && errno != ENOENT) return -1;
        if (fd < 0) continue;
        // The process that held it may have removed the folder meanwhile.
        if (lock_file(fd, true) && fstat(fd, &mine) == 0 && stat(path, &named) == 0 &&
            mine.st_ino == named.st_ino)
            return fd;
        close(fd);
    }
    return -1;
}

static void part_path(const char *name, char path[PATH_MAX + 64])
{
    snprintf(path, PATH_MAX + 64, "%s/%s", file.folder, name);
}

// ---- The folder ----

typedef struct Listing {
    int n;
    char name[PARTS][48];
} Listing;

struct linux_dirent64 {
    uint64_t ino;
    int64_t offset;
    unsigned short length;
    unsigned char type;
    char name[];
};

// The parts by their processes' numbers. Without opendir, which allocates.
static void list_parts(Listing *all)
{
    _Alignas(8) char bytes[8192];
    all->n = 0;
    int fd = open(file.folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    for (long got; (got = syscall(SYS_getdents64, fd, bytes, sizeof bytes)) > 0;)
        for (long at = 0; at < got;) {
            const struct linux_dirent64 *entry = (const void *)(bytes + at);
            at += entry->length;
            if (entry->name[0] < '0' || entry->name[0] > '9' || all->n == PARTS) continue;
            if (strlen(entry->name) >= sizeof all->name[0]) continue;
            int i = all->n++;
            for (; i > 0 && strverscmp(all->name[i - 1], entry->name) > 0; i--)
                memcpy(all->name[i], all->name[i - 1], sizeof all->name[i]);
            strcpy(all->name[i], entry->name);
        }
    close(fd);
}

static bool is_alive(const char *name)
{
    char path[PATH_MAX + 64];
    part_path(name, path);
    if (strcmp(name, file.name) == 0) return false; // closing its descriptor would drop the lock
    int fd = open(path, O_RDWR | O_CLOEXEC);
    bool alive = fd >= 0 && is_locked(fd);
    if (fd >= 0) close(fd);
    return alive;
}

static void remove_parts(const Listing *all)
{
    char path[PATH_MAX + 64];
    for (int i = 0; i < all->n; i++) {
        part_path(all->name[i], path);
        unlink(path);
    }
}

static Listing *new_listing(void)
{
    void *memory =
        mmap(NULL, sizeof(Listing), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

// ---- Writing the part ----

static void write_all(int fd, const void *bytes, size_t n)
{
    const char *at = bytes;
    while (n > 0 && !file.broken) {
        ssize_t done = write(fd, at, n);
        if (done < 0 && errno == EINTR) continue;
        file.broken = done <= 0;
        at += done;
        n -= (size_t)done;
    }
}

static void flush(void)
{
    if (file.fd < 0 || file.pid != getpid()) return;
    write_all(file.fd, file.buffer, file.used);
    file.used = 0;
}

void sim_trace_file_put(uint64_t ns, unsigned order, const TraceBuffer *event)
{
    Record record = {ns, order, (uint32_t)event->used, MARK};
    if (file.fd < 0 || event->full || event->used == 0) return;
    if (sizeof record + event->used > sizeof file.buffer - file.used) flush();
    memcpy(file.buffer + file.used, &record, sizeof record);
    memcpy(file.buffer + file.used + sizeof record, event->bytes, event->used);
    file.used += sizeof record + event->used;
    file.any = true;
}

static bool make_part(char *error, size_t size)
{
    char path[PATH_MAX + 64];
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    snprintf(file.name, sizeof file.name, "%ld.%lld", (long)file.pid,
             (long long)now.tv_sec * 1000000000 + now.tv_nsec);
    part_path(file.name, path);
    file.fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file.fd < 0 || !lock_file(file.fd, false)) return wrong(error, size, path);
    return true;
}

bool sim_trace_file_open(const char *path, const TraceFormat *format, char *error, size_t size)
{
    file.format = format;
    file.pid = getpid();
    file.used = 0;
    file.any = file.broken = false;
    snprintf(file.path, sizeof file.path, "%s", path);
    // The program may change its folder.
    if (*path != '/') {
        char here[PATH_MAX];
        if (getcwd(here, sizeof here) == NULL) return wrong(error, size, "the current folder");
        snprintf(file.path, sizeof file.path, "%.*s/%s", (int)(PATH_MAX - 2 - strlen(path)), here,
                 path);
    }
    if (strlen(file.path) > PATH_MAX - 64) errno = ENAMETOOLONG;
    if (strlen(file.path) > PATH_MAX - 64) return wrong(error, size, "its name");
    snprintf(file.folder, sizeof file.folder, "%.*s.parts", PATH_MAX - 60, file.path);
    struct stat there;
    if (stat(file.path, &there) == 0 && S_ISDIR(there.st_mode)) {
        errno = EISDIR;
        return wrong(error, size, "it cannot be written");
    }
    int lock = lock_folder();
    if (lock < 0) return wrong(error, size, "it cannot be written");
    Listing *all = new_listing();
    bool alive = false;
    if (all) list_parts(all);
    for (int i = 0; all && i < all->n && !alive; i++) alive = is_alive(all->name[i]);
    if (all && !alive) remove_parts(all);
    if (all) munmap(all, sizeof *all);
    bool made = make_part(error, size);
    close(lock);
    return made;
}

// ---- Putting the parts together ----

static unsigned char *map_part(const char *name, size_t *size)
{
    char path[PATH_MAX + 64];
    struct stat status;
    part_path(name, path);
    bool own = strcmp(name, file.name) == 0;
    int fd = own ? file.fd : open(path, O_RDONLY | O_CLOEXEC);
    *size = fd >= 0 && fstat(fd, &status) == 0 ? (size_t)status.st_size : 0;
    void *bytes = *size > 0 ? mmap(NULL, *size, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
    if (fd >= 0 && !own) close(fd);
    if (bytes == MAP_FAILED) *size = 0;
    return bytes == MAP_FAILED ? NULL : bytes;
}

// The complete records of a part; if `to` is NULL it only counts them.
static size_t find_records(const Part *part, Found *to)
{
    size_t n = 0;
    for (size_t at = 0; part->size - at >= sizeof(Record);) {
        Record r;
        memcpy(&r, part->bytes + at, sizeof r);
        at += sizeof r;
        if (r.mark != MARK || r.size > part->size - at) break;
        if (to) to[n] = (Found){r.ns, r.order, r.size, part->bytes + at};
        n++;
        at += r.size;
    }
    return n;
}

static bool comes_before(const Found *a, const Found *b)
{
    return a->ns != b->ns ? a->ns < b->ns : a->order < b->order;
}

// Sorts n records, stably; `other` has room for as many. Returns the sorted ones.
static Found *sort_records(Found *all, Found *other, size_t n)
{
    for (size_t run = 1; run < n; run *= 2) {
        for (size_t low = 0; low < n; low += 2 * run) {
            size_t middle = low + run < n ? low + run : n,
                   high = low + 2 * run < n ? low + 2 * run : n;
            for (size_t i = low, j = middle, k = low; k < high; k++) {
                bool second = i == middle || (j < high && comes_before(&all[j], &all[i]));
                other[k] = second ? all[j++] : all[i++];
            }
        }
        Found *sorted = other;
        other = all;
        all = sorted;
    }
    return all;
}

typedef struct Output {
    int fd;
    size_t used;
    unsigned char *buffer; // (sizeof file.buffer): the part's, which is written
} Output;

static void output(Output *out, const void *bytes, size_t n)
{
    if (n > sizeof file.buffer - out->used) {
        write_all(out->fd, out->buffer, out->used);
        out->used = 0;
    }
    memcpy(out->buffer + out->used, bytes, n);
    out->used += n;
}

static bool write_sorted(const Found *sorted, size_t n)
{
    char path[PATH_MAX + 64];
    const TraceFormat *f = file.format;
    part_path("whole", path);
    Output out = {open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666), 0, file.buffer};
    if (out.fd < 0) return false;
    output(&out, f->head, strlen(f->head));
    for (size_t i = 0; i < n; i++) {
        if (i > 0) output(&out, f->between, strlen(f->between));
        output(&out, sorted[i].bytes, sorted[i].size);
    }
    output(&out, f->tail, strlen(f->tail));
    write_all(out.fd, out.buffer, out.used);
    bool good = close(out.fd) == 0 && !file.broken && rename(path, file.path) == 0;
    if (!good) unlink(path);
    return good;
}

static bool join_parts(const Listing *ended)
{
    size_t n = 0, parts_bytes = (size_t)ended->n * sizeof(Part);
    if (ended->n == 0) return true;
    Part *part =
        mmap(NULL, parts_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (part == MAP_FAILED) return false;
    for (int i = 0; i < ended->n; i++) {
        part[i].bytes = map_part(ended->name[i], &part[i].size);
        n += find_records(&part[i], NULL);
    }
    size_t bytes = 2 * n * sizeof(Found);
    Found *all = n == 0 ? NULL
                        : mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    bool good = n == 0;
    if (n > 0 && all != MAP_FAILED) {
        size_t at = 0;
        for (int i = 0; i < ended->n; i++) at += find_records(&part[i], all + at);
        good = write_sorted(sort_records(all, all + n, n), n);
        munmap(all, bytes);
    }
    for (int i = 0; i < ended->n; i++)
        if (part[i].bytes) munmap(part[i].bytes, part[i].size);
    munmap(part, parts_bytes);
    return good;
}

// With the folder's lock: makes the file of the parts of all processes that have ended, and of this
// one.
static bool put_together(void)
{
    char path[PATH_MAX + 64];
    Listing *all = new_listing();
    if (!all) return false;
    list_parts(all);
    int ended = 0, alive = 0;
    for (int i = 0; i < all->n; i++) {
        if (is_alive(all->name[i]))
            alive++;
        else
            memmove(all->name[ended++], all->name[i], sizeof all->name[i]);
    }
    all->n = ended;
    bool good = join_parts(all);
    if (good && alive == 0) {
        remove_parts(all);
        part_path("lock", path);
        unlink(path);
        rmdir(file.folder);
    }
    munmap(all, sizeof *all);
    return good;
}

bool sim_trace_file_close(char *error, size_t size)
{
    if (file.fd < 0 || file.pid != getpid()) return true;
    flush();
    bool written = !file.broken;
    if (!written) wrong(error, size, "its part is not complete");
    file.broken = false;
    int lock = lock_folder();
    if (lock < 0) return wrong(error, size, "its parts cannot be put together");
    bool good = put_together();
    if (!good) wrong(error, size, "its parts cannot be put together");
    close(file.fd);
    file.fd = -1;
    close(lock);
    return good && written;
}
