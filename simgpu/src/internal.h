/* internal.h: what simgpu's own files share. Nothing outside simgpu/src includes it.
 *
 *   device.c   the devices of this process: arenas mapped twice, which pointer is whose
 *   fault.c    host code that touches device memory
 *   tree.c     a balanced tree;  heap.c: which bytes of an arena are whose (tree.h, heap.h)
 *   memory.c   cudaMalloc and friends, and the check of a range of device memory
 *   managed.c  memory that the host may touch too, and memory in rows: cudaMallocManaged, -Pitch
 *   hints.c    calls that make a GPU faster, or watch it, and change no result
 *   refused.c  calls that simgpu does not do: capture, graphs, memory of other processes
 *   pinned.c   pinned host memory, and copies into it that are not delivered yet
 *   stream.c   streams, events, and the clocks that say what is ordered before what
 *   shadow.c   who touched which bytes of an allocation last (shadow.h);  race.c: who did not wait
 *   copy.c     cudaMemcpy and cudaMemset
 *   kernel.c   simgpu.h's begin … end, used by kernels, copies, BLAS and collectives alike
 *   report.c   the one way to tell the user something, and fatal ends
 *   record.c   a report as a line of JSON
 *   leak.c     what is still alive when the process ends
 *   overlap.c  operands that overlap or are not aligned
 *   error.c    error names and strings, the last error
 *   config.c   the SIMGPU_* variables, read once
 *   nccl.c     the NCCL calls; comm.h lists the other files of NCCL
 *   blas.c     cuBLAS on oneDNN or OpenBLAS
 *
 * The books (gpulog.h: memory, traffic, the log of operations) are kept by ../../gpulog/log.
 */
#ifndef SIMGPU_INTERNAL_H
#define SIMGPU_INTERNAL_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "books.h"
#include "simgpu.h"

struct SimShape; // shadow.h
struct SimShadow;

// ---- config.c ----
#define SIM_MAX_DEVICES 64
typedef enum SimCheck { CHECK_OFF, CHECK_FAST, CHECK_FULL } SimCheck;
typedef struct SimConfig {
    SimCheck check;
    int devices;
    size_t memory;
    bool poison;
    bool all_reports; // SIMGPU_REPORTS: not only the first
    const char *record; // SIMGPU_REPORT: the file of reports, NULL: none
    int threads;
    double notice_seconds; // SIMGPU_NOTICE_SECONDS
} SimConfig;
const SimConfig *sim_config(void);
bool sim_config_ready(void); // it has been read

// ---- device.c ----
// A device's arena is a memfd. `program` is the address range that programs see, without access;
// `alias` is the same memory, readable and writable.
typedef struct SimDevice {
    int index;
    int memfd;
    size_t arena; // bytes of address space, larger than the device's memory
    char *program;
    char *alias;
    pthread_mutex_t lock; // of the allocator and the accounting
    struct SimHeap *heap; // memory.c
    size_t live;          // bytes as requested
} SimDevice;

// The device, made on first use; NULL for an index that is none.
SimDevice *sim_device(int index);
// The same where it is made already, else NULL.
SimDevice *sim_device_made(int index);
int sim_current_device(void);
// The device whose program range holds ptr, and ptr's offset in it; NULL: no device pointer.
SimDevice *sim_device_of(const void *ptr, size_t *offset);
// Whether kernels on `device` may use memory of `peer`: cudaDeviceEnablePeerAccess.
bool sim_peer_allowed(int device, int peer);

// ---- error.c ---- Every call of the CUDA interface that can fail begins with SIM_ENTER and
// returns sim_leave(error). sim_enter refuses where an earlier error is sticky, or where this
// process was forked from one that used simgpu already.
cudaError_t sim_enter(void);
cudaError_t sim_leave(cudaError_t error); // remembers it for cudaGetLastError
void sim_stick(cudaError_t error);        // from here on every call returns it
bool sim_is_forked(void); // from a process that had used simgpu
#define SIM_SITE BOOKS_SITE()
#define SIM_ENTER()                                                                                \
    do {                                                                                           \
        cudaError_t refused_ = sim_enter();                                                        \
        if (refused_ != cudaSuccess) return refused_;                                              \
    } while (0)

// ---- fault.c ----
void sim_fault_install(void);
void sim_fault_thread(void); // gives this thread a stack for its signals

// ---- memory.c ---- The usable address of `bytes` bytes of device memory at ptr, which lies in
// some device's program range; NULL, and a report, where they are not inside one live allocation.
// `name` and `site` are the operation's.
void *sim_check_range(const void *ptr, size_t bytes, GpuAccess access, const char *name,
                      const void *site);
// "byte 16 of the 4096 bytes allocated at flat_param.c:88 (flat_create)"; of `bytes` bytes, which
// end in the same allocation, "bytes 16 to 31 of …".
void sim_describe(SimDevice *device, size_t offset, char *text, size_t size);
void sim_describe_bytes(SimDevice *device, size_t offset, size_t bytes, char *text, size_t size);
// The allocation that holds the offset or held it last; false: none is known, or the device is
// locked.
typedef struct SimAllocation {
    size_t offset, bytes; // in the arena; as asked for
    const void *site;
} SimAllocation;
bool sim_allocation(SimDevice *device, size_t offset, SimAllocation *found);
// cudaMalloc under the name of the call that wants it. `managed`: whole pages, open to the host.
cudaError_t sim_malloc(const char *name, void **ptr, size_t size, bool managed, const void *site);
cudaError_t sim_free(void *ptr, const void *site); // cudaFree
// Frees everything on a device: cudaDeviceReset.
void sim_memory_reset(SimDevice *device, const void *site);

// ---- managed.c ----
// Opens whole pages of a device's program range to the host, and closes them again.
void sim_managed_show(SimDevice *device, size_t offset, size_t bytes);
void sim_managed_hide(SimDevice *device, size_t offset, size_t bytes);
// Whether ptr is an address of live managed memory.
bool sim_managed(const void *ptr);

// ---- pinned.c ----
// A vector clock: for every stream (by slot), how many of its operations are known to be done.
typedef struct SimClock {
    int n;
    uint64_t *t;
} SimClock;
// Whether [ptr, ptr+bytes) begins in pinned memory; *inside: and ends in the same piece of it.
bool sim_pinned(const void *ptr, size_t bytes, bool *inside);
// Where an operation is to read and write a range that lies inside of one piece; what is under way
// to it is delivered first, so that the operation sees it.
void *sim_pinned_use(const void *ptr, size_t bytes);
// A copy of rows that nobody has waited for. Into pinned memory: its bytes are put off until somebody
// has (`src` is where they are to be had). From pinned memory, or a fill of it: the bytes have moved,
// and the host is watched until it has waited.
void sim_pinned_defer(const SimgpuOp *op, void *dst, size_t dpitch, const void *src, size_t spitch,
                      size_t width, size_t height);
void sim_pinned_watch(const SimgpuOp *op, const void *ptr, size_t pitch, size_t width,
                      size_t height, GpuAccess access);
// Delivers what the clock covers.
void sim_pinned_deliver(const SimClock *clock);
// The host touches an address without access. True: it is pinned memory, which may be touched now;
// a touch in the middle of a copy is reported, with the call site that find_site makes of the
// instruction.
bool sim_pinned_fault(const void *address, const char *verb,
                      const void *(*find_site)(const void *instruction), const void *instruction);
// The shadow (shadow.h) of the piece at ptr, NULL where there is none, and ptr's offset in it. The
// piece stays as it is until it is freed.
struct SimShadow *sim_pinned_shadow_hold(const void *ptr, size_t *offset);
void sim_pinned_shadow_let_go(void);
// "the 4096 bytes of pinned memory allocated at flat_param.c:88 (flat_create)".
void sim_pinned_describe(const void *ptr, char *text, size_t size);

// ---- kernel.c: beyond simgpu.h ----
// Begins an operation of another kind than a kernel.
SimgpuOp sim_begin(GpuOp kind, const char *name, cudaStream_t stream, const void *site);
// As simgpu_read/write/update; `host_ok` lets pageable and pinned host memory through too.
void *sim_touch(SimgpuOp *op, const void *ptr, size_t bytes, GpuAccess access, bool host_ok);
// The same for a range with gaps (shadow.h): `logged` is what the log is told, `access` what is done
// to the bytes of the shape.
void *sim_touch_shape(SimgpuOp *op, GpuRange logged, const struct SimShape *shape,
                      GpuAccess access, bool host_ok);
// As simgpu_end for an operation that the call waited to begin, and not to end.
cudaError_t sim_end_begun(SimgpuOp *op);

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
    const SimClock *clock;
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
        HINT_RENEWED,    // … and the event was recorded again behind the first, after the wait
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
void sim_stream_start(const SimgpuOp *op, SimClock *start, int *slot);
void sim_stream_learn(int slot, const SimClock *clock);
// Each of two streams of a device waits for what is queued on the other.
void sim_stream_merge(int device, cudaStream_t a, cudaStream_t b);
// The host waits for all that is queued on a device.
void sim_device_wait(int device);
// Destroys a device's streams and events: cudaDeviceReset.
void sim_stream_reset(int device);
// Ends the operation on its stream: the clocks move on. Called by simgpu_end.
void sim_stream_ran(SimgpuOp *op);

// ---- report.c ---- Prints a report: a one-line title, then the body's lines, on stderr in one
// write, and runs the hook.
void sim_report(SimgpuClass kind, const char *title, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
// The same, then ends the process with SIMGPU_FATAL_EXIT.
_Noreturn void sim_fatal(SimgpuClass kind, const char *title, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
// Rank for the head of reports: the first communicator's, -1 before there is one.
void sim_set_report_rank(int rank);
// How many reports of mistakes this process has made.
int sim_reported(void);
// Says on stderr how many reports were counted and not printed.
void sim_report_summary(void);
// The section of handouts/mistakes.md about a class; NULL: there is none.
const char *sim_report_page(SimgpuClass kind);

// Facts of this thread's next report, in the order in which it tells them: the calls it names (the
// first is the one that is wrong; `site` as gpulog_where takes it; the report puts the line of
// source below the line of its body that names the place), and the bytes it is about. The report
// takes them and clears them. A name lives until then; SIM_NO_STREAM: the stream is not known.
#define SIM_NO_STREAM ((cudaStream_t)-1)
void sim_facts_call(const char *name, const void *site, cudaStream_t stream);
void sim_facts_named_call(const char *name, const void *site, const char *stream_name);
void sim_facts_rank_call(int rank, const char *name, const void *site, cudaStream_t stream);
void sim_facts_range(const void *ptr, size_t bytes);

// ---- record.c ---- A report as a JSON object of one line, and SIMGPU_REPORT's file of such.
#define SIM_FACTS 16
typedef struct SimFactCall {
    int rank; // whose call; -1: this process's
    const char *name;
    const void *site;
    cudaStream_t stream;
    const char *stream_name; // NULL: none, or not known
} SimFactCall;
typedef struct SimFactRange {
    const void *ptr;
    size_t bytes;
} SimFactRange;
typedef struct SimFacts {
    int n_calls, n_ranges;
    SimFactCall call[SIM_FACTS];
    SimFactRange range[SIM_FACTS];
} SimFacts;
#define SIM_RECORD 49152
void sim_record(const SimgpuReport *report, const char *body, const SimFacts *facts, char *text,
                size_t size);
void sim_record_write(const char *record);

// ---- leak.c ---- What is alive at the process's end. Each owner of such things notes what it has,
// waiting for no lock.
typedef enum SimThing {
    THING_MEMORY,
    THING_PINNED,
    THING_STREAM,
    THING_EVENT,
    THING_COMM,
    THING_BLAS,
    SIM_THINGS
} SimThing;
typedef struct SimLeaks SimLeaks;
void sim_leak_note(SimLeaks *leaks, SimThing thing, const void *ptr, size_t bytes,
                   const void *site);
void sim_leak_reset(void); // a cudaDeviceReset took things away
void sim_memory_visit(SimLeaks *leaks);
void sim_pinned_visit(SimLeaks *leaks);
void sim_stream_visit(SimLeaks *leaks);
void sim_comm_visit(SimLeaks *leaks) __attribute__((weak));
void sim_blas_visit(SimLeaks *leaks) __attribute__((weak));

// ---- nccl.c, for who asks about groups ----
// Reports a group that was never ended; a wait for a stream with nothing on it yet but the calls of
// a group that is still open.
void sim_group_check(void) __attribute__((weak));
void sim_group_wait(const char *call, cudaStream_t stream, const void *site) __attribute__((weak));

// ---- overlap.c ----
// Whether ptr is a multiple of `align`; else it is reported, and the operation fails.
bool sim_check_aligned(SimgpuOp *op, const void *ptr, size_t bytes, size_t align);
// Reports what the ended operation writes over its own other operands. Called by simgpu_end.
void sim_check_overlap(const SimgpuOp *op);
void sim_report_overlap(const SimgpuOp *op, const GpuRange *written, const GpuRange *other,
                        const char *rule);

// ---- comm.c, for what must happen when the process ends ----
// Marks this process as gone to its peers; runs at exit and in sim_fatal.
void sim_comm_goodbye(const char *why) __attribute__((weak));

#endif
