/* launch: runs a program as W ranks on this host.
 *
 *   launch -n 4 [--limit SECONDS] [--share-gpu] PROGRAM ARGUMENTS…
 *
 * Every rank finds its place in RANK, LOCAL_RANK, WORLD_SIZE and LOCAL_WORLD_SIZE, and its peers by
 * NCCL_COMM_ID. With --share-gpu, or SHARE_GPU=1 in the environment, there may be more ranks than
 * devices (launch.h). When a rank fails, the others get two seconds and are then ended. The exit
 * status is the first failing rank's (128 + the signal's number where a signal killed it), 124 when
 * the limit is over, 2 when nothing could be started.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../cuda/share_gpu.h"
#include "../roster.h"
#include "../watch.h"

#define BAD_USE 2      // exit status: nothing was started
#define MORE_FILES 32  // descriptors that a process needs beside one per rank, and a reserve
#define LIMIT_OVER 124 // exit status, as timeout(1)'s

typedef struct Job {
    int size;
    double limit;   // seconds; 0: none
    bool share_gpu; // --share-gpu
    char **program; // and its arguments, NULL at the end
    char path[4096];
    int master_port, id_port;
    int roster; // of the ranks (roster.h)
    sigset_t old_mask;
} Job;

static const char usage[] =
    "usage: launch -n RANKS [--limit SECONDS] [--share-gpu] PROGRAM [ARGUMENTS...]";

// ---- The command line ----

static bool parse_count(const char *text, int *count)
{
    char *end;
    long value = strtol(text, &end, 10);

    if (end == text || *end || value < 1 || value > MAX_RANKS) return false;
    *count = (int)value;
    return true;
}

static bool parse_seconds(const char *text, double *seconds)
{
    char *end;

    *seconds = strtod(text, &end);
    return end != text && !*end && *seconds > 0 && isfinite(*seconds);
}

// Returns 0; or prints what is wrong and returns the exit status.
static int parse_arguments(int argc, char **argv, Job *job)
{
    int i = 1;

    for (; i < argc && argv[i][0] == '-'; i += 2) {
        const char *option = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(option, "--share-gpu") == 0) {
            job->share_gpu = true;
            i--; // no value behind it
            continue;
        }
        bool count = strcmp(option, "-n") == 0, limit = strcmp(option, "--limit") == 0;
        if (!count && !limit) {
            fprintf(stderr, "launch: no option %s; %s\n", option, usage);
            return BAD_USE;
        }
        if (!value) {
            fprintf(stderr, "launch: %s needs a number after it; %s\n", option, usage);
            return BAD_USE;
        }
        if (count && !parse_count(value, &job->size)) {
            fprintf(stderr, "launch: -n %s: must be a number of ranks, 1 to %d\n", value,
                    MAX_RANKS);
            return BAD_USE;
        }
        if (limit && !parse_seconds(value, &job->limit)) {
            fprintf(stderr, "launch: --limit %s: must be a number of seconds above 0\n", value);
            return BAD_USE;
        }
    }
    if (job->size == 0 || i >= argc) {
        fprintf(stderr, "launch: %s is missing; %s\n", job->size ? "the program" : "-n RANKS",
                usage);
        return BAD_USE;
    }
    job->program = argv + i;
    return 0;
}

// Looks a name without a slash up in PATH, as a shell does.
static bool search_path(const char *name, char *path, size_t size)
{
    const char *dir = getenv("PATH");

    while (dir && *dir) {
        int length = (int)strcspn(dir, ":");
        snprintf(path, size, "%.*s/%s", length ? length : 1, length ? dir : ".", name);
        struct stat info;
        if (access(path, X_OK) == 0 && stat(path, &info) == 0 && S_ISREG(info.st_mode)) return true;
        dir += length;
        if (*dir) dir++;
    }
    return false;
}

static int find_program(Job *job)
{
    const char *name = job->program[0];
    struct stat info;

    if (!strchr(name, '/')) {
        if (search_path(name, job->path, sizeof job->path)) return 0;
        fprintf(stderr, "launch: no program %s in PATH; for one in this folder write ./%s\n", name,
                name);
        return BAD_USE;
    }
    if (strlen(name) >= sizeof job->path || stat(name, &info) != 0) {
        fprintf(stderr, "launch: cannot run %s: %s\n", name, strerror(errno));
        return BAD_USE;
    }
    if (!S_ISREG(info.st_mode) || access(name, X_OK) != 0) {
        fprintf(stderr, "launch: cannot run %s: it is not an executable file\n", name);
        return BAD_USE;
    }
    snprintf(job->path, sizeof job->path, "%s", name);
    return 0;
}

static int check_devices(const Job *job)
{
    int devices = 0;
    bool share;

    if (share_gpu_wanted(&share) != OK) return BAD_USE;
    cudaError_t error = cudaGetDeviceCount(&devices);

    if (error != cudaSuccess) {
        fprintf(stderr, "launch: no device can be used: %s\n", cudaGetErrorString(error));
        return BAD_USE;
    }
    if (job->size > devices && !share) {
        fprintf(stderr, "launch: -n %d, but there %s %d device%s: %s\n", job->size,
                devices == 1 ? "is" : "are", devices, devices == 1 ? "" : "s",
                share_gpu_advice(job->size));
        return BAD_USE;
    }
    return 0;
}

// ---- The ranks' surroundings ----

// Reserves a TCP port of 127.0.0.1 for this job while the launcher lives. The socket is bound and
// never listens, so rank 0 can still open the port (NCCL sets SO_REUSEADDR and SO_REUSEPORT), and
// no other job gets the same number.
static int reserve_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int on = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) != 0 ||
        bind(fd, (struct sockaddr *)&address, sizeof address) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &length) != 0)
        return -1;
    return ntohs(address.sin_port);
}

static void set_number(const char *name, int value)
{
    char text[16];

    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

static void set_environment(const Job *job, int rank)
{
    char id[64];

    set_number("RANK", rank);
    set_number("LOCAL_RANK", rank);
    set_number("WORLD_SIZE", job->size);
    set_number("LOCAL_WORLD_SIZE", job->size);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    set_number("MASTER_PORT", job->master_port);
    snprintf(id, sizeof id, "127.0.0.1:%d", job->id_port);
    setenv("NCCL_COMM_ID", id, 1);
}

// Ranks run in process groups of their own, and a terminal stops such a group when it reads. Input
// from a file or a pipe could only go to one rank. So no rank gets any.
static void set_input(int rank)
{
    if (rank == 0 && !isatty(STDIN_FILENO)) return;
    int fd = open("/dev/null", O_RDONLY);
    if (fd > 0) {
        dup2(fd, STDIN_FILENO);
        close(fd);
    }
}

static void be_rank(int rank, void *arg)
{
    const Job *job = arg;

    roster_join(job->roster, rank, true);
    sigprocmask(SIG_SETMASK, &job->old_mask, NULL);
    set_environment(job, rank);
    set_input(rank);
    execv(job->path, job->program);
    fprintf(stderr, "launch: rank %d cannot run %s: %s\n", rank, job->path, strerror(errno));
    _exit(BAD_USE);
}

// ---- How it ended ----

static bool ended_badly(int rank, RankEnd *end, void *arg)
{
    return end->how == RANK_SIGNALLED || end->code != 0;
}

// Returns the exit status of the job, and prints one line about the rank that decided it.
static int conclude(const Job *job, const Watch *watch)
{
    int bad = watch->first_bad;

    if (bad >= 0) {
        const RankEnd *end = &watch->ends[bad];
        if (end->how == RANK_SIGNALLED)
            fprintf(stderr, "launch: rank %d was killed by signal %d (%s)\n", bad, end->code,
                    strsignal(end->code));
        else
            fprintf(stderr, "launch: rank %d ended with status %d\n", bad, end->code);
        return end->how == RANK_SIGNALLED ? 128 + end->code : end->code;
    }
    for (int i = 0; i < job->size; i++)
        if (watch->ends[i].how == RANK_TIMED_OUT) {
            fprintf(stderr, "launch: the limit of %g s is over and rank %d was still running\n",
                    job->limit, i);
            return LIMIT_OVER;
        }
    return 0;
}

// The launcher has a descriptor for each rank, and so has each of simgpu's ranks.
static int check_files(const Job *job)
{
    struct rlimit limit;
    rlim_t needed = (rlim_t)job->size + MORE_FILES;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) return 0;
    fprintf(stderr,
            "launch: %d ranks may need %llu open files each, and ulimit -n is %llu: raise it with "
            "ulimit -n %llu, or start fewer ranks\n",
            job->size, (unsigned long long)needed, (unsigned long long)limit.rlim_cur,
            (unsigned long long)needed);
    return BAD_USE;
}

int main(int argc, char **argv)
{
    Job job = {.size = 0};
    RankEnd ends[MAX_RANKS];
    sigset_t forwarded;

    int status = parse_arguments(argc, argv, &job);
    if (status == 0) status = find_program(&job);
    if (job.share_gpu) setenv("SHARE_GPU", "1", 1);
    if (status == 0) status = check_files(&job);
    if (status == 0) status = check_devices(&job);
    if (status != 0) return status;
    job.master_port = reserve_port();
    job.id_port = reserve_port();
    if (job.master_port < 0 || job.id_port < 0) {
        fprintf(stderr, "launch: no free port on 127.0.0.1: %s\n", strerror(errno));
        return BAD_USE;
    }

    sigemptyset(&forwarded);
    sigaddset(&forwarded, SIGINT);
    sigaddset(&forwarded, SIGTERM);
    sigaddset(&forwarded, SIGHUP);
    sigprocmask(SIG_BLOCK, &forwarded, &job.old_mask);
    int signals = signalfd(-1, &forwarded, SFD_CLOEXEC);
    job.roster = roster_open(job.size);
    roster_fold_reports(job.roster);
    int started = watch_fork(job.size, job.roster, ends, be_rank, &job);
    if (started < job.size) {
        fprintf(stderr, "launch: cannot start rank %d of %d: %s\n", started, job.size,
                strerror(errno));
        return BAD_USE;
    }

    Watch watch = {.size = job.size,
                   .ends = ends,
                   .limit = job.limit,
                   .roster = job.roster,
                   .signals = signals,
                   .ended = ended_badly};
    status = watch_ranks(&watch) == OK ? 0 : BAD_USE;
    roster_tell_folded(job.roster);
    if (status != 0) return status;
    return conclude(&job, &watch);
}
