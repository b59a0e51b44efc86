/* bystanders.c: finds the threads that a launcher's library has started for itself.
 *
 * MPI and PMIx start threads that wait for messages. They never call NCCL, so they never end
 * anybody's wait. Such a thread is recognised by its stack: between the place where it sleeps and
 * its beginning there are return addresses of the launcher's libraries, and none of the program's.
 * The launcher's libraries are, in the loader's list, those named below; what they need and the
 * program does not; and plugins, which need one of them.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "core/groups.h"
#include "core/threads.h"

#define MOST_OBJECTS 512
#define MOST_NEEDED 64
#define MOST_STACK (1 << 20)
#define THREAD_BYTES 2048 // of the C library's description of a thread, behind its list of locks

typedef struct Object {
    uint64_t name, needed[MOST_NEEDED]; // hashes
    int n_needed;
    bool named;               // as the launcher's
    bool launchers, programs; // needed by those; by the program, other than through them
    uintptr_t from, to;       // its code
} Object;

typedef struct Objects {
    int n;
    bool complete, any_named;
    Object of[MOST_OBJECTS];
} Objects;

static uint64_t hash_of(const char *path)
{
    const char *end = strrchr(path, '/');
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (const char *at = end ? end + 1 : path; *at; at++)
        hash = (hash ^ (unsigned char)*at) * UINT64_C(0x100000001b3);
    return hash;
}

static bool is_launchers(const char *path)
{
    static const char *const begin[] = {"libmpi", "libpmi", "libopen-pal", "libopen-rte", "mca_"};
    const char *end = strrchr(path, '/'), *name = end ? end + 1 : path;
    for (size_t i = 0; i < sizeof begin / sizeof begin[0]; i++)
        if (strncmp(name, begin[i], strlen(begin[i])) == 0) return true;
    return false;
}

// `base`: the address of the object. The loader may or may not have added it to the table's
// addresses.
static void read_needed(Object *object, uintptr_t base, const ElfW(Dyn) * first)
{
    const char *texts = NULL;
    for (const ElfW(Dyn) *at = first; at->d_tag != DT_NULL; at++)
        if (at->d_tag == DT_STRTAB)
            texts = (const char *)at->d_un.d_ptr + (at->d_un.d_ptr < base ? base : 0);
    for (const ElfW(Dyn) *at = first; texts && at->d_tag != DT_NULL; at++) {
        const char *text = texts + at->d_un.d_val;
        if (at->d_tag == DT_SONAME) object->name = hash_of(text);
        if (at->d_tag == DT_NEEDED && object->n_needed < MOST_NEEDED)
            object->needed[object->n_needed++] = hash_of(text);
    }
}

static int add_object(struct dl_phdr_info *info, size_t size, void *arg)
{
    Objects *all = arg;
    if (strncmp(info->dlpi_name, "linux-", 6) == 0) return 0; // the kernel's own
    all->complete = all->n < MOST_OBJECTS;
    if (!all->complete) return 1;
    Object *object = &all->of[all->n++];
    *object = (Object){.name = hash_of(info->dlpi_name), .from = UINTPTR_MAX};
    object->named = object->launchers = is_launchers(info->dlpi_name);
    object->programs = all->n == 1;
    all->any_named |= object->named;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        uintptr_t from = info->dlpi_addr + part->p_vaddr, to = from + part->p_memsz;
        if (part->p_type == PT_DYNAMIC)
            read_needed(object, info->dlpi_addr, (const ElfW(Dyn) *)from);
        if (part->p_type != PT_LOAD || !(part->p_flags & PF_X)) continue;
        if (from < object->from) object->from = from;
        if (to > object->to) object->to = to;
    }
    return 0;
}

static Object *find_needed(Objects *all, uint64_t name)
{
    for (int i = 0; i < all->n; i++)
        if (all->of[i].name == name) return &all->of[i];
    return NULL;
}

// One round over which object needs which; false: it found nothing new.
static bool spread_needs(Objects *all)
{
    bool changed = false;
    for (int i = 0; i < all->n; i++)
        for (int k = 0; k < all->of[i].n_needed; k++) {
            Object *who = &all->of[i], *needed = find_needed(all, who->needed[k]);
            if (!needed) continue;
            bool plugin = !who->launchers && !who->programs && needed->launchers &&
                          !needed->programs && !needed->named;
            bool launchers = who->launchers && !needed->launchers;
            bool programs = who->programs && !who->named && !needed->programs && !needed->named;
            who->launchers |= plugin;
            needed->launchers |= launchers;
            needed->programs |= programs;
            changed |= plugin || launchers || programs;
        }
    return changed;
}

// Whether the stack has return addresses of the launcher's libraries alone, from `at` to its end.
static bool has_launchers_stack(const Objects *all, uintptr_t at, uintptr_t end)
{
    static uintptr_t words[512];
    bool launchers = false;
    for (uintptr_t next; at < end; at = next) {
        next = (at / sizeof words + 1) * sizeof words;
        struct iovec to = {words, next - at}, from = {(void *)at, next - at};
        ssize_t got = process_vm_readv(getpid(), &to, 1, &from, 1, 0);
        if (got <= 0) break; // the stack ends earlier, or the thread has just ended
        for (size_t i = 0; i < (size_t)got / sizeof words[0]; i++)
            for (int k = 0; k < all->n; k++) {
                const Object *object = &all->of[k];
                if (words[i] < object->from || words[i] >= object->to) continue;
                if (!object->launchers) return false;
                launchers |= !object->programs;
            }
    }
    return launchers;
}

// Finds the stack of a thread that sleeps; false: it is running.
static bool find_stack(int tid, uintptr_t *at, uintptr_t *end)
{
    char path[64], text[256] = "";
    void *locks = NULL;
    size_t size;
    snprintf(path, sizeof path, "/proc/self/task/%d/syscall", tid);
    if (!sim_read_text(path, text, sizeof text)) return false;
    char *last = strrchr(text, ' '); // its end is "… stack code"
    if (!last || text[0] == 'r') return false;
    *last = '\0';
    char *stack = strrchr(text, ' ');
    if (!stack || syscall(SYS_get_robust_list, tid, &locks, &size) != 0 || !locks) return false;
    *at = strtoull(stack, NULL, 16) & ~(sizeof(uintptr_t) - 1);
    *end = (uintptr_t)locks + THREAD_BYTES;
    return *at < *end && *end - *at < MOST_STACK;
}

void sim_find_bystanders(const SimTids *among, SimTids *found)
{
    static Objects all; // under the lock of threads.c
    found->n = 0;
    all.n = 0;
    all.any_named = false;
    dl_iterate_phdr(add_object, &all);
    if (!all.complete || !all.any_named) return;
    while (spread_needs(&all)) continue;
    for (int i = 0; i < among->n; i++) {
        uintptr_t at, end;
        if (among->tid[i] == getpid() || !find_stack(among->tid[i], &at, &end)) continue;
        if (has_launchers_stack(&all, at, end)) found->tid[found->n++] = among->tid[i];
    }
}
