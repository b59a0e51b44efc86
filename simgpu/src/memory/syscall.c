/* syscall.c: checks memory that is passed to system calls: device memory, or pinned memory that a
 * copy uses.
 *
 * The system does not fault where a program would: write(2) of an address without access returns
 * EFAULT, and a program that saves a checkpoint directly from a device pointer gets no report. So
 * the functions below replace the C library's: with SIMGPU_CHECK=full they check their range,
 * report what a touch by the host would report (fault.c, touch.c), and then call the next
 * definition.
 *
 * They are weak: a program that defines one of them keeps its own, without a clash; a sanitizer's
 * are the next definitions. The C library's headers may call a name with _chk (_FORTIFY_SOURCE) or
 * 64 (_FILE_OFFSET_BITS) instead: those are here, too. The C library's own calls, such as those of
 * fprintf, do not come here.
 *
 * Interface: read, pread, readv, write, pwrite, writev, send, sendto, sendmsg, recv, recvfrom,
 * recvmsg, fread, fwrite; sim_syscall_install.
 */
#undef _FORTIFY_SOURCE
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "core/config.h"
#include "core/error.h"
#include "memory/allocation.h"
#include "memory/fault.h"
#include "memory/pinned.h"

#define WEAK __attribute__((weak))
#define HERE __builtin_return_address(0)

// ---- The next definition ----

typedef enum Name {
    READ,
    PREAD,
    WRITE,
    PWRITE,
    WRITEV,
    READV,
    SEND,
    SENDTO,
    SENDMSG,
    RECV,
    RECVFROM,
    RECVMSG,
    FREAD,
    FWRITE,
    READ_CHK,
    PREAD_CHK,
    RECV_CHK,
    FREAD_CHK,
    NAMES
} Name;

static const char *const names[NAMES] = {
    [READ] = "read",           [PREAD] = "pread64",
    [WRITE] = "write",         [PWRITE] = "pwrite64",
    [WRITEV] = "writev",       [READV] = "readv",
    [SEND] = "send",           [SENDTO] = "sendto",
    [SENDMSG] = "sendmsg",     [RECV] = "recv",
    [RECVFROM] = "recvfrom",   [RECVMSG] = "recvmsg",
    [FREAD] = "fread",         [FWRITE] = "fwrite",
    [READ_CHK] = "__read_chk", [PREAD_CHK] = "__pread64_chk",
    [RECV_CHK] = "__recv_chk", [FREAD_CHK] = "__fread_chk",
};
static void *_Atomic found[NAMES];

// NULL: a program that is linked statically has none.
static void *next(Name name)
{
    void *function = found[name];
    if (!function) found[name] = function = dlsym(RTLD_NEXT, names[name]);
    return function;
}

// Runs before the program: a signal handler may be the first to write.
__attribute__((constructor(101))) static void find_next(void)
{
    for (Name name = 0; name < NAMES; name++) next(name);
}

// ---- Looking ----

// A range that a system call uses.
typedef struct Use {
    const char *call;
    const void *ptr, *returns;
    size_t bytes, before; // of other ranges of the same call
    bool writes;          // whether the system writes into the range
    bool pinned;
    int slot;
} Use;

static atomic_bool installed;

void sim_syscall_install(void)
{
    atomic_store(&installed, sim_config()->check == CHECK_FULL);
}

static bool looks(void)
{
    return atomic_load_explicit(&installed, memory_order_relaxed) && !sim_is_forked();
}

// `at`: an address as a number, since nothing is read there.
static Use begin(const char *call, uintptr_t at, size_t bytes, bool writes, const void *returns)
{
    const void *ptr = (const void *)at;
    Use use = {call, ptr, returns, bytes, 0, writes, false, 0};
    size_t offset;
    int number = errno;
    if (!bytes || !looks()) return use;
    if (sim_device_of(ptr, &offset) && !sim_managed(ptr))
        sim_fault_device(call, ptr, writes ? "writes" : "reads", sim_fault_site(returns));
    use.pinned = sim_pinned_enter_call(call, ptr, bytes, writes, returns, &use.slot);
    errno = number;
    return use;
}

// `used`: the bytes that the call has read or written; less than 0: it failed.
static void end(const Use *use, ssize_t used)
{
    int number = errno;
    if (use->pinned)
        sim_pinned_leave_call(use->call, use->ptr, use->bytes, used > 0 ? (size_t)used : 0,
                              use->writes, use->returns, use->slot);
    errno = number;
}

#define NEXT(name, type, ...) ((type)next(name))(__VA_ARGS__)
// `otherwise`: what to do where there is no next definition.
#define PASS(name, type, otherwise, ...) (next(name) ? NEXT(name, type, __VA_ARGS__) : (otherwise))

// ---- Files ----

typedef ssize_t (*Read)(int, void *, size_t);
typedef ssize_t (*Write)(int, const void *, size_t);
typedef ssize_t (*PRead)(int, void *, size_t, off_t);
typedef ssize_t (*PWrite)(int, const void *, size_t, off_t);
typedef ssize_t (*Vector)(int, const struct iovec *, int);

WEAK ssize_t read(int fd, void *buf, size_t n)
{
    Use use = begin("read", (uintptr_t)buf, n, true, HERE);
    ssize_t done = PASS(READ, Read, syscall(SYS_read, fd, buf, n), fd, buf, n);
    end(&use, done);
    return done;
}

static ssize_t pread_at(int fd, void *buf, size_t n, off_t offset, const void *returns)
{
    Use use = begin("pread", (uintptr_t)buf, n, true, returns);
    ssize_t done = PASS(PREAD, PRead, syscall(SYS_pread64, fd, buf, n, offset), fd, buf, n, offset);
    end(&use, done);
    return done;
}

WEAK ssize_t pread(int fd, void *buf, size_t n, off_t offset)
{
    return pread_at(fd, buf, n, offset, HERE);
}

WEAK ssize_t pread64(int fd, void *buf, size_t n, off_t offset)
{
    return pread_at(fd, buf, n, offset, HERE);
}

WEAK ssize_t write(int fd, const void *buf, size_t n)
{
    Use use = begin("write", (uintptr_t)buf, n, false, HERE);
    ssize_t done = PASS(WRITE, Write, syscall(SYS_write, fd, buf, n), fd, buf, n);
    end(&use, done);
    return done;
}

static ssize_t pwrite_at(int fd, const void *buf, size_t n, off_t offset, const void *returns)
{
    Use use = begin("pwrite", (uintptr_t)buf, n, false, returns);
    ssize_t done =
        PASS(PWRITE, PWrite, syscall(SYS_pwrite64, fd, buf, n, offset), fd, buf, n, offset);
    end(&use, done);
    return done;
}

WEAK ssize_t pwrite(int fd, const void *buf, size_t n, off_t offset)
{
    return pwrite_at(fd, buf, n, offset, HERE);
}

WEAK ssize_t pwrite64(int fd, const void *buf, size_t n, off_t offset)
{
    return pwrite_at(fd, buf, n, offset, HERE);
}

// ---- Several ranges at once ----

#define MOST_RANGES 64 // that are pinned; more are not checked

typedef struct Uses {
    int n;
    Use use[MOST_RANGES];
} Uses;

static void begin_all(const char *call, const struct iovec *range, size_t n, bool writes,
                      const void *returns, Uses *uses)
{
    size_t before = 0;
    uses->n = 0;
    for (size_t i = 0; i < n && uses->n < MOST_RANGES && looks(); i++) {
        Use use = begin(call, (uintptr_t)range[i].iov_base, range[i].iov_len, writes, returns);
        use.before = before;
        before += range[i].iov_len;
        if (use.pinned) uses->use[uses->n++] = use;
    }
}

static void end_all(const Uses *uses, ssize_t used)
{
    for (int i = 0; i < uses->n; i++) {
        const Use *use = &uses->use[i];
        end(use, used > (ssize_t)use->before ? used - (ssize_t)use->before : 0);
    }
}

WEAK ssize_t writev(int fd, const struct iovec *range, int n)
{
    Uses uses;
    begin_all("writev", range, n > 0 ? (size_t)n : 0, false, HERE, &uses);
    ssize_t done = PASS(WRITEV, Vector, syscall(SYS_writev, fd, range, n), fd, range, n);
    end_all(&uses, done);
    return done;
}

WEAK ssize_t readv(int fd, const struct iovec *range, int n)
{
    Uses uses;
    begin_all("readv", range, n > 0 ? (size_t)n : 0, true, HERE, &uses);
    ssize_t done = PASS(READV, Vector, syscall(SYS_readv, fd, range, n), fd, range, n);
    end_all(&uses, done);
    return done;
}

// ---- Sockets ----

typedef ssize_t (*Send)(int, const void *, size_t, int);
typedef ssize_t (*SendTo)(int, const void *, size_t, int, const struct sockaddr *, socklen_t);
typedef ssize_t (*SendMsg)(int, const struct msghdr *, int);
typedef ssize_t (*Recv)(int, void *, size_t, int);
typedef ssize_t (*RecvFrom)(int, void *, size_t, int, struct sockaddr *, socklen_t *);
typedef ssize_t (*RecvMsg)(int, struct msghdr *, int);

WEAK ssize_t send(int fd, const void *buf, size_t n, int flags)
{
    Use use = begin("send", (uintptr_t)buf, n, false, HERE);
    ssize_t done =
        PASS(SEND, Send, syscall(SYS_sendto, fd, buf, n, flags, NULL, 0), fd, buf, n, flags);
    end(&use, done);
    return done;
}

WEAK ssize_t sendto(int fd, const void *buf, size_t n, int flags, const struct sockaddr *to,
                    socklen_t length)
{
    Use use = begin("sendto", (uintptr_t)buf, n, false, HERE);
    ssize_t done = PASS(SENDTO, SendTo, syscall(SYS_sendto, fd, buf, n, flags, to, length), fd, buf,
                        n, flags, to, length);
    end(&use, done);
    return done;
}

WEAK ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    Uses uses = {.n = 0};
    if (message) begin_all("sendmsg", message->msg_iov, message->msg_iovlen, false, HERE, &uses);
    ssize_t done =
        PASS(SENDMSG, SendMsg, syscall(SYS_sendmsg, fd, message, flags), fd, message, flags);
    end_all(&uses, done);
    return done;
}

WEAK ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
    Uses uses = {.n = 0};
    if (message) begin_all("recvmsg", message->msg_iov, message->msg_iovlen, true, HERE, &uses);
    ssize_t done =
        PASS(RECVMSG, RecvMsg, syscall(SYS_recvmsg, fd, message, flags), fd, message, flags);
    end_all(&uses, done);
    return done;
}

WEAK ssize_t recvfrom(int fd, void *restrict buf, size_t n, int flags,
                      struct sockaddr *restrict from, socklen_t *restrict length)
{
    Use use = begin("recvfrom", (uintptr_t)buf, n, true, HERE);
    ssize_t done = PASS(RECVFROM, RecvFrom, syscall(SYS_recvfrom, fd, buf, n, flags, from, length),
                        fd, buf, n, flags, from, length);
    end(&use, done);
    return done;
}

WEAK ssize_t recv(int fd, void *buf, size_t n, int flags)
{
    Use use = begin("recv", (uintptr_t)buf, n, true, HERE);
    ssize_t done =
        PASS(RECV, Recv, syscall(SYS_recvfrom, fd, buf, n, flags, NULL, NULL), fd, buf, n, flags);
    end(&use, done);
    return done;
}

// ---- Streams of the C library ----

typedef size_t (*FRead)(void *, size_t, size_t, FILE *);
typedef size_t (*FWrite)(const void *, size_t, size_t, FILE *);

WEAK size_t fread(void *restrict buf, size_t size, size_t n, FILE *restrict file)
{
    Use use = begin("fread", (uintptr_t)buf, size * n, true, HERE);
    size_t done = PASS(FREAD, FRead, fread_unlocked(buf, size, n, file), buf, size, n, file);
    end(&use, (ssize_t)(done * size));
    return done;
}

WEAK size_t fwrite(const void *restrict buf, size_t size, size_t n, FILE *restrict file)
{
    Use use = begin("fwrite", (uintptr_t)buf, size * n, false, HERE);
    size_t done = PASS(FWRITE, FWrite, fwrite_unlocked(buf, size, n, file), buf, size, n, file);
    end(&use, (ssize_t)(done * size));
    return done;
}

// ---- What the C library's headers call where it knows the size of the buffer ----

ssize_t __read_chk(int fd, void *buf, size_t n, size_t room);
ssize_t __pread_chk(int fd, void *buf, size_t n, off_t offset, size_t room);
ssize_t __pread64_chk(int fd, void *buf, size_t n, off_t offset, size_t room);
ssize_t __recv_chk(int fd, void *buf, size_t n, size_t room, int flags);
size_t __fread_chk(void *buf, size_t room, size_t size, size_t n, FILE *file);

typedef ssize_t (*ReadChk)(int, void *, size_t, size_t);
typedef ssize_t (*PReadChk)(int, void *, size_t, off_t, size_t);
typedef ssize_t (*RecvChk)(int, void *, size_t, size_t, int);
typedef size_t (*FReadChk)(void *, size_t, size_t, size_t, FILE *);

WEAK ssize_t __read_chk(int fd, void *buf, size_t n, size_t room)
{
    Use use = begin("read", (uintptr_t)buf, n, true, HERE);
    ssize_t done = PASS(READ_CHK, ReadChk, syscall(SYS_read, fd, buf, n), fd, buf, n, room);
    end(&use, done);
    return done;
}

static ssize_t pread_chk(int fd, void *buf, size_t n, off_t offset, size_t room,
                         const void *returns)
{
    Use use = begin("pread", (uintptr_t)buf, n, true, returns);
    ssize_t done = PASS(PREAD_CHK, PReadChk, syscall(SYS_pread64, fd, buf, n, offset), fd, buf, n,
                        offset, room);
    end(&use, done);
    return done;
}

WEAK ssize_t __pread_chk(int fd, void *buf, size_t n, off_t offset, size_t room)
{
    return pread_chk(fd, buf, n, offset, room, HERE);
}

WEAK ssize_t __pread64_chk(int fd, void *buf, size_t n, off_t offset, size_t room)
{
    return pread_chk(fd, buf, n, offset, room, HERE);
}

WEAK ssize_t __recv_chk(int fd, void *buf, size_t n, size_t room, int flags)
{
    Use use = begin("recv", (uintptr_t)buf, n, true, HERE);
    ssize_t done = PASS(RECV_CHK, RecvChk, syscall(SYS_recvfrom, fd, buf, n, flags, NULL, NULL), fd,
                        buf, n, room, flags);
    end(&use, done);
    return done;
}

WEAK size_t __fread_chk(void *restrict buf, size_t room, size_t size, size_t n, FILE *restrict file)
{
    Use use = begin("fread", (uintptr_t)buf, size * n, true, HERE);
    size_t done =
        PASS(FREAD_CHK, FReadChk, fread_unlocked(buf, size, n, file), buf, room, size, n, file);
    end(&use, (ssize_t)(done * size));
    return done;
}
