/* notice.c: prints notices while a rank waits for long.
 *
 * Ranks may be started one by one, may have much to do before they make a communicator, and may
 * have threads whose next call is unknown: a long wait is not a mistake. But a user whose program
 * seems to hang wants to know for whom it waits. A notice on stderr says so after
 * SIMGPU_NOTICE_SECONDS (10), again after six times that, and then every thirty times that. It is
 * not a report and ends nothing.
 *
 * Notices about a cycle are in diagnose.c.
 */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "nccl/comm.h"
#include "nccl/describe.h"
#include "nccl/launched.h"
#include "nccl/notice.h"
#include "runtime/runtime.h"

#define LINE 512

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void sim_notice_begin(Notice *notice)
{
    *notice = (Notice){.began = now()};
    notice->due = notice->began + sim_config()->notice_seconds;
}

int sim_notice_left(const Notice *notice)
{
    double left = notice->due - now();
    return left <= 0 ? 0 : left > 1e6 ? 1000000000 : (int)(left * 1000) + 1;
}

int sim_notice_waited(const Notice *notice)
{
    double waited = now() - notice->began;
    return waited > 1e6 ? 1000000000 : (int)(waited * 1000);
}

bool sim_notice_due(Notice *notice)
{
    double interval = sim_config()->notice_seconds, time = now();
    if (time < notice->due) return false;
    notice->waited = (int)(time - notice->began + 0.5);
    notice->due = ++notice->said == 1 ? notice->began + 6 * interval : time + 30 * interval;
    return true;
}

// "rank 2", "ranks 0, 2, 3": the ranks that have joined, or those that have not.
static void list_ranks(const CommShared *shared, int size, bool joined, char *text, size_t room)
{
    int n = 0;
    for (int r = 0; r < size; r++)
        n += (atomic_load(&shared->slot[r].state) >= RANK_JOINED) == joined;
    snprintf(text, room, "%s", n == 0 ? "no rank" : n == 1 ? "rank" : "ranks");
    for (int r = 0, k = 0; r < size; r++)
        if ((atomic_load(&shared->slot[r].state) >= RANK_JOINED) == joined)
            sim_append(text, room, "%s %d", k++ ? "," : "", r);
}

// What the launcher's file says about ranks that have not joined.
static void append_ended(const CommShared *shared, int size, char *text, size_t room)
{
    int pid, status;
    for (int r = 0; r < size; r++) {
        if (shared && atomic_load(&shared->slot[r].state) >= RANK_JOINED) continue;
        if (!sim_launched_end_of(r, &pid, &status)) continue;
        sim_append(text, room, "  Rank %d of the launcher's world (process %d) ", r, pid);
        sim_describe_status(status, text + strlen(text), room - strlen(text));
        sim_append(text, room, ".\n");
    }
}

void sim_say(const char *text)
{
    ssize_t ignored = write(STDERR_FILENO, text, strlen(text));
    (void)ignored;
}

void sim_say_absent(ncclComm_t comm, const CommShared *shared, const Notice *notice)
{
    char text[4 * LINE], where[LINE / 2], ranks[LINE];
    SimTids threads;
    gpulog_where(comm->site, where, sizeof where);
    snprintf(text, sizeof text,
             "[simgpu] rank %d of %d has waited %d s in ncclCommInitRank at %s.\n"
             "  The communicator: %s.\n",
             comm->rank, comm->size, notice->waited, where, comm->meets_at);
    if (shared) {
        list_ranks(shared, comm->size, true, ranks, sizeof ranks);
        sim_append(text, sizeof text, "  Joined: %s. ", ranks);
        list_ranks(shared, comm->size, false, ranks, sizeof ranks);
        sim_append(text, sizeof text, "Missing: %s.\n", ranks);
    } else {
        sim_append(text, sizeof text, "  Missing: rank 0, which knows who else has come.\n");
    }
    append_ended(shared, comm->size, text, sizeof text);
    sim_program_tids(&threads);
    if (threads.n == 1)
        sim_append(
            text, sizeof text,
            "  This process has one thread, and it waits here. Should it make other ranks too? "
            "That takes\n  ncclCommInitAll, or ncclGroupStart and ncclGroupEnd around all its "
            "ncclCommInitRank.\n");
    sim_append(
        text, sizeof text,
        "  It goes on waiting, as NCCL does. Were all ranks started, with the same id and number "
        "of ranks?\n");
    sim_say(text);
}

void sim_say_taken(ncclComm_t comm)
{
    char text[4 * LINE], where[LINE / 2];
    gpulog_where(comm->site, where, sizeof where);
    snprintf(text, sizeof text,
             "[simgpu] rank %d of %d waits in ncclCommInitRank at %s: %s\n"
             "  is taken by %s, and this one begins when it is free%s.\n",
             comm->rank, comm->size, where, comm->meets_at,
             comm->place_taken ? "another job" : "another communicator",
             comm->place_taken ? ". Each job takes a port of its own.\n"
                                 "  Ranks that were started without a launcher, from several "
                                 "terminals, are one job where\n"
                                 "  SIMGPU_JOB is the same in all of them"
                               : "");
    if (!comm->place_taken)
        sim_append(text, sizeof text, "  Does another job use it, or are there two ranks 0?\n");
    sim_say(text);
}
