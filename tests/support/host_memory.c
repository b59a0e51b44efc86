/* host_memory.c: the memory of the host that a process has. See host_memory.h. */
#include "host_memory.h"

#include "backend.h"

#include <malloc.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define OWN_MALLOC 0 // a sanitizer's takes its place
#else
#define OWN_MALLOC 1
#endif

#if OWN_MALLOC && defined(__GLIBC__) && __GLIBC_PREREQ(2, 33)
// The first `size="…"` after the text `what`; SIZE_MAX where there is none.
static size_t size_after(const char *text, const char *what)
{
    size_t size = SIZE_MAX;
    const char *at = strstr(text, what);
    if (at != NULL) at = strstr(at, "size=\"");
    if (at == NULL || sscanf(at, "size=\"%zu\"", &size) != 1) return SIZE_MAX;
    return size;
}

// Bytes in use of the first heap (malloc_info(3)), which is the main thread's: mallinfo2 adds those
// of other threads, and a library's thread may begin at any moment.
static size_t main_heap_bytes(void)
{
    static char text[1 << 16], buffer[BUFSIZ];
    static FILE *file; // made once, so that counting takes nothing
    if (file == NULL && (file = fmemopen(text, sizeof text, "w")) != NULL)
        setvbuf(file, buffer, _IOFBF, sizeof buffer);
    if (file == NULL) return SIZE_MAX;
    rewind(file);
    if (malloc_info(0, file) != 0 || fflush(file) != 0) clearerr(file); // no place for more heaps
    size_t fast = size_after(text, "<total type=\"fast\""),
           rest = size_after(text, "type=\"rest\""),
           all = size_after(text, "<system type=\"current\"");
    return fast == SIZE_MAX || rest == SIZE_MAX || all == SIZE_MAX ? SIZE_MAX : all - fast - rest;
}

size_t host_bytes(void)
{
    int64_t library;
    if (!backend_counts_host_memory(&library)) return 0;
    size_t heap = main_heap_bytes();
    return heap == SIZE_MAX ? 0 : heap + mallinfo2().hblkhd - (size_t)library;
}
#else
size_t host_bytes(void)
{
    return 0;
}
#endif

// Private writable memory of the process, which is what RLIMIT_DATA counts, in bytes; 0: unknown.
static size_t data_bytes(void)
{
    char line[200];
    unsigned long kib = 0;
    FILE *file = fopen("/proc/self/status", "r");

    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "VmData: %lu kB", &kib) == 1) break;
    if (file != NULL) fclose(file);
    return (size_t)kib * 1024;
}

void host_fill(bool fill)
{
#if OWN_MALLOC && defined(M_PERTURB)
    // glibc keeps so many blocks of each size as they are.
    enum { LARGEST = 1032, ROOM = __GLIBC_PREREQ(2, 42) ? 16 : 7 };
    void *taken[ROOM];
    for (size_t size = 24; fill && size <= LARGEST; size += 16) {
        for (int i = 0; i < ROOM; i++) taken[i] = malloc(size);
        for (int i = 0; i < ROOM; i++) free(taken[i]);
    }
    mallopt(M_PERTURB, fill ? HOST_FREED : 0);
#endif
}

static bool counts(void)
{
    int64_t library;
    return OWN_MALLOC && backend_counts_host_memory(&library);
}

static volatile sig_atomic_t is_short;

bool host_is_short(void)
{
    return is_short;
}

void host_trim(void)
{
#if OWN_MALLOC && defined(__GLIBC__)
    malloc_trim(0);
#endif
}

void host_limit(size_t more)
{
    static struct rlimit usual;
    static int known;
    struct rlimit limit;
    size_t now = data_bytes();

    if (!known) known = getrlimit(RLIMIT_DATA, &usual) == 0;
    if (!counts() || !known || now == 0) return;
    limit = usual;
    if (more > 0 && (usual.rlim_cur == RLIM_INFINITY || now + more < usual.rlim_cur))
        limit.rlim_cur = now + more;
    setrlimit(RLIMIT_DATA, &limit);
    is_short = limit.rlim_cur != usual.rlim_cur;
}

void host_exhaust(size_t block)
{
    static struct Block {
        struct Block *next;
    } * taken;
    struct rlimit limit;

    if (block == 0) {
        host_limit(0);
        while (taken != NULL) {
            struct Block *next = taken->next;
            free(taken);
            taken = next;
        }
        return;
    }
    if (!counts()) return;
    host_limit(1);
    if (getrlimit(RLIMIT_DATA, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
    for (struct Block *more; (more = malloc(block)) != NULL; taken = more) more->next = taken;
}
