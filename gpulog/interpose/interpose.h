/* interpose.h: what the files of the interposer share. The interposer stands between a program and
 * NVIDIA's libraries and keeps the log of gpulog.h, as simgpu does for simulated GPUs.
 *
 *   config.c   the GPULOG_* variables, read once
 *   table.c    pointers and what is known of them
 *   entry.c    an entry of the log, from its call to the log; kernels
 *   memory.c   cudaMalloc and friends; the limit, and NaNs in fresh memory
 *   pinned.c   pinned host memory
 *   copy.c     cudaMemcpy and cudaMemset
 *   stream.c   streams, and the host's waits for them and for a device
 *   event.c    events
 *   blas*.c    cuBLAS
 *   comm.c     communicators
 *   nccl.c     collectives, messages, groups
 *
 * A function X of the libraries has a __wrap_X here. The linker's --wrap=X leads the program's
 * calls of X to __wrap_X, and calls of __real_X to X itself. Libraries that are shared objects keep
 * calling X: what they do for themselves is not logged, and neither is what the interposer does.
 *
 * A call is passed on first. If it worked, an entry is written; what must be known of a pointer or
 * a handle is asked of CUDA, or was noted when it was made. Calls that simgpu does not have are not
 * seen, nor is a program compiled for per-thread default streams, which calls other names
 * (CUDA_API_PER_THREAD_DEFAULT_STREAM).
 *
 * Source: simgpu/src, which says what an entry of each call holds; ld's manual (--wrap).
 */
#ifndef GPULOG_INTERPOSE_H
#define GPULOG_INTERPOSE_H

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "log_writer.h"

// Declares both names with the type that the library's header gives to the function.
#define WRAPPED(name) __typeof__(name) __wrap_##name, __real_##name
// The place that called the wrapped function.
#define SITE GPULOG_SITE()

// ---- config.c ----
typedef struct Settings {
    size_t memory; // GPULOG_MEMORY: a device's bytes; SIZE_MAX: as many as it has
    bool poison;   // GPULOG_POISON
} Settings;
const Settings *settings(void);
// Ends the process with one line.
_Noreturn void give_up(const char *format, ...) __attribute__((format(printf, 1, 2)));

// ---- table.c ----
typedef struct Known {
    const void *key; // never NULL
    size_t bytes;    // allocations
    int device;
    bool blocking;   // streams
    uint32_t number; // streams: as the log has it
    bool pool;       // allocations: of a pool
} Known;

// All zero but the lock: an empty table.
typedef struct Table {
    pthread_mutex_t lock;
    Known *slot; // (room)
    size_t n, room;
} Table;
#define EMPTY_TABLE                                                                                \
    {                                                                                              \
        PTHREAD_MUTEX_INITIALIZER, NULL, 0, 0                                                      \
    }

void table_put(Table *table, Known known); // in place of what is there by that key
bool table_find(Table *table, const void *key, Known *known);
bool table_take(Table *table, const void *key, Known *known);
bool table_take_device(Table *table, int device, Known *known); // any one of that device

// ---- entry.c ----
// An entry of a call on a stream: the stream's fields are filled in. The handle of a default stream
// means that of the current device, or of `device`.
GpuLogEntry entry_on(GpuOp op, const char *name, cudaStream_t stream, const void *site);
GpuLogEntry entry_on_device(GpuOp op, const char *name, int device, cudaStream_t stream,
                            const void *site);
void add_range(GpuLogEntry *entry, const void *ptr, size_t bytes, GpuAccess access);
void write_entry(const GpuLogEntry *entry);
int current_device(void);
// Calls a function that may wait for a device or for other ranks, and says so meanwhile.
#define WAITING(name, site, call)                                                                  \
    __extension__({                                                                                \
        gpulog_waiting(name, site);                                                                \
        __typeof__(call) waited_ = (call);                                                         \
        gpulog_waiting(NULL, NULL);                                                                \
        waited_;                                                                                   \
    })

// ---- memory.c ----
// An allocation, from the call to the log; ncclMemAlloc makes some, too. `site` and `name` are
// the call's. memory_reserve says no, in a line on stderr, where GPULOG_MEMORY leaves no room.
bool memory_reserve(const char *name, int device, size_t bytes, const void *site);
void memory_unreserve(int device, size_t bytes); // it failed
void memory_made(const char *name, void *ptr, size_t bytes, const void *site);
// A free: it is logged before it is freed, since another thread may be given the same
// address at once. False: nothing is known of it.
bool memory_leaves(const void *ptr, Known *known);
void memory_stays(const Known *known); // it failed
void memory_freed(const char *name, const Known *known, const void *site);
void memory_reset(int device);
// A launch makes or frees a graph's memory: counts it, and completes the entry.
void memory_launched(GpuLogEntry *entry);

// ---- stream.c ----
// Device, blocking_stream and the handle as the log keeps it.
void stream_facts(GpuLogEntry *entry, cudaStream_t stream, int current);
void stream_reset(int device);

uint32_t stream_next_number(int device);

// ---- graph.c ----
bool graph_captures(cudaStream_t stream); // whether calls on the stream become nodes now
// Keeps the entry of a call that was captured, for the launches of its graph; false: it was not.
bool graph_takes(const GpuLogEntry *entry);

// ---- nccl.c ----
bool in_group(void); // the calling thread is between ncclGroupStart and its end

// ---- comm.c ----
typedef struct CommPlace {
    int ranks, rank, device; // ranks is 0 where nobody knows
} CommPlace;
// Asks NCCL where that is not known: so it is to be called before a call on the communicator, as a
// communicator that does not block answers nothing while that is in progress. `worked`: it is one,
// as a call on it has worked; else only one that this process has seen made is asked.
CommPlace comm_place(ncclComm_t comm, bool worked);
// What the log says of a call that is made now, to or from a peer where it is a message.
GpuCollective comm_call(ncclComm_t comm, GpuOp op, int peer);
// A group has ended: communicators that were asked for in it are there.
void comm_group_ended(void);

// ---- event.c ----
void event_reset(int device);

// ---- copy.c ----
// A copy of `height` rows of `width` bytes; a plain copy is one row.
typedef struct Copy {
    void *dst;
    const void *src;
    size_t dpitch, spitch, width, height;
    bool async;
} Copy;
void log_copy(const char *name, const Copy *copy, cudaStream_t stream, const void *site);

#endif
