/* confined: tries all that a submission must not do, on what is in the folder it is given, and
 * prints a line for each: what it tried, and "done" or why not. It runs confined (test_confine.py).
 *
 * Usage: confined OUTSIDE SCRATCH PID SOCKET: a folder with `file`, `folder` and `secret.h`; where
 * it may write; a process outside; an abstract socket outside, without its first byte.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <utime.h>

static char file[PATH_MAX], folder[PATH_MAX], fresh[PATH_MAX], mine[PATH_MAX], proc[PATH_MAX];

static void tell(const char *what, long result)
{
    printf("%s: %s\n", what, result < 0 ? strerror(errno) : "done");
}

// Opens it, and has it closed again.
static int opened(const char *path, int flags)
{
    int fd = open(path, flags, 0666);

    if (fd >= 0) close(fd);
    return fd;
}

static const char *of(int pid, const char *name)
{
    snprintf(proc, sizeof proc, "/proc/%d/%s", pid, name);
    return proc;
}

static void files(const char *outside)
{
    struct timeval times[2] = {{1, 0}, {1, 0}};
    struct timespec precise[2] = {{1, 0}, {1, 0}};
    int flags = FS_NODUMP_FL, fd = open(mine, O_RDWR | O_CREAT, 0666);
    char secret[PATH_MAX + 16];

    snprintf(secret, sizeof secret, "%s/secret.h", outside);
    tell("read", opened(secret, O_RDONLY));
    tell("read by a link", symlink(secret, fresh) < 0 ? -1 : opened(fresh, O_RDONLY));
    tell("list", opened(outside, O_RDONLY | O_DIRECTORY));
    tell("open to write", opened(file, O_WRONLY));
    tell("open to append", opened(file, O_WRONLY | O_APPEND));
    tell("create", opened(fresh, O_WRONLY | O_CREAT));
    tell("create without a name", opened(outside, O_WRONLY | O_TMPFILE));
    tell("truncate", truncate(file, 0));
    tell("truncate by opening", opened(file, O_RDONLY | O_TRUNC));
    tell("truncate by mode 3", opened(file, O_ACCMODE | O_TRUNC));
    tell("rename", rename(file, fresh));
    tell("rename away", rename(file, mine));
    tell("rename into", rename(mine, file));
    tell("exchange", renameat2(AT_FDCWD, mine, AT_FDCWD, file, RENAME_EXCHANGE));
    tell("link into", link(mine, fresh));
    tell("link out of", link(file, mine));
    tell("symlink", symlink("/etc", fresh));
    tell("unlink", unlink(file));
    tell("rmdir", rmdir(folder));
    tell("mkdir", mkdir(fresh, 0777));
    tell("mkfifo", mkfifo(fresh, 0666));
    tell("mknod", mknod(mine, S_IFCHR | 0666, 0));
    tell("chmod", chmod(file, 0777));
    tell("fchmodat2", syscall(452, AT_FDCWD, file, 0777, 0));
    tell("chown", chown(file, getuid(), getgid()));
    tell("lchown", lchown(file, getuid(), getgid()));
    tell("utimes", utimes(file, times));
    tell("utimensat", utimensat(AT_FDCWD, file, precise, 0));
    tell("utime", utime(file, NULL));
    tell("setxattr", setxattr(file, "user.a", "b", 1, 0));
    tell("removexattr", removexattr(file, "user.kept"));
    // Of what it may read it may not change the attributes, either.
    int own = open("/proc/self/exe", O_RDONLY);
    tell("fchmod", fchmod(own, 0777));
    tell("futimens", futimens(own, precise));
    tell("ioctl FS_IOC_SETFLAGS", ioctl(fd, FS_IOC_SETFLAGS, &flags));
    tell("mount", syscall(SYS_mount, "none", folder, "tmpfs", 0, NULL));
    tell("chroot", chroot(folder));
    tell("unshare", unshare(CLONE_NEWUSER));
    close(own);
    close(fd);
}

static void others(int pid)
{
    char byte = 0;
    struct iovec here = {&byte, 1}, there = {file, 1};
    struct rlimit limit = {1, 1};
    int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);

    tell("/proc/PID/mem", opened(of(pid, "mem"), O_RDWR));
    tell("/proc/PID/environ", opened(of(pid, "environ"), O_RDONLY));
    tell("/proc/PID/fd", opened(of(pid, "fd/0"), O_RDONLY));
    tell("/proc/PID/cwd", opened(of(pid, "cwd/file"), O_WRONLY));
    tell("/proc/PID/root", opened(of(pid, "root/etc/shadow"), O_RDONLY));
    tell("/proc/PID/oom_score_adj", opened(of(pid, "oom_score_adj"), O_WRONLY));
    tell("ptrace", ptrace(PTRACE_ATTACH, pid, NULL, NULL));
    tell("process_vm_writev", process_vm_writev(pid, &here, 1, &there, 1, 0));
    tell("pidfd_getfd", syscall(438, pidfd, 0, 0));
    tell("prlimit", prlimit(pid, RLIMIT_CORE, &limit, NULL));
    tell("setpriority", setpriority(PRIO_PROCESS, (id_t)pid, 19));
    tell("kill", kill(pid, SIGUSR1));
    tell("tkill", syscall(SYS_tkill, pid, SIGUSR1));
    tell("tgkill", syscall(SYS_tgkill, pid, pid, SIGUSR1));
    tell("pidfd_send_signal", syscall(424, pidfd, SIGUSR1, NULL, 0));
    tell("perf_event_open", syscall(SYS_perf_event_open, NULL, 0, -1, -1, 0));
    tell("io_uring_setup", syscall(425, 1, NULL));
    tell("bpf", syscall(SYS_bpf, 0, NULL, 0));
    tell("a call of tomorrow", syscall(9999));
}

static void network(const char *socket_outside)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    struct sockaddr_in loopback = {.sin_family = AF_INET, .sin_port = htons(9)};
    socklen_t n = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(socket_outside));
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    tell("TCP", fd < 0 ? -1 : bind(fd, (struct sockaddr *)&loopback, sizeof loopback));
    tell("UDP", socket(AF_INET, SOCK_DGRAM, 0));
    tell("IPv6", socket(AF_INET6, SOCK_STREAM, 0));
    tell("netlink", socket(AF_NETLINK, SOCK_RAW, 0));
    tell("packets", socket(AF_PACKET, SOCK_RAW, 0));
    tell("Unix datagrams", socket(AF_UNIX, SOCK_DGRAM, 0));
    memcpy(name.sun_path + 1, socket_outside, strlen(socket_outside));
    fd = socket(AF_UNIX, SOCK_STREAM, 0);
    tell("an abstract socket", fd < 0 ? -1 : connect(fd, (struct sockaddr *)&name, n));
}

// What tests do and must be able to do.
static void allowed(const char *scratch)
{
    char path[PATH_MAX + 8];
    int pair[2];

    snprintf(path, sizeof path, "%s/other", scratch);
    tell("may write", opened(mine, O_RDWR | O_CREAT | O_TRUNC));
    tell("may rename", rename(mine, path));
    tell("may truncate", opened(path, O_WRONLY | O_TRUNC));
    tell("may unlink", unlink(path));
    tell("may open /dev/null", opened("/dev/null", O_WRONLY | O_TRUNC));
    tell("may read /proc", opened("/proc/self/status", O_RDONLY));
    tell("may pair sockets", socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    tell("may limit itself", setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0}));
    int child = fork();
    if (child == 0) pause();
    tell("may end its child", kill(child, SIGKILL));
}

int main(int argc, char **argv)
{
    if (argc != 5) return 2;
    snprintf(file, sizeof file, "%s/file", argv[1]);
    snprintf(folder, sizeof folder, "%s/folder", argv[1]);
    snprintf(fresh, sizeof fresh, "%s/fresh", argv[1]);
    snprintf(mine, sizeof mine, "%s/mine", argv[2]);
    files(argv[1]);
    others(atoi(argv[3]));
    network(argv[4]);
    allowed(argv[2]);
    return 0;
}
