/* streams/: the machine and its order: devices, streams, events, operations, errors, settings.
 *
 *   device.c   the devices of this process: arenas mapped twice, which pointer is whose
 *   stream.c   streams, events, and the clocks that say what is ordered before what
 *   kernel.c   simgpu.h's begin … end, used by kernels, copies, BLAS and collectives alike
 *   hooks.c    what the parts are told that a program need not link
 *   error.c    error names and strings, the last error
 *   dry.c      dry runs: what a program gets in place of results
 *   threads.c  threads that are none of the program's
 *   parallel.c the threads that share the work of a kernel
 *   config.c   the SIMGPU_* variables and CUDA_VISIBLE_DEVICES, read once
 *   processors.c how many processors there are, and how many a rank may use
 *
 * Every other folder builds on this one: an operation finds its stream here, is ordered here, and
 * is written to the log here (gpulog.h: memory, traffic, operations; ../../gpulog/log holds it).
 */
#ifndef SIMGPU_STREAMS_H
#define SIMGPU_STREAMS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "log_writer.h"
#include "simgpu.h"
#include "time/time.h"

struct SimLeaks; // check/check.h
struct SimShape; // check/shadow.h

#define SIM_CACHE_LINE 64 // bytes

// ---- config.c ----
#define SIM_MAX_DEVICES SIM_LOG_DEVICES
typedef enum SimCheck { CHECK_OFF, CHECK_FAST, CHECK_FULL } SimCheck;
typedef struct SimConfig {
    SimCheck check;
    int devices;                   // that the program sees; 0: none
    int physical[SIM_MAX_DEVICES]; // of each, its number among the machine's
    char hidden[256]; // what is wrong with CUDA_VISIBLE_DEVICES, so that it hides some; "": nothing
    size_t memory;
    bool poison;
    bool dry;         // SIMGPU_DRY; then check is at most CHECK_FAST, and nothing is poison
    bool phantoms;    // SIMGPU_PHANTOMS: a dry run whose other ranks nobody runs
    bool all_reports; // SIMGPU_REPORTS: not only the first
    const char *record; // SIMGPU_REPORT: the file of reports, NULL: none
    int threads;
    bool crowded;       // the threads of all ranks are more than there are processors
    int cores;          // SIMGPU_CORES: for how many products are cut (blas/multiply.c)
    double notice_seconds; // SIMGPU_NOTICE_SECONDS
    const SimMachine *machine; // SIMGPU_MACHINE; NULL: no clock
    SimSpread spread;          // SIMGPU_SLOW, SIMGPU_JITTER
} SimConfig;
const SimConfig *sim_config(void);
bool sim_config_ready(void); // it has been read

// ---- processors.c ----
size_t sim_processors(void); // of the machine
// One rank's of so many on this host, at least 1. `bound`: its launcher may have bound each rank to
// processors of its own; else all ranks may run on the same.
size_t sim_share(size_t ranks, bool bound);
// What the control groups of a process grant, in processors, rounded up; 0: as many as there are. From
// a file as /proc/self/cgroup and the folder in which cgroups are mounted.
size_t sim_quota(const char *groups, const char *root);

// ---- device.c ----
#define SIM_OUTBOX ((size_t)64 << 20) // bytes for messages that nobody has received (nccl/sends.c)
// A device's arena is a memfd. `program` is the address range that programs see, without access;
// `alias` is the same memory, readable and writable.
typedef struct SimDevice {
    int index;
    int memfd;
    size_t arena; // bytes of address space, larger than the device's memory
    size_t mapped; // bytes of the memfd and of the alias: behind the arena is the outbox
    char *program;
    char *alias;
    pthread_mutex_t lock; // of the allocator and the accounting
    struct SimHeap *heap; // memory.c
    struct SimSpare *spare; // shadow.c
    size_t live;          // bytes as requested
    uint32_t stream_number; // of its default stream
} SimDevice;

// Streams are numbered in the order in which they are made, a default stream with its device.
uint32_t sim_next_stream_number(void);

// The device, made on first use; NULL for an index that is none.
SimDevice *sim_device(int index);
// The same where it is made already, else NULL.
SimDevice *sim_device_made(int index);
int sim_current_device(void);
// "GPU-73696d67-…", of a device of the machine.
void sim_device_uuid(int physical, char text[48]);
// A file could not be opened because there is no descriptor left: ends the process in one line.
_Noreturn void sim_no_files_left(void);
int sim_files_limit(void); // ulimit -n, where that ends the process; 0: it does not
// The device whose program range holds ptr, and ptr's offset in it; NULL: no device pointer.
SimDevice *sim_device_of(const void *ptr, size_t *offset);
// Makes a memfd so large; false, and errno, where that is not possible. A limit on the size of
// files (ulimit -f), by which the system would end the process, ends it with one line instead: what
// it is that the file is to hold.
bool sim_may_grow(int memfd, size_t bytes, const char *what);
// Whether kernels on `device` may use memory of `peer`: cudaDeviceEnablePeerAccess.
bool sim_peer_allowed(int device, int peer);

// ---- error.c ---- Every call of the CUDA interface that can fail begins with SIM_ENTER and
// returns sim_leave(error). sim_enter refuses where an earlier error is sticky, or where this
// process was forked from one that used simgpu already.
cudaError_t sim_enter(void);
cudaError_t sim_leave(cudaError_t error); // remembers it for cudaGetLastError
void sim_stick(cudaError_t error);        // from here on every call returns it
bool sim_is_forked(void); // from a process that had used simgpu
#define SIM_SITE SIM_LOG_SITE()
#define SIM_ENTER()                                                                                \
    do {                                                                                           \
        cudaError_t refused_ = sim_enter();                                                        \
        if (refused_ != cudaSuccess) return refused_;                                              \
    } while (0)

// ---- stream.c: clocks ----
// A vector clock: for every stream (by slot), how many of its operations are known to be done.
typedef struct SimVectorClock {
    int n;
    uint64_t *t;
} SimVectorClock;

// ---- stream.c ---- Finds the operation's stream, fills in device and blocking_stream, and joins
// its clock with what is ordered before the operation. cudaErrorInvalidResourceHandle, reported:
// there is no such stream.
cudaError_t sim_stream_begin(SimgpuOp *op);
// The operation's own place: the stream's slot, and its number on it.
void sim_stream_place(const SimgpuOp *op, int *slot, uint64_t *time);
// A stream as reports name it, also when it is gone.
typedef struct SimStreamId {
    int slot, device;
    int number;       // of the streams that the program made: 1, 2 …; 0: it made none like this
    bool is_default;  // a device's NULL stream
    bool blocking;    // else made with cudaStreamNonBlocking
    const void *made; // call site
    const char *name; // what the program calls it (gpulog_name_stream); NULL: nothing
} SimStreamId;
// An operation between its begin and its end: who it is, what is ordered before it.
typedef struct SimMoment {
    SimStreamId stream;
    uint64_t time;  // its number on the stream
    uint64_t order; // grows from moment to moment
    const SimVectorClock *clock;
} SimMoment;
// No clock moves until the moment is over.
void sim_moment_hold(const SimgpuOp *op, SimMoment *moment);
// The same for something that the host itself does, on no stream: its slot is SIM_HOST_SLOT.
#define SIM_HOST_SLOT (-2)
void sim_moment_hold_host(SimMoment *moment);
void sim_moment_let_go(void);
// What the program did about two operations that are not ordered, as far as it is remembered.
typedef struct SimHint {
    enum {
        HINT_NONE,
        HINT_EARLY,      // the second's stream waited for an event recorded before the first
        HINT_RENEWED,    // … and the event was recorded again after the first, after the wait
        HINT_NEVER,      // … for an event that had not been recorded yet
        HINT_ELSEWHERE,  // … for an event recorded on `other`
        HINT_OTHER_WAITED, // an event was recorded after the first, and `other` waited for it
        HINT_NOT_WAITED, // … and nobody did
        HINT_HOST_ELSEWHERE, // the host waited for `other`
    } kind;
    const void *record, *wait; // call sites
    SimStreamId other;
} SimHint;
SimHint sim_stream_hint(const SimStreamId *first, uint64_t time, uint64_t order,
                        const SimStreamId *second);
// The call has waited for all that is ordered before its operation.
void sim_stream_begun(const SimgpuOp *op);
// The operation waits for all that is queued on a device; what is queued there later waits for it,
// once it has ended.
void sim_stream_gather(const SimgpuOp *op, int device);
void sim_stream_spread(const SimgpuOp *op, int device);
// A copy of what is ordered before the operation; its stream's slot. Something that a stream has
// waited for otherwise than by an event.
void sim_stream_start(const SimgpuOp *op, SimVectorClock *start, int *slot);
void sim_stream_learn(int slot, const SimVectorClock *clock);
// The virtual clock is told that the next calls wait, before the first of them does, for the messages
// that are queued on the stream: the calls of a group wait together.
void sim_stream_foretell(int device, cudaStream_t stream, const char *call);
// Each of two streams of a device waits for what is queued on the other.
void sim_stream_merge(int device, cudaStream_t a, cudaStream_t b);
// The host waits for all that is queued on a device, in a call.
void sim_device_wait(int device, const char *call, const void *site);
// Destroys a device's streams and events: cudaDeviceReset.
void sim_stream_reset(int device);
// Ends the operation on its stream: the clocks move on. Called by simgpu_end.
void sim_stream_ran(SimgpuOp *op);
void sim_stream_visit(struct SimLeaks *leaks);

// ---- kernel.c: beyond simgpu.h ----
// Begins an operation of another kind than a kernel.
SimgpuOp sim_begin(GpuOp kind, const char *name, cudaStream_t stream, const void *site);
// As simgpu_read/write/update; `host_ok` lets pageable and pinned host memory through too.
void *sim_touch(SimgpuOp *op, const void *ptr, size_t bytes, GpuAccess access, bool host_ok);
// The same for a range with gaps (check/shadow.h): `logged` is what the log is told, `access` what
// is done to the bytes of the shape.
void *sim_touch_shape(SimgpuOp *op, GpuRange logged, const struct SimShape *shape,
                      GpuAccess access, bool host_ok);
// The same for a range that the operation only reads, before it returns: where it is borrowed, at
// the address of the lent bytes (memory/owed.h).
const void *sim_touch_read_only(SimgpuOp *op, GpuRange range, const struct SimShape *shape);
// The same for a range that the operation overwrites, all of it: what it owes (memory/owed.h) stays
// owed until the caller says so (SimUse, memory/memory.h), before it writes.
void *sim_touch_overwrite(SimgpuOp *op, GpuRange range, bool host_ok);
// As simgpu_end for an operation that the call waited to begin, and not to end.
cudaError_t sim_end_begun(SimgpuOp *op);

// ---- hooks.c ---- What a part is told that a program need not link: nccl/, blas/. It adds its
// hooks when it is first used. A hook that is NULL is not called.
typedef struct SimHooks {
    void (*visit)(struct SimLeaks *leaks); // notes what is alive when the process ends
    void (*end)(void);                     // the program ends well, with no report before
    // The host waits for a stream that has nothing to do.
    void (*idle_wait)(const char *call, cudaStream_t stream, const void *site);
    void (*fatal)(void); // a report ends the process
    atomic_bool added;
    struct SimHooks *next;
} SimHooks;
void sim_hooks_add(SimHooks *hooks); // does nothing from the second time on
const SimHooks *sim_hooks(void);     // the first of them

// What has been queued and is not done, as everything else is: messages that nobody has received.
// Whatever is ordered after one waits for it: `wait`, for all that a clock covers, while there are
// any. What only asks whether it is done calls `check`, which ends the process where nobody will ever
// receive one of them. `call` and `site` are the call that waits or asks.
typedef struct SimUndone {
    atomic_int n;
    void (*_Atomic wait)(const SimVectorClock *clock, const char *call, const void *site);
    void (*_Atomic check)(const SimVectorClock *clock, const char *call, const void *site);
} SimUndone;
extern SimUndone sim_undone;

// ---- dry.c ----
bool sim_dry(void); // nothing is executed, and no device memory touched
// A copy to the host in a dry run: zeros. The first one of a call site is told on stderr.
void sim_dry_deliver(const SimgpuOp *op, void *to, size_t pitch, size_t width, size_t height);
// A copy from the host; anything that is written or freed; the addresses that a copy has brought to
// an array in device memory, NULL: not known.
void sim_dry_note(const void *ptr, const void *words, size_t bytes);
void sim_dry_forget(const void *ptr, size_t bytes);
const void *const *sim_dry_addresses(const void *ptr, size_t bytes);

// ---- threads.c ----
#define SIM_TIDS 512
typedef struct SimTids {
    int n, tid[SIM_TIDS];
} SimTids;
void sim_tids(SimTids *tids);                 // of all threads of this process
void sim_program_tids(SimTids *tids);         // as many as the program has, some of them
void sim_worker_here(void);                   // the calling thread is one of simgpu's workers
void sim_workers(SimTids *tids);              // those
void sim_workers_drop(void);                  // the calling thread is the program's
int sim_helpers(void);                        // how many threads simgpu has started


#endif
