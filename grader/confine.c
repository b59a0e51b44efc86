/* confine: runs a command that can write in named folders alone, reads what it needs and no more,
 * and has no network. It needs no root, and its children are as confined as it is.
 *
 *     confine [OPTION]... -- COMMAND [ARGUMENT]...
 *     confine [OPTION]... --report     says in JSON what this kernel enforces, and ends
 *
 *     --read PATH      may be read, a folder with all below it; one that is not there is left out
 *     --write PATH     may be read and written; a folder is where temporary files go (TMPDIR)
 *     --without DIR    the kit's folder: where it lies in a folder of the system, it is left out
 *     --tool           the command is a compiler: what is installed beside it may be read
 *     --cuda           a real GPU is used: its devices, shared memory, the files of /proc and the
 *                      network are open
 *     --trace          may trace its own children, as leak sanitizers do
 *     --abi N          uses no more of Landlock than its ABI N has (for tests)
 *
 * Landlock (Linux 5.13) enforces what concerns files, and by its ABI: 2 moves between folders, 3
 * truncation, 4 TCP, 5 ioctl on devices, 6 signals and abstract sockets of processes outside. A
 * seccomp filter refuses with EPERM what Landlock has no rule for (modes, owners, times, extended
 * attributes, other processes' memory and limits, every socket but Unix streams) and what it lacks
 * at this ABI; the next 200 calls that Linux gets do not exist (ENOSYS). What is enforced nowhere
 * is in grader/confinement.py.
 *
 * Exit status: the command's; 126 where it cannot be run. Who hears the results of a test
 * (grader/runner.py) hears that too.
 * Sources: Documentation/userspace-api/landlock.rst and include/uapi/linux/landlock.h of Linux,
 * whose constants are repeated here, because the headers of an older distribution lack them.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { CREATE_RULESET = 444, ADD_RULE = 445, RESTRICT_SELF = 446 }; // on every processor
enum { ASK_ABI = 1, BELOW_PATH = 1 };
enum { NEWEST_CALL = 451, NEWER_CALLS = 200 };
enum {
    EXECUTE = 1 << 0,
    WRITE_FILE = 1 << 1,
    READ_FILE = 1 << 2,
    READ_DIR = 1 << 3,
    MAKE_DEVICES = 1 << 6 | 1 << 11, // character and block
    ABI_1 = (1 << 13) - 1,
    REFER = 1 << 13,     // ABI 2
    TRUNCATE = 1 << 14,  // ABI 3
    IOCTL_DEV = 1 << 15, // ABI 5
    TCP = 1 << 0 | 1 << 1,
    ABSTRACT_SOCKETS_AND_SIGNALS = 1 << 0 | 1 << 1,
    OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV,
    READ = EXECUTE | READ_FILE | READ_DIR,
};

typedef struct Ruleset {
    uint64_t fs, net, scoped;
} Ruleset;

typedef struct __attribute__((packed)) BelowPath {
    uint64_t allowed;
    int32_t folder;
} BelowPath;

// What programs and compilers need of any system. Of /etc: nobody's passwords.
static const char *const SYSTEM[] = {
    "/usr",           "/lib",         "/lib32",         "/lib64",         "/bin",
    "/sbin",          "/nix/store",   "/gnu/store",     "/proc",          "/sys/devices/system",
    "/sys/fs/cgroup", "/dev/urandom", "/dev/random",    "/dev/zero",      "/etc/ld.so.cache",
    "/etc/localtime", "/etc/python3", "/etc/python3.9", "/etc/python3.11"};
static const char *const CUDA[] = {"/dev", "/sys", "/opt", "/run", "/etc", "/var/run"};

static int landlock = -1, abi, allowed_abi = INT_MAX;
static Ruleset handled;
static const char *kit = "";
static bool tool, cuda, may_trace;

static void stop(const char *what)
{
    fprintf(stderr, "confine: %s: %s\n", what, strerror(errno));
    exit(126);
}

static void cannot_run(const char *command)
{
    const char *results = getenv("SHARDLAB_RESULTS_FD"), *nonce = getenv("SHARDLAB_NONCE");

    if (results && nonce)
        dprintf(atoi(results), "{\"nonce\": \"%s\", \"cannot_run\": \"%s\"}\n", nonce,
                strerror(errno));
    stop(command);
}

// ---- Landlock ----

static void open_ruleset(void)
{
    abi = (int)syscall(CREATE_RULESET, NULL, 0, ASK_ABI);
    if (abi > allowed_abi) abi = allowed_abi;
    if (abi < 1) {
        abi = 0;
        return;
    }
    handled.fs =
        ABI_1 | (abi >= 2 ? REFER : 0) | (abi >= 3 ? TRUNCATE : 0) | (abi >= 5 ? IOCTL_DEV : 0);
    if (abi >= 4 && !cuda) handled.net = TCP;
    if (abi >= 6) handled.scoped = ABSTRACT_SOCKETS_AND_SIGNALS;
    landlock = (int)syscall(CREATE_RULESET, &handled, sizeof handled, 0);
    if (landlock < 0) abi = 0; // built in, and off
}

static void grant(const char *path, uint64_t rights)
{
    struct stat file;
    int fd = landlock < 0 ? -1 : open(path, O_PATH | O_CLOEXEC);

    if (fd < 0) return;
    if (fstat(fd, &file) == 0 && !S_ISDIR(file.st_mode)) rights &= OF_FILES;
    BelowPath below = {rights & handled.fs, fd};
    if (syscall(ADD_RULE, landlock, BELOW_PATH, &below, 0) != 0) stop(path);
    close(fd);
}

// Whether a folder is the kit's or holds it.
static bool holds_kit(const char *folder)
{
    size_t n = strlen(folder);

    return strncmp(kit, folder, n) == 0 && (kit[n] == 0 || kit[n] == '/' || n == 1);
}

// A folder of the system without the kit, which may lie in it.
static void grant_system(const char *path, uint64_t rights)
{
    char *real = realpath(path, NULL);
    DIR *folder = real && holds_kit(real) ? opendir(real) : NULL;
    struct dirent *entry;

    if (real && !holds_kit(real)) grant(real, rights);
    while (folder && strcmp(real, kit) != 0 && (entry = readdir(folder))) {
        char *inside = NULL;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        if (asprintf(&inside, "%s/%s", real, entry->d_name) < 0) stop(real);
        grant_system(inside, rights);
        free(inside);
    }
    if (folder) closedir(folder);
    free(real);
}

// What is installed with a program: of /opt/gcc/bin/gcc all of /opt/gcc.
static void grant_installed(char *program)
{
    for (int i = 0; program && i < 2; i++) {
        char *slash = strrchr(program, '/');
        if (slash) *slash = 0;
    }
    if (program && *program && strchr(program + 1, '/')) grant_system(program, READ);
    free(program);
}

static void grant_tool(const char *command)
{
    const char *path = getenv("PATH");
    char *copy = strdup(path ? path : ""), *rest = copy;

    for (char *folder; !strchr(command, '/') && (folder = strsep(&rest, ":"));) {
        char *name = NULL;
        if (asprintf(&name, "%s/%s", folder, command) < 0) stop(command);
        if (access(name, X_OK) == 0) {
            grant_installed(realpath(name, NULL));
            grant_installed(name);
            break;
        }
        free(name);
    }
    if (strchr(command, '/')) grant_installed(realpath(command, NULL));
    free(copy);
}

// ---- seccomp ----

#include "confine_calls.h"

static scmp_filter_ctx rules;
static bool complete = true;

// Refuses a call where one argument is so, or always (n = 0). A name that this processor does not
// have is below 0.
static void add(int call, int error, unsigned n, struct scmp_arg_cmp where)
{
    if (call < 0) return;
    int made = seccomp_rule_add_array(rules, SCMP_ACT_ERRNO((unsigned)error), call, n, &where);
    complete = complete && (made == 0 || made == -EEXIST);
}

static void refuse(int call, int error)
{
    add(call, error, 0, SCMP_CMP64(0, SCMP_CMP_EQ, 0, 0));
}

static void refuse_name(const char *name)
{
    refuse(seccomp_syscall_resolve_name(name), EPERM);
}

static void refuse_all(const char *const *names)
{
    for (; *names; names++) refuse_name(*names);
}

// Where an argument's low half, under the mask, is the value.
static void refuse_where(const char *name, unsigned argument, uint32_t mask, uint32_t value)
{
    add(seccomp_syscall_resolve_name(name), EPERM, 1,
        SCMP_CMP64(argument, SCMP_CMP_MASKED_EQ, mask, value));
}

static void refuse_unless(const char *name, unsigned argument, uint32_t value)
{
    add(seccomp_syscall_resolve_name(name), EPERM, 1, SCMP_CMP64(argument, SCMP_CMP_NE, value, 0));
}

// Truncation by a descriptor that may only read, which Landlock sees from ABI 3 on; and by the
// access mode 3, which neither reads nor writes.
static void refuse_truncation(void)
{
    for (uint32_t mode = 0; mode <= O_ACCMODE; mode += O_ACCMODE) {
        refuse_where("open", 1, O_ACCMODE | O_TRUNC, O_TRUNC | mode);
        refuse_where("openat", 2, O_ACCMODE | O_TRUNC, O_TRUNC | mode);
    }
    refuse_name("truncate");
    refuse(437, ENOSYS); // openat2, whose flags no filter sees
}

// Signals to whoever started this, which Landlock refuses from ABI 6 on.
static void refuse_signals(void)
{
    static const char *const BY_NUMBER[] = {"kill", "tgkill", "rt_sigqueueinfo",
                                            "rt_tgsigqueueinfo"};

    for (size_t i = 0; i < sizeof BY_NUMBER / sizeof *BY_NUMBER; i++)
        refuse_where(BY_NUMBER[i], 0, UINT32_MAX, (uint32_t)getppid());
    refuse_where("kill", 0, UINT32_MAX, (uint32_t)-getpgid(getppid()));
    refuse_where("kill", 0, UINT32_MAX, (uint32_t)-1);
    refuse_name("tkill");
    refuse(424, EPERM); // pidfd_send_signal
}

// simgpu then needs segments of System V memory, without a key; who leaves one there is known
// (grader/segments.py).
static bool files_are_limited(void)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

// Whether the filter is in force. Calls of another architecture, x32 among them, are refused.
static bool filter(void)
{
    rules = seccomp_init(SCMP_ACT_ALLOW);
    if (!rules) return false;
    seccomp_attr_set(rules, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ERRNO(EPERM));
    seccomp_attr_set(rules, SCMP_FLTATR_CTL_SSB, true);   // a process keeps its speed
    seccomp_attr_set(rules, SCMP_FLTATR_CTL_OPTIMIZE, 2); // a tree, not a list
    for (int call = NEWEST_CALL + 1; call <= NEWEST_CALL + NEWER_CALLS; call++)
        refuse(call, ENOSYS);
    refuse_all(NEVER);
    for (size_t i = 0; i < sizeof NEVER_NUMBERS / sizeof *NEVER_NUMBERS; i++)
        refuse(NEVER_NUMBERS[i], EPERM);
    if (!may_trace) {
        refuse_all(OF_OTHERS);
        refuse(438, EPERM); // pidfd_getfd
        refuse(440, EPERM); // process_madvise
    }
    for (size_t i = 0; i < sizeof ATTRIBUTES / sizeof *ATTRIBUTES; i++)
        refuse_where("ioctl", 1, UINT32_MAX, ATTRIBUTES[i]);
    if (!cuda) {
        refuse_all(SHARED);
        if (files_are_limited())
            refuse_unless("shmget", 0, IPC_PRIVATE);
        else
            refuse_name("shmget");
        refuse_unless("socket", 0, AF_UNIX);
        for (uint32_t type = 0; type <= 0xf; type++)
            if (type != SOCK_STREAM) refuse_where("socket", 1, 0xf, type);
    }
    refuse_unless("prlimit64", 0, 0);
    for (size_t i = 0; i < sizeof NAMESPACES / sizeof *NAMESPACES; i++)
        refuse_where("clone", 0, NAMESPACES[i], NAMESPACES[i]);
    refuse(435, ENOSYS); // clone3, whose flags no filter sees: the C library then takes clone
    if (abi < 3) refuse_truncation();
    if (abi < 6) refuse_signals();
    complete = complete && seccomp_load(rules) == 0;
    seccomp_release(rules);
    return complete;
}

// ---- Root ----

// Of root's rights only those over files stay, which the above limits: Linux shows a process with
// CAP_PERFMON the environment of any other.
static void drop_capabilities(void)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct has[2] = {{0}}, kept = {0};

    if (cuda || syscall(SYS_capget, &header, has) != 0) return;
    kept.permitted = has[0].permitted & (1 << CAP_DAC_OVERRIDE | 1 << CAP_DAC_READ_SEARCH);
    kept.effective = has[0].effective & kept.permitted;
    has[0] = kept;
    has[1] = (struct __user_cap_data_struct){0};
    if (syscall(SYS_capset, &header, has) != 0) stop("capset");
}

// ---- The command line ----

static int usage(void)
{
    fprintf(stderr, "usage: confine [OPTION]... -- COMMAND [ARGUMENT]... (see grader/confine.c)\n");
    return 126;
}

// What stands alone, or with a value; the number of words, 0 where it is none of these.
static int option(char **word)
{
    bool *const flags[] = {&tool, &cuda, &may_trace};
    const char *const names[] = {"--tool", "--cuda", "--trace"};

    for (int i = 0; i < 3; i++)
        if (strcmp(*word, names[i]) == 0) return *flags[i] = true;
    if (!word[1]) return 0;
    if (strcmp(*word, "--read") == 0 || strcmp(*word, "--write") == 0) return 2;
    if (strcmp(*word, "--abi") == 0) {
        allowed_abi = atoi(word[1]);
        return 2;
    }
    if (strcmp(*word, "--without") != 0) return 0;
    kit = realpath(word[1], NULL);
    if (!kit) stop(word[1]);
    return 2;
}

int main(int argc, char **argv)
{
    int words, at = 1;

    for (; at < argc && (words = option(argv + at)) > 0; at += words) continue;
    bool report = at < argc && strcmp(argv[at], "--report") == 0;
    if (!report && (at + 1 >= argc || strcmp(argv[at], "--") != 0)) return usage();

    open_ruleset();
    for (size_t i = 0; i < sizeof SYSTEM / sizeof *SYSTEM; i++) grant_system(SYSTEM[i], READ);
    for (size_t i = 0; i < sizeof CUDA / sizeof *CUDA && cuda; i++) grant_system(CUDA[i], READ);
    grant("/dev/null", READ | WRITE_FILE | TRUNCATE);
    if (cuda) grant("/dev", READ | WRITE_FILE | TRUNCATE | IOCTL_DEV);
    // CUDA's driver names its threads there, and fails if it may not.
    if (cuda) grant("/proc", READ | WRITE_FILE | TRUNCATE);
    if (cuda) grant("/dev/shm", handled.fs & ~(uint64_t)(EXECUTE | MAKE_DEVICES));
    for (int i = 1; i < at; i++) {
        if (strcmp(argv[i], "--read") == 0) grant(argv[++i], READ);
        if (strcmp(argv[i], "--write") == 0) {
            grant(argv[++i], handled.fs & ~(uint64_t)(EXECUTE | MAKE_DEVICES));
            setenv("TMPDIR", argv[i], 1);
        }
    }
    if (tool && !report) grant_tool(argv[at + 1]);

    drop_capabilities();
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) stop("no_new_privs");
    if (landlock >= 0 && syscall(RESTRICT_SELF, landlock, 0) != 0) abi = 0;
    if (landlock >= 0) close(landlock);
    bool filtered = filter();
    if (report) {
        printf("{\"landlock\": %d, \"seccomp\": %s}\n", abi, filtered ? "true" : "false");
        return 0;
    }
    execvp(argv[at + 1], argv + at + 1);
    cannot_run(argv[at + 1]);
}
