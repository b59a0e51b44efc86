/* category.c: the purpose of device memory, as far as the program tells it.
 *
 * A table holds the live allocations by address, so that an address within one finds it, too. An
 * allocation keeps the last category that it was given; its free is logged with it.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "log_writer.h"

typedef struct Live {
    uintptr_t begin, end;
    GpuCategory category;
} Live;

#define MOST ((size_t)1 << 20)
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Live *live; // by address
static size_t n_live;

static GpuCategoryOf known_by;
static void *known_arg;
static atomic_bool somebody_knows;

static const char *const names[GPU_CATEGORIES] = {
    [GPU_TEMPORARY] = "temporary",
    [GPU_SHARDED_PARAM] = "sharded parameters",
    [GPU_UNSHARDED_PARAM] = "unsharded parameters",
    [GPU_SHARDED_GRAD] = "sharded gradients",
    [GPU_UNSHARDED_GRAD] = "unsharded gradients",
    [GPU_ACTIVATION] = "activations",
    [GPU_OPTIMIZER_STATE] = "optimizer state",
    [GPU_COMMUNICATION] = "communication buffers",
};

const char *gpulog_category_name(GpuCategory category)
{
    return (unsigned)category < GPU_CATEGORIES ? names[category] : "unknown category";
}

// The index of the first allocation that ends after the address.
static size_t place_of(uintptr_t address)
{
    size_t low = 0, high = n_live;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (live[middle].end > address)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

// The allocation that holds an address; NULL: none.
static Live *find(const void *ptr)
{
    size_t i = place_of((uintptr_t)ptr);
    return i < n_live && live[i].begin <= (uintptr_t)ptr ? &live[i] : NULL;
}

// Reserves the table outside the program's heap; only pages in use take memory.
static Live *reserve(void)
{
    void *memory = mmap(NULL, MOST * sizeof(Live), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

// Drops allocations in the range: another thread has freed them, but not reported that yet.
static void forget_within(uintptr_t begin, uintptr_t end)
{
    size_t first = place_of(begin), last = first;
    while (last < n_live && live[last].begin < end) last++;
    memmove(live + first, live + last, (n_live - last) * sizeof *live);
    n_live -= last - first;
}

void gpulog_category_begins(const void *ptr, size_t bytes)
{
    pthread_mutex_lock(&lock);
    if (!live) live = reserve();
    if (live) forget_within((uintptr_t)ptr, (uintptr_t)ptr + bytes);
    if (live && n_live < MOST) { // else it stays temporary
        size_t i = place_of((uintptr_t)ptr);
        memmove(live + i + 1, live + i, (n_live - i) * sizeof *live);
        live[i] = (Live){(uintptr_t)ptr, (uintptr_t)ptr + bytes, GPU_TEMPORARY};
        n_live++;
    }
    pthread_mutex_unlock(&lock);
}

GpuCategory gpulog_category_ends(const void *ptr)
{
    pthread_mutex_lock(&lock);
    Live *gone = find(ptr);
    GpuCategory category = GPU_TEMPORARY;
    if (gone && gone->begin == (uintptr_t)ptr) {
        category = gone->category;
        n_live--;
        memmove(gone, gone + 1, (size_t)(live + n_live - gone) * sizeof *live);
    }
    pthread_mutex_unlock(&lock);
    return category;
}

void gpulog_category(const void *ptr, GpuCategory category)
{
    if (!ptr || (unsigned)category >= GPU_CATEGORIES) return;
    pthread_mutex_lock(&lock);
    Live *of = find(ptr);
    if (of) of->category = category;
    pthread_mutex_unlock(&lock);
}

GpuCategory gpulog_category_of(const void *ptr)
{
    pthread_mutex_lock(&lock);
    const Live *of = find(ptr);
    GpuCategory category = of ? of->category : GPU_TEMPORARY;
    pthread_mutex_unlock(&lock);
    return category;
}

void gpulog_categories(GpuCategoryOf of, void *arg)
{
    pthread_mutex_lock(&lock);
    known_by = of;
    known_arg = arg;
    pthread_mutex_unlock(&lock);
    atomic_store(&somebody_knows, of != NULL);
}

void gpulog_look_at_operands(const GpuLogEntry *entry)
{
    if (!atomic_load_explicit(&somebody_knows, memory_order_relaxed)) return;
    pthread_mutex_lock(&lock);
    GpuCategoryOf of = known_by;
    void *arg = known_arg;
    pthread_mutex_unlock(&lock);
    for (int i = 0; of && i < entry->n_ranges; i++) {
        GpuCategory category = of(entry->range[i].ptr, arg);
        if (category != GPU_TEMPORARY) gpulog_category(entry->range[i].ptr, category);
    }
}
