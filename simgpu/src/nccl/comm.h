/* comm.h: communicators, as a process has them. nccl/ is NCCL among processes of one host; what a
 * program calls is in nccl.h, and the other folders see that alone.
 *
 *   comm_calls.c       communicators are made and destroyed by a program's calls
 *   questions.c        what a program may ask
 *   registered.c       memory that NCCL gives, and that is registered with it
 *   collective.c       each collective's call, and its data movement
 *   exchange.c         calls that are several messages: all-to-all, gather, scatter
 *   redop.c            reductions of a program's own
 *   refuse.c           what is said of a call that is wrong
 *   arguments.c        the checks of a call's arguments
 *   group.c            calls of a group wait for its end
 *   inside.c           one thread at a time is inside a communicator
 *   making.c           communicators on their way
 *   pending.c          calls that do not block
 *
 *   call.c             calls that are posted, waited for and worked off, in lanes
 *   arrive.c           what a collective orders, for ranks of one process
 *   sends.c            messages that are sent and not received yet
 *   lent.c             one copy of what an all-gather gives, for all of its ranks
 *   reduce.c           the arithmetic of reductions, by type, in a fixed tree order
 *   phantom.c          dry runs among peers that nobody runs
 *
 *   shared.h           the memory that the ranks of a communicator share
 *   comm_id.c          ids: how they find it
 *   peers.c            what a process has mapped of others
 *   comm.c             communicators: joining, leaving
 *   connect.c          a rank that has joined connects to its peers
 *
 *   wait.c             sleeping in a wait slot
 *   cycle.c            threads that wait for each other
 *   notice.c           what ranks that wait say now and then
 *   alone.c            whether other processes can know what this one does
 *   peer_end.c         peers whose processes end, and how
 *   launched.c         the processes of the launcher's world
 *   board.c            when the ranks arrived, on the virtual clock
 *   history.c          from where the ranks made their last collectives
 *   describe.c         calls, call sites and ends in words
 *   diagnose.c         the reports: disagreement, missing ranks, deadlock
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
    int waited_for;          // threads that wait for sends of it (sends.c)
    bool connected;          // to all ranks
    bool boarded;            // the virtual clock knows it (board.c)
    ncclComm_t parent;       // while a split makes this one: what is split,
    const int *mates;        // and the ranks of it (size) that come here
    struct IdServer *server; // rank 0 with NCCL_COMM_ID: tells the others where the memory is
    char meets_at[128];      // what its id is, in words
    bool place_taken;        // another job meets there
    bool taken_told;         // … which has been said
    struct Inside *inside;   // which thread makes a call on it (inside.c)
    const void *finalized;   // where; NULL: it is not
    bool revoked;
    atomic_bool abort_told;            // that another rank has aborted it
    _Atomic(struct Pending *) pending; // what is in progress on it (pending.c)
    _Atomic int async_error;           // what became of the last such
    const void *site;
};

extern ncclComm_t sim_comms; // those that live, under the lock

// A communicator to be made.
typedef struct Init {
    ncclComm_t *out;
    int size, rank, device;
    CommId id;
    const void *site;
    Options options;
    ncclComm_t parent; // of a split or a shrink, else NULL
    bool shares;       // the parent's resources
    const int *mates;  // the ranks of `parent` that come (size)
    int *own_mates;    // … where they are the init's own, to be freed with it
    bool shrinks;      // the id is still to be found (making.c): with whom the parent leaves out
    uint64_t left_out[SIM_MAX_RANKS / 64];
} Init;
// A communicator that has joined nobody: `self` is NULL.
ncclResult_t sim_comm_make(const Init *init, ncclComm_t *comm);
// Joins it on the current device, without waiting for others (connect.h). ncclInProgress: where the
// others meet is not known yet, for as long as rank 0 has not come.
ncclResult_t sim_comm_join(ncclComm_t comm, const Init *init);
// Leaves: the others see that no more calls come. Frees it.
void sim_comm_leave(ncclComm_t comm, const void *site);
// A communicator that lives; false for NULL and for what was destroyed.
bool sim_comm_lives(ncclComm_t comm);
// The rank's process has ended, or it has destroyed the communicator: no more calls of it will
// come.
bool sim_comm_gone(ncclComm_t comm, int rank);
// Wakes everybody else in the communicator; one of its ranks.
void sim_comm_wake(ncclComm_t comm);
void sim_wake_rank(ncclComm_t comm, int rank);

// The parts of joining and leaving: what a new one has of its own (false: no memory), and its end;
// it lives from here on, and no longer does.
bool sim_comm_fill(ncclComm_t comm, const Init *init);
void sim_comm_free(ncclComm_t comm);
void sim_comm_enlist(ncclComm_t comm);
void sim_comm_unlist(ncclComm_t comm);
void sim_note_program(RankSlot *slot); // the fields that say which program runs here, and where

struct SimLeaks;
// Hooks: communicators alive at the process's end; this process ends by a report, which its peers
// must know.
void sim_comm_visit(struct SimLeaks *leaks);
void sim_comm_goodbye(void);
bool sim_comm_ending(void); // it does

#endif
