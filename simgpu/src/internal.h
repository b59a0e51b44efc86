/* internal.h: what simgpu's own files share. Nothing outside simgpu/src includes it.
 *
 *   device.c   the devices of this process: arenas mapped twice, which pointer is whose
 *   fault.c    host code that touches device memory
 *   tree.c     a balanced tree;  heap.c: which bytes of an arena are whose (tree.h, heap.h)
 *   memory.c   cudaMalloc and friends, and the check of a range of device memory
 *   pinned.c   pinned host memory, and copies into it that are not delivered yet
 *   stream.c   streams, events, and the clocks that say what is ordered before what
 *   copy.c     cudaMemcpy and cudaMemset
 *   kernel.c   simgpu.h's begin … end, used by kernels, copies, BLAS and collectives alike
 *   report.c   the one way to tell the user something, and fatal ends
 *   error.c    error names and strings, the last error
 *   config.c   the SIMGPU_* variables, read once
 *   nccl.c     the NCCL calls; comm.h lists the other files of NCCL
 *   blas.c     cuBLAS on oneDNN or OpenBLAS
 *
 * The books (gpulog.h: memory, traffic, the log of operations) are kept by ../../gpulog/src.
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

// ---- config.c ----
#define SIM_MAX_DEVICES 64
typedef enum SimCheck { CHECK_OFF, CHECK_FAST, CHECK_FULL } SimCheck;
typedef struct SimConfig {
    SimCheck check;
    int devices;
    size_t memory;
    bool poison;
    int threads;
} SimConfig;
const SimConfig *sim_config(void);

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
#define SIM_SITE __builtin_return_address(0)
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
// "byte 16 of the 4096 bytes allocated at flat_param.c:88 (flat_create)".
void sim_describe(SimDevice *device, size_t offset, char *text, size_t size);
// Frees everything on a device: cudaDeviceReset.
void sim_memory_reset(SimDevice *device, const void *site);

// ---- pinned.c ----
// A vector clock: for every stream (by slot), how many of its operations are known to be done.
typedef struct SimClock {
    int n;
    uint64_t *t;
} SimClock;
// Whether [ptr, ptr+bytes) begins in pinned memory; *inside: and ends in the same piece of it.
bool sim_pinned(const void *ptr, size_t bytes, bool *inside);
// Puts a copy of `bytes` bytes off until somebody has waited for operation `time` of stream `slot`.
void sim_pinned_defer(void *dst, const void *src, size_t bytes, int slot, uint64_t time);
// Delivers what the clock covers; what lies in the range, whoever asked for it.
void sim_pinned_deliver(const SimClock *clock);
void sim_pinned_deliver_range(const void *ptr, size_t bytes);

// ---- kernel.c: beyond simgpu.h ----
// Begins an operation of another kind than a kernel.
SimgpuOp sim_begin(GpuOp kind, const char *name, cudaStream_t stream, const void *site);
// As simgpu_read/write/update; `host_ok` lets pageable and pinned host memory through too.
void *sim_touch(SimgpuOp *op, const void *ptr, size_t bytes, GpuAccess access, bool host_ok);

// ---- stream.c ---- Finds the operation's stream, fills in device and blocking_stream, and joins
// its clock with what is ordered before the operation. cudaErrorInvalidResourceHandle, reported:
// there is no such stream.
cudaError_t sim_stream_begin(SimgpuOp *op);
// The operation's own place: the stream's slot, and its number on it.
void sim_stream_place(const SimgpuOp *op, int *slot, uint64_t *time);
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
// Facts of this thread's next report, in the order in which it tells them: the calls it names (the
// first is the one that is wrong; `site` as gpulog_where's; the report puts the source's line below
// the line that names the place), and the bytes it is about. sim_report takes them and clears them.
void sim_facts_call(const char *name, const void *site, cudaStream_t stream);
void sim_facts_range(const void *ptr, size_t bytes);

// ---- comm.c, for what must happen when the process ends ----
// Marks this process as gone to its peers; runs at exit and in sim_fatal.
void sim_comm_goodbye(const char *why) __attribute__((weak));

#endif
