/* connect.c: a rank that has joined a communicator connects to its peers.
 *
 * It connects to each peer that has joined: maps the peer's device memory and its wait table, and
 * has the watcher look after its process. It is done when all ranks have connected to all. Ranks in
 * one process need no mappings: the device's own alias is used.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nccl/board.h"
#include "nccl/comm_id.h"
#include "nccl/connect.h"
#include "nccl/diagnose.h"
#include "nccl/peer_end.h"
#include "nccl/phantom.h"
#include "nccl/refuse.h"
#include "report/report.h"
#include "streams/streams.h"

#define LOOK_MILLISECONDS 500 // between two looks at what nobody rings for

bool sim_may_share(void)
{
    const char *text = getenv("NCCL_MULTI_RANK_GPU_ENABLE");
    return text && strcmp(text, "1") == 0;
}

// Connects to every rank that has joined by now; returns how many those are, -1: one cannot be
// reached, and *failed is it.
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
            // It may have ended when this communicator was not there to be told.
            if (comm->peer[r] && comm->peer[r]->ended) sim_mark_ended(comm->peer[r]);
            sim_unlock();
            if (!comm->peer_arena[r]) {
                *failed = r;
                return -1;
            }
            comm->arena[r] = comm->peer_arena[r]->base;
            comm->wait_table[r] = comm->peer[r]->wait_table;
        }
        sim_wake_rank(comm, r); // it may sleep, not knowing that we are there
    }
    return n;
}

// NCCL refuses two ranks of one host on one device. What is one host, it believes NCCL_HOSTID, and
// from 2.30 on it can be told to allow it.
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

static void check_peers(ncclComm_t comm)
{
    CommShared *shared = comm->shared;
    if (atomic_load(&shared->broken)) sim_diagnose_size(shared, comm->rank, comm->size, comm->site);
    for (int r = 0; r < comm->size; r++) // gone, and seen so before the last became ready
        if (r != comm->rank && sim_comm_gone(comm, r) &&
            atomic_load(&shared->ready) < (uint32_t)comm->size)
            sim_diagnose_missing(comm, r, NULL, comm->site, NULL);
    // Who ended before it joined is known only to the communicator that is split.
    for (int i = 0; comm->parent && i < comm->size; i++)
        if (sim_comm_gone(comm->parent, comm->mates[i]) &&
            atomic_load(&shared->ready) < (uint32_t)comm->size)
            sim_diagnose_missing(comm->parent, comm->mates[i], NULL, comm->site, NULL);
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

// One look at who has come; true when all ranks have connected to all.
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

// Sleeps until something happens. Ranks that have yet to join ring when they do; of the end of one
// the launcher tells, where there is one that does.
static void await_ranks(ncclComm_t comm, uint32_t ticket, Notice *notice)
{
    if (comm->parent || !count_missing(comm)) {
        sim_sleep(ticket);
        return;
    }
    bool look = sim_diagnose_never_joined(comm, comm->shared);
    int left = sim_notice_left(notice);
    sim_nap(ticket, look && left > LOOK_MILLISECONDS ? LOOK_MILLISECONDS : left);
    if (sim_notice_due(notice) && count_missing(comm)) sim_say_absent(comm, comm->shared, notice);
}

ncclResult_t sim_comm_connect(ncclComm_t *comms, int n)
{
    char what[96];
    Notice notice;
    if (sim_phantoms()) return ncclSuccess;
    sim_notice_begin(&notice);
    for (;;) {
        uint32_t ticket = sim_ticket();
        ncclComm_t waiting = NULL;
        for (int i = 0; i < n; i++) // all of them, so that ranks of one thread find each other
            if (!try_connect(comms[i])) waiting = comms[i];
        if (!waiting) break;
        for (int i = 0; i < n; i++) check_peers(comms[i]);
        snprintf(what, sizeof what, "ncclCommInitRank (rank %d of %d, %u ranks came)",
                 waiting->rank, waiting->size, atomic_load(&waiting->shared->joined));
        sim_log_waiting(what, waiting->site);
        await_ranks(waiting, ticket, &notice);
    }
    sim_log_waiting(NULL, NULL);
    ncclResult_t result = ncclSuccess;
    for (int i = 0; i < n; i++) {
        sim_listen(comms[i]->self, false);
        sim_comm_id_served(comms[i]->server);
        comms[i]->server = NULL;
        comms[i]->parent = NULL;
        sim_shared_release(comms[i]->map, true); // nobody will ask for the id again
        ncclResult_t devices = check_devices(comms[i]);
        if (devices != ncclSuccess) result = devices;
        sim_board_join(comms[i]);
    }
    return result;
}
