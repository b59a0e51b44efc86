/* shared.h: the memory that the ranks of a communicator share.
 *
 * It has no name, and is gone when its last user is (memory/shared_memory.h). In it each rank has a
 * slot (RankSlot): where its device's memory is, how many calls it has made, and the description of
 * its present call (CallDesc). A rank posts its call there, and the last rank that posts wakes the
 * others.
 */
#ifndef SIMGPU_NCCL_SHARED_H
#define SIMGPU_NCCL_SHARED_H

#include <nccl.h>
#include <stdatomic.h>
#include <stdint.h>

#include "log_writer.h"

#define SIM_MAX_RANKS 256
#define SIM_MAX_THREADS 320 // of one process, waiting at the same time

// What all ranks must agree on. Fields that a kind does not have are 0.
typedef struct CallSignature {
    int32_t kind; // kind.h
    int32_t type, op;
    int32_t root; // send, receive: the peer
    uint64_t count;
    int64_t in_graph; // 1: a graph's launch makes the call
} CallSignature;

// The contents of an ncclUniqueId.
typedef struct CommId {
    char magic[8];
    int32_t by_text; // NCCL_COMM_ID: `text` names the place; else pid and fd do
    int32_t pid, fd;
    uint64_t nonce;
    char text[96];
} CommId;

// A call site for other processes, where a pointer to its stack (gpulog/log/stack.c) says nothing.
typedef struct SharedSite {
    int n;
    const void *frame[GPULOG_FRAMES];
} SharedSite;

typedef struct CallDesc {
    CallSignature signature;
    SharedSite site;
    uint64_t seq;
    int64_t send, recv; // offsets in the arena, -1: none
    uint64_t scalar;    // premulsum: this rank's, in the type of the call
    int32_t place;      // all-gather, of rank 0: the place of its bytes (lent.c), -1: none
    int32_t color, key; // split
    CommId id;          // split: shared memory that this rank offers
} CallDesc;

// The call site of a collective: history.c.
#define SIM_HISTORY 64
typedef struct PastCall {
    uint64_t seq;
    int32_t kind;
    SharedSite site;
} PastCall;

typedef enum RankState { RANK_ABSENT, RANK_CLAIMED, RANK_JOINED, RANK_LEFT } RankState;
typedef enum Gone {
    GONE_NOT,
    GONE_EXIT,  // exit(), said by the rank itself
    GONE_FATAL, // ended by a report of its own
    GONE_DIED,  // found dead by the watcher
} Gone;

// What ranks publish for the virtual clock (board.c): a time and the number of its call, in an
// array by that number modulo its length.
typedef struct ClockTime {
    _Atomic uint64_t number, when;
} ClockTime;
#define SIM_CLOCK_CALLS 64      // arrivals: no rank is more than a call ahead of the others
#define SIM_CLOCK_MEETINGS 1024 // … but for the requests of one group
#define SIM_CLOCK_MESSAGES 128

typedef struct RankSlot {
    _Atomic uint32_t state;
    _Atomic uint32_t gone;
    _Atomic uint32_t exit_told;  // 1 + the process's status as wait() gives it; 0: not known
    _Atomic int32_t files_limit; // ulimit -n, if it ended because no descriptor was free; else 0
    int32_t pid, device, device_fd, shared_fd, wait_table_fd;
    _Atomic int32_t world_rank; // of the process, in its launcher's world; -1: not known
    uint64_t world;             // which world
    int32_t gpu;                // the device's number among the machine's (CUDA_VISIBLE_DEVICES)
    uint64_t arena;             // bytes of the device's memory
    uint64_t host; // a hash of NCCL_HOSTID, 0 where it is not set: ranks of one host have the same
    uint64_t program_device, program_inode, program_base; // to compare its call sites with ours
    _Atomic int32_t thread;                           // wait slot of the thread that called last
    _Atomic uint64_t listeners[SIM_MAX_THREADS / 64]; // wait slots of those to wake, as bits
    _Atomic uint32_t thread_used;   // 0: that thread has only made the communicator
    _Atomic uint64_t arrived, done; // collectives posted, and done
    CallDesc desc;                  // of collective number `arrived`
    CallDesc last;                  // the last call of any kind
    PastCall past[SIM_HISTORY];     // collectives, by number modulo SIM_HISTORY
    SharedSite left_site;           // ncclCommDestroy's
    _Atomic uint32_t aborted;       // … or ncclCommAbort's
    _Atomic uint32_t shrinking; // ncclCommShrink: 1: asked for, 2: shrink_id is there (making.c)
    _Atomic uint64_t left_out[SIM_MAX_RANKS / 64]; // … by it, as bits
    CommId shrink_id;
    ClockTime clock_arrived[SIM_CLOCK_CALLS], clock_met[SIM_CLOCK_MEETINGS];
} RankSlot;

// Messages from one rank to another, in order.
typedef struct Channel {
    _Atomic uint64_t sends, recvs, done;
    _Atomic uint64_t differs; // number of a message whose two sides disagree; 0: none
    CallDesc send, recv;      // number `sends`, number `recvs`
    ClockTime clock_sent[SIM_CLOCK_MESSAGES], clock_received[SIM_CLOCK_MESSAGES],
        clock_met_sent[SIM_CLOCK_MESSAGES], clock_met_received[SIM_CLOCK_MESSAGES];
} Channel;

// The places of gathered bytes (lent.c): SIM_LENT_BYTES, counted from SIM_LENT_AT in the memory of
// a communicator. Rank 0 sets where a place is, while it has no users.
#define SIM_LENT_PLACES 64
#define SIM_LENT_BYTES ((size_t)4 << 30)
#define SIM_LENT_AT ((sizeof(CommShared) + 0xffff) & ~(size_t)0xffff)
#define SIM_SHARED_BYTES (SIM_LENT_AT + SIM_LENT_BYTES) // of it all
typedef struct LentPlace {
    uint64_t offset, bytes;
    _Atomic uint32_t users; // that may still read it
} LentPlace;

typedef struct CommShared {
    uint64_t nonce;
    _Atomic int32_t world; // 0 until the first rank comes
    _Atomic uint32_t joined, ready;
    _Atomic uint32_t broken;                 // ranks disagree
    _Atomic int32_t other_world, other_rank; // a rank that came with another size, -1: none
    _Atomic uint64_t entered, finished;      // collectives, added over all ranks
    LentPlace lent[SIM_LENT_PLACES];
    RankSlot slot[SIM_MAX_RANKS];
    Channel channel[SIM_MAX_RANKS][SIM_MAX_RANKS]; // [from][to]
} CommShared;

#endif
