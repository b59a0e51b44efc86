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
 * For a function X of the libraries there is a __wrap_X here. The linker's --wrap=X leads the
 * program's calls of X to __wrap_X, and calls of __real_X to X itself. Shared libraries keep
 * calling X: neither their own calls nor the interposer's are logged.
 *
 * A call is passed on first. If it worked, an entry is written. Facts about a pointer or a handle
 * come from CUDA, or were noted when it was made. The interposer does not see calls that simgpu
 * lacks, nor a program compiled for per-thread default streams, which calls other names
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
    uint32_t number; // streams: their number in the log
    bool pool;       // allocations: of a pool
} Known;

// An empty table is all zeros, except the lock.
typedef struct Table {
    pthread_mutex_t lock;
    Known *slot; // (room)
    size_t n, room;
} Table;
#define EMPTY_TABLE                                                                                \
    {                                                                                              \
        PTHREAD_MUTEX_INITIALIZER, NULL, 0, 0                                                      \
    }

void table_put(Table *table, Known known); // replaces the entry of that key
bool table_find(Table *table, const void *key, Known *known);
bool table_take(Table *table, const void *key, Known *known);
bool table_take_device(Table *table, int device, Known *known); // any one of that device

// ---- entry.c ----
// An entry of a call on a stream, with the stream's fields filled in. A default stream's handle
// means the stream of the current device, or of `device`.
GpuLogEntry entry_on(GpuOp op, const char *name, cudaStream_t stream, const void *site);
GpuLogEntry entry_on_device(GpuOp op, const char *name, int device, cudaStream_t stream,
                            const void *site);
void add_range(GpuLogEntry *entry, const void *ptr, size_t bytes, GpuAccess access);
void write_entry(const GpuLogEntry *entry);
int current_device(void);
// Calls a function that may wait for a device or for other ranks; gpulog_activity then says so.
#define WAITING(name, site, call)                                                                  \
    __extension__({                                                                                \
        gpulog_waiting(name, site);                                                                \
        __typeof__(call) waited_ = (call);                                                         \
        gpulog_waiting(NULL, NULL);                                                                \
        waited_;                                                                                   \
    })

// ---- memory.c ----
// An allocation, from the call to the log, ncclMemAlloc's too. `site` and `name` are the call's. If
// GPULOG_MEMORY leaves no room, memory_reserve prints a line on stderr and returns false.
bool memory_reserve(const char *name, int device, size_t bytes, const void *site);
void memory_unreserve(int device, size_t bytes); // the allocation failed
void memory_made(const char *name, void *ptr, size_t bytes, const void *site);
// A free is logged before the memory is freed, since another thread may get the same address at
// once. False: the allocation is not known.
bool memory_leaves(const void *ptr, Known *known);
void memory_stays(const Known *known); // the free failed
void memory_freed(const char *name, const Known *known, const void *site);
void memory_reset(int device);
// Counts memory that a launch allocates or frees for its graph, and completes the entry.
void memory_launched(GpuLogEntry *entry);

// ---- stream.c ----
// Fills in device, blocking_stream and the handle as the log has it.
void stream_facts(GpuLogEntry *entry, cudaStream_t stream, int current);
void stream_reset(int device);

uint32_t stream_next_number(int device);

// ---- graph.c ----
bool graph_captures(cudaStream_t stream); // whether calls on the stream become nodes now
// Keeps the entry of a captured call for the launches of its graph; false: it was not captured.
bool graph_takes(const GpuLogEntry *entry);

// ---- nccl.c ----
bool in_group(void); // the calling thread is between ncclGroupStart and its end

// ---- comm.c ----
typedef struct CommPlace {
    int ranks, rank, device; // ranks is 0 if not known
} CommPlace;
// This process's place in a communicator. It may ask NCCL, so call it before a call on the
// communicator: a non-blocking one answers nothing while a call is in progress. `worked`: a call on
// it has worked, so it exists; otherwise NCCL is asked only if this process has seen it made.
CommPlace comm_place(ncclComm_t comm, bool worked);
// The log's fields for a call that is made now; peer: of a message.
GpuCollective comm_call(ncclComm_t comm, GpuOp op, int peer);
// A group has ended: communicators that were asked for in it exist now.
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
