/* wait.h: how threads sleep, and what each waits for.
 *
 * Each thread sleeps in a slot of its own (WaitSlot, a futex) of its process's table of them
 * (ProcessWaitTable), which other processes map; a thread waits for all its communicators in one
 * slot.
 */
#ifndef SIMGPU_NCCL_WAIT_H
#define SIMGPU_NCCL_WAIT_H

#include "nccl/notice.h"
#include "nccl/shared.h"

#define SIM_MAX_REFS 32
#define SIM_MAX_WORKERS 256

// What a thread waits for, so that other processes can find cycles.
typedef struct WaitRef {
    uint64_t nonce; // of the CommShared
    int32_t pid, shared_fd;
    int32_t kind;
    int32_t rank, peer;
    uint64_t seq;
    int32_t working; // 1: all ranks have posted, and the wait is for their work
} WaitRef;

// The call in which the host waits for a message that it has sent in an earlier call. Without a
// name: there is none; without a site: the program's end.
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
    _Atomic int32_t tid;
    _Atomic uint32_t joiners; // threads known to wait for this one's end while it sleeps
    _Atomic uint32_t n_refs;
    _Atomic uint32_t all_refs; // 1: refs are complete, 0: there are more than fit
    // The thread writes them and others read them at any time: by words, and checked by the stamp.
    _Atomic uint64_t ref[SIM_MAX_REFS][SIM_REF_WORDS];
    _Atomic uint64_t host_call[SIM_HOST_CALL_WORDS];
} WaitSlot;

typedef struct ProcessWaitTable {
    _Atomic uint64_t asleep[SIM_MAX_THREADS / 64]; // who sleeps in sim_wait, as bits
    // The process's virtual clock (board.c): a futex that is rung when there is news; whether a
    // thread here waits for it; a time before which the process makes no arrival or request that it
    // has not published; and the time that others want that to reach.
    _Atomic uint32_t clock_bell, clock_waits;
    _Atomic uint64_t clock_until, clock_request, clock_wanted;
    // clock_told counts the arrivals that this process has published. clock_stuck is 0 while it can
    // proceed. When it can only wait for others, clock_stuck is 1 + the arrivals that the others
    // had published when it last ran. If they have published no more, all wait for each other.
    _Atomic uint64_t clock_told, clock_stuck;
    _Atomic uint32_t helpers; // threads of the process that never call NCCL, such as the watcher
    _Atomic uint32_t n_workers;
    _Atomic int32_t worker[SIM_MAX_WORKERS]; // the BLAS's threads, which never call it either
    WaitSlot wait_slot[SIM_MAX_THREADS];
} ProcessWaitTable;

ProcessWaitTable *sim_wait_table(int *fd); // this process's
int sim_thread(void);                      // the calling thread's wait slot
uint32_t sim_ticket(void);
void sim_sleep(uint32_t ticket); // until the thread is woken, unless it has been since the ticket
void sim_nap(uint32_t ticket, int milliseconds); // the same, but no longer than this
// The same, while the thread waits for the calls that refs name. Ends the process if they can never
// come, and prints notices of the ranks for which it waits. `in`: the call in which the thread
// waits; NULL: that of refs.
void sim_wait(uint32_t ticket, const WaitRef *refs, int n_refs, bool all_refs, const HostCall *in,
              Notice *notice);
void sim_read_host_call(const WaitSlot *wait_slot, HostCall *in); // the call in which it sleeps
// From now on whatever wakes the rank wakes the calling thread, too; listens false: no longer.
void sim_listen(RankSlot *slot, bool listens);
void sim_wake_listeners(ProcessWaitTable *table, const RankSlot *slot);
void sim_wake(ProcessWaitTable *table, int thread);
void sim_wake_own(void); // every thread of this process
// In a long wait: finds and publishes the threads of other libraries (bystanders.c).
void sim_look_at_threads(void);
// How many threads of a process are its program's, as far as it has published; 0: it has ended.
int sim_program_threads(int pid, const ProcessWaitTable *table);
void sim_wait_forked(void);

#endif
