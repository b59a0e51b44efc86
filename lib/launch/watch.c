/* watch.c: waits for ranks. Every rank leads a process group, so that the processes that it started
 * end with it. The wait is one poll() over a pidfd of each rank, whose time-out is the time that is
 * left: there is no busy loop and no signal handler.
 *
 * A rank that must end gets SIGTERM, on which the test harness prints the place where it was, and
 * STUBBORN seconds later SIGKILL.
 */
#include "watch.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "roster.h"

#define STUBBORN 1.0 // seconds between SIGTERM and SIGKILL
// Seconds that the others get when a rank has ended badly. simgpu tells them at once that they wait
// in vain, and they need the time to print their reports.
#define GRACE 2.0

// Which signals the watch will send to the ranks, and why.
typedef struct Ending {
    double term_at, kill_at; // on watch_now()'s clock; INFINITY: not planned
    bool asked;              // SIGTERM has gone out
    bool limit;              // because the limit is over, not because a rank failed
} Ending;

// Seconds on a clock that never jumps.
static double watch_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

// In the child, before anything else.
static void join_watch(pid_t parent)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    // The parent may have died before the line above: then the signal never comes.
    if (getppid() != parent) _exit(1);
}

// Sends a signal to the rank's whole group. Nobody has waited for the leader yet, so no other
// process can have its number.
static void signal_group(const RankEnd *end, int signal)
{
    if (end->pid <= 1) return; // -1 would be every process there is
    if (kill(-end->pid, signal) != 0) kill(end->pid, signal);
}

static void reap(const RankEnd *ends, int n)
{
    for (int i = 0; i < n; i++)
        while (waitpid(ends[i].pid, NULL, 0) < 0 && errno == EINTR) continue;
}

static void kill_ranks(const RankEnd *ends, int n)
{
    for (int i = 0; i < n; i++) signal_group(&ends[i], SIGKILL);
    reap(ends, n);
}

int watch_fork(int size, int roster, RankEnd *ends, void (*be)(int rank, void *arg), void *arg)
{
    pid_t parent = getpid();

    fflush(NULL); // else every rank would print the contents of the buffers again
    for (int i = 0; i < size; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            join_watch(parent);
            be(i, arg);
        }
        if (pid < 0) {
            int error = errno;
            kill_ranks(ends, i);
            errno = error;
            return i;
        }
        roster_started(roster, i, pid);
        setpgid(pid, pid); // here too: the child may not have come to it when it must be killed
        ends[i] = (RankEnd){.pid = pid};
    }
    return size;
}

// Notes how rank i has ended, and kills the processes that it started. The rank stays a zombie
// until all have ended: the others read from it how it ended, for their reports.
static void take_in(Watch *watch, int i, Ending *ending)
{
    RankEnd *end = &watch->ends[i];
    siginfo_t info = {0};

    signal_group(end, SIGKILL);
    while (waitid(P_PID, (id_t)end->pid, &info, WEXITED | WNOWAIT) < 0 && errno == EINTR) continue;
    end->how = info.si_code == CLD_EXITED ? RANK_EXITED : RANK_SIGNALLED;
    end->code = info.si_status;
    roster_ended(watch->roster, i, end->how == RANK_SIGNALLED, end->code);

    bool bad = watch->ended(i, end, watch->arg);
    if (bad && ending->asked)
        end->how = ending->limit ? RANK_TIMED_OUT : RANK_STOPPED;
    else if (bad && watch->first_bad < 0) {
        watch->first_bad = i;
        double soon = watch_now() + GRACE;
        if (soon < ending->term_at) {
            ending->term_at = soon;
            ending->limit = false;
        }
    }
}

// Sends what is due: SIGTERM, and a second later SIGKILL.
static void send_due(const Watch *watch, const struct pollfd *fds, Ending *ending)
{
    int signal = 0;

    if (watch_now() >= ending->kill_at) {
        signal = SIGKILL;
        ending->kill_at = INFINITY;
    } else if (!ending->asked && watch_now() >= ending->term_at) {
        signal = SIGTERM;
        ending->asked = true;
        ending->kill_at = watch_now() + STUBBORN;
    }
    if (signal == 0) return;
    for (int i = 0; i < watch->size; i++)
        if (fds[i].fd >= 0) signal_group(&watch->ends[i], signal);
}

// Passes a signal that the parent gets on to every rank.
static void forward_signal(const Watch *watch, const struct pollfd *fds)
{
    struct signalfd_siginfo info;

    if (read(watch->signals, &info, sizeof info) != (ssize_t)sizeof info) return;
    for (int i = 0; i < watch->size; i++)
        if (fds[i].fd >= 0) signal_group(&watch->ends[i], (int)info.ssi_signo);
}

static int milliseconds_until(double moment)
{
    double left = (moment - watch_now()) * 1e3;

    if (left > 1e9) return -1;
    return left > 0 ? (int)ceil(left) : 0;
}

static Status open_pidfds(const Watch *watch, struct pollfd *fds)
{
    for (int i = 0; i < watch->size; i++) {
        int fd = (int)syscall(SYS_pidfd_open, watch->ends[i].pid, 0);
        if (fd < 0) {
            int error = errno;
            while (--i >= 0) close(fds[i].fd);
            return fail(ERR_IO, "cannot watch the ranks: pidfd_open: %s (%s)", strerror(error),
                        error == EMFILE ? "raise the limit of open files, ulimit -n"
                                        : "Linux 5.3 or later is needed");
        }
        fds[i] = (struct pollfd){.fd = fd, .events = POLLIN};
    }
    fds[watch->size] = (struct pollfd){.fd = watch->signals, .events = POLLIN};
    return OK;
}

Status watch_ranks(Watch *watch)
{
    struct pollfd fds[MAX_RANKS + 1];
    Ending ending = {.term_at = INFINITY, .kill_at = INFINITY};
    int left = watch->size;

    watch->first_bad = -1;
    if (open_pidfds(watch, fds) != OK) {
        kill_ranks(watch->ends, watch->size);
        return ERR_IO;
    }
    if (watch->limit > 0) {
        ending.term_at = watch_now() + watch->limit;
        ending.limit = true;
    }
    while (left > 0) {
        double next = ending.asked ? ending.kill_at : ending.term_at;
        int ready = poll(fds, (nfds_t)watch->size + 1, milliseconds_until(next));
        if (ready > 0 && fds[watch->size].revents) forward_signal(watch, fds);
        for (int i = 0; ready > 0 && i < watch->size; i++) {
            if (fds[i].fd < 0 || !fds[i].revents) continue;
            take_in(watch, i, &ending);
            close(fds[i].fd);
            fds[i].fd = -1; // poll() passes over it from here on
            left--;
        }
        send_due(watch, fds, &ending);
    }
    reap(watch->ends, watch->size);
    return OK;
}
