/* pinned.c: pinned host memory, and copies into it that are not delivered yet.
 *
 * A copy from the device into pinned memory is under way when the call returns. Here its bytes
 * wait in a buffer of their own, and the destination holds 0xFF (NaN) until the host waits for the
 * copy or for something behind it: a program that reads its result without waiting reads NaN every
 * time, and not only on a slow day.
 *
 * Interface: cudaMallocHost, cudaHostAlloc, cudaFreeHost, cudaHostRegister, cudaHostUnregister,
 * cudaHostGetDevicePointer, cudaHostGetFlags; sim_pinned, sim_pinned_defer, sim_pinned_deliver,
 * sim_pinned_deliver_range.
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"
#include "tree.h"

#define PINNED_ALIGN 4096

// One piece of pinned memory.
typedef struct Piece {
    SimTreeNode node; // key: address
    size_t bytes;
    unsigned flags;
    bool ours; // made by cudaHostAlloc, not registered
} Piece;

// A copy that nobody has waited for.
typedef struct Pending {
    char *dst, *data;
    size_t bytes;
    int slot; // of its stream
    uint64_t time;
} Pending;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static SimTreeNode *pieces;
static Pending *pending; // in program order
static size_t n_pending, max_pending;

// The piece that holds the address; called with the lock held.
static Piece *find(const void *ptr)
{
    SimTreeNode *node = sim_tree_floor(pieces, (size_t)ptr);
    if (!node) return NULL;
    Piece *piece = SIM_TREE_OWNER(node, Piece, node);
    return (size_t)ptr - node->key < piece->bytes ? piece : NULL;
}

bool sim_pinned(const void *ptr, size_t bytes, bool *inside)
{
    *inside = false;
    pthread_mutex_lock(&lock);
    Piece *piece = find(ptr);
    if (piece) *inside = bytes <= piece->bytes - ((size_t)ptr - piece->node.key);
    pthread_mutex_unlock(&lock);
    return piece != NULL;
}

// ---- Copies under way ----

void sim_pinned_defer(void *dst, const void *src, size_t bytes, int slot, uint64_t time)
{
    pthread_mutex_lock(&lock);
    if (n_pending == max_pending) {
        size_t larger = max_pending ? 2 * max_pending : 16;
        Pending *moved = realloc(pending, larger * sizeof *moved);
        if (moved) {
            pending = moved;
            max_pending = larger;
        }
    }
    char *data = n_pending < max_pending ? malloc(bytes) : NULL;
    if (data) {
        memcpy(data, src, bytes);
        if (sim_config()->poison) memset(dst, 0xff, bytes);
        pending[n_pending++] = (Pending){dst, data, bytes, slot, time};
    } else {
        memcpy(dst, src, bytes); // early, for want of memory to wait in
    }
    pthread_mutex_unlock(&lock);
}

static bool overlap(const Pending *p, const void *ptr, size_t bytes)
{
    return p->dst < (const char *)ptr + bytes && (const char *)ptr < p->dst + p->bytes;
}

// Delivers, in program order, the copies that the clock covers or that touch the range. Called with
// the lock held.
static void deliver(const SimClock *clock, const void *ptr, size_t bytes)
{
    size_t kept = 0;
    for (size_t i = 0; i < n_pending; i++) {
        Pending *p = &pending[i];
        bool covered = clock && p->slot < clock->n && clock->t[p->slot] >= p->time;
        if (covered || (bytes && overlap(p, ptr, bytes))) {
            memcpy(p->dst, p->data, p->bytes);
            free(p->data);
        } else {
            pending[kept++] = *p;
        }
    }
    n_pending = kept;
}

void sim_pinned_deliver(const SimClock *clock)
{
    pthread_mutex_lock(&lock);
    deliver(clock, NULL, 0);
    pthread_mutex_unlock(&lock);
}

void sim_pinned_deliver_range(const void *ptr, size_t bytes)
{
    pthread_mutex_lock(&lock);
    deliver(NULL, ptr, bytes);
    pthread_mutex_unlock(&lock);
}

// ---- Making and ending pinned memory ----

// Whether any piece touches [ptr, ptr+bytes); called with the lock held.
static bool any_piece(const void *ptr, size_t bytes)
{
    SimTreeNode *next = sim_tree_ceiling(pieces, (size_t)ptr);
    return find(ptr) || (next && next->key - (size_t)ptr < bytes);
}

static cudaError_t add_piece(void *ptr, size_t bytes, unsigned flags, bool ours)
{
    Piece *piece = calloc(1, sizeof *piece);
    if (!piece) return cudaErrorMemoryAllocation;
    piece->node.key = (size_t)ptr;
    piece->bytes = bytes;
    piece->flags = flags;
    piece->ours = ours;
    pthread_mutex_lock(&lock);
    bool taken = any_piece(ptr, bytes);
    if (!taken) sim_tree_insert(&pieces, &piece->node);
    pthread_mutex_unlock(&lock);
    if (taken) free(piece);
    return taken ? cudaErrorHostMemoryAlreadyRegistered : cudaSuccess;
}

// Takes the piece that begins at ptr out of the table; false: there is none of this kind.
static bool remove_piece(void *ptr, bool ours)
{
    pthread_mutex_lock(&lock);
    Piece *piece = find(ptr);
    bool there = piece && piece->node.key == (size_t)ptr && piece->ours == ours;
    if (there) {
        deliver(NULL, ptr, piece->bytes);
        sim_tree_remove(&pieces, &piece->node);
    }
    pthread_mutex_unlock(&lock);
    if (there) free(piece);
    return there;
}

static cudaError_t allocate(void **ptr, size_t size, unsigned flags)
{
    unsigned known = cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined;
    if (!ptr || (flags & ~known)) return sim_leave(cudaErrorInvalidValue);
    *ptr = NULL;
    if (size == 0) return cudaSuccess;
    if (size > SIZE_MAX - PINNED_ALIGN) return sim_leave(cudaErrorMemoryAllocation);
    size_t rounded = (size + PINNED_ALIGN - 1) / PINNED_ALIGN * PINNED_ALIGN;
    void *memory = aligned_alloc(PINNED_ALIGN, rounded);
    if (!memory) return sim_leave(cudaErrorMemoryAllocation);
    cudaError_t error = add_piece(memory, size, flags, true);
    if (error == cudaSuccess)
        *ptr = memory;
    else
        free(memory);
    return sim_leave(error);
}

cudaError_t cudaMallocHost(void **ptr, size_t size)
{
    SIM_ENTER();
    return allocate(ptr, size, cudaHostAllocDefault);
}

cudaError_t cudaHostAlloc(void **pHost, size_t size, unsigned int flags)
{
    SIM_ENTER();
    return allocate(pHost, size, flags);
}

static cudaError_t report_unknown(const char *call, const void *ptr, const char *maker,
                                  const void *site)
{
    char where[256];
    gpulog_where(site, where, sizeof where);
    sim_report(SIMGPU_LIFETIME, "this is no pinned host memory",
               "%s, called at %s,\nwas given %p, which %s did not return, or which was given back "
               "already.",
               call, where, ptr, maker);
    return sim_leave(cudaErrorInvalidValue);
}

cudaError_t cudaFreeHost(void *ptr)
{
    SIM_ENTER();
    if (!ptr) return cudaSuccess;
    if (!remove_piece(ptr, true))
        return report_unknown("cudaFreeHost", ptr, "cudaMallocHost or cudaHostAlloc", SIM_SITE);
    free(ptr);
    return cudaSuccess;
}

cudaError_t cudaHostRegister(void *ptr, size_t size, unsigned int flags)
{
    SIM_ENTER();
    size_t offset;
    if (!ptr || !size || flags > 0xf || sim_device_of(ptr, &offset))
        return sim_leave(cudaErrorInvalidValue);
    return sim_leave(add_piece(ptr, size, flags, false));
}

cudaError_t cudaHostUnregister(void *ptr)
{
    SIM_ENTER();
    return sim_leave(remove_piece(ptr, false) ? cudaSuccess : cudaErrorHostMemoryNotRegistered);
}

// With one address space for host and devices, pinned memory has the same address on both.
cudaError_t cudaHostGetDevicePointer(void **pDevice, void *pHost, unsigned int flags)
{
    SIM_ENTER();
    bool inside;
    if (!pDevice || flags || !sim_pinned(pHost, 1, &inside))
        return sim_leave(cudaErrorInvalidValue);
    *pDevice = pHost;
    return cudaSuccess;
}

cudaError_t cudaHostGetFlags(unsigned int *pFlags, void *pHost)
{
    SIM_ENTER();
    pthread_mutex_lock(&lock);
    Piece *piece = find(pHost);
    if (piece && pFlags) *pFlags = piece->flags;
    pthread_mutex_unlock(&lock);
    return sim_leave(piece && pFlags ? cudaSuccess : cudaErrorInvalidValue);
}
