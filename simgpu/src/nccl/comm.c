/* comm.c: joining and leaving a communicator.
 *
 * A rank joins by filling in its slot of the shared memory; then it connects to its peers
 * (connect.c).
 *
 * Leaving is not collective: a rank that leaves is marked, and only a rank that then waits for it
 * makes a report. A process that exits, or is ended by a report, notes that in all its shared
 * memory (sim_comm_goodbye), so that the others' reports can tell an exit from a crash.
 */
#define _GNU_SOURCE
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check/check.h"
#include "memory/shared_memory.h"
#include "nccl/board.h"
#include "nccl/comm.h"
#include "nccl/comm_id.h"
#include "nccl/diagnose.h"
#include "nccl/inside.h"
#include "nccl/launched.h"
#include "nccl/lent.h"
#include "nccl/peer_end.h"
#include "nccl/pending.h"
#include "nccl/phantom.h"
#include "nccl/registered.h"
#include "nccl/sends.h"
#include "report/report.h"
#include "runtime/runtime.h"
#include "time/clock.h"

ncclComm_t sim_comms;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool named; // the report rank is that of the first communicator

// ---- The end of the process ----

// A forked child has none of its parent's communicators.
static void forget_all(void)
{
    for (ncclComm_t comm = sim_comms, next; comm; comm = next) {
        next = comm->next;
        sim_comm_free(comm);
    }
    sim_comms = NULL;
    named = false;
    sim_peers_forked();
    sim_pending_forked();
    sim_sends_forked();
    sim_wait_forked();
    sim_peer_end_forked();
    sim_launched_forked();
}

// It may run in a signal handler that interrupted a holder of the lock. Then it goes on without it.
static void say_goodbye(Gone how, int status)
{
    bool locked = sim_lock_within(0);
    for (ncclComm_t comm = sim_comms; comm; comm = comm->next) {
        if (!comm->self || atomic_load(&comm->self->gone) != GONE_NOT) continue;
        atomic_store(&comm->self->exit_told, 1 + ((uint32_t)(status & 0xff) << 8));
        atomic_store(&comm->self->files_limit, sim_files_limit());
        atomic_store(&comm->self->gone, how);
        sim_comm_wake(comm);
    }
    if (locked) sim_unlock();
}

void sim_comm_visit(SimLeaks *leaks)
{
    if (!sim_lock_within(1)) return;
    for (ncclComm_t comm = sim_comms; comm; comm = comm->next)
        sim_leak_note(leaks, THING_COMM, comm, 0, comm->site);
    sim_unlock();
}

static void on_normal_exit(int status)
{
    if (status == 0) sim_clock_last_call();
    if (status == 0) sim_sends_wait_all();
    say_goodbye(GONE_EXIT, status & 0xff);
    sim_clock_finish(status);
}

static atomic_bool ending;

bool sim_comm_ending(void)
{
    return atomic_load(&ending);
}

void sim_comm_goodbye(void)
{
    atomic_store(&ending, true);
    say_goodbye(GONE_FATAL, SIMGPU_FATAL_EXIT);
}

static void prepare_process(void)
{
    pthread_atfork(NULL, NULL, forget_all);
    sim_on_end(on_normal_exit);
}

// ---- Joining ----

// Notes the program's file and its address: a peer that runs the same file can name our call
// sites.
static int note_base(struct dl_phdr_info *info, size_t size, void *slot)
{
    ((RankSlot *)slot)->program_base = info->dlpi_addr;
    return 1; // the first object is the program itself
}

void sim_note_program(RankSlot *slot)
{
    struct stat st = {0};
    stat("/proc/self/exe", &st);
    dl_iterate_phdr(note_base, slot);
    slot->program_device = st.st_dev;
    slot->program_inode = st.st_ino;
}

static uint64_t host_of_process(void)
{
    const char *id = getenv("NCCL_HOSTID");
    uint64_t hash = 0;
    for (; id && *id; id++) hash = (hash ? hash : 5381) * 33 + (unsigned char)*id;
    return hash;
}

static void fill_slot(RankSlot *slot, const SharedMap *map, const SimDevice *device)
{
    sim_note_program(slot);
    slot->pid = getpid();
    slot->device = device->index;
    slot->gpu = sim_config()->physical[device->index];
    slot->device_fd = device->memory;
    slot->arena = device->mapped;
    slot->host = host_of_process();
    slot->shared_fd = map->fd;
    sim_wait_table(&slot->wait_table_fd);
    sim_lock();
    atomic_store(&slot->world_rank, sim_launched_self(&slot->world));
    sim_unlock();
    atomic_store(&slot->thread, sim_thread());
    sim_listen(slot, true); // until it has connected
}

// All ranks must give the same size. A rank with another one ends, and so do those that see it.
static void agree_on_size(CommShared *shared, int rank, int size, const void *site)
{
    int32_t none = 0;
    if (atomic_compare_exchange_strong(&shared->world, &none, size) || none == size) return;
    atomic_store(&shared->other_world, size);
    atomic_store(&shared->other_rank, rank);
    atomic_store(&shared->broken, 1);
    for (int r = 0; r < SIM_MAX_RANKS; r++) { // not connected yet
        RankSlot *slot = &shared->slot[r];
        if (atomic_load(&slot->state) != RANK_JOINED) continue;
        int fd = slot->pid == getpid() ? -1 : sim_open_fd(slot->pid, slot->wait_table_fd);
        void *table =
            fd == -1 ? sim_wait_table(NULL) : sim_shared_map(fd, NULL, 0, sizeof(ProcessWaitTable));
        if (table != MAP_FAILED) sim_wake_listeners(table, slot);
    }
    sim_diagnose_size(shared, rank, size, site);
}

bool sim_comm_fill(ncclComm_t comm, const Init *init)
{
    if (init) comm->options = init->options;
    comm->inside = sim_inside_make(init && init->shares ? init->parent : NULL);
    comm->logged.sends = calloc(2 * (size_t)comm->size, sizeof *comm->logged.sends);
    comm->logged.recvs = comm->logged.sends + comm->size;
    return comm->logged.sends && comm->inside;
}

void sim_comm_free(ncclComm_t comm)
{
    sim_inside_drop(comm->inside);
    sim_registered_free(comm);
    free(comm->redop);
    free(comm->logged.sends);
    free(comm);
}

void sim_comm_enlist(ncclComm_t comm)
{
    sim_lock();
    comm->next = sim_comms;
    sim_comms = comm;
    if (!named) sim_set_report_rank(comm->rank);
    named = true;
    sim_unlock();
}

void sim_comm_unlist(ncclComm_t comm)
{
    sim_lock();
    for (ncclComm_t *link = &sim_comms; *link; link = &(*link)->next)
        if (*link == comm) {
            *link = comm->next;
            break;
        }
    sim_unlock();
}

ncclResult_t sim_comm_make(const Init *init, ncclComm_t *out)
{
    *out = NULL;
    pthread_once(&once, prepare_process);
    if (sim_phantoms()) return sim_phantom_join(init, out);
    if (!sim_device(init->device)) return ncclUnhandledCudaError;
    ncclComm_t comm = calloc(1, sizeof *comm);
    if (!comm) return ncclSystemError;
    *comm = (struct ncclComm){.rank = init->rank,
                              .size = init->size,
                              .device = init->device,
                              .site = init->site,
                              .parent = init->parent,
                              .mates = init->mates};
    if (!sim_comm_fill(comm, init)) {
        sim_comm_free(comm);
        return ncclSystemError;
    }
    sim_comm_enlist(comm);
    *out = comm;
    return ncclSuccess;
}

static ncclResult_t refuse_twin(const ncclComm_t comm, const RankSlot *twin, const void *site)
{
    char where[256];
    gpulog_where(site, where, sizeof where);
    sim_facts_call("ncclCommInitRank", site, SIM_NO_STREAM);
    sim_report(SIMGPU_MISMATCH, "ncclCommInitRank: two callers pass the same rank",
               "Rank %d of %d came twice: now at %s\nin process %d, before in process %d.\n"
               "On real GPUs this hangs, or fails with an internal error.\n"
               "Does every process pass its own rank? Is the id used for a second communicator?",
               comm->rank, comm->size, where, getpid(), twin->pid);
    return ncclInvalidUsage;
}

ncclResult_t sim_comm_join(ncclComm_t comm, const Init *init)
{
    if (comm->size > 1 && !init->parent) {
        sim_lock();
        sim_launched_open();
        sim_unlock();
    }
    SimDevice *device = sim_device(sim_current_device());
    if (!device) return ncclUnhandledCudaError;
    ncclResult_t result = comm->map ? ncclSuccess : sim_comm_id_find(&init->id, comm);
    if (result != ncclSuccess) return result;
    comm->shared = comm->map->shared;
    RankSlot *self = &comm->shared->slot[comm->rank];
    agree_on_size(comm->shared, comm->rank, comm->size, init->site);
    uint32_t absent = RANK_ABSENT;
    if (!atomic_compare_exchange_strong(&self->state, &absent, RANK_CLAIMED))
        return refuse_twin(comm, self, init->site);
    fill_slot(self, comm->map, device);
    sim_lock();
    comm->self = self;
    sim_unlock();
    atomic_fetch_add(&comm->shared->joined, 1);
    atomic_store(&comm->self->state, RANK_JOINED);
    return ncclSuccess;
}

// ---- While it lives ----

void sim_wake_rank(ncclComm_t comm, int rank)
{
    if (comm->wait_table[rank])
        sim_wake_listeners(comm->wait_table[rank], &comm->shared->slot[rank]);
}

void sim_comm_wake(ncclComm_t comm)
{
    if (comm->phantoms) return;
    for (int r = 0; r < comm->size; r++)
        if (r != comm->rank) sim_wake_rank(comm, r);
}

bool sim_comm_gone(ncclComm_t comm, int rank)
{
    const RankSlot *slot = &comm->shared->slot[rank];
    return atomic_load(&slot->gone) != GONE_NOT || atomic_load(&slot->state) == RANK_LEFT;
}

bool sim_comm_lives(ncclComm_t comm)
{
    bool lives = false;
    sim_lock();
    for (ncclComm_t other = sim_comms; other && !lives; other = other->next) lives = other == comm;
    sim_unlock();
    return lives && comm;
}

void sim_comm_leave(ncclComm_t comm, const void *site)
{
    if (comm->phantoms) {
        sim_comm_unlist(comm);
        sim_phantom_free(comm);
        return;
    }
    if (comm->boarded) sim_board_leave(comm);
    if (comm->self) {
        sim_lent_return(comm);
        comm->self->left_site.n = gpulog_frames(site, comm->self->left_site.frame);
        atomic_store(&comm->self->state, RANK_LEFT);
        sim_comm_wake(comm);
    }
    sim_comm_unlist(comm);
    sim_comm_id_served(comm->server, true);
    sim_lock();
    for (int r = 0; r < comm->size; r++) {
        sim_arena_drop(comm->peer_arena[r]);
        sim_peer_drop(comm->peer[r]);
    }
    sim_unlock();
    sim_sends_forget(comm);
    if (comm->map) sim_shared_release(comm->map, false);
    sim_comm_free(comm);
}
