/* memory.c: cudaMalloc and friends, and the check of a range of device memory.
 *
 * Memory is counted as it was asked for, before any rounding: an allocation fails exactly when the
 * bytes in use and the bytes asked for are more than the device has. Physical memory follows use:
 * large ranges that cudaFree frees return their pages, those of cudaFreeAsync keep them for the
 * next allocation, as CUDA's memory pools do.
 *
 * Interface: cudaMalloc, cudaFree, cudaMallocAsync, cudaFreeAsync, cudaMallocFromPoolAsync,
 * cudaMemGetInfo, cudaPointerGetAttributes, the cudaMemPool* calls; sim_use_bytes,
 * sim_overwritten, sim_promised, sim_zeros_overwritten, sim_fill_later, sim_borrow,
 * sim_borrow_no_more, sim_describe, sim_memory_reset.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check/check.h"
#include "memory/shadow.h"
#include "memory/heap.h"
#include "memory/memory.h"
#include "memory/owed.h"
#include "report/report.h"
#include "streams/streams.h"
#include "time/trace.h"

#define WHERE 256
#define PUNCH_FROM ((size_t)1 << 20) // smaller ranges keep their pages
#define OOM_LINES 6
#define NEAR ((size_t)1 << 20) // so far from it, an address may be meant to be an allocation's
#define FREE_LOOKS 16          // bytes in front of what free() is given

// A device's pool: the default one, and the only one.
struct CUmemPoolHandle_st {
    int device;
    int reuse[3]; // cudaMemPoolReuse*: kept for who asks, decided by nothing here
    uint64_t threshold;
    size_t used, high;
};
static struct CUmemPoolHandle_st pools[SIM_MAX_DEVICES];
static pthread_once_t pools_once = PTHREAD_ONCE_INIT;

static void make_pools(void)
{
    for (int i = 0; i < SIM_MAX_DEVICES; i++) {
        pools[i].device = i;
        for (int j = 0; j < 3; j++) pools[i].reuse[j] = 1;
    }
}

static struct CUmemPoolHandle_st *pool_of(int device)
{
    pthread_once(&pools_once, make_pools);
    return &pools[device];
}

// ---- What is where ----

static void sized(size_t bytes, char text[32])
{
    if (bytes < (size_t)10 << 10)
        snprintf(text, 32, "%zu bytes", bytes);
    else if (bytes < (size_t)10 << 20)
        snprintf(text, 32, "%.1f KiB", (double)bytes / 1024);
    else if (bytes < (size_t)10 << 30)
        snprintf(text, 32, "%.1f MiB", (double)bytes / 1048576);
    else
        snprintf(text, 32, "%.1f GiB", (double)bytes / 1073741824);
}

// The same with the exact number, where that is another text.
static void sized_exactly(size_t bytes, char text[80])
{
    char size[32], exact[32];
    sized(bytes, size);
    snprintf(exact, sizeof exact, "%zu bytes", bytes);
    bool same = strcmp(size, exact) == 0;
    snprintf(text, 80, "%s%s%s%s", size, same ? "" : " (", same ? "" : exact, same ? "" : ")");
}

// What there is to know of an offset, copied while the lock is held.
typedef struct Place {
    enum { PLACE_LIVE, PLACE_BEHIND, PLACE_AHEAD, PLACE_FREED, PLACE_NEVER } kind;
    size_t byte;  // from the allocation's beginning; PLACE_AHEAD: to it
    size_t asked; // the allocation's size
    const void *made, *freed;
    const void *begin; // the allocation, as the program sees it
} Place;

static bool is_live(const SimBlock *block)
{
    return block && block->state == BLOCK_LIVE;
}

// The offset lies outside of every allocation, with a live one before it, or behind it, or both: it
// is of the nearer, if that is near.
static Place near_place(const SimBlock *before, const SimBlock *after, size_t offset)
{
    size_t past = is_live(before) ? offset - before->offset - before->asked : SIZE_MAX;
    size_t ahead = is_live(after) ? after->offset - offset : SIZE_MAX;
    if (past <= ahead && past < NEAR)
        return (Place){PLACE_BEHIND, past + before->asked, before->asked, before->site, NULL, NULL};
    if (ahead < NEAR)
        return (Place){PLACE_AHEAD, ahead, after->asked, after->site, NULL, NULL};
    return (Place){PLACE_NEVER, 0, 0, NULL, NULL, NULL};
}

// Called with the device's lock held. A few bytes before an allocation is where free() looks when
// it is given a device pointer: that is told before all but the bytes of another allocation.
static Place find_place(SimDevice *device, size_t offset)
{
    SimBlock *block = sim_heap_find(device->heap, offset);
    if (!block) return (Place){PLACE_NEVER, 0, 0, NULL, NULL, NULL};
    if (is_live(block) && offset - block->offset < block->asked)
        return (Place){PLACE_LIVE, offset - block->offset, block->asked, block->site, NULL, NULL};
    if (is_live(block->next) && block->next->offset - offset <= FREE_LOOKS)
        return near_place(NULL, block->next, offset);
    const SimFreed *freed = is_live(block) ? NULL : sim_heap_freed(device->heap, offset);
    if (freed)
        return (Place){PLACE_FREED, offset - freed->offset, freed->asked, freed->made,
                       freed->freed, NULL};
    return near_place(is_live(block) ? block : block->prev, block->next, offset);
}

static Place look(SimDevice *device, size_t offset)
{
    Place place = find_place(device, offset);
    size_t to = place.byte;
    place.begin = device->program + (place.kind == PLACE_AHEAD ? offset + to : offset - to);
    return place;
}

// "byte 16", "bytes 16 to 31 (element 4 of h.0: h.0.weight[4])"
static void describe_bytes(const Place *p, size_t bytes, char *text, size_t size)
{
    char elements[WHERE] = "", range[64];
    size_t last = p->byte + (bytes ? bytes - 1 : 0);
    sim_log_elements(p->begin, p->asked, p->byte, last + 1, elements, sizeof elements);
    if (last > p->byte)
        snprintf(range, sizeof range, "bytes %zu to %zu", p->byte, last);
    else
        snprintf(range, sizeof range, "byte %zu", p->byte);
    snprintf(text, size, "%s%s%s%s", range, elements[0] ? " (" : "", elements,
             elements[0] ? ")" : "");
}

// "byte 16 of flat->shard, the 4096 bytes allocated at flat_param.c:88 (flat_create)"
static void describe_place(const Place *p, size_t bytes, char *text, size_t size)
{
    char made[WHERE], freed[WHERE], name[WHERE / 2] = "", of[2 * WHERE], range[2 * WHERE];
    gpulog_where(p->made, made, sizeof made);
    if (p->made) sim_log_name(p->begin, p->made, name, sizeof name);
    snprintf(of, sizeof of, "%s%sthe %zu bytes allocated at %s", name, name[0] ? ", " : "",
             p->asked, made);
    switch (p->kind) {
    case PLACE_LIVE:
        describe_bytes(p, bytes, range, sizeof range);
        snprintf(text, size, "%s of %s", range, of);
        break;
    case PLACE_BEHIND:
        snprintf(text, size, "%zu bytes past the end of %s", p->byte - p->asked, of);
        break;
    case PLACE_AHEAD:
        snprintf(text, size, "%zu byte%s before the beginning of %s", p->byte,
                 p->byte == 1 ? "" : "s", of);
        break;
    case PLACE_FREED:
        gpulog_where(p->freed, freed, sizeof freed);
        snprintf(text, size, "byte %zu of %s\nand freed at %s", p->byte, of, freed);
        break;
    case PLACE_NEVER:
        snprintf(text, size, "device memory that no allocation holds or is known to have held");
        break;
    }
}

bool sim_allocation(SimDevice *device, size_t offset, SimAllocation *found)
{
    if (pthread_mutex_trylock(&device->lock)) return false;
    SimBlock *block = sim_heap_find(device->heap, offset);
    bool live = block && block->state == BLOCK_LIVE && offset - block->offset <= block->asked;
    if (live) *found = (SimAllocation){block->offset, block->asked, block->site};
    const SimFreed *freed = live ? NULL : sim_heap_freed(device->heap, offset);
    if (freed) *found = (SimAllocation){freed->offset, freed->asked, freed->made};
    pthread_mutex_unlock(&device->lock);
    return live || freed;
}

void sim_memory_visit(SimLeaks *leaks)
{
    for (int i = 0; i < SIM_MAX_DEVICES; i++) {
        SimDevice *device = sim_device_made(i);
        if (!device || pthread_mutex_trylock(&device->lock)) continue;
        for (SimBlock *b = sim_heap_first(device->heap); b; b = b->next)
            if (b->state == BLOCK_LIVE)
                sim_leak_note(leaks, THING_MEMORY, device->program + b->offset, b->asked, b->site);
        pthread_mutex_unlock(&device->lock);
    }
}

// A dying process may hold the lock already; then there is nothing to say.
void sim_describe_bytes(SimDevice *device, size_t offset, size_t bytes, char *text, size_t size)
{
    snprintf(text, size, "device memory");
    if (pthread_mutex_trylock(&device->lock)) return;
    Place place = look(device, offset);
    pthread_mutex_unlock(&device->lock);
    describe_place(&place, bytes, text, size);
}

void sim_describe(SimDevice *device, size_t offset, char *text, size_t size)
{
    sim_describe_bytes(device, offset, 1, text, size);
}

// ---- The check of a range ----

static const char *verb(GpuAccess access)
{
    return access == GPU_READ ? "reads" : access == GPU_WRITE ? "writes" : "reads and writes";
}

static void report_bad_range(SimDevice *device, size_t offset, size_t bytes, const Place *place,
                             GpuAccess access, const char *name, const void *site)
{
    char where[WHERE], what[4 * WHERE];
    gpulog_where(site, where, sizeof where);
    describe_place(place, 1, what, sizeof what);
    sim_facts_call(name, site, SIM_NO_STREAM);
    if (place->kind == PLACE_FREED) sim_facts_call("cudaFree", place->freed, SIM_NO_STREAM);
    sim_facts_range(device->program + offset, bytes);
    if (place->kind == PLACE_LIVE) {
        sim_report(
            SIMGPU_POINTER, "an operation runs past the end of an allocation",
            "%s, called at %s,\n%s %zu bytes from %s:\n"
            "that is %zu bytes too many.\n"
            "On a GPU this is an illegal memory access, or silently other data.\n"
            "Are the count (elements, not bytes?) and the offset right?",
            name, where, verb(access), bytes, what, place->byte + bytes - place->asked);
        return;
    }
    const char *title = place->kind == PLACE_FREED ? "use of freed device memory"
                                                   : "an operation outside any allocation";
    const char *advice = place->kind == PLACE_FREED
                             ? "Is it freed before its last use, or is this an old pointer that "
                               "should have been\nrenewed?"
                         : place->kind == PLACE_AHEAD
                             ? "Is an index or an offset negative, or too much subtracted from the "
                               "pointer?"
                             : "Is the pointer or the offset added to it right?";
    sim_report(place->kind == PLACE_FREED ? SIMGPU_LIFETIME : SIMGPU_POINTER, title,
               "%s, called at %s,\n%s %zu bytes at %p on device %d:\n%s.\n"
               "On a GPU this is an illegal memory access, or silently other data.\n%s",
               name, where, verb(access), bytes, (void *)(device->program + offset), device->index,
               what, advice);
}

void *sim_use_bytes(const void *ptr, size_t bytes, GpuAccess access, SimUse use,
                      const char *name, const void *site)
{
    size_t offset;
    SimDevice *device = sim_device_of(ptr, &offset);
    if (!device) return NULL;
    pthread_mutex_lock(&device->lock);
    SimBlock *block = sim_heap_find(device->heap, offset);
    bool good = block && block->state == BLOCK_LIVE && offset - block->offset <= block->asked &&
                bytes <= block->asked - (offset - block->offset);
    Place place = {PLACE_LIVE, 0, 0, NULL, NULL, NULL};
    if (!good) place = look(device, offset);
    const char *lent = NULL;
    size_t from = good ? offset - block->offset : 0;
    if (good && use == USE_READ) lent = sim_owed_lent(block, from, from + bytes);
    if (good && use != USE_OVERWRITE && !lent)
        sim_owed_pay(block, device->alias + block->offset, from, from + bytes);
    pthread_mutex_unlock(&device->lock);
    if (lent) return (char *)lent;
    if (good) return device->alias + offset;
    report_bad_range(device, offset, bytes, &place, access, name, site);
    return NULL;
}

// ---- What is owed ----

// The live allocation that holds the range, its device locked; NULL: none, and nothing is locked.
static SimBlock *hold_block(const void *ptr, size_t bytes, SimDevice **device, size_t *from)
{
    size_t offset;
    *device = bytes && !sim_dry() ? sim_device_of(ptr, &offset) : NULL;
    if (!*device) return NULL;
    pthread_mutex_lock(&(*device)->lock);
    SimBlock *block = sim_heap_find((*device)->heap, offset);
    if (is_live(block) && offset - block->offset + bytes <= block->asked) {
        *from = offset - block->offset;
        return block;
    }
    pthread_mutex_unlock(&(*device)->lock);
    return NULL;
}

// What is to become of what a range owes: sim_owed_cancel or sim_owed_mark.
typedef void (*Settle)(SimBlock *block, char *at, size_t from, size_t to);

static void settle(const void *ptr, size_t bytes, Settle what)
{
    size_t from;
    SimDevice *device;
    SimBlock *block = hold_block(ptr, bytes, &device, &from);
    if (!block) return;
    what(block, device->alias + block->offset, from, from + bytes);
    pthread_mutex_unlock(&device->lock);
}

void sim_overwritten(const void *ptr, size_t bytes)
{
    settle(ptr, bytes, sim_owed_cancel);
}

void sim_promised(const void *ptr, size_t bytes)
{
    settle(ptr, bytes, sim_owed_mark);
}

bool sim_zeros_overwritten(const void *ptr, size_t bytes)
{
    size_t from;
    SimDevice *device;
    SimBlock *block = hold_block(ptr, bytes, &device, &from);
    if (!block) return false;
    bool zeros = sim_owed_are(block, from, from + bytes, 0);
    char *at = device->alias + block->offset;
    if (zeros)
        sim_owed_cancel(block, at, from, from + bytes);
    else
        sim_owed_pay(block, at, from, from + bytes);
    pthread_mutex_unlock(&device->lock);
    return zeros;
}

bool sim_fill_later(const void *ptr, size_t bytes, int value)
{
    size_t from;
    SimDevice *device;
    SimBlock *block = hold_block(ptr, bytes, &device, &from);
    if (!block) return false;
    bool later = sim_owed_fill(block, device->alias + block->offset, from, from + bytes,
                               (unsigned char)value);
    pthread_mutex_unlock(&device->lock);
    return later;
}

bool sim_borrow(const void *ptr, size_t bytes, const char *lent, _Atomic uint32_t *users)
{
    size_t from;
    SimDevice *device;
    SimBlock *block = hold_block(ptr, bytes, &device, &from);
    if (!block) return false;
    bool borrows = !block->managed;
    char *at = device->alias + block->offset;
    if (borrows) sim_owed_borrow(block, at, from, from + bytes, lent, users);
    pthread_mutex_unlock(&device->lock);
    return borrows;
}

void sim_borrow_no_more(SimDevice *device)
{
    pthread_mutex_lock(&device->lock);
    for (SimBlock *b = sim_heap_first(device->heap); b; b = b->next)
        if (b->state == BLOCK_LIVE) sim_owed_return(b, device->alias + b->offset);
    pthread_mutex_unlock(&device->lock);
}

// ---- Allocation ----

typedef struct Group {
    const void *site;
    size_t bytes, count;
} Group;

static int by_bytes(const void *a, const void *b)
{
    size_t x = ((const Group *)a)->bytes, y = ((const Group *)b)->bytes;
    return x < y ? 1 : x > y ? -1 : 0;
}

// The live allocations by the call site that made them. Called with the lock held.
static size_t group_live(SimDevice *device, Group **groups)
{
    size_t n = 0, room = 0;
    *groups = NULL;
    for (SimBlock *b = sim_heap_first(device->heap); b; b = b->next) {
        if (b->state != BLOCK_LIVE) continue;
        size_t i = 0;
        while (i < n && (*groups)[i].site != b->site) i++;
        if (i == n) {
            if (n == room) {
                Group *larger = realloc(*groups, (room = room ? 2 * room : 64) * sizeof **groups);
                if (!larger) break;
                *groups = larger;
            }
            (*groups)[n++] = (Group){b->site, 0, 0};
        }
        (*groups)[i].bytes += b->asked;
        (*groups)[i].count++;
    }
    return n;
}

// Calls of one place under another caller are other call sites: in the report they are one.
static size_t join_places(Group *groups, size_t n)
{
    char where[WHERE], other[WHERE];
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        size_t same = 0;
        gpulog_where(groups[i].site, where, sizeof where);
        for (; same < kept; same++) {
            gpulog_where(groups[same].site, other, sizeof other);
            if (strcmp(where, other) == 0) break;
        }
        if (same == kept) {
            groups[kept++] = groups[i];
        } else {
            groups[same].bytes += groups[i].bytes;
            groups[same].count += groups[i].count;
        }
    }
    if (kept) qsort(groups, kept, sizeof *groups, by_bytes);
    return kept;
}

// Once a process: a program that tries again in a loop need not be told each time.
static void report_no_memory(SimDevice *device, const char *call, size_t bytes, const void *site)
{
    static atomic_bool told;
    if (atomic_exchange(&told, true)) return;
    Group *groups;
    pthread_mutex_lock(&device->lock);
    size_t n = group_live(device, &groups), live = device->live;
    pthread_mutex_unlock(&device->lock);
    n = join_places(groups, n);
    char where[WHERE], asked[80], used[80], limit[32], list[OOM_LINES * (WHERE + 80)] = "";
    size_t filled = 0;
    for (size_t i = 0; i < n && i < OOM_LINES; i++) {
        char size[32];
        sized(groups[i].bytes, size);
        gpulog_where(groups[i].site, where, sizeof where);
        filled += (size_t)snprintf(list + filled, sizeof list - filled,
                                   "  %12s in %zu allocation%s at %s\n", size, groups[i].count,
                                   groups[i].count == 1 ? "" : "s", where);
    }
    free(groups);
    gpulog_where(site, where, sizeof where);
    sized_exactly(bytes, asked);
    sized_exactly(live, used);
    sized(sim_config()->memory, limit);
    sim_facts_call(call, site, SIM_NO_STREAM);
    sim_report(SIMGPU_NO_MEMORY, "out of device memory",
               "%s of %s, called at %s,\n"
               "on device %d, where %s of %s are in use%s\n%s"
               "Must the whole of it be here at once, or would a shard be enough? (SIMGPU_MEMORY "
               "sets the\n"
               "size of a device.)",
               call, asked, where, device->index, used, limit, n ? ":" : ".", list);
}

// Nothing promises what fresh memory holds, so it holds NaNs: a sum that forgets to start from zero
// shows. They are owed, but where the host may look, or where they are few. Called with the lock
// held.
static void poison(SimDevice *device, SimBlock *block)
{
    char *at = device->alias + block->offset;
    if (sim_dry()) return;
    sim_owed_begin(block, at, sim_config()->poison);
    if (block->managed || block->asked < SIM_OWED_LEAST) sim_owed_pay(block, at, 0, block->asked);
}

static void count_pool(SimBlock *block, int device)
{
    struct CUmemPoolHandle_st *pool = pool_of(device);
    block->pool = true;
    pool->used += block->asked;
    if (pool->used > pool->high) pool->high = pool->used;
}

typedef enum Kind { PLAIN, FROM_POOL, MANAGED } Kind;

// NULL, reported: the device is full.
static void *allocate(SimDevice *device, const char *call, size_t bytes, Kind kind,
                      const void *site)
{
    // A closed page lies between two managed allocations: there free() would look.
    size_t unit = kind == MANAGED ? (size_t)sysconf(_SC_PAGESIZE) : SIM_ALIGN;
    size_t guard = kind == MANAGED ? unit : 0;
    pthread_mutex_lock(&device->lock);
    SimBlock *block = NULL;
    size_t limit = sim_config()->memory;
    if (bytes <= limit && device->live <= limit - bytes)
        block = sim_heap_take_whole(device->heap, bytes + guard, unit, site);
    size_t offset = block ? block->offset : 0;
    if (block) {
        block->asked = bytes;
        device->live += bytes;
        sim_log_allocated(device->index, bytes);
        sim_log_category_begins(device->program + offset, bytes);
        if (kind == FROM_POOL) count_pool(block, device->index);
        block->managed = kind == MANAGED;
        // The host may write managed memory, and nobody sees it.
        if (sim_config()->check == CHECK_FULL)
            block->shadow = sim_shadow_create(bytes, block->managed, &device->spare);
        if (block->managed) sim_managed_show(device, offset, block->size - guard);
        poison(device, block);
    }
    pthread_mutex_unlock(&device->lock);
    if (!block) {
        report_no_memory(device, call, bytes, site);
        return NULL;
    }
    sim_log_forget_name(device->program + offset);
    return device->program + offset;
}

// It takes part in no stream: when it returns, the memory is there for all of them.
cudaError_t sim_malloc(const char *name, void **ptr, size_t size, bool managed, const void *site)
{
    SIM_ENTER();
    if (!ptr) return sim_leave(cudaErrorInvalidValue);
    *ptr = NULL;
    if (size == 0) return cudaSuccess;
    SimDevice *device = sim_device(sim_current_device());
    if (!device) return sim_leave(cudaErrorInvalidDevice);
    void *memory = allocate(device, name, size, managed ? MANAGED : PLAIN, site);
    if (!memory) return sim_leave(cudaErrorMemoryAllocation);
    *ptr = memory;
    GpuLogEntry entry = {.op = GPU_ALLOC,
                         .name = name,
                         .device = device->index,
                         .host_waits = true,
                         .bytes = size,
                         .site = site,
                         .n_ranges = 1};
    entry.range[0] = (GpuRange){memory, size, GPU_WRITE};
    sim_clock_log(&entry);
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **devPtr, size_t size)
{
    return sim_malloc("cudaMalloc", devPtr, size, false, SIM_SITE);
}

static cudaError_t allocate_on_stream(const char *call, void **ptr, size_t size,
                                      cudaStream_t stream, int pool_device, const void *site)
{
    if (!ptr) return sim_leave(cudaErrorInvalidValue);
    *ptr = NULL;
    SimgpuOp op = sim_begin(GPU_ALLOC, call, stream, site);
    if (op.error != cudaSuccess || size == 0) return sim_leave(op.error);
    SimDevice *device = sim_device(pool_device < 0 ? op.entry.device : pool_device);
    void *memory = device ? allocate(device, call, size, FROM_POOL, site) : NULL;
    if (!memory) return sim_leave(cudaErrorMemoryAllocation);
    *ptr = memory;
    op.entry.bytes = size;
    op.entry.pool = true;
    op.entry.range[op.entry.n_ranges++] = (GpuRange){memory, size, GPU_WRITE};
    SimShape shape = sim_plain_shape(size);
    sim_race_touch(&op, memory, &shape, GPU_WRITE);
    return simgpu_end(&op);
}

cudaError_t cudaMallocAsync(void **devPtr, size_t size, cudaStream_t hStream)
{
    SIM_ENTER();
    return allocate_on_stream("cudaMallocAsync", devPtr, size, hStream, -1, SIM_SITE);
}

static bool is_pool(cudaMemPool_t pool)
{
    return pool >= pools && pool < pools + sim_config()->devices && pool == &pools[pool - pools];
}

cudaError_t cudaMallocFromPoolAsync(void **ptr, size_t size, cudaMemPool_t memPool,
                                    cudaStream_t stream)
{
    SIM_ENTER();
    if (!is_pool(memPool)) return sim_leave(cudaErrorInvalidValue);
    return allocate_on_stream("cudaMallocFromPoolAsync", ptr, size, stream, memPool->device,
                              SIM_SITE);
}

// ---- Freeing ----

// Gives the whole pages of a range back to the system.
static void punch(SimDevice *device, size_t offset, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t begin = (offset + page - 1) / page * page, end = (offset + bytes) / page * page;
    if (end > begin)
        fallocate(device->memfd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)begin,
                  (off_t)(end - begin));
}

// Called with the lock held. The pages go first, while nobody else can be given the range.
static void release(SimDevice *device, SimBlock *block, bool keep_pages, const void *site)
{
    if (block->managed) sim_managed_hide(device, block->offset, block->size);
    if (!keep_pages && block->size >= PUNCH_FROM) punch(device, block->offset, block->size);
    device->live -= block->asked;
    sim_log_freed(device->index, block->asked);
    sim_log_category_ends(device->program + block->offset);
    if (sim_dry()) sim_dry_forget(device->program + block->offset, block->size);
    if (block->pool) pool_of(device->index)->used -= block->asked;
    sim_shadow_destroy(block->shadow);
    block->shadow = NULL;
    sim_owed_end(block);
    sim_heap_give(device->heap, block, site);
}

static void report_bad_free(const char *call, const void *ptr, SimDevice *device,
                            const Place *place, const void *site)
{
    char where[WHERE], what[4 * WHERE];
    gpulog_where(site, where, sizeof where);
    sim_facts_call(call, site, SIM_NO_STREAM);
    if (!device) {
        bool inside, pinned = sim_pinned(ptr, 1, &inside);
        sim_report(SIMGPU_POINTER,
                   pinned ? "cudaFree of pinned host memory" : "a free of what is no device memory",
                   "%s, called at %s,\nwas given %p, which cudaMalloc did not return.\n"
                   "On a GPU this is an invalid argument, and nothing is freed.\n%s",
                   call, where, ptr,
                   pinned ? "Was cudaFreeHost meant, which frees pinned memory?"
                          : "Is it host memory, for free()? Or a pointer that was never set?");
        return;
    }
    describe_place(place, 1, what, sizeof what);
    if (place->kind == PLACE_FREED) sim_facts_call("cudaFree", place->freed, SIM_NO_STREAM);
    sim_facts_range(ptr, 0);
    bool twice = place->kind == PLACE_FREED && place->byte == 0;
    sim_report(twice ? SIMGPU_LIFETIME : SIMGPU_POINTER,
               twice ? "device memory was freed twice"
                     : "a free of what is no allocation's beginning",
               "%s, called at %s,\nwas given %s.\n"
               "On a GPU this is an invalid argument; or it frees what has the address by now.\n%s",
               call, where, what,
               twice ? "Do two owners free it? A pointer that is set to NULL with its free is\n"
                       "safe: freeing NULL does nothing."
                     : "Was an offset added to the pointer that cudaMalloc returned?");
}

// Frees ptr; false, reported: it is not the beginning of a live allocation. Any device's memory
// may be freed whichever is current, as on hardware.
static bool free_memory(const char *call, void *ptr, bool keep_pages, size_t *bytes, bool *pool,
                        const void *site)
{
    size_t offset;
    SimDevice *device = sim_device_of(ptr, &offset);
    Place place = {PLACE_NEVER, 0, 0, NULL, NULL, NULL};
    bool good = false;
    if (device) {
        pthread_mutex_lock(&device->lock);
        SimBlock *block = sim_heap_find(device->heap, offset);
        good = block && block->state == BLOCK_LIVE && block->offset == offset;
        if (good) {
            *bytes = block->asked;
            *pool = block->pool;
            release(device, block, keep_pages, site);
        } else {
            place = look(device, offset);
        }
        pthread_mutex_unlock(&device->lock);
    }
    if (!good) report_bad_free(call, ptr, device, &place, site);
    return good;
}

// Whether ptr is where a live allocation of cudaMallocAsync begins.
static bool is_from_pool(SimDevice *device, size_t offset)
{
    pthread_mutex_lock(&device->lock);
    const SimBlock *block = sim_heap_find(device->heap, offset);
    bool pool = block && block->state == BLOCK_LIVE && block->offset == offset && block->pool;
    pthread_mutex_unlock(&device->lock);
    return pool;
}

// cudaFree waits for the whole device before it frees; but not for memory of a pool, of which it
// assumes that nobody uses it any more (CUDA programming guide, stream ordered memory allocator).
cudaError_t sim_free(void *devPtr, const void *site)
{
    SIM_ENTER();
    if (!devPtr) return cudaSuccess;
    size_t offset, bytes = 0;
    bool pool = false;
    SimDevice *device = sim_device_of(devPtr, &offset);
    if (device && !is_from_pool(device, offset)) sim_device_wait(device->index, "cudaFree", site);
    if (device) sim_race_free(NULL, devPtr, site);
    GpuCategory category = gpulog_category_of(devPtr);
    if (!free_memory("cudaFree", devPtr, false, &bytes, &pool, site))
        return sim_leave(cudaErrorInvalidValue);
    GpuLogEntry entry = {.op = GPU_FREE,
                         .name = "cudaFree",
                         .device = device->index,
                         .blocking_stream = true,
                         .host_waits = true,
                         .pool = pool,
                         .bytes = bytes,
                         .site = site,
                         .category = category,
                         .n_ranges = 1};
    entry.range[0] = (GpuRange){devPtr, bytes, GPU_WRITE};
    sim_clock_log(&entry);
    return cudaSuccess;
}

cudaError_t cudaFree(void *devPtr)
{
    return sim_free(devPtr, SIM_SITE);
}

cudaError_t cudaFreeAsync(void *devPtr, cudaStream_t hStream)
{
    SimgpuOp op = sim_begin(GPU_FREE, "cudaFreeAsync", hStream, SIM_SITE);
    if (op.error != cudaSuccess || !devPtr) return sim_leave(op.error);
    size_t bytes = 0;
    sim_race_free(&op, devPtr, SIM_SITE);
    op.entry.category = gpulog_category_of(devPtr);
    if (!free_memory("cudaFreeAsync", devPtr, true, &bytes, &op.entry.pool, SIM_SITE)) {
        op.error = cudaErrorInvalidValue;
        return simgpu_end(&op);
    }
    op.entry.bytes = bytes;
    op.entry.range[op.entry.n_ranges++] = (GpuRange){devPtr, bytes, GPU_WRITE};
    return simgpu_end(&op);
}

void sim_memory_reset(SimDevice *device, const void *site)
{
    pthread_mutex_lock(&device->lock);
    for (SimBlock *b = sim_heap_first(device->heap); b;) {
        if (b->state == BLOCK_LIVE) {
            release(device, b, false, site);
            b = sim_heap_first(device->heap); // blocks were joined: begin anew
        } else {
            b = b->next;
        }
    }
    pthread_mutex_unlock(&device->lock);
}

// ---- Questions ----

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    SIM_ENTER();
    SimDevice *device = sim_device(sim_current_device());
    if (!free_bytes || !total) return sim_leave(cudaErrorInvalidValue);
    if (!device) return sim_leave(cudaErrorInvalidDevice);
    pthread_mutex_lock(&device->lock);
    *total = sim_config()->memory;
    *free_bytes = *total - device->live;
    pthread_mutex_unlock(&device->lock);
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *ptr)
{
    SIM_ENTER();
    if (!attributes) return sim_leave(cudaErrorInvalidValue);
    memset(attributes, 0, sizeof *attributes);
    attributes->device = sim_current_device();
    size_t offset;
    bool inside;
    SimDevice *device = sim_device_of(ptr, &offset);
    if (device) {
        bool managed = sim_managed(ptr);
        attributes->type = managed ? cudaMemoryTypeManaged : cudaMemoryTypeDevice;
        attributes->device = device->index;
        attributes->devicePointer = (void *)ptr;
        if (managed) attributes->hostPointer = (void *)ptr;
    } else if (sim_pinned(ptr, 1, &inside)) {
        attributes->type = cudaMemoryTypeHost;
        attributes->devicePointer = attributes->hostPointer = (void *)ptr;
    } else {
        attributes->type = cudaMemoryTypeUnregistered;
        attributes->device = cudaInvalidDeviceId;
        attributes->hostPointer = (void *)ptr;
    }
    return cudaSuccess;
}

// ---- Pools ----

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *memPool, int device)
{
    SIM_ENTER();
    if (!memPool) return sim_leave(cudaErrorInvalidValue);
    if (device < 0 || device >= sim_config()->devices) return sim_leave(cudaErrorInvalidDevice);
    *memPool = pool_of(device);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetMemPool(cudaMemPool_t *memPool, int device)
{
    return cudaDeviceGetDefaultMemPool(memPool, device);
}

// A device has one pool here, so there is only one to set.
cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t memPool)
{
    SIM_ENTER();
    if (device < 0 || device >= sim_config()->devices) return sim_leave(cudaErrorInvalidDevice);
    return sim_leave(memPool == pool_of(device) ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t memPool, enum cudaMemPoolAttr attr, void *value)
{
    SIM_ENTER();
    SimDevice *device = is_pool(memPool) && value ? sim_device(memPool->device) : NULL;
    if (!device) return sim_leave(cudaErrorInvalidValue);
    cudaError_t error = cudaSuccess;
    pthread_mutex_lock(&device->lock);
    switch (attr) {
    case cudaMemPoolReuseFollowEventDependencies:
    case cudaMemPoolReuseAllowOpportunistic:
    case cudaMemPoolReuseAllowInternalDependencies:
        memPool->reuse[attr - cudaMemPoolReuseFollowEventDependencies] = *(int *)value;
        break;
    case cudaMemPoolAttrReleaseThreshold:
        memPool->threshold = *(uint64_t *)value;
        sim_trace_release_threshold(memPool->device, memPool->threshold);
        break;
    case cudaMemPoolAttrReservedMemHigh:
    case cudaMemPoolAttrUsedMemHigh: // can only be set to zero, as documented: it begins anew
        if (*(uint64_t *)value)
            error = cudaErrorInvalidValue;
        else
            memPool->high = memPool->used;
        break;
    default: error = cudaErrorInvalidValue;
    }
    pthread_mutex_unlock(&device->lock);
    return sim_leave(error);
}

// What is free belongs to no pool here, so what a pool has reserved is what is in use.
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t memPool, enum cudaMemPoolAttr attr, void *value)
{
    SIM_ENTER();
    SimDevice *device = is_pool(memPool) && value ? sim_device(memPool->device) : NULL;
    if (!device) return sim_leave(cudaErrorInvalidValue);
    cudaError_t error = cudaSuccess;
    pthread_mutex_lock(&device->lock);
    switch (attr) {
    case cudaMemPoolReuseFollowEventDependencies:
    case cudaMemPoolReuseAllowOpportunistic:
    case cudaMemPoolReuseAllowInternalDependencies:
        *(int *)value = memPool->reuse[attr - cudaMemPoolReuseFollowEventDependencies];
        break;
    case cudaMemPoolAttrReleaseThreshold: *(uint64_t *)value = memPool->threshold; break;
    case cudaMemPoolAttrReservedMemCurrent:
    case cudaMemPoolAttrUsedMemCurrent: *(uint64_t *)value = memPool->used; break;
    case cudaMemPoolAttrReservedMemHigh:
    case cudaMemPoolAttrUsedMemHigh: *(uint64_t *)value = memPool->high; break;
    default: error = cudaErrorInvalidValue;
    }
    pthread_mutex_unlock(&device->lock);
    return sim_leave(error);
}

// Gives back the pages of all that is free.
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t memPool, size_t minBytesToKeep)
{
    SIM_ENTER();
    SimDevice *device = is_pool(memPool) ? sim_device(memPool->device) : NULL;
    if (!device) return sim_leave(cudaErrorInvalidValue);
    pthread_mutex_lock(&device->lock);
    for (SimBlock *b = sim_heap_first(device->heap); b; b = b->next)
        if (b->state != BLOCK_LIVE) punch(device, b->offset, b->size);
    pthread_mutex_unlock(&device->lock);
    return cudaSuccess;
}
