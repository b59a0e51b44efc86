/* log.c: the log of what this process did on its devices, simulated or real.
 *
 * The log is a ring. Its memory is reserved on first use and takes only the pages that have been
 * written, so that a short program pays only for its own operations.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "collectives.h"
#include "log_writer.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static GpuLogEntry *ring; // (capacity)
static size_t capacity = 262144;
static uint64_t length;
static GpuTraffic traffic[GPU_OP_KINDS];
static struct {
    size_t live, peak;
} held[GPULOG_DEVICES];

static const char *const names[GPU_OP_KINDS] = {
    // collectives.h has those of collectives
    [GPU_ALLOC] = "allocation",
    [GPU_FREE] = "free",
    [GPU_COPY] = "copy",
    [GPU_MEMSET] = "memset",
    [GPU_KERNEL] = "kernel",
    [GPU_BLAS] = "BLAS call",
    [GPU_EVENT_RECORD] = "event record",
    [GPU_STREAM_WAIT] = "stream wait",
    [GPU_STREAM_SYNC] = "stream synchronisation",
    [GPU_EVENT_SYNC] = "event synchronisation",
    [GPU_DEVICE_SYNC] = "device synchronisation",
    [GPU_GRAPH_LAUNCH] = "graph launch",
};

const char *gpulog_op_name(GpuOp op)
{
    const GpuLogKind *kind = gpulog_kind(op);
    if (kind) return kind->words;
    return (unsigned)op < GPU_OP_KINDS ? names[op] : "unknown operation";
}

void gpulog_reserve(size_t entries)
{
    pthread_mutex_lock(&lock);
    if (!ring && entries > 0) capacity = entries;
    pthread_mutex_unlock(&lock);
}

static bool make_ring(void)
{
    void *memory = mmap(NULL, capacity * sizeof *ring, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return false;
    ring = memory;
    return true;
}

// An entry without the ranges it does not use.
static size_t used_bytes(const GpuLogEntry *entry)
{
    return offsetof(GpuLogEntry, range) + (size_t)entry->n_ranges * sizeof entry->range[0];
}

int gpulog_thread(void)
{
    static _Thread_local int number = -1;
    static atomic_int others;
    if (number < 0)
        number = (pid_t)syscall(SYS_gettid) == getpid() ? 0 : 1 + atomic_fetch_add(&others, 1);
    return number;
}

uint64_t gpulog_write(const GpuLogEntry *entry)
{
    int thread = gpulog_thread();
    if (gpulog_is_collective(entry->op)) gpulog_look_at_operands(entry);
    pthread_mutex_lock(&lock);
    if (ring || make_ring()) {
        GpuLogEntry *place = &ring[length % capacity];
        memcpy(place, entry, used_bytes(entry));
        place->index = length;
        place->thread = thread;
    }
    uint64_t index = length++;
    if (gpulog_is_collective(entry->op)) {
        traffic[entry->op].calls++;
        traffic[entry->op].bytes += entry->bytes;
        traffic[entry->op].sent += entry->sent;
    }
    pthread_mutex_unlock(&lock);
    return index;
}

size_t gpulog_room(void)
{
    pthread_mutex_lock(&lock);
    size_t room = capacity;
    pthread_mutex_unlock(&lock);
    return room;
}

// A thread that has seen gpulog_length() above the index sees the entry, too.
const GpuLogEntry *gpulog_at(uint64_t index)
{
    return ring ? &ring[index % capacity] : NULL;
}

uint64_t gpulog_length(void)
{
    pthread_mutex_lock(&lock);
    uint64_t n = length;
    pthread_mutex_unlock(&lock);
    return n;
}

static bool get_locked(uint64_t index, GpuLogEntry *entry)
{
    if (!ring || index >= length || length - index > capacity) return false;
    const GpuLogEntry *place = &ring[index % capacity];
    memset(entry, 0, sizeof *entry);
    memcpy(entry, place, used_bytes(place));
    return true;
}

bool gpulog_get(uint64_t index, GpuLogEntry *entry)
{
    pthread_mutex_lock(&lock);
    bool there = get_locked(index, entry);
    pthread_mutex_unlock(&lock);
    return there;
}

bool gpulog_last(GpuLogEntry *entry)
{
    if (pthread_mutex_trylock(&lock)) return false;
    bool there = length > 0 && get_locked(length - 1, entry);
    pthread_mutex_unlock(&lock);
    return there;
}

GpuTraffic gpulog_traffic(GpuOp op)
{
    GpuTraffic none = {0, 0, 0};
    if ((unsigned)op >= GPU_OP_KINDS) return none;
    pthread_mutex_lock(&lock);
    GpuTraffic t = traffic[op];
    pthread_mutex_unlock(&lock);
    return t;
}

void gpulog_reset_traffic(void)
{
    pthread_mutex_lock(&lock);
    memset(traffic, 0, sizeof traffic);
    pthread_mutex_unlock(&lock);
}

// ---- Memory ----

static bool is_counted(int device)
{
    return device >= 0 && device < GPULOG_DEVICES;
}

void gpulog_allocated(int device, size_t bytes)
{
    if (!is_counted(device)) return;
    pthread_mutex_lock(&lock);
    held[device].live += bytes;
    if (held[device].live > held[device].peak) held[device].peak = held[device].live;
    pthread_mutex_unlock(&lock);
}

void gpulog_freed(int device, size_t bytes)
{
    if (!is_counted(device)) return;
    pthread_mutex_lock(&lock);
    held[device].live -= bytes;
    pthread_mutex_unlock(&lock);
}

size_t gpulog_live_bytes(int device)
{
    if (!is_counted(device)) return 0;
    pthread_mutex_lock(&lock);
    size_t bytes = held[device].live;
    pthread_mutex_unlock(&lock);
    return bytes;
}

size_t gpulog_peak_bytes(int device)
{
    if (!is_counted(device)) return 0;
    pthread_mutex_lock(&lock);
    size_t bytes = held[device].peak;
    pthread_mutex_unlock(&lock);
    return bytes;
}

void gpulog_reset_peak(int device)
{
    if (!is_counted(device)) return;
    pthread_mutex_lock(&lock);
    held[device].peak = held[device].live;
    pthread_mutex_unlock(&lock);
}
