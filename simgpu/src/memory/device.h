/* memory/: which memory is allocated, what it contains, and which operations touch it.
 *
 *   device.c         the devices of this process: their arenas, and the device of a pointer
 *   shared_memory.c  memory that other processes map too (shared_memory.h)
 *   allocation.c     allocations of device memory: making and ending them (allocation.h)
 *   full.c           the report of a device that is full
 *   heap.c           the allocator of an arena (heap.h)
 *   place.c          what a report says of an address (place.h)
 *   contents.c       what an operation reads, overwrites or borrows (contents.h)
 *   owed.c           poison, zeros and gathered bytes that are not written yet (owed.h)
 *   shadow.c         the last accesses to each byte of an allocation (shadow.h)
 *   managed.c        memory that the host may touch, too, and memory in rows
 *   pool.c           pools of stream-ordered memory: what they reserve
 *   pinned.c         pinned host memory: making, registering and freeing it (pinned.h)
 *   pending.c        copies from and into it that the host has not waited for
 *   pages.c          which of its pages the host may touch
 *   touch.c          touches of it by the host and by system calls
 *   freed.c          pinned memory that was freed
 *   fault.c          host code that touches device memory, or pinned memory in the middle of a copy
 *   syscall.c        the same by a system call: write, read, send and the like
 *   machine_memory.c the memory of this machine, which devices share
 *   dry.c            dry runs: zeros in place of results (dry.h)
 *   dry_addresses.c  arrays of addresses that a dry run remembers
 */
#ifndef SIMGPU_DEVICE_H
#define SIMGPU_DEVICE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_OUTBOX ((size_t)64 << 20) // bytes for messages not received yet (nccl/sends.c)
// A device's arena is shared memory. `program` is the address range that programs see, without
// access; `alias` is the same memory, readable and writable.
typedef struct SimDevice {
    int index;
    int memory;    // its handle (shared_memory.h)
    size_t arena;  // bytes of address space, larger than the device's memory
    size_t mapped; // bytes of the memory and of the alias: behind the arena is the outbox
    char *program;
    char *alias;
    pthread_mutex_t lock; // of the allocator and the accounting
    struct SimHeap *heap;
    struct SimSpare *spare;                  // shadow.h
    size_t live;                             // bytes as requested
    size_t kept;                             // bytes that were freed, and that pools still reserve
    struct CUmemPoolHandle_st *pools, *pool; // pool.c; pool: cudaMallocAsync's; NULL: the first
    uint32_t stream_number;                  // of its default stream
} SimDevice;

// Streams are numbered in the order in which they are made, a default stream with its device.
uint32_t sim_next_stream_number(void);

bool sim_is_device(int index); // whether the program sees a device of that index
// The device, made on first use; NULL: there is none of that index.
SimDevice *sim_device(int index);
// The same, but NULL if it is not made yet.
SimDevice *sim_device_made(int index);
int sim_current_device(void);
void sim_set_current_device(int index);
// Ends the process with one line: a file could not be opened since no descriptor is free.
_Noreturn void sim_no_files_left(void);
int sim_files_limit(void); // ulimit -n, if that is ending the process; else 0
// The device whose program range holds ptr, and ptr's offset in it; NULL: no device pointer.
SimDevice *sim_device_of(const void *ptr, size_t *offset);
// machine_memory.c: an operation is about to write `bytes` bytes at `at`, of an alias. Ends the
// process, with a report, if this machine has no memory for them.
void sim_machine_memory_touched(const char *at, size_t bytes, const char *call, const void *site);
// Whether kernels on `device` may use memory of `peer`: cudaDeviceEnablePeerAccess.
bool sim_peer_allowed(int device, int peer);
bool sim_allow_peer(int device, int peer, bool allowed); // returns whether it was allowed

#endif
