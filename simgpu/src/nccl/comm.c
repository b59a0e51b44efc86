/* comm.c: communicators: joining, connecting to the peers, leaving.
 *
 * A rank joins by filling in its slot of the shared memory; then it connects to each peer that has
 * joined: maps the peer's device memory and its wait table, and has the watcher look after its
 * process. It is done when all ranks have connected to all. Mappings of a peer serve all
 * communicators with it. Ranks in one process need none: the device's own alias is used.
 *
 * Leaving is not collective: a rank that has left is marked so, and only one who then waits for it
 * complains. A process that exits, or is ended by a report, says so in all its shared memory
 * (sim_comm_goodbye), so that the others' reports can tell an exit from a crash.
 *
 * Interface: sim_comm_join, sim_comm_connect, sim_comm_leave, sim_comm_lives, sim_comm_wake,
 * sim_comm_goodbye, sim_comm_visit.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "nccl/comm.h"
#include "report/report.h"
#include "runtime/runtime.h"
#include "time/clock.h"

#define LOOK_MILLISECONDS 500 // between two looks at what nobody rings for

Peer *sim_peers;
ncclComm_t sim_comms;
static PeerArena *arenas;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool named; // the report rank is that of the first communicator

void sim_lock(void)
{
    pthread_mutex_lock(&lock);
}

void sim_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

int sim_open_fd(int pid, int fd)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, fd);
    int opened = open(path, O_RDWR | O_CLOEXEC);
    if (opened < 0 && errno == EMFILE) sim_no_files_left(); // or its rank would seem to be dead
    return opened;
}

// ---- The end of the process ----

// In a forked child nothing of the parent's communicators is its own.
static void forget_all(void)
{
    pthread_mutex_init(&lock, NULL);
    for (ncclComm_t comm = sim_comms, next; comm; comm = next) {
        next = comm->next;
        free(comm->redop);
        free(comm->logged.sends);
        free(comm);
    }
    for (SharedMap *map = sim_shared_maps, *next; map; map = next) {
        next = map->next;
        sim_lent_unmap(map);
        munmap(map->shared, sizeof(CommShared));
        close(map->fd);
        free(map);
    }
    for (Peer *peer = sim_peers, *next; peer; peer = next) {
        next = peer->next;
        munmap(peer->wait_table, sizeof *peer->wait_table);
        if (peer->pidfd >= 0) close(peer->pidfd);
        free(peer);
    }
    for (PeerArena *arena = arenas, *next; arena; arena = next) {
        next = arena->next;
        munmap(arena->base, arena->bytes);
        free(arena);
    }
    sim_comms = NULL;
    sim_shared_maps = NULL;
    sim_peers = NULL;
    arenas = NULL;
    named = false;
    sim_sends_forked();
    sim_wait_forked();
    sim_watch_forked();
    sim_world_forked();
}

// May run in a signal handler that interrupted a holder of the lock: it does without, then.
static void say_goodbye(Gone how, int status)
{
    bool locked = pthread_mutex_trylock(&lock) == 0;
    for (ncclComm_t comm = sim_comms; comm; comm = comm->next) {
        if (atomic_load(&comm->self->gone) != GONE_NOT) continue;
        atomic_store(&comm->self->exit_told, 1 + ((uint32_t)(status & 0xff) << 8));
        atomic_store(&comm->self->files_limit, sim_files_limit());
        atomic_store(&comm->self->gone, how);
        sim_comm_wake(comm);
    }
    if (locked) pthread_mutex_unlock(&lock);
}

// The watcher may have the lock for a moment, all the more where a peer has just left; a thread of
// the program that ended in the middle of a call has it for good.
void sim_comm_visit(SimLeaks *leaks)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec++;
    if (pthread_mutex_timedlock(&lock, &until)) return;
    for (ncclComm_t comm = sim_comms; comm; comm = comm->next)
        sim_leak_note(leaks, THING_COMM, comm, 0, comm->site);
    pthread_mutex_unlock(&lock);
}

static void on_normal_exit(int status)
{
    if (status == 0) sim_clock_last_call();
    if (status == 0) sim_sends_wait_all();
    say_goodbye(GONE_EXIT, status & 0xff);
    sim_clock_finish(status);
}

void sim_comm_goodbye(void)
{
    say_goodbye(GONE_FATAL, SIMGPU_FATAL_EXIT);
}

static void prepare_process(void)
{
    pthread_atfork(NULL, NULL, forget_all);
    sim_on_end(on_normal_exit);
}

// ---- Joining ----

// The program's file and where it is loaded: a peer that runs the same file can name our call
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
    slot->device_fd = device->memfd;
    slot->arena = device->mapped;
    slot->host = host_of_process();
    slot->shared_fd = map->fd;
    sim_wait_table(&slot->wait_table_fd);
    sim_lock();
    atomic_store(&slot->world_rank, sim_world_self(&slot->world));
    sim_unlock();
    atomic_store(&slot->thread, sim_thread());
    sim_listen(slot, true); // until it has connected
}

// Everybody must come with the same size; who does not ends, and so do the others when they see it.
static void agree_on_size(CommShared *shared, int rank, int size, const void *site)
{
    int32_t none = 0;
    if (atomic_compare_exchange_strong(&shared->world, &none, size) || none == size) return;
    atomic_store(&shared->other_world, size);
    atomic_store(&shared->other_rank, rank);
    atomic_store(&shared->broken, 1);
    for (int r = 0; r < SIM_MAX_RANKS; r++) { // not connected to anybody yet
        RankSlot *slot = &shared->slot[r];
        if (atomic_load(&slot->state) != RANK_JOINED) continue;
        int fd = slot->pid == getpid() ? -1 : sim_open_fd(slot->pid, slot->wait_table_fd);
        void *table = fd < 0 ? sim_wait_table(NULL)
                             : mmap(NULL, sizeof(ProcessWaitTable), PROT_READ | PROT_WRITE,
                                    MAP_SHARED, fd, 0);
        if (table != MAP_FAILED) sim_wake_listeners(table, slot);
    }
    sim_diagnose_size(shared, rank, size, site);
}

bool sim_comm_count_calls(ncclComm_t comm)
{
    comm->logged.sends = calloc(2 * (size_t)comm->size, sizeof *comm->logged.sends);
    comm->logged.recvs = comm->logged.sends + comm->size;
    return comm->logged.sends != NULL;
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

ncclResult_t sim_comm_join(const Init *init, ncclComm_t *out)
{
    int rank = init->rank, size = init->size;
    const void *site = init->site;
    pthread_once(&once, prepare_process);
    if (sim_phantoms()) return sim_phantom_join(init, out);
    if (size > 1 && !init->parent) {
        sim_lock();
        sim_world_open();
        sim_unlock();
    }
    *out = NULL;
    SimDevice *device = sim_device(sim_current_device());
    if (!device) return ncclUnhandledCudaError;
    ncclComm_t comm = calloc(1, sizeof *comm);
    if (!comm) return ncclSystemError;
    *comm = (struct ncclComm){.rank = rank,
                              .size = size,
                              .device = device->index,
                              .site = site,
                              .parent = init->parent,
                              .mates = init->mates};
    bool counts = sim_comm_count_calls(comm);
    ncclResult_t result = counts ? sim_rendezvous_find(&init->id, comm) : ncclSystemError;
    if (result != ncclSuccess) {
        free(comm->logged.sends);
        free(comm);
        return result;
    }
    comm->shared = comm->map->shared;
    comm->self = &comm->shared->slot[rank];
    agree_on_size(comm->shared, rank, size, site);
    uint32_t absent = RANK_ABSENT;
    if (!atomic_compare_exchange_strong(&comm->self->state, &absent, RANK_CLAIMED)) {
        char where[256];
        gpulog_where(site, where, sizeof where);
        sim_facts_call("ncclCommInitRank", site, SIM_NO_STREAM);
        sim_report(
            SIMGPU_MISMATCH, "ncclCommInitRank: two ranks of the same number",
            "Rank %d of %d came twice: now at %s\nin process %d, before in process %d.\n"
            "On real GPUs this hangs, or fails with an internal error.\n"
            "Does every process pass its own rank? Is the id used for a second communicator?",
            rank, size, where, getpid(), comm->self->pid);
        sim_rendezvous_release(comm->map, false);
        free(comm->logged.sends);
        free(comm);
        return ncclInvalidUsage;
    }
    fill_slot(comm->self, comm->map, device);
    sim_comm_enlist(comm);
    atomic_fetch_add(&comm->shared->joined, 1);
    atomic_store(&comm->self->state, RANK_JOINED);
    *out = comm;
    return ncclSuccess;
}

// ---- Connecting ----

static Peer *use_peer(int pid, int wait_table_fd)
{
    for (Peer *peer = sim_peers; peer; peer = peer->next)
        if (peer->pid == pid) {
            peer->refs++;
            return peer;
        }
    int fd = sim_open_fd(pid, wait_table_fd);
    if (fd < 0) return NULL;
    void *table = mmap(NULL, sizeof(ProcessWaitTable), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    Peer *peer = table == MAP_FAILED ? NULL : calloc(1, sizeof *peer);
    if (!peer) return NULL;
    *peer = (Peer){.next = sim_peers,
                   .pid = pid,
                   .wait_table = table,
                   .pidfd = sim_watch_open(pid),
                   .refs = 1};
    sim_peers = peer;
    sim_watch_changed();
    return peer;
}

void sim_peer_drop(Peer *peer)
{
    if (!peer || --peer->refs) return;
    for (Peer **link = &sim_peers; *link; link = &(*link)->next)
        if (*link == peer) {
            *link = peer->next;
            break;
        }
    sim_watch_changed();
    munmap(peer->wait_table, sizeof *peer->wait_table);
    if (peer->pidfd >= 0) close(peer->pidfd);
    free(peer);
}

static PeerArena *use_arena(const RankSlot *slot)
{
    for (PeerArena *arena = arenas; arena; arena = arena->next)
        if (arena->pid == slot->pid && arena->device == slot->device) {
            arena->refs++;
            return arena;
        }
    int fd = sim_open_fd(slot->pid, slot->device_fd);
    if (fd < 0) return NULL;
    void *base = mmap(NULL, slot->arena, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    close(fd);
    PeerArena *arena = base == MAP_FAILED ? NULL : calloc(1, sizeof *arena);
    if (!arena) return NULL;
    *arena = (PeerArena){arenas, slot->pid, slot->device, base, slot->arena, 1};
    arenas = arena;
    return arena;
}

static void drop_arena(PeerArena *arena)
{
    if (!arena || --arena->refs) return;
    for (PeerArena **link = &arenas; *link; link = &(*link)->next)
        if (*link == arena) {
            *link = arena->next;
            break;
        }
    munmap(arena->base, arena->bytes);
    free(arena);
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
            comm->peer[r] = use_peer(slot->pid, slot->wait_table_fd);
            comm->peer_arena[r] = comm->peer[r] ? use_arena(slot) : NULL;
            // It may have ended when this communicator was not there to be told.
            if (comm->peer[r] && comm->peer[r]->ended) sim_watch_mark(comm->peer[r]);
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
        if (sim_watch_is_dead(shared->slot[failed].pid))
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
        gpulog_waiting(what, waiting->site);
        await_ranks(waiting, ticket, &notice);
    }
    gpulog_waiting(NULL, NULL);
    ncclResult_t result = ncclSuccess;
    for (int i = 0; i < n; i++) {
        sim_listen(comms[i]->self, false);
        sim_rendezvous_served(comms[i]->server);
        comms[i]->server = NULL;
        comms[i]->parent = NULL;
        sim_rendezvous_release(comms[i]->map, true); // nobody will ask for the id again
        ncclResult_t devices = check_devices(comms[i]);
        if (devices != ncclSuccess) result = devices;
        sim_board_join(comms[i]);
    }
    return result;
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
    sim_board_leave(comm);
    sim_lent_return(comm);
    comm->self->left_site.n = gpulog_frames(site, comm->self->left_site.frame);
    atomic_store(&comm->self->state, RANK_LEFT);
    sim_comm_wake(comm);
    sim_comm_unlist(comm);
    sim_lock();
    for (int r = 0; r < comm->size; r++) {
        drop_arena(comm->peer_arena[r]);
        sim_peer_drop(comm->peer[r]);
    }
    sim_unlock();
    sim_sends_forget(comm);
    sim_rendezvous_release(comm->map, false);
    free(comm->redop);
    free(comm->logged.sends);
    free(comm);
}
