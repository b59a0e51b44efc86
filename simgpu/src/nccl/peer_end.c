/* peer_end.c: the watcher: a thread that notices the ends of peers' processes.
 *
 * One thread in each process sleeps in poll() on the pidfds of all processes with which it shares a
 * communicator. When one ends, the watcher writes into all memory shared with it how it ended, and
 * wakes this process's threads; a thread that waits for the dead rank finds it there. Each process
 * does so for itself, so nothing depends on what the dead process has written.
 *
 * How a process ended that is not a child, /proc/PID/stat says while it is a zombie, and after that
 * the ioctl PIDFD_GET_INFO on kernels that have it (6.15); otherwise the report says that it is not
 * known. Without a pidfd (the kernel is older than 5.3, a filter of system calls forbids it, or the
 * process has just ended), the watcher reads /proc ten times a second.
 *
 * It does the same for the processes of the launcher's world that have not joined (launched.c).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "nccl/comm.h"
#include "nccl/launched.h"
#include "nccl/peer_end.h"
#include "runtime/runtime.h"

#define MAX_WATCHED SIM_MAX_RANKS
#define LOOK_MILLISECONDS 100 // between two checks of processes without a pidfd

static int kick = -1; // an eventfd: the list has changed
static bool started;

void sim_peer_end_forked(void)
{
    if (kick >= 0) close(kick);
    kick = -1;
    started = false;
}

int sim_open_pidfd(int pid)
{
    return (int)syscall(SYS_pidfd_open, pid, 0);
}

// The start of struct pidfd_info, as Linux's include/uapi/linux/pidfd.h lays it out (64 bytes).
typedef struct PidfdInfo {
    uint64_t mask, cgroup;
    uint32_t ids[11];
    int32_t exit_code; // as wait() has it
} PidfdInfo;
#define PIDFD_GET_INFO_IOCTL _IOWR(0xFF, 11, PidfdInfo)
#define PIDFD_INFO_EXIT_BIT (UINT64_C(1) << 3)

// The state of a process by /proc: a letter, Z for a zombie; 0: there is no such process; '?':
// there is, but it cannot be read now. *status: of a zombie, as wait() will give it.
static char state_of(int pid, int *status)
{
    char path[32], line[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "re");
    if (!file && access(path, F_OK) == 0) return '?'; // for example, no descriptor is free
    size_t n = file ? fread(line, 1, sizeof line - 1, file) : 0;
    if (file) fclose(file);
    line[n] = 0;
    char *name_end = strrchr(line, ')'); // a program's name may hold blanks and brackets
    if (!name_end || name_end[1] != ' ') return 0;
    char *last = strrchr(line, ' ');
    *status = last ? atoi(last + 1) : -1;
    return name_end[2];
}

bool sim_is_dead(int pid)
{
    int status;
    char state = state_of(pid, &status);
    return state == 0 || state == 'Z' || state == 'X';
}

int sim_ended_how(int pid, int pidfd)
{
    int status;
    if (state_of(pid, &status) == 'Z') return status;
    PidfdInfo info = {.mask = PIDFD_INFO_EXIT_BIT};
    if (pidfd >= 0 && ioctl(pidfd, PIDFD_GET_INFO_IOCTL, &info) == 0 &&
        (info.mask & PIDFD_INFO_EXIT_BIT))
        return info.exit_code;
    return -1;
}

void sim_mark_ended(const Peer *peer)
{
    int pid = peer->pid, status = peer->status;
    for (ncclComm_t comm = sim_comms; comm; comm = comm->next)
        for (int r = 0; r < comm->size && comm->self; r++) {
            RankSlot *slot = &comm->shared->slot[r];
            if (atomic_load(&slot->state) < RANK_JOINED || slot->pid != pid) continue;
            if (atomic_load(&slot->gone) != GONE_NOT) continue;
            // Several survivors may write this at once: they write the same.
            if (status >= 0) atomic_store(&slot->exit_told, 1 + (uint32_t)status);
            uint32_t not_gone = GONE_NOT;
            atomic_compare_exchange_strong(&slot->gone, &not_gone, GONE_DIED);
        }
}

// Called with the lock held.
static void note_end(Peer *peer)
{
    peer->ended = true;
    peer->status = sim_ended_how(peer->pid, peer->pidfd);
    sim_mark_ended(peer);
    if (peer->pidfd >= 0) close(peer->pidfd);
    peer->pidfd = -1;
}

// Checks processes without a pidfd; true: one has ended. Called with the lock held.
static bool look_at_the_others(void)
{
    bool ended = false;
    for (Peer *peer = sim_peers; peer; peer = peer->next) {
        if (peer->pidfd >= 0 || peer->ended || !sim_is_dead(peer->pid)) continue;
        note_end(peer);
        ended = true;
    }
    return ended;
}

static void *watch(void *arg)
{
    struct pollfd fds[2 * MAX_WATCHED + 1];
    int pids[MAX_WATCHED + 1];
    for (;;) {
        int n = 1, patience = -1;
        fds[0] = (struct pollfd){kick, POLLIN, 0};
        sim_lock();
        for (Peer *peer = sim_peers; peer && n <= MAX_WATCHED; peer = peer->next) {
            if (peer->pidfd < 0 && !peer->ended) patience = LOOK_MILLISECONDS;
            if (peer->pidfd < 0) continue;
            pids[n] = peer->pid;
            fds[n++] = (struct pollfd){peer->pidfd, POLLIN, 0};
        }
        bool look = false;
        int launched = sim_launched_poll(&fds[n], &look);
        if (look) patience = LOOK_MILLISECONDS;
        sim_unlock();
        if (poll(fds, (nfds_t)(n + launched), patience) < 0) continue;
        if (fds[0].revents) {
            uint64_t count;
            if (read(kick, &count, sizeof count) < 0 && errno == EBADF) return NULL;
            continue; // the list has changed: descriptors may be closed or reused
        }
        bool ended = false;
        sim_lock();
        for (int i = 1; i < n; i++) {
            if (!fds[i].revents) continue;
            ended = true;
            for (Peer *peer = sim_peers; peer; peer = peer->next)
                if (peer->pid == pids[i] && peer->pidfd == fds[i].fd) note_end(peer);
        }
        ended |= look_at_the_others();
        ended |= sim_launched_news();
        sim_unlock();
        if (ended) sim_wake_own();
    }
}

// Called with the lock held.
void sim_peers_changed(void)
{
    uint64_t one = 1;
    if (started && write(kick, &one, sizeof one) < 0) return;
    if (started || (!sim_peers && !sim_launched_known())) return;
    kick = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (kick < 0 && errno == EMFILE) sim_no_files_left();
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all,
                    &before); // the program's signals are for its own threads
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_t thread;
    started = kick >= 0 && pthread_create(&thread, &attr, watch, NULL) == 0;
    if (started) simgpu_helper_threads(1);
    pthread_attr_destroy(&attr);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}
