/* pinned.c: pinned host memory (its rules are in pinned_internal.h), and its calls.
 *
 * Interface: cudaMallocHost, cudaHostAlloc, cudaFreeHost, cudaHostRegister, cudaHostUnregister,
 * cudaHostGetDevicePointer, cudaHostGetFlags; simgpu_pinned_bytes; pinned.h;
 * pinned_internal.h.
 */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/error.h"
#include "core/leak.h"
#include "gpulog.h"
#include "memory/fault.h"
#include "memory/pinned_internal.h"
#include "memory/place.h"
#include "memory/shadow.h"
#include "report/hooks.h"
#include "report/report.h"
#include "time/time.h"

#define PINNED_ALIGN 4096
#define WHERE PINNED_WHERE

pthread_mutex_t sim_pinned_lock = PTHREAD_MUTEX_INITIALIZER;
static SimTreeNode *pieces;
static SimSpare *spare;                          // of the pieces' shadows
static atomic_size_t lowest = SIZE_MAX, highest; // the bounds of all pieces that ever were

PinnedPiece *sim_pinned_floor(const void *ptr)
{
    SimTreeNode *node = sim_tree_floor(pieces, (size_t)ptr);
    return node ? SIM_TREE_OWNER(node, PinnedPiece, node) : NULL;
}

PinnedPiece *sim_pinned_ceiling(const void *ptr)
{
    SimTreeNode *node = sim_tree_ceiling(pieces, (size_t)ptr);
    return node ? SIM_TREE_OWNER(node, PinnedPiece, node) : NULL;
}

PinnedPiece *sim_pinned_find(const void *ptr)
{
    PinnedPiece *piece = sim_pinned_floor(ptr);
    return piece && (size_t)ptr - piece->node.key < piece->bytes ? piece : NULL;
}

bool sim_pinned(const void *ptr, size_t bytes, bool *inside)
{
    *inside = false;
    pthread_mutex_lock(&sim_pinned_lock);
    PinnedPiece *piece = sim_pinned_find(ptr);
    if (piece) *inside = bytes <= piece->bytes - ((size_t)ptr - piece->node.key);
    pthread_mutex_unlock(&sim_pinned_lock);
    return piece != NULL;
}

bool sim_pinned_is_near(const void *ptr)
{
    return (size_t)ptr >= atomic_load(&lowest) && (size_t)ptr < atomic_load(&highest);
}

void sim_pinned_describe_byte(const PinnedPiece *piece, const void *ptr, char *text, size_t size)
{
    char made[WHERE];
    gpulog_where(piece->site, made, sizeof made);
    snprintf(text, size, "byte %zu of the %zu bytes of pinned memory %s at %s",
             (size_t)ptr - piece->node.key, piece->bytes, piece->ours ? "allocated" : "registered",
             made);
}

void sim_pinned_describe(const void *ptr, char *text, size_t size)
{
    PinnedPiece copy = {.bytes = 0};
    pthread_mutex_lock(&sim_pinned_lock);
    const PinnedPiece *piece = sim_pinned_find(ptr);
    if (piece) copy = *piece;
    pthread_mutex_unlock(&sim_pinned_lock);
    snprintf(text, size, "pinned memory");
    if (piece) sim_pinned_describe_byte(&copy, ptr, text, size);
}

SimShadow *sim_pinned_shadow_hold(const void *ptr, size_t *offset)
{
    pthread_mutex_lock(&sim_pinned_lock);
    const PinnedPiece *piece = sim_pinned_find(ptr);
    *offset = piece ? (size_t)ptr - piece->node.key : 0;
    return piece ? piece->shadow : NULL;
}

void sim_pinned_shadow_release(void)
{
    pthread_mutex_unlock(&sim_pinned_lock);
}

static void note_pieces(SimLeaks *leaks)
{
    if (pthread_mutex_trylock(&sim_pinned_lock)) return;
    for (SimTreeNode *node = sim_tree_ceiling(pieces, 0); node;
         node = sim_tree_ceiling(pieces, node->key + 1)) {
        PinnedPiece *piece = SIM_TREE_OWNER(node, PinnedPiece, node);
        sim_leak_note(leaks, THING_PINNED, (void *)node->key, piece->bytes, piece->site);
    }
    pthread_mutex_unlock(&sim_pinned_lock);
}

static SimHooks hooks = {.visit = note_pieces};

size_t simgpu_pinned_bytes(void)
{
    size_t bytes = 0;
    pthread_mutex_lock(&sim_pinned_lock);
    for (SimTreeNode *node = sim_tree_ceiling(pieces, 0); node;
         node = sim_tree_ceiling(pieces, node->key + 1))
        bytes += SIM_TREE_OWNER(node, PinnedPiece, node)->bytes;
    pthread_mutex_unlock(&sim_pinned_lock);
    return bytes;
}

// ---- Making and ending pinned memory ----

// Whether any piece touches [ptr, ptr+bytes); called with the lock held.
static bool any_piece(const void *ptr, size_t bytes)
{
    SimTreeNode *next = sim_tree_ceiling(pieces, (size_t)ptr);
    return sim_pinned_find(ptr) || (next && next->key - (size_t)ptr < bytes);
}

static void destroy_piece(PinnedPiece *piece)
{
    if (!piece) return;
    pthread_mutex_lock(&sim_pinned_lock);
    sim_shadow_destroy(piece->shadow);
    pthread_mutex_unlock(&sim_pinned_lock);
    free(piece);
}

// `alias` and `mapped`: as in PinnedPiece; NULL and 0 for memory that is mapped once.
static cudaError_t add_piece(void *ptr, size_t bytes, unsigned flags, bool ours, const void *site,
                             char *alias, size_t mapped)
{
    PinnedPiece *piece = calloc(1, sizeof *piece);
    if (!piece) return cudaErrorMemoryAllocation;
    piece->node.key = (size_t)ptr;
    piece->bytes = bytes;
    piece->flags = flags;
    piece->ours = ours;
    piece->site = site;
    piece->alias = alias ? alias : ptr;
    piece->mapped = mapped;
    sim_hooks_add(&hooks);
    if (sim_pinned_watched()) {
        sim_fault_install();
        sim_fault_thread();
    }
    pthread_mutex_lock(&sim_pinned_lock);
    bool taken = any_piece(ptr, bytes);
    if (!taken && sim_pinned_watched()) piece->shadow = sim_shadow_create(bytes, true, &spare);
    if (!taken) sim_tree_insert(&pieces, &piece->node);
    if (!taken && (size_t)ptr < atomic_load(&lowest)) atomic_store(&lowest, (size_t)ptr);
    if (!taken && (size_t)ptr + bytes > atomic_load(&highest))
        atomic_store(&highest, (size_t)ptr + bytes);
    pthread_mutex_unlock(&sim_pinned_lock);
    if (taken) destroy_piece(piece);
    return taken ? cudaErrorHostMemoryAlreadyRegistered : cudaSuccess;
}

static void report_early_end(const char *call, const void *site, const PinnedPiece *piece,
                             const PinnedCopy *p)
{
    char where[WHERE], what[2 * WHERE], copy[WHERE], stream[WHERE];
    gpulog_where(site, where, sizeof where);
    gpulog_where(p->site, copy, sizeof copy);
    sim_pinned_describe_byte(piece, p->at, what, sizeof what);
    sim_stream_name(&p->place.stream, stream, sizeof stream);
    sim_facts_call(call, site, SIM_NO_STREAM);
    sim_facts_call(p->name, p->site, SIM_NO_STREAM);
    sim_facts_range(p->at, copy_span(p));
    sim_report(SIMGPU_HOST_RACE, "pinned memory is freed while a copy is in flight",
               "%s, called at %s,\nfrees the %zu bytes of pinned memory %s there.\n"
               "%s, called at %s,\non %s,\n%s %zu bytes from %s,\n"
               "and the host has not waited for that.\n"
               "On a GPU the copy may use memory that another allocation has by then.\n"
               "Is a cudaStreamSynchronize missing before the buffer is freed?",
               call, where, piece->bytes, piece->ours ? "allocated" : "registered", p->name, copy,
               stream, p->access == GPU_READ ? "reads" : "writes", copy_span(p), what);
}

// Removes the piece that begins at ptr from the table; NULL: there is none of this kind.
static PinnedPiece *remove_piece(const char *call, void *ptr, bool ours, const void *site)
{
    PinnedCopy busy, *p;
    bool early = false;
    pthread_mutex_lock(&sim_pinned_lock);
    PinnedPiece *piece = sim_pinned_find(ptr);
    if (piece && (piece->node.key != (size_t)ptr || piece->ours != ours)) piece = NULL;
    if (piece) {
        for (size_t i = 0; !early && (p = sim_pinned_copy(i)); i++) {
            early = sim_pinned_watched() && !p->told && copy_overlaps(p, ptr, piece->bytes);
            if (early) busy = *p;
        }
        sim_pinned_finish(NULL, ptr, piece->bytes);
        sim_tree_remove(&pieces, &piece->node);
    }
    pthread_mutex_unlock(&sim_pinned_lock);
    if (early) report_early_end(call, site, piece, &busy);
    return piece;
}

// Two mappings of the same fresh memory; false: there is no room for them.
static bool map_twice(size_t bytes, void **first, void **second)
{
    size_t page = sim_page_bytes();
    char *front =
        mmap(NULL, page + bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    *first = MAP_FAILED;
    *second = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    if (front != MAP_FAILED && *second != MAP_FAILED) // mremap of 0 bytes adds a second mapping
        *first = mremap(*second, 0, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, front + page);
    if (*first != MAP_FAILED && *second != MAP_FAILED) return true;
    if (front != MAP_FAILED) munmap(front, page + bytes);
    if (*second != MAP_FAILED) munmap(*second, bytes);
    return false;
}

static void free_memory(void *ptr, void *alias, size_t mapped)
{
    if (mapped) {
        munmap((char *)ptr - sim_page_bytes(), sim_page_bytes() + mapped);
        munmap(alias, mapped);
    } else {
        free(ptr);
    }
}

static cudaError_t allocate(void **ptr, size_t size, unsigned flags, const void *site)
{
    unsigned known = cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined;
    if (!ptr || (flags & ~known)) return sim_leave(cudaErrorInvalidValue);
    *ptr = NULL;
    if (size == 0) return cudaSuccess;
    if (size > SIZE_MAX - PINNED_ALIGN) return sim_leave(cudaErrorMemoryAllocation);
    size_t rounded = (size + PINNED_ALIGN - 1) / PINNED_ALIGN * PINNED_ALIGN;
    void *memory = NULL, *alias = NULL;
    size_t page = sim_page_bytes(), mapped = (size + page - 1) / page * page;
    if (!sim_pinned_watched() || !map_twice(mapped, &memory, &alias)) {
        mapped = 0;
        alias = NULL;
        memory = aligned_alloc(PINNED_ALIGN, rounded);
    }
    if (!memory) return sim_leave(cudaErrorMemoryAllocation);
    cudaError_t error = add_piece(memory, size, flags, true, site, alias, mapped);
    if (error == cudaSuccess) {
        *ptr = memory;
        sim_clock_pin(sim_current_device());
    } else {
        free_memory(memory, alias, mapped);
    }
    return sim_leave(error);
}

cudaError_t cudaMallocHost(void **ptr, size_t size)
{
    SIM_ENTER_UNSAFE();
    return allocate(ptr, size, cudaHostAllocDefault, SIM_SITE);
}

cudaError_t cudaHostAlloc(void **pHost, size_t size, unsigned int flags)
{
    SIM_ENTER_UNSAFE();
    return allocate(pHost, size, flags, SIM_SITE);
}

static cudaError_t report_unknown(const char *call, const void *ptr, const char *maker,
                                  const void *site)
{
    char where[256];
    if (!sim_pinned_check_gone(call, ptr, 0, "releases", site))
        return sim_leave(cudaErrorInvalidValue);
    gpulog_where(site, where, sizeof where);
    sim_facts_call(call, site, SIM_NO_STREAM);
    sim_report(SIMGPU_LIFETIME, "this is not pinned host memory",
               "%s, called at %s,\n"
               "was given %p,\n"
               "which %s did not return, or which was released already.\n"
               "On a GPU this is an invalid argument, and nothing is freed.\n"
               "Is it memory from malloc, or freed on two paths?",
               call, where, ptr, maker);
    return sim_leave(cudaErrorInvalidValue);
}

cudaError_t cudaFreeHost(void *ptr)
{
    SIM_ENTER_UNSAFE();
    if (!ptr) return cudaSuccess;
    PinnedPiece *piece = remove_piece("cudaFreeHost", ptr, true, SIM_SITE);
    if (!piece)
        return report_unknown("cudaFreeHost", ptr, "cudaMallocHost or cudaHostAlloc", SIM_SITE);
    if (piece->mapped) {
        munmap(piece->alias, piece->mapped);
        sim_pinned_keep_closed(piece, SIM_SITE);
    } else {
        free(ptr);
    }
    destroy_piece(piece);
    sim_clock_pin(sim_current_device());
    return cudaSuccess;
}

cudaError_t cudaHostRegister(void *ptr, size_t size, unsigned int flags)
{
    SIM_ENTER_UNSAFE();
    size_t offset;
    if (!ptr || !size || flags > 0xf || sim_device_of(ptr, &offset))
        return sim_leave(cudaErrorInvalidValue);
    return sim_leave(add_piece(ptr, size, flags, false, SIM_SITE, NULL, 0));
}

cudaError_t cudaHostUnregister(void *ptr)
{
    SIM_ENTER_UNSAFE();
    PinnedPiece *piece = remove_piece("cudaHostUnregister", ptr, false, SIM_SITE);
    if (!piece) return sim_leave(cudaErrorHostMemoryNotRegistered);
    destroy_piece(piece);
    return cudaSuccess;
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
    pthread_mutex_lock(&sim_pinned_lock);
    PinnedPiece *piece = sim_pinned_find(pHost);
    if (piece && pFlags) *pFlags = piece->flags;
    pthread_mutex_unlock(&sim_pinned_lock);
    return sim_leave(piece && pFlags ? cudaSuccess : cudaErrorInvalidValue);
}
