/* peers.h: the shared memory that this process has mapped: that of its communicators, and of each
 * process with which it shares one, the wait table and the memory of its devices. All communicators
 * with a peer share its mappings.
 */
#ifndef SIMGPU_NCCL_PEERS_H
#define SIMGPU_NCCL_PEERS_H

#include "nccl/alone.h"
#include "nccl/wait.h"

// Protects the lists of all files of nccl/ but sends.c and arrive.c.
void sim_lock(void);
bool sim_lock_within(int seconds); // false: it is taken. 0 may be used in a signal handler
void sim_unlock(void);

// Shared memory as this process has it mapped; threads of one process share the mapping.
typedef struct SharedMap {
    struct SharedMap *next;
    CommShared *shared;
    char *lent; // SIM_LENT_BYTES of places; NULL: not mapped yet
    int fd;
    int refs;
    bool offered;   // one of the refs is ncclGetUniqueId's
    SimTraces then; // of this process, when it offered it
} SharedMap;

typedef struct Peer { // another process
    struct Peer *next;
    int pid;
    ProcessWaitTable *wait_table;
    int pidfd; // -1: none, or dead
    int refs;
    atomic_bool ended; // written by the watch thread, read by the clock's too
    int status;        // of the end, as wait() has it; -1: not known
} Peer;

typedef struct PeerArena {
    struct PeerArena *next;
    int pid, device;
    char *base;
    size_t bytes;
    int refs;
} PeerArena;

extern SharedMap *sim_shared_maps; // guarded by sim_lock, as all that follow
extern Peer *sim_peers;
// Maps the wait table of the process with that number, or the memory of the slot's device; NULL: it
// cannot be mapped. Each call takes a reference, which the caller drops at the end of its use.
Peer *sim_peer_use(int pid, int wait_table_fd);
void sim_peer_drop(Peer *peer);
PeerArena *sim_arena_use(const RankSlot *slot);
void sim_arena_drop(PeerArena *arena);
void sim_peers_forked(void); // also frees the lock

// Opens the shared memory that another process has by that handle (shared_memory.h): returns a
// handle of this process; -1: it is gone, or this process may not open it.
int sim_open_fd(int pid, int fd);

#endif
