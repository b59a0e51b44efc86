/* device.c: the devices of this process. See device.h.
 *
 * All devices share one reserved range of addresses without access, one arena each: the addresses
 * that programs see. The memory itself (shared_memory.h) is mapped elsewhere, readable and writable
 * (the alias), when the device is first used. So a host dereference of a device pointer faults
 * (fault.c), and a division finds the device of a pointer.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/config.h"
#include "memory/device.h"
#include "memory/fault.h"
#include "memory/heap.h"
#include "memory/shared_memory.h"
#include "report/report.h"

// Address space of an arena beside the device's memory, so that pieces never hinder an allocation.
// Many devices have less of it: a rank maps its own arenas and, once more, each peer's, and a
// process has 128 TiB of addresses.
#define ARENA_FACTOR 4
#define LEAST_FACTOR 2
#define MOST_ADDRESSES ((size_t)96 << 40)
#define ARENA_LEAST ((size_t)1 << 30)

static struct {
    // The first arena's program range. A system call of another thread may read it while the first
    // device is made (syscall.c): it is set when the rest is.
    char *_Atomic base;
    size_t arena; // bytes of each
    _Atomic(SimDevice *) made[SIM_MAX_DEVICES];
    atomic_bool peers[SIM_MAX_DEVICES][SIM_MAX_DEVICES];
} cluster;
static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local int current;

// ---- Making devices ----

_Noreturn static void no_memory_for(const char *what)
{
    sim_fatal(
        SIMGPU_SYSTEM, "simgpu could not be set up",
        "%s failed: %s.\n"
        "simgpu reserves %zu GiB of addresses per device and uses memory only when it is written.\n"
        "Is there a limit on address space (ulimit -v), or is SIMGPU_MEMORY larger than needed?",
        what, strerror(errno), cluster.arena >> 30);
}

// Called with `making` held.
static void reserve_addresses(void)
{
    const SimConfig *config = sim_config();
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t factor = ARENA_FACTOR, devices = (size_t)config->devices;
    if (config->memory > MOST_ADDRESSES / (2 * ARENA_FACTOR) / devices) factor = LEAST_FACTOR;
    size_t arena = config->memory * factor;
    if (arena < ARENA_LEAST) arena = ARENA_LEAST;
    cluster.arena = (arena + page - 1) / page * page;
    void *base = mmap(NULL, cluster.arena * devices, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) no_memory_for("reserving addresses");
    cluster.base = base;
    sim_fault_install();
}

static atomic_int files_limit;

int sim_files_limit(void)
{
    return atomic_load(&files_limit);
}

void sim_no_files_left(void)
{
    struct rlimit limit = {0, 0};
    char title[200];
    getrlimit(RLIMIT_NOFILE, &limit);
    atomic_store(&files_limit, (int)limit.rlim_cur);
    snprintf(title, sizeof title,
             "no file descriptor is left (ulimit -n is %llu): a process needs one per device, one "
             "per rank of its host, and some ten more",
             (unsigned long long)limit.rlim_cur);
    sim_fatal(SIMGPU_SYSTEM, title, "%s", "");
}

uint32_t sim_next_stream_number(void)
{
    static _Atomic uint32_t made;
    return atomic_fetch_add(&made, 1) + 1;
}

static SimDevice *make_device(int index)
{
    SimDevice *d = calloc(1, sizeof *d);
    if (!d) no_memory_for("calloc");
    d->index = index;
    d->stream_number = sim_next_stream_number();
    d->arena = cluster.arena;
    d->program = cluster.base + (size_t)index * cluster.arena;
    d->mapped = d->arena + SIM_OUTBOX;
    void *alias;
    d->memory = sim_shared_make("simgpu-device", d->mapped, d->mapped, &alias,
                                "a device's memory (SIMGPU_MEMORY)");
    if (d->memory == -1) no_memory_for("making a device's memory");
    madvise(alias, d->mapped, MADV_DONTDUMP); // keeps it out of core files
    d->alias = alias;
    d->heap = sim_heap_create(d->arena);
    if (!d->heap) no_memory_for("calloc");
    pthread_mutex_init(&d->lock, NULL);
    return d;
}

bool sim_is_device(int index)
{
    return index >= 0 && index < sim_config()->devices;
}

SimDevice *sim_device_made(int index)
{
    if (index < 0 || index >= SIM_MAX_DEVICES) return NULL;
    return atomic_load_explicit(&cluster.made[index], memory_order_acquire);
}

SimDevice *sim_device(int index)
{
    SimDevice *device = sim_device_made(index);
    if (device || index < 0 || index >= sim_config()->devices) return device;
    pthread_mutex_lock(&making);
    device = sim_device_made(index);
    if (!device) {
        if (!cluster.base) reserve_addresses();
        device = make_device(index);
        atomic_store_explicit(&cluster.made[index], device, memory_order_release);
    }
    pthread_mutex_unlock(&making);
    sim_fault_thread();
    return device;
}

SimDevice *sim_device_of(const void *ptr, size_t *offset)
{
    const char *base = atomic_load_explicit(&cluster.base, memory_order_acquire);
    if (!base) return NULL;
    size_t distance = (size_t)((uintptr_t)ptr - (uintptr_t)base);
    size_t index = distance / cluster.arena;
    if (index >= (size_t)sim_config()->devices) return NULL;
    *offset = distance - index * cluster.arena;
    return sim_device_made((int)index);
}

int sim_current_device(void)
{
    return current;
}

void sim_set_current_device(int index)
{
    current = index;
    sim_set_report_device(index);
}

bool sim_peer_allowed(int device, int peer)
{
    return device == peer || atomic_load(&cluster.peers[device][peer]);
}

bool sim_allow_peer(int device, int peer, bool allowed)
{
    return atomic_exchange(&cluster.peers[device][peer], allowed);
}
