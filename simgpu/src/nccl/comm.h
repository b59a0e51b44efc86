/* comm.h: a process's communicators. nccl/ is NCCL among the processes of one host. A program calls
 * what nccl.h declares, and the other folders see only that.
 *
 *   comm_calls.c       the calls that make and destroy communicators
 *   questions.c        the calls that ask for a property
 *   registered.c       memory that NCCL gives, and that is registered with it
 *   collective.c       each collective's call, and its data movement
 *   exchange.c         calls that are several messages: all-to-all, gather, scatter
 *   redop.c            reductions of a program's own
 *   refuse.c           reports a call that is wrong
 *   arguments.c        checks the arguments of a call
 *   group.c            keeps the calls of a group until its end
 *   inside.c           one thread at a time is inside a communicator
 *   making.c           communicators that are being made
 *   pending.c          non-blocking calls
 *
 *   call.c             posts calls, waits for them and does their work, in lanes
 *   arrive.c           the order that a collective makes between ranks of one process
 *   sends.c            messages that are sent and not received yet
 *   lent.c             one copy of the result of an all-gather, for all of its ranks
 *   reduce.c           the arithmetic of reductions, by type, in a fixed tree order
 *   phantom.c          dry runs of one rank, without its peers
 *
 *   shared.h           the memory that the ranks of a communicator share
 *   comm_id.c          ids, by which ranks find that memory
 *   peers.c            memory of other processes that this one has mapped
 *   comm.c             joining and leaving a communicator
 *   connect.c          connects a rank that has joined to its peers
 *
 *   wait.c             sleeping in a wait slot
 *   cycle.c            threads that wait for each other
 *   notice.c           notices of ranks that wait for long
 *   alone.c            whether another process can know an id
 *   peer_end.c         peers whose processes end, and how
 *   launched.c         the processes of the launcher's world
 *   board.c            when ranks arrive at their calls, on the virtual clock
 *   history.c          the call sites of the last collectives
 *   describe.c         calls, call sites and ends in words
 *   diagnose.c         reports: disagreement, missing ranks, deadlock
 */
#ifndef SIMGPU_NCCL_COMM_H
#define SIMGPU_NCCL_COMM_H

#include "nccl/peers.h"

typedef struct RedOp {
    bool used;
    const void *destroyed; // call site of ncclRedOpDestroy
    ncclDataType_t type;
    uint64_t scalar;
    const void *device_scalar; // NULL: `scalar` holds it
} RedOp;

typedef struct Options { // of an ncclConfig_t, as far as they change anything
    bool nonblocking, split_share, shrink_share;
} Options;

struct ncclComm {
    struct ncclComm *next;
    SharedMap *map;
    CommShared *shared;
    RankSlot *self;
    int rank, size, device;
    Options options;
    uint64_t number;                                     // collectives begun
    uint64_t sends[SIM_MAX_RANKS], recvs[SIM_MAX_RANKS]; // messages begun, by peer
    struct {                                             // that the log has
        uint64_t collectives, *sends, *recvs;            // (size) by peer; one allocation, at sends
    } logged;
    struct Phantoms *phantoms;  // the other ranks are phantoms (phantom.c); NULL: they are real
    char *arena[SIM_MAX_RANKS]; // every rank's device memory, as this process may touch it
    ProcessWaitTable *wait_table[SIM_MAX_RANKS]; // NULL until connected
    Peer *peer[SIM_MAX_RANKS];                   // NULL for ranks of this process
    PeerArena *peer_arena[SIM_MAX_RANKS];
    struct Registered *registered; // registered.c
    RedOp *redop;
    int n_redops;
    int waited_for;          // threads that wait for its sends (sends.c)
    bool connected;          // to all ranks
    bool boarded;            // the virtual clock knows it (board.c)
    ncclComm_t parent;       // while a split makes this one: the one that is split,
    const int *mates;        // and its ranks (size) that come here
    struct IdServer *server; // rank 0 with NCCL_COMM_ID: tells the others where the memory is
    char meets_at[128];      // what its id is, in words
    bool place_taken;        // another job uses that place
    bool taken_told;         // … and a notice has said so
    struct Inside *inside;   // which thread makes a call on it (inside.c)
    const void *finalized;   // call site of ncclCommFinalize; NULL: not called
    bool revoked;
    atomic_bool abort_told;            // that another rank has aborted it
    _Atomic(struct Pending *) pending; // what is in progress on it (pending.c)
    _Atomic int async_error;           // the result of the last such call
    const void *site;
};

extern ncclComm_t sim_comms; // those that are alive; guarded by sim_lock

// A communicator to be made.
typedef struct Init {
    ncclComm_t *out;
    int size, rank, device;
    CommId id;
    const void *site;
    Options options;
    ncclComm_t parent;                     // of a split or a shrink, else NULL
    bool shares;                           // the parent's resources
    const int *mates;                      // the ranks of `parent` that come (size)
    int *own_mates;                        // … where they are the init's own, to be freed with it
    bool shrinks;                          // of a shrink, whose id is not known yet (making.c)
    uint64_t left_out[SIM_MAX_RANKS / 64]; // … the ranks of `parent` that do not come, as bits
} Init;
// A communicator that has not joined: `self` is NULL.
ncclResult_t sim_comm_make(const Init *init, ncclComm_t *comm);
// Joins it on the current device, without waiting for others (connect.h). ncclInProgress: rank 0
// has not come, so the shared memory is not known yet.
ncclResult_t sim_comm_join(ncclComm_t comm, const Init *init);
// Leaves it, so that the other ranks see that this one makes no more calls, and frees it.
void sim_comm_leave(ncclComm_t comm, const void *site);
// Whether the communicator is alive; false for NULL and for one that was destroyed.
bool sim_comm_lives(ncclComm_t comm);
// Whether the rank's process has ended, or it has destroyed the communicator: it will make no more
// calls.
bool sim_comm_gone(ncclComm_t comm, int rank);
void sim_comm_wake(ncclComm_t comm);           // wakes all other ranks of the communicator
void sim_wake_rank(ncclComm_t comm, int rank); // wakes one of its ranks

// The parts of joining and leaving.
bool sim_comm_fill(ncclComm_t comm, const Init *init); // allocates its parts; false: no memory
void sim_comm_free(ncclComm_t comm);                   // frees it
void sim_comm_enlist(ncclComm_t comm);                 // from now on it is alive (sim_comm_lives)
void sim_comm_unlist(ncclComm_t comm);                 // it is alive no longer
void sim_note_program(RankSlot *slot); // the fields that say which program runs here, and where

struct SimLeaks;
// Hooks (report/hooks.h).
void sim_comm_visit(struct SimLeaks *leaks); // notes communicators that were not destroyed
void sim_comm_goodbye(void);                 // a report ends this process: tells its peers
bool sim_comm_ending(void);                  // whether sim_comm_goodbye was called

#endif
