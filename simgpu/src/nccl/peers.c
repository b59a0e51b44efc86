/* peers.c: memory of other processes that this one has mapped. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "memory/shared_memory.h"
#include "nccl/lent.h"
#include "nccl/peer_end.h"
#include "nccl/peers.h"
#include "runtime/runtime.h"

SharedMap *sim_shared_maps;
Peer *sim_peers;
static PeerArena *arenas;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void sim_lock(void)
{
    pthread_mutex_lock(&lock);
}

// The watcher may hold the lock for a moment; a thread of the program that ended in the middle of a
// call holds it forever.
bool sim_lock_within(int seconds)
{
    struct timespec until;
    if (seconds == 0) return pthread_mutex_trylock(&lock) == 0;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += seconds;
    return pthread_mutex_timedlock(&lock, &until) == 0;
}

void sim_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

int sim_open_fd(int pid, int fd)
{
    char path[64];
    if (!sim_shared_is_file(fd)) return fd; // a segment has the same number everywhere
    snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, fd);
    int opened = open(path, O_RDWR | O_CLOEXEC);
    if (opened < 0 && errno == EMFILE) sim_no_files_left(); // else its rank would seem dead
    return opened;
}

Peer *sim_peer_use(int pid, int wait_table_fd)
{
    for (Peer *peer = sim_peers; peer; peer = peer->next)
        if (peer->pid == pid) {
            peer->refs++;
            return peer;
        }
    int fd = sim_open_fd(pid, wait_table_fd);
    if (fd == -1) return NULL;
    void *table = sim_shared_map(fd, NULL, 0, sizeof(ProcessWaitTable));
    sim_shared_close(fd);
    Peer *peer = table == MAP_FAILED ? NULL : calloc(1, sizeof *peer);
    if (!peer) return NULL;
    *peer = (Peer){.next = sim_peers,
                   .pid = pid,
                   .wait_table = table,
                   .pidfd = sim_open_pidfd(pid),
                   .refs = 1};
    sim_peers = peer;
    sim_peers_changed();
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
    sim_peers_changed();
    munmap(peer->wait_table, sizeof *peer->wait_table);
    if (peer->pidfd >= 0) close(peer->pidfd);
    free(peer);
}

PeerArena *sim_arena_use(const RankSlot *slot)
{
    for (PeerArena *arena = arenas; arena; arena = arena->next)
        if (arena->pid == slot->pid && arena->device == slot->device) {
            arena->refs++;
            return arena;
        }
    int fd = sim_open_fd(slot->pid, slot->device_fd);
    if (fd == -1) return NULL;
    void *base = sim_shared_map(fd, NULL, 0, slot->arena);
    sim_shared_close(fd);
    PeerArena *arena = base == MAP_FAILED ? NULL : calloc(1, sizeof *arena);
    if (!arena) return NULL;
    *arena = (PeerArena){arenas, slot->pid, slot->device, base, slot->arena, 1};
    arenas = arena;
    return arena;
}

void sim_arena_drop(PeerArena *arena)
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

void sim_peers_forked(void)
{
    pthread_mutex_init(&lock, NULL);
    for (SharedMap *map = sim_shared_maps, *next; map; map = next) {
        next = map->next;
        sim_lent_unmap(map);
        munmap(map->shared, sizeof(CommShared));
        sim_shared_close(map->fd);
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
    sim_shared_maps = NULL;
    sim_peers = NULL;
    arenas = NULL;
}
