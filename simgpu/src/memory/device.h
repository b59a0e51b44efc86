/* memory/: who has which memory, what is in it, and who touches it.
 *
 *   device.c         the devices of this process: arenas mapped twice, which pointer is whose
 *   shared_memory.c  memory that other processes map too (shared_memory.h)
 *   allocation.c     allocations of device memory: making and ending them (allocation.h)
 *   full.c           the report of a device that is full
 *   heap.c           which bytes of an arena are whose (heap.h)
 *   place.c          what a report says of an address (place.h)
 *   contents.c       what an operation reads, overwrites or borrows (contents.h)
 *   owed.c           poison, zeros and gathered bytes that nobody has written yet (owed.h)
 *   shadow.c         who touched which bytes of an allocation last (shadow.h)
 *   managed.c        memory that the host may touch too, and memory in rows
 *   pool.c           pools of stream-ordered memory: what they reserve
 *   pinned.c         pinned host memory: making, registering and freeing it (pinned.h)
 *   pending.c        copies from and into it that the host has not waited for
 *   pages.c          which of its pages the host may touch
 *   touch.c          what the host and its system calls touch of it
 *   freed.c          pinned memory that was given back
 *   fault.c          host code that touches device memory, or pinned memory in the middle of a copy
 *   syscall.c        the same by a system call: write, read, send and the like
 *   machine_memory.c the memory of this machine, which devices share
 *   dry.c            dry runs: what a program gets in place of results (dry.h)
 *   dry_addresses.c  what a dry run knows of arrays of addresses
 */
#ifndef SIMGPU_DEVICE_H
#define SIMGPU_DEVICE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_OUTBOX ((size_t)64 << 20) // bytes for messages that nobody has received (nccl/sends.c)
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

bool sim_is_device(int index); // whether the program sees one of that index
// The device, made on first use; NULL for an index that is none.
SimDevice *sim_device(int index);
// The same where it is made already, else NULL.
SimDevice *sim_device_made(int index);
int sim_current_device(void);
void sim_set_current_device(int index);
// A file could not be opened because there is no descriptor left: ends the process in one line.
_Noreturn void sim_no_files_left(void);
int sim_files_limit(void); // ulimit -n, where that ends the process; 0: it does not
// The device whose program range holds ptr, and ptr's offset in it; NULL: no device pointer.
SimDevice *sim_device_of(const void *ptr, size_t *offset);
// machine_memory.c: an operation is about to write `bytes` bytes at `at`, of an alias. Ends the
// process, with a report, where this machine has no memory for them.
void sim_machine_memory_touched(const char *at, size_t bytes, const char *call, const void *site);
// Whether kernels on `device` may use memory of `peer`: cudaDeviceEnablePeerAccess.
bool sim_peer_allowed(int device, int peer);
bool sim_allow_peer(int device, int peer, bool allowed); // whether it was

#endif
