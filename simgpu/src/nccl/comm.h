/* nccl/: NCCL among processes of one host. This header is what the files of the folder share; the
 * other folders see the calls of nccl.h alone.
 *
 *   nccl.c        the NCCL calls: arguments, groups, names
 *   arrive.c      what a collective orders, for ranks of one process
 *   call.c        calls that are posted, waited for and worked off, in lanes
 *   sends.c       messages that are sent and not received yet
 *   collective.c  the data movement of each kind of call
 *   lent.c        one copy of what an all-gather gives, for all of its ranks
 *   reduce.c      the arithmetic of reductions, by type, in a fixed tree order
 *   comm.c        communicators: joining, connecting to the peers, leaving
 *   rendezvous.c  ids: how the ranks of a communicator find the memory that they share
 *   wait.c        sleeping in a wait slot
 *   cycle.c      threads that wait for each other
 *   notice.c      what ranks that wait say now and then
 *   watch.c       peers that ended, and how
 *   world.c       the processes of a world, as its launcher says
 *   board.c       when the ranks arrived, on the virtual clock
 *   phantom.c     dry runs among peers that nobody runs
 *   history.c     from where the ranks made their last collectives
 *   describe.c    calls, call sites and ends in words
 *   diagnose.c    the reports: disagreement, missing ranks, deadlock
 *
 * The ranks of a communicator share memory (CommShared): a memfd without a name, gone when its last
 * user is. In it each rank has a slot (RankSlot): where its device's memory is, how far it has
 * come, and the description of its present call (CallDesc). A call is posted, and then nobody is
 * asked again: whoever comes last wakes the others. Each thread sleeps in a slot of its own
 * (WaitSlot, a futex) of its process's table of them (ProcessWaitTable), another such memory; a
 * thread waits for all its communicators in one slot.
 */
#ifndef SIMGPU_COMM_H
#define SIMGPU_COMM_H

#include <nccl.h>
#include <poll.h>
#include <stdatomic.h>

#include "runtime/runtime.h"

#define SIM_MAX_RANKS 256
#define SIM_MAX_PHANTOMS 65536 // ranks of a communicator, where all but this one are phantoms
#define SIM_MAX_THREADS 320 // of one process, waiting at the same time
#define SIM_MAX_REFS 32
#define SIM_MAX_WORKERS 256
#define SIM_PRE_MUL_SUM ncclNumOps // every handle of ncclRedOpCreatePreMulSum, in signatures

typedef enum CallKind {
    CALL_ALL_GATHER,
    CALL_REDUCE_SCATTER,
    CALL_ALL_REDUCE,
    CALL_BROADCAST,
    CALL_REDUCE,
    CALL_SPLIT,
    CALL_SEND,
    CALL_RECV,
    CALL_KINDS
} CallKind;

// What all ranks must agree on. What a kind does not have is 0.
typedef struct CallSignature {
    int32_t kind, type, op;
    int32_t root; // send, receive: the peer
    uint64_t count;
} CallSignature;

// ---- rendezvous.c ----

// What ncclUniqueId holds.
typedef struct RendezvousId {
    char magic[8];
    int32_t by_text; // NCCL_COMM_ID: `text` names the place; else pid and fd do
    int32_t pid, fd;
    uint64_t nonce;
    char text[96];
} RendezvousId;

// ---- The shared memory ----

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
    int32_t place;      // all-gather, of rank 0: where its bytes are lent (lent.c), -1: nowhere
    int32_t color, key; // split
    RendezvousId id;    // split: shared memory that this rank offers
} CallDesc;

// Where a collective came from: history.c.
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

// What ranks tell each other for the virtual clock (board.c): a time, and the number of the call that
// it is of; by number modulo the room.
typedef struct ClockTime {
    _Atomic uint64_t number, when;
} ClockTime;
#define SIM_CLOCK_CALLS 64     // arrivals: nobody is more than a call ahead of the others
#define SIM_CLOCK_MEETINGS 1024 // … but for the requests of one group
#define SIM_CLOCK_MESSAGES 128

typedef struct RankSlot {
    _Atomic uint32_t state;
    _Atomic uint32_t gone;
    _Atomic uint32_t exit_told; // 1 + what wait() says of the process's end; 0: not known
    _Atomic int32_t files_limit; // ulimit -n, where its end is that no descriptor was left; else 0
    int32_t pid, device, device_fd, shared_fd, wait_table_fd;
    _Atomic int32_t world_rank; // of the process in its launcher's world (world.c); -1: not known
    uint64_t world; // which world
    int32_t gpu;        // the device's number among the machine's (CUDA_VISIBLE_DEVICES)
    uint64_t arena;     // bytes of the device's memfd
    uint64_t host; // a hash of NCCL_HOSTID, 0 where it is not set: ranks of one host have the same
    uint64_t program_device, program_inode, program_base; // whether call sites of it are ours too
    _Atomic int32_t thread;                           // wait slot of the thread that called last
    _Atomic uint64_t listeners[SIM_MAX_THREADS / 64]; // wait slots of those to wake, as bits
    _Atomic uint32_t thread_used;   // 0: that thread has only made the communicator
    _Atomic uint64_t arrived, done; // collectives posted, worked off
    CallDesc desc;                  // of collective number `arrived`
    CallDesc last;                  // the last call of any kind
    PastCall past[SIM_HISTORY];     // collectives, by number modulo SIM_HISTORY
    SharedSite left_site;           // ncclCommDestroy's
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

// Where what was gathered is lent (lent.c): SIM_LENT_BYTES of them, counted from SIM_LENT_AT in the
// memfd of a communicator. Rank 0 says where a place is, while it has no users.
#define SIM_LENT_PLACES 64
#define SIM_LENT_BYTES ((size_t)4 << 30)
#define SIM_LENT_AT ((sizeof(CommShared) + 0xffff) & ~(size_t)0xffff)
#define SIM_SHARED_BYTES (SIM_LENT_AT + SIM_LENT_BYTES) // of the file
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

// What a thread waits for, so that others can see cycles.
typedef struct WaitRef {
    uint64_t nonce; // of the CommShared
    int32_t pid, shared_fd;
    int32_t kind; // a CallKind; all but send and receive are collectives
    int32_t rank, peer;
    uint64_t seq;
    int32_t working; // posted by all: waits for others to do their part
} WaitRef;

// The call in which the host waits for a message that it has sent in another call. A call without
// a name: there is none; without a site: the program's end.
typedef struct HostCall {
    char name[48];
    SharedSite site;
} HostCall;

#define SIM_REF_WORDS (sizeof(WaitRef) / sizeof(uint64_t))
#define SIM_HOST_CALL_WORDS (sizeof(HostCall) / sizeof(uint64_t))
_Static_assert(sizeof(WaitRef) % sizeof(uint64_t) == 0, "a WaitRef is whole words");
_Static_assert(sizeof(HostCall) % sizeof(uint64_t) == 0, "a HostCall is whole words");

typedef struct WaitSlot {
    _Atomic uint32_t value; // the futex
    _Atomic uint32_t sleeping;
    _Atomic uint32_t stamp; // grows when a wait begins and ends
    _Atomic uint32_t taken;
    _Atomic uint32_t n_refs;
    _Atomic uint32_t all_refs; // not so many that some are left out
    // Written by the thread and read by others at any time: word by word, and checked by the stamp.
    _Atomic uint64_t ref[SIM_MAX_REFS][SIM_REF_WORDS];
    _Atomic uint64_t host_call[SIM_HOST_CALL_WORDS];
} WaitSlot;

typedef struct ProcessWaitTable {
    _Atomic uint64_t asleep[SIM_MAX_THREADS / 64]; // who sleeps in sim_wait, as bits
    // The process's virtual clock (board.c): a futex that is rung when there is news; whether
    // somebody here waits for that; until when the process arrives at nothing that it has not told,
    // and makes no request; how far others want that to be.
    _Atomic uint32_t clock_bell, clock_waits;
    _Atomic uint64_t clock_until, clock_request, clock_wanted;
    // How many arrivals it has told; one more than it had seen of the others' when it last ran, where
    // it could then do nothing but wait for more, else 0. Both in one word: who read one after the
    // other could find the one from before and the other from after a run.
    _Atomic uint64_t clock_told, clock_stuck;
    _Atomic uint32_t helpers; // threads of the process that never call NCCL, such as the watcher
    _Atomic uint32_t n_workers;
    _Atomic int32_t worker[SIM_MAX_WORKERS]; // the BLAS's threads, which do not either
    WaitSlot wait_slot[SIM_MAX_THREADS];
} ProcessWaitTable;

// ---- What a process knows ----

// Shared memory as this process has it mapped; threads of one process share the mapping.
typedef struct SharedMap {
    struct SharedMap *next;
    CommShared *shared;
    char *lent; // SIM_LENT_BYTES of places; NULL: not mapped yet
    int fd;
    int refs;
    bool offered; // one of the refs is ncclGetUniqueId's
} SharedMap;

typedef struct Peer { // another process
    struct Peer *next;
    int pid;
    ProcessWaitTable *wait_table;
    int pidfd; // -1: none, or dead
    int refs;
    atomic_bool ended; // written by the watch thread, read by the clock's too
    int status; // of the end, as wait() has it; -1: not known
} Peer;

typedef struct PeerArena {
    struct PeerArena *next;
    int pid, device;
    char *base;
    size_t bytes;
    int refs;
} PeerArena;

typedef struct RedOp {
    bool used;
    const void *destroyed; // call site of ncclRedOpDestroy
    ncclDataType_t type;
    uint64_t scalar;
    const void *device_scalar; // NULL: `scalar` holds it
} RedOp;

struct ncclComm {
    struct ncclComm *next;
    SharedMap *map;
    CommShared *shared;
    RankSlot *self;
    int rank, size, device;
    uint64_t number;                                     // collectives begun
    uint64_t sends[SIM_MAX_RANKS], recvs[SIM_MAX_RANKS]; // messages begun, by peer
    struct { // that the log has
        uint64_t collectives, *sends, *recvs; // (size) by peer; one allocation, at sends
    } logged;
    struct Phantoms *phantoms; // the other ranks are phantoms (phantom.c); NULL: they are real
    char *arena[SIM_MAX_RANKS]; // every rank's device memory, as this process may touch it
    ProcessWaitTable *wait_table[SIM_MAX_RANKS]; // NULL until connected
    Peer *peer[SIM_MAX_RANKS];                   // NULL for ranks of this process
    PeerArena *peer_arena[SIM_MAX_RANKS];
    RedOp *redop;
    int n_redops;
    int waited_for;    // threads that wait for sends of it (sends.c)
    bool connected;    // to all ranks
    ncclComm_t parent; // while a split makes this one: what is split,
    const int *mates;  // and the ranks of it (size) that come here
    struct RendezvousServer
        *server;        // rank 0 with NCCL_COMM_ID: tells the others where the shared memory is
    char meets_at[128]; // what its id is, in words
    const void *site;
};

// One call, from the NCCL function to the end of its work.
typedef struct Call {
    ncclComm_t comm;
    CallSignature signature;
    const void *send;
    void *recv;
    cudaStream_t stream;
    const void *site;
    ncclRedOp_t handle;    // the operation as the program gave it
    ncclComm_t *new_comm;  // split
    bool alone;            // the only call of its group
    bool may_stay;         // a send that nothing in its group comes after
    struct KeptSend *kept; // of a send that need not wait: its bytes, and more (sends.c)
    enum { CALL_NEW, CALL_POSTED, CALL_WORKED, CALL_DONE } state;
    CallDesc desc;
    char *lent; // what it gathers, where all ranks may read it; NULL: nowhere
    _Atomic uint32_t *users; // of `lent`, one of which it is
    bool borrows; // what it receives is read there, and not copied
    int stream_slot; // of its stream
    SimVectorClock start;  // what is ordered before it, until it is posted; where races are looked for
    RendezvousId new_id; // split: of the new communicator; its size (0: not in one), my rank
    int new_size, new_rank;
    int mates[SIM_MAX_RANKS]; // split: the ranks of `comm` that come to it, in no order
    int *phantom_mates; // … among phantoms: by their new ranks, then the split's number; else NULL
} Call;

// ---- arrive.c ---- A call is posted: its rank has arrived. A call has ended: what it needed of
// other ranks of this process is ordered before what follows.
void sim_arrive(Call *call);
void sim_learn_arrivals(const Call *call);

// ---- nccl.c ----
void sim_nccl_error(const char *text); // what ncclGetLastError gives on this thread
// NCCL_MULTI_RANK_GPU_ENABLE=1: ranks may share a device.
bool sim_may_share(void);

// ---- comm.c ----
void sim_lock(void);
void sim_unlock(void);
extern SharedMap *sim_shared_maps; // under the lock, as all three
extern Peer *sim_peers;
extern ncclComm_t sim_comms;
// A communicator that lives; false for NULL and for what was destroyed.
bool sim_comm_lives(ncclComm_t comm);
// The rank's process has ended, or it has destroyed the communicator: no more calls of it will
// come.
bool sim_comm_gone(ncclComm_t comm, int rank);
// A communicator to be made.
typedef struct Init {
    ncclComm_t *out;
    int size, rank, device;
    RendezvousId id;
    const void *site;
    ncclComm_t parent; // of a split, else NULL
    const int *mates;  // the ranks of `parent` that come (size)
} Init;
// Makes a communicator on the current device and joins it, without waiting for others.
// sim_comm_connect waits for them; it takes all that one thread joins at a time.
ncclResult_t sim_comm_join(const Init *init, ncclComm_t *comm);
ncclResult_t sim_comm_connect(ncclComm_t *comms, int n);
// Where a split cannot go on: one of the ranks that should come may just have ended. Ends this
// process, too, as soon as that is known; returns after a second without such news.
void sim_comm_await_end(ncclComm_t comm);
void sim_note_program(RankSlot *slot); // the fields that say which program runs here, and where
// Leaves: the others see that no more calls come. Frees it.
void sim_comm_leave(ncclComm_t comm, const void *site);
// Counts the calls that are logged; false: no memory.
bool sim_comm_count_calls(ncclComm_t comm);
// A communicator that lives from here on, and one that no longer does.
void sim_comm_enlist(ncclComm_t comm);
void sim_comm_unlist(ncclComm_t comm);
// Wakes everybody else in the communicator.
void sim_comm_wake(ncclComm_t comm);
void sim_wake_rank(ncclComm_t comm, int rank);
// Hooks: communicators alive at the process's end; this process ends by a report, which its peers
// must know.
void sim_comm_visit(struct SimLeaks *leaks);
void sim_comm_goodbye(void);
void sim_peer_drop(Peer *peer); // one reference less; called with the lock held
// A descriptor of another process; -1: it is gone or not ours to open.
int sim_open_fd(int pid, int fd);

// ---- rendezvous.c ----
ncclResult_t sim_rendezvous_offer(RendezvousId *id);
// Finds the shared memory of an id for comm, whose rank and size are set: fills in its map and
// server.
ncclResult_t sim_rendezvous_find(const RendezvousId *id, ncclComm_t comm);
ncclResult_t sim_rendezvous_served(struct RendezvousServer *server);
// Unmaps shared memory with its last user; `offered`: takes back the offer of it, if this process
// made one.
void sim_rendezvous_release(SharedMap *map, bool offered);
void sim_rendezvous_withdraw(const RendezvousId *id);

// ---- notice.c ----
typedef struct Notice { // of one wait
    double began, due;
    int said, waited; // how often, and seconds when it was due last
} Notice;
void sim_notice_begin(Notice *notice);
int sim_notice_left(const Notice *notice); // milliseconds until it is due
bool sim_notice_due(Notice *notice);       // true: now, and not again until it is due once more
// Who has not joined, on stderr. The shared: NULL where it is not known yet.
void sim_say_absent(ncclComm_t comm, const CommShared *shared, const Notice *notice);
void sim_say_taken(const char *id, const Notice *notice); // others meet at this NCCL_COMM_ID
void sim_say(const char *text);                           // in one write: ranks share a terminal

// ---- wait.c ----
ProcessWaitTable *sim_wait_table(int *fd); // this process's
int sim_thread(void);                      // the calling thread's wait slot
uint32_t sim_ticket(void);
void sim_sleep(uint32_t ticket); // until somebody wakes the thread, unless that has happened since
void sim_nap(uint32_t ticket, int milliseconds); // the same, for a while at most
// The same for the calls that refs name; ends the process where they can never come, and says now
// and then for whom it waits. `in`: another call, in which the thread waits; NULL: in that of refs.
void sim_wait(uint32_t ticket, const WaitRef *refs, int n_refs, bool all_refs, const HostCall *in,
              Notice *notice);
void sim_read_host_call(const WaitSlot *wait_slot, HostCall *in); // where it sleeps
// From here on the thread is woken with its rank, or no longer is.
void sim_listen(RankSlot *slot, bool listens);
void sim_wake_listeners(ProcessWaitTable *table, const RankSlot *slot);
void sim_wake(ProcessWaitTable *table, int thread);
void sim_wake_own(void); // every thread of this process
void sim_wait_forked(void);

// ---- cycle.c ---- The thread (its wait slot) sleeps: ends the process if that is hopeless; says
// who waits for whom if it may be.
void sim_cycle_check(int thread);
void sim_cycle_notice(int thread, const Notice *notice);
// The ranks for which ref waits; -1: it does not wait any more.
int sim_missing(const CommShared *shared, const WaitRef *ref, int *ranks);

// ---- watch.c ----
int sim_watch_open(int pid); // a pidfd; -1: the kernel has none, or there is no such process
// The wait status of an ended process; -1 where the kernel does not say.
int sim_watch_ended_how(int pid, int pidfd);
bool sim_watch_is_dead(int pid);
void sim_watch_changed(void); // sim_peers is another list now
// Writes into all shared memory of this process that a peer has ended. Called with the lock held.
void sim_watch_mark(const Peer *peer);
void sim_watch_forked(void);

// ---- world.c ----
// Reads SIMGPU_WORLD, once. Called with the lock held, as the next four.
void sim_world_open(void);
bool sim_world_known(void);
// This process's rank in the world of its launcher, and which world that is; -1: not known.
int sim_world_self(uint64_t *id);
// The descriptors to poll for ends, one a rank, -1 where there is nothing to ask; *look: some have
// none, or are not known. Returns how many those are.
int sim_world_poll(struct pollfd *fds, bool *look);
bool sim_world_look(void); // for ends and news from the launcher; true: there may be some
void sim_world_forked(void);
// Whether a launched process has ended that was to bring a rank to the communicator (shared: NULL
// where that is not known yet); then *rank is its number.
typedef enum SimWorldLoss { LOSS_NONE, LOSS_POSSIBLE, LOSS_CERTAIN } SimWorldLoss;
SimWorldLoss sim_world_lost(ncclComm_t comm, CommShared *shared, int *rank);
// How a launched rank has ended; false: it has not, or nothing is known of it.
bool sim_world_end_of(int rank, int *pid, int *status);

// ---- call.c ----
// Posts and works off all calls; the order matters only where they are of one lane.
ncclResult_t sim_run_calls(Call *calls, int n);

// ---- phantom.c ----
bool sim_phantoms(void); // SIMGPU_PHANTOMS=1: this process is a rank whose peers nobody runs
// As sim_comm_join; there is nobody to connect to.
ncclResult_t sim_phantom_join(const Init *init, ncclComm_t *comm);
void sim_phantom_free(ncclComm_t comm);
// As sim_run_calls, of calls that are prepared: they are done.
ncclResult_t sim_phantom_run(Call *calls, int n);
// On how many nodes its ranks are, `per_node` to a node; peer >= 0: this rank and that one.
int sim_phantom_nodes(ncclComm_t comm, int peer, int per_node);

// ---- sends.c ----
typedef struct KeptSend KeptSend;
// Copies the n bytes of a send, which is `op`, into the outbox of its device; *offset: where they
// are, counted from the arena's begin. NULL: they do not fit.
KeptSend *sim_send_keep(const Call *call, const SimgpuOp *op, const void *bytes, size_t n,
                        int64_t *offset);
void sim_send_posted(KeptSend *send, uint64_t seq);
void sim_send_drop(KeptSend *send); // it will not be posted
// Waits, in a call, until the sends of a communicator are received; ends the process where one
// never will be. The same for all, at the program's end.
void sim_sends_wait_comm(ncclComm_t comm, const char *call, const void *site);
void sim_sends_wait_all(void);
void sim_sends_forget(ncclComm_t comm); // it is aborted
void sim_sends_forked(void);

// ---- collective.c ----
typedef struct CallFacts {
    const char *name;
    GpuOp op;
    bool reduces, rooted;
} CallFacts;
extern const CallFacts sim_call_facts[CALL_KINDS];
size_t sim_type_size(ncclDataType_t type);
// Bytes that this rank's call reads from its send and writes to its receive buffer.
size_t sim_send_bytes(const Call *call);
size_t sim_recv_bytes(const Call *call);
void sim_count_traffic(const Call *call, GpuLogEntry *entry);
// This rank's part of the movement, when everybody has posted.
void sim_do_work(Call *call);

// ---- lent.c ----
// Of an all-gather: rank 0 takes a place for its bytes, before it posts. When all have posted: where
// they are lent (NULL: nowhere), and whether this rank borrows them. When all have worked: it does.
void sim_lent_take(Call *call);
char *sim_lent_begin(Call *call);
void sim_lent_end(Call *call);
void sim_lent_return(ncclComm_t comm); // its rank borrows nothing any more
void sim_lent_unmap(SharedMap *map);

// ---- reduce.c ----
// out (count) = the reduction of n inputs (count) in tree order; op is an ncclRedOp_t's value or
// SIM_PRE_MUL_SUM with scalars (n). `out` may be one of the inputs.
void sim_reduce(void *out, const void *const *inputs, const uint64_t *scalars, int n, size_t count,
                ncclDataType_t type, int op);

// ---- board.c ----
// A communicator is ready; the host waits for all its calls, on the clock; it is about to be freed.
void sim_board_join(ncclComm_t comm);
void sim_board_wait(ncclComm_t comm);
void sim_board_resolve(ncclComm_t comm);                         // what it waited for, if that is soon
void sim_board_leave(ncclComm_t comm);
// On how many nodes its ranks are; peer >= 0: those two ranks.
int sim_board_nodes(ncclComm_t comm, int peer);

// ---- history.c ----
// Notes where this rank's collective comes from, before it is posted.
void sim_remember_call(const Call *call);
// The first call before number `before` that rank 0 and another one, *rank, made from different
// places; false: there is none, or it is not known.
bool sim_find_parting(const CommShared *shared, int size, uint64_t before, uint64_t *seq,
                      int *rank);

// ---- describe.c ----
void sim_append(char *text, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
const char *sim_type_name(int type);
const char *sim_op_name(int op);
// A call site of that rank's as one of this process; NULL: it runs another program.
const void *sim_site_here(const RankSlot *slot, const SharedSite *site);
void sim_describe_site(const RankSlot *slot, const SharedSite *site, char *text, size_t size);
// A rank's call in words, and as a fact of the report to come.
void sim_describe_desc(const RankSlot *slot, const CallDesc *desc, char *text, size_t size);
void sim_note_desc(int rank, const RankSlot *slot, const CallDesc *desc);
void sim_describe_host_call(const RankSlot *slot, const HostCall *in, char *text, size_t size);
void sim_note_host_call(int rank, const RankSlot *slot, const HostCall *in);
void sim_describe_waiting(const Call *call, char *text, size_t size);
// "exited with status 3", of a status as wait() has it (a signal below, the exit status above); -1:
// not known.
void sim_describe_status(int status, char *text, size_t size);

// ---- diagnose.c ----
// Whether two ranks' calls disagree; then all is lost.
bool sim_signatures_differ(const CallSignature *a, const CallSignature *b);
_Noreturn void sim_diagnose_disagreement(ncclComm_t comm, uint64_t seq);
_Noreturn void sim_diagnose_message(ncclComm_t comm, int from, int to);
// Ends the process where rank `missing`, for which `waiter` waits, will never come; else returns.
// `in`: as in sim_wait.
void sim_diagnose_missing(ncclComm_t comm, int missing, const WaitRef *waiter, const void *site,
                          const HostCall *in);
// The same for ranks that never joined, whose shared memory may not be known yet (NULL). True:
// one may be lost, and whether it is can change without anybody saying so.
bool sim_diagnose_never_joined(ncclComm_t comm, CommShared *shared);
_Noreturn void sim_diagnose_size(CommShared *shared, int rank, int size, const void *site);
// A thread that waits, in a cycle of such: what it waits in and for whom.
typedef struct CycleStep {
    const CommShared *shared;
    WaitRef ref;
    int waits_for;
    HostCall in; // as in sim_wait
} CycleStep;
_Noreturn void sim_diagnose_cycle(const CycleStep *step, int n);
// The same as a notice: they may wait for each other.
void sim_say_cycle(const CycleStep *step, int n, const Notice *notice);

#endif
