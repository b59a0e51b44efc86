/* family.c: processes that may be ranks, and have not joined yet.
 *
 * A rank that ends after it joined is seen by the watcher of every other (watch.c). One that ends
 * before has said nothing to anybody, and the others would wait for it in ncclCommInitRank
 * forever. So a process that makes devices looks who is started like itself: its parent, the parent's
 * other children and its own children, as far as they run the same program. These are its
 * *relatives*, and it keeps a pidfd of each.
 *
 * A relative that ends badly (by a signal, or with another status than 0; or in an unknown way, if
 * it was started when this one was) while ranks are awaited ends the wait only if too few others
 * are left: each process is thought to bring at most as many ranks as the one that has brought
 * most, and what is missing must be more than all relatives that live and have not joined could
 * bring. Where ranks are of other parents, or are started by hand one by one, there are no
 * relatives, and nothing is noticed: then it is the launcher that knows. So it is where a rank ends
 * before the others have used simgpu.
 *
 * A fork that is about to run another program looks like this one for a moment. So who lived
 * shorter than MATURE counts for nothing, and who became another program is forgotten.
 *
 * Interface: sim_family_look, sim_family_lost, sim_family_forked.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "nccl/comm.h"

#define MAX_RELATIVES 256
// Seconds.
#define MATURE 0.05
#define TOGETHER 2.0 // two that were started at the same time are of one job
#define PATIENCE 0.2 // how long an end of an unknown kind is looked at before it counts

typedef struct Relative {
    int pid, pidfd;
    double since; // when it was started, by the clock of this system's start
    double ended; // 0: it lives, as far as is known
    int status;   // as wait() has it; -1: not known
} Relative;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Relative relatives[MAX_RELATIVES];
static int n_relatives;

void sim_family_forked(void)
{
    pthread_mutex_init(&lock, NULL);
    for (int i = 0; i < n_relatives; i++)
        if (relatives[i].pidfd >= 0) close(relatives[i].pidfd);
    n_relatives = 0;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef enum Program { SAME, OTHER, ENDING } Program;

// Which program a process runs. While it ends, it runs none.
static Program program_of(int pid)
{
    static struct stat own;
    struct stat its;
    char path[32];
    snprintf(path, sizeof path, "/proc/%d/exe", pid);
    if (!own.st_ino && stat("/proc/self/exe", &own)) return OTHER;
    if (stat(path, &its)) return ENDING;
    return its.st_dev == own.st_dev && its.st_ino == own.st_ino ? SAME : OTHER;
}

// When a process was started (field 22 of its stat); 0: it is not there.
static double started(int pid)
{
    char path[32], line[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "re");
    if (!file) return 0;
    size_t n = fread(line, 1, sizeof line - 1, file);
    fclose(file);
    line[n] = 0;
    const char *at = strrchr(line, ')'); // the second field, the only one that may hold blanks
    for (int field = 2; at && field < 22; field++) at = strchr(at + 1, ' ');
    return at ? (double)strtoull(at, NULL, 10) / (double)sysconf(_SC_CLK_TCK) : 0;
}

// Called with the lock held, as all that follows.
static void add(int pid)
{
    if (pid <= 1 || pid == getpid() || n_relatives == MAX_RELATIVES) return;
    for (int i = 0; i < n_relatives; i++)
        if (relatives[i].pid == pid && !relatives[i].ended) return;
    if (program_of(pid) == SAME)
        relatives[n_relatives++] = (Relative){pid, sim_watch_open(pid), started(pid), 0, -1};
}

// The children of all threads of a process.
static void add_children(int pid)
{
    char path[300];
    snprintf(path, sizeof path, "/proc/%d/task", pid);
    DIR *threads = opendir(path);
    for (struct dirent *e; threads && (e = readdir(threads));) {
        if (e->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "/proc/%d/task/%.32s/children", pid, e->d_name);
        FILE *file = fopen(path, "re");
        for (int child; file && fscanf(file, "%d", &child) == 1;) add(child);
        if (file) fclose(file);
    }
    if (threads) closedir(threads);
}

static void drop(int i)
{
    if (relatives[i].pidfd >= 0) close(relatives[i].pidfd);
    relatives[i] = relatives[--n_relatives];
}

static void check(Relative *r)
{
    struct pollfd ended = {r->pidfd, POLLIN, 0};
    if (r->ended != 0) return;
    if (r->pidfd >= 0 ? poll(&ended, 1, 0) <= 0 : !sim_watch_is_dead(r->pid)) return;
    r->status = sim_watch_ended_how(r->pid, r->pidfd);
    r->ended = now();
    if (r->pidfd >= 0) close(r->pidfd);
    r->pidfd = -1;
}

// Whether it is none after all: it was too short-lived, or has become another program.
static bool is_stranger(Relative *r)
{
    check(r);
    if (r->ended == 0) return program_of(r->pid) == OTHER;
    return r->ended - r->since < MATURE;
}

static void look(void)
{
    for (int i = n_relatives - 1; i >= 0; i--)
        if (is_stranger(&relatives[i])) drop(i);
    add(getppid());
    add_children(getppid());
    add_children(getpid());
}

void sim_family_look(void)
{
    pthread_mutex_lock(&lock);
    look();
    pthread_mutex_unlock(&lock);
}

static bool is_member(const CommShared *shared, int size, int pid)
{
    for (int r = 0; shared && r < size; r++)
        if (atomic_load(&shared->slot[r].state) >= RANK_JOINED && shared->slot[r].pid == pid)
            return true;
    return false;
}

// The most ranks that one process has brought.
static int most_of_one(const CommShared *shared, int size)
{
    int most = 1;
    for (int r = 0; shared && r < size; r++) {
        int n = 0;
        for (int other = 0; other < size; other++)
            n += atomic_load(&shared->slot[other].state) >= RANK_JOINED &&
                 shared->slot[other].pid == shared->slot[r].pid;
        if (atomic_load(&shared->slot[r].state) >= RANK_JOINED && n > most) most = n;
    }
    return most;
}

static bool ended_badly(const Relative *r)
{
    static double own;
    if (own == 0) own = started(getpid());
    if (r->ended == 0 || r->status >= 0) return r->status > 0;
    return fabs(r->since - own) < TOGETHER && now() - r->ended > PATIENCE;
}

// A parent of the same program has forked its ranks, and is itself one only if it uses simgpu too.
static bool uses_simgpu(int pid)
{
    static const char memory[] = "/memfd:simgpu-";
    char path[300], target[sizeof memory];
    bool found = false;
    snprintf(path, sizeof path, "/proc/%d/fd", pid);
    DIR *files = opendir(path);
    for (struct dirent *e; files && !found && (e = readdir(files));) {
        snprintf(path, sizeof path, "/proc/%d/fd/%.32s", pid, e->d_name);
        ssize_t n = readlink(path, target, sizeof target - 1);
        found = n == (ssize_t)sizeof target - 1 && memcmp(target, memory, (size_t)n) == 0;
    }
    if (files) closedir(files);
    return found;
}

bool sim_family_lost(const CommShared *shared, int size, int missing, int *pid, int *status)
{
    int living = 0;
    bool lost = false;
    pthread_mutex_lock(&lock);
    look();
    for (int i = 0; i < n_relatives; i++) {
        const Relative *r = &relatives[i];
        if (is_member(shared, size, r->pid)) continue;
        if (r->ended == 0) living += r->pid != getppid() || uses_simgpu(r->pid);
        if (!ended_badly(r)) continue;
        lost = true;
        *pid = r->pid;
        *status = r->status;
    }
    pthread_mutex_unlock(&lock);
    return lost && living * most_of_one(shared, size) < missing;
}
