/* own_memory.c: counts the memory that simgpu itself has from malloc, so that a count of the
 * program's host memory can leave it out. The build gives all files of simgpu and gpulog these
 * functions for malloc, calloc, realloc and free (make/rules.mk); built without them, nothing is
 * counted.
 *
 * Interface: simgpu_host_bytes.
 */
#undef malloc
#undef calloc
#undef realloc
#undef free

#include <malloc.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

#include "simgpu.h"

void *sim_own_malloc(size_t bytes);
void *sim_own_calloc(size_t n, size_t bytes);
void *sim_own_realloc(void *ptr, size_t bytes);
void sim_own_free(void *ptr);

#if defined(__GLIBC__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
// Whether a chunk is of the main thread's heap or a mapping: other threads' chunks have a bit set
// in front of them.
static int64_t counted(const size_t *ptr)
{
    enum { OTHER_HEAP = 4 };
    if (ptr == NULL || ptr[-1] & OTHER_HEAP) return 0;
    return (int64_t)(malloc_usable_size((void *)(uintptr_t)ptr) + sizeof(size_t));
}
#else
static int64_t counted(const size_t *ptr)
{
    return 0;
}
#endif

static _Atomic int64_t own; // below 0 if simgpu has freed memory that libc had allocated

static void *taken(void *ptr)
{
    atomic_fetch_add_explicit(&own, counted(ptr), memory_order_relaxed);
    return ptr;
}

void *sim_own_malloc(size_t bytes)
{
    return taken(malloc(bytes));
}

void *sim_own_calloc(size_t n, size_t bytes)
{
    return taken(calloc(n, bytes));
}

void *sim_own_realloc(void *ptr, size_t bytes)
{
    int64_t before = counted(ptr);
    void *moved = realloc(ptr, bytes);
    if (moved != NULL) atomic_fetch_sub_explicit(&own, before, memory_order_relaxed);
    return moved != NULL ? taken(moved) : NULL;
}

void sim_own_free(void *ptr)
{
    atomic_fetch_sub_explicit(&own, counted(ptr), memory_order_relaxed);
    free(ptr);
}

int64_t simgpu_host_bytes(void)
{
    return atomic_load_explicit(&own, memory_order_relaxed);
}
