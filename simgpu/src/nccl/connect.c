/* connect.c: connects a rank that has joined a communicator to its peers.
 *
 * For each peer that has joined it maps the peer's device memory and wait table, and has the
 * watcher watch its process. It is done when all ranks have connected to all. Ranks in one process
 * need no mappings: they use the device's own alias.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "nccl/board.h"
#include "nccl/comm_id.h"
#include "nccl/connect.h"
#include "nccl/diagnose.h"
#include "nccl/peer_end.h"
#include "nccl/phantom.h"
#include "nccl/refuse.h"
#include "report/report.h"
#include "runtime/runtime.h"

// Between two checks of what rings no bell: the end of a process, and the place to meet.
#define LOOK_MILLISECONDS 500
#define MOST_MILLISECONDS 200
// A rank waits so long before it asks whether others can come at all: mostly they come sooner, and
// the answer costs more than all else that it does to connect.
#define SOON_MILLISECONDS 100

bool sim_may_share(void)
{
    const char *text = getenv("NCCL_MULTI_RANK_GPU_ENABLE");
    return text && strcmp(text, "1") == 0;
}

// Connects to every rank that has joined by now; returns their number; -1: rank *failed cannot be
// reached.
static int connect_joined(ncclComm_t comm, int *failed)
{
    int n = 0;
    for (int r = 0; r < comm->size; r++) {
        RankSlot *slot = &comm->shared->slot[r];
        if (atomic_load(&slot->state) < RANK_JOINED) continue;
        n++;
        if (comm->wait_table[r]) continue;
        if (slot->pid == getpid()) {
            comm->arena[r] = sim_device(slot->device)->alias;
            comm->wait_table[r] = sim_wait_table(NULL);
        } else {
            sim_lock();
            comm->peer[r] = sim_peer_use(slot->pid, slot->wait_table_fd);
            comm->peer_arena[r] = comm->peer[r] ? sim_arena_use(slot) : NULL;
            // It may have ended before this communicator existed.
            if (comm->peer[r] && comm->peer[r]->ended) sim_mark_ended(comm->peer[r]);
            sim_unlock();
            if (!comm->peer_arena[r]) {
                *failed = r;
                return -1;
            }
            comm->arena[r] = comm->peer_arena[r]->base;
            comm->wait_table[r] = comm->peer[r]->wait_table;
        }
        sim_wake_rank(comm, r); // it may sleep and not know that we are there
    }
    return n;
}

// NCCL refuses two ranks of one host on one device. NCCL_HOSTID says which ranks are of one host;
// from 2.30 on a variable can allow it.
static ncclResult_t check_devices(ncclComm_t comm)
{
    const RankSlot *self = comm->self;
    for (int r = 0; r < comm->size; r++) {
        const RankSlot *slot = &comm->shared->slot[r];
        if (r == comm->rank || slot->gpu != self->gpu || slot->host != self->host) continue;
        if (sim_may_share()) continue;
        char where[256], words[128];
        gpulog_where(comm->site, where, sizeof where);
        snprintf(words, sizeof words,
                 "Duplicate GPU detected : rank %d and rank %d both on CUDA device %d", comm->rank,
                 r, self->gpu);
        sim_nccl_error(words);
        sim_facts_call("ncclCommInitRank", comm->site, SIM_NO_STREAM);
        sim_report(SIMGPU_CALL, "ncclCommInitRank: duplicate GPU",
                   "Ranks %d and %d both use device %d, at %s.\n"
                   "On real GPUs NCCL refuses this: each rank needs a device of its own.\n"
                   "Was cudaSetDevice(local_rank) forgotten before ncclCommInitRank?",
                   comm->rank < r ? comm->rank : r, comm->rank < r ? r : comm->rank, self->gpu,
                   where);
        return ncclInvalidUsage;
    }
    return ncclSuccess;
}

// Whether the rank is gone, and was so before the last one became ready. If it ended before it
// joined, the communicator that is split knows.
static bool is_lost(ncclComm_t in, int rank, const ncclComm_t comm)
{
    return rank != in->rank && sim_comm_gone(in, rank) &&
           atomic_load(&comm->shared->ready) < (uint32_t)comm->size;
}

// Ends the process if a rank will never arrive; for a non-blocking communicator it returns true.
static bool has_lost(ncclComm_t comm)
{
    CommShared *shared = comm->shared;
    if (atomic_load(&shared->broken)) sim_diagnose_size(shared, comm->rank, comm->size, comm->site);
    for (int r = 0; r < comm->size; r++) {
        bool here = is_lost(comm, r, comm);
        bool before = comm->parent && is_lost(comm->parent, comm->mates[r], comm);
        if (!here && !before) continue;
        if (comm->options.nonblocking) return true;
        if (here) sim_diagnose_missing(comm, r, NULL, comm->site, NULL);
        if (before) sim_diagnose_missing(comm->parent, comm->mates[r], NULL, comm->site, NULL);
    }
    return false;
}

void sim_comm_await_end(ncclComm_t comm)
{
    for (int naps = 0; comm->parent && naps < 50; naps++) {
        uint32_t ticket = sim_ticket();
        for (int i = 0; i < comm->size; i++)
            if (sim_comm_gone(comm->parent, comm->mates[i]))
                sim_diagnose_missing(comm->parent, comm->mates[i], NULL, comm->site, NULL);
        sim_nap(ticket, 20);
    }
}

// Checks once which ranks have come; true when all ranks have connected to all.
static bool try_connect(ncclComm_t comm)
{
    CommShared *shared = comm->shared;
    uint32_t size = (uint32_t)comm->size;
    int failed = -1;
    int n = comm->connected ? comm->size : connect_joined(comm, &failed);
    if (n < 0) {
        int reason = errno;
        uint32_t not_gone = GONE_NOT; // or it has said how it ended
        if (sim_is_dead(shared->slot[failed].pid))
            atomic_compare_exchange_strong(&shared->slot[failed].gone, &not_gone, GONE_DIED);
        sim_diagnose_missing(comm, failed, NULL, comm->site, NULL);
        sim_fatal(SIMGPU_SYSTEM, "ncclCommInitRank: a peer cannot be reached",
                  "The memory of rank %d (process %d) cannot be opened or mapped: %s.\n"
                  "Do all ranks run as the same user, in the same container? Has the rank ended?",
                  failed, shared->slot[failed].pid, strerror(reason));
    }
    if (n == comm->size && !comm->connected) {
        comm->connected = true;
        // All know its id, and no rank can begin the next shrink before this rank is ready.
        if (comm->parent) atomic_store(&comm->parent->self->shrinking, 0);
        if (atomic_fetch_add(&shared->ready, 1) + 1 == size) sim_comm_wake(comm);
    }
    return atomic_load(&shared->ready) == size;
}

static int count_missing(ncclComm_t comm)
{
    int missing = 0;
    for (int r = 0; r < comm->size; r++)
        missing += atomic_load(&comm->shared->slot[r].state) < RANK_JOINED;
    return missing;
}

ncclResult_t sim_comm_try_connect(ncclComm_t *comms, int n)
{
    ncclResult_t result = ncclSuccess;
    if (sim_phantoms()) return result;
    for (int i = 0; i < n; i++) // all of them, so that ranks of one thread find each other
        if (!comms[i]->self || !try_connect(comms[i])) result = ncclInProgress;
    for (int i = 0; i < n && result == ncclInProgress; i++)
        if (comms[i]->self && has_lost(comms[i])) result = ncclRemoteError;
    return result;
}

// The place where the others meet is not known, and no bell will ring.
static void await_place(ncclComm_t comm, uint32_t ticket, Notice *notice)
{
    int waited = sim_notice_waited(notice), left = sim_notice_left(notice);
    int nap = waited < MOST_MILLISECONDS ? waited / 2 + 1 : MOST_MILLISECONDS;
    sim_nap(ticket, nap < left ? nap : left);
    bool taken = comm->place_taken || (comm->rank == 0 && !comm->parent);
    if (!taken && !comm->parent) sim_diagnose_never_joined(comm, NULL);
    bool due = sim_notice_due(notice), now = comm->place_taken && !comm->taken_told;
    comm->taken_told = comm->place_taken;
    if (taken && (due || now)) sim_say_taken(comm);
    if (!taken && due) sim_say_absent(comm, NULL, notice);
}

// Whether only the calling thread could make the missing ranks.
static bool is_alone(ncclComm_t comm)
{
    SimTids threads;
    if (!comm->map->offered) return false; // another process has made the id
    for (int r = 0; r < comm->size; r++) {
        const RankSlot *slot = &comm->shared->slot[r];
        if (atomic_load(&slot->state) >= RANK_JOINED && slot->pid != getpid()) return false;
    }
    sim_program_tids(&threads);
    return threads.n - sim_joiners((int)syscall(SYS_gettid)) == 1 && sim_is_alone(&comm->map->then);
}

// Sleeps until something happens. A rank rings when it joins; the launcher, if it can, tells when
// one has ended.
static void await_ranks(ncclComm_t comm, uint32_t ticket, Notice *notice)
{
    if (comm->parent || !count_missing(comm)) {
        sim_sleep(ticket);
        return;
    }
    bool look = sim_diagnose_never_joined(comm, comm->shared);
    bool soon = sim_notice_waited(notice) < SOON_MILLISECONDS;
    if (!soon && is_alone(comm)) sim_diagnose_alone(comm);
    int left = sim_notice_left(notice);
    int most = soon ? SOON_MILLISECONDS : look ? LOOK_MILLISECONDS : left;
    sim_nap(ticket, left < most ? left : most);
    sim_look_at_threads();
    if (sim_notice_due(notice) && count_missing(comm)) sim_say_absent(comm, comm->shared, notice);
}

void sim_comm_await(ncclComm_t *comms, int n, uint32_t ticket, Notice *notice)
{
    char what[96];
    ncclComm_t waiting = NULL;
    for (int i = 0; i < n; i++) {
        bool done =
            comms[i]->self && atomic_load(&comms[i]->shared->ready) == (uint32_t)comms[i]->size;
        if (!done && (!waiting || waiting->self)) waiting = comms[i];
    }
    if (!waiting) return;
    snprintf(what, sizeof what, "ncclCommInitRank (rank %d of %d, %u ranks came)", waiting->rank,
             waiting->size, waiting->self ? atomic_load(&waiting->shared->joined) : 0);
    gpulog_waiting(what, waiting->site);
    if (waiting->self)
        await_ranks(waiting, ticket, notice);
    else
        await_place(waiting, ticket, notice);
    gpulog_waiting(NULL, NULL);
}

ncclResult_t sim_comm_connected(ncclComm_t *comms, int n)
{
    ncclResult_t result = ncclSuccess;
    if (sim_phantoms()) return result;
    for (int i = 0; i < n; i++) {
        sim_listen(comms[i]->self, false);
        sim_comm_id_served(comms[i]->server, false);
        comms[i]->server = NULL;
        comms[i]->parent = NULL;
        comms[i]->mates = NULL;
        sim_shared_release(comms[i]->map, true); // no rank needs the id any more
        ncclResult_t devices = check_devices(comms[i]);
        if (devices != ncclSuccess) result = devices;
        sim_board_join(comms[i]);
        comms[i]->boarded = true;
    }
    return result;
}
