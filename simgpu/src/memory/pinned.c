/* pinned.c: pinned host memory, and copies into it that are not delivered yet.
 *
 * A copy from the device into pinned memory is under way when the call returns. Here its bytes
 * wait in a buffer of their own, and the destination holds 0xFF (NaN) until the host waits for the
 * copy or for something after it: a program that reads its result without waiting reads NaN every
 * time, and not only with unlucky timing.
 *
 * With SIMGPU_CHECK=full the host is watched, too: while a copy into pinned memory is under way its
 * pages have no access, while one from it is, they cannot be written. A touch of the copy's bytes
 * is a race, and is reported (fault.c brings it here); then it is let through, and the program goes
 * on. A page on which the program has other bytes too is closed while a copy into it is under way;
 * for a touch of the other bytes it is opened for that one instruction. System calls do not fault:
 * check/syscall.c brings them here, and their range stays open until they return.
 *
 * Pinned memory of simgpu's own is mapped twice then, so that operations go around the closed
 * pages, with a closed page in front, where free() would look. Registered memory has one address
 * only, and simgpu opens it for its own operations; its pages that hold other bytes too are never
 * closed. Memory that was given back stays closed for a while, so that a use of it is found.
 *
 * Interface: cudaMallocHost, cudaHostAlloc, cudaFreeHost, cudaHostRegister, cudaHostUnregister,
 * cudaHostGetDevicePointer, cudaHostGetFlags; sim_pinned, sim_pinned_use, sim_pinned_defer,
 * sim_pinned_watch, sim_pinned_deliver, sim_pinned_fault, sim_pinned_lend, sim_pinned_returned,
 * sim_pinned_shadow_hold, sim_pinned_shadow_let_go, sim_pinned_describe, sim_pinned_visit.
 */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check/check.h"
#include "check/shadow.h"
#include "memory/memory.h"
#include "memory/tree.h"
#include "report/report.h"
#include "streams/streams.h"

#define PINNED_ALIGN 4096
#define MOST_WATCHED 4096 // copies; the oldest are watched no longer
#define MOST_LENT 64
#define MOST_STEPS 256 // then a page with other bytes is not closed any more for that copy
#define MOST_GONE 256
#define GONE_BYTES ((size_t)16 << 30)
#define WHERE 256

// One piece of pinned memory.
typedef struct Piece {
    SimTreeNode node; // key: address
    size_t bytes;
    unsigned flags;
    bool ours; // made by cudaHostAlloc, not registered
    const void *site;
    char *alias;   // where simgpu reads and writes it: elsewhere, where it is mapped twice
    size_t mapped; // bytes of each mapping; 0: it is malloc's. A closed page is in front of it.
    SimShadow *shadow;
} Piece;

// What is remembered of a piece that was mapped twice and is given back: its addresses are kept.
typedef struct Gone {
    const char *at; // NULL: nothing
    size_t bytes, mapped;
    const void *made, *freed; // call sites
} Gone;

// A copy that nobody has waited for: rows of pinned memory that it writes, or reads.
typedef struct Pending {
    char *at; // as the program sees it
    size_t pitch, width, height;
    char *data; // what is still to be delivered, row by row; NULL: nothing
    GpuAccess access;
    int slot; // of its stream
    uint64_t time;
    const char *name;
    const void *site;
    SimStreamId stream;
    bool told; // a touch by the host was reported
    bool shared_closed; // pages on which there are other bytes are closed too
    int steps;          // touches of those
} Pending;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static SimTreeNode *pieces;
static Pending *pending; // in program order
static size_t n_pending, max_pending;
static Gone gone[MOST_GONE];
static uint64_t n_gone;
static size_t gone_bytes;
static atomic_size_t lowest = SIZE_MAX, highest; // all pieces there ever were lie between
static struct {
    const char *at; // NULL: nobody's
    size_t bytes;
} lent[MOST_LENT]; // to system calls under way: their pages stay open

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

static char *alias_of(const Piece *piece, const void *ptr)
{
    return piece->alias + ((size_t)ptr - piece->node.key);
}

// ---- Closed pages ----

static bool watches(void)
{
    return sim_config()->check == CHECK_FULL;
}

static size_t page_bytes(void)
{
    static size_t bytes;
    if (!bytes) bytes = (size_t)sysconf(_SC_PAGESIZE);
    return bytes;
}

// The pages of [at, at+bytes) that hold nothing but the piece; false: there are none.
static bool pages_of(const Piece *piece, const char *at, size_t bytes, char **first, size_t *length)
{
    size_t page = page_bytes(), begin = (size_t)at & -page;
    size_t end = ((size_t)at + bytes + page - 1) & -page;
    size_t least = (piece->node.key + page - 1) & -page;
    size_t most = piece->mapped ? piece->node.key + piece->mapped
                                : (piece->node.key + piece->bytes) & -page;
    if (begin < least) begin = least;
    if (end > most) end = most;
    *first = (char *)begin;
    *length = end > begin ? end - begin : 0;
    return end > begin;
}

static size_t span(const Pending *p)
{
    return (p->height - 1) * p->pitch + p->width;
}

static bool overlap(const Pending *p, const void *ptr, size_t bytes)
{
    return p->at < (const char *)ptr + bytes && (const char *)ptr < p->at + span(p);
}

// Whether memory can be closed and opened again: not what somebody else decides about.
static bool can_close(const Piece *piece)
{
    unsigned foreign = cudaHostRegisterIoMemory | cudaHostRegisterReadOnly;
    return watches() && (piece->ours ? piece->mapped > 0 : !(piece->flags & foreign));
}

static bool open_pages(const Piece *piece, const char *at, size_t bytes)
{
    char *first;
    size_t length;
    return can_close(piece) && pages_of(piece, at, bytes, &first, &length) &&
           mprotect(first, length, PROT_READ | PROT_WRITE) == 0;
}

// A debugger stops at every fault, also where the program is right.
static bool is_traced(void)
{
    static int traced = -1;
    char line[128];
    if (traced >= 0) return traced;
    traced = 0;
    FILE *status = fopen("/proc/self/status", "re");
    while (status && fgets(line, sizeof line, status))
        if (strncmp(line, "TracerPid:", 10) == 0) traced = atoi(line + 10) != 0;
    if (status) fclose(status);
    return traced;
}

// Whether pages of the copy are closed on which there are other bytes. A right program touches
// those, so nothing may keep the fault from coming here. In its handler the signal is blocked.
static bool closes_shared(const Piece *piece, const Pending *p)
{
    return piece->mapped && p->shared_closed && p->access != GPU_READ && p->steps < MOST_STEPS;
}

// The copy's pages on which the piece has no byte that is not the copy's; false: there are none.
static bool whole_pages(const Piece *piece, const Pending *p, char **first, size_t *length)
{
    if (closes_shared(piece, p)) return pages_of(piece, p->at, span(p), first, length);
    if (p->height > 1 && p->pitch > p->width) return false; // there are bytes between its rows
    if (!pages_of(piece, p->at, span(p), first, length)) return false;
    const char *begin = (const char *)piece->node.key, *end = begin + piece->bytes;
    if (*first > begin) begin = *first; // where the piece begins on the first page,
    if (*first + *length < end) end = *first + *length; // and ends on the last one
    if (p->at > begin) {
        *first += page_bytes();
        *length -= page_bytes();
    }
    if (*length > 0 && p->at + span(p) < end) *length -= page_bytes();
    return *length > 0;
}

static void close_pages(const Piece *piece, const Pending *p)
{
    char *first;
    size_t length;
    if (p->told || !can_close(piece) || !whole_pages(piece, p, &first, &length)) return;
    for (int i = 0; i < MOST_LENT; i++)
        if (lent[i].at && lent[i].at < first + length && first < lent[i].at + lent[i].bytes) return;
    mprotect(first, length, p->access == GPU_READ ? PROT_READ : PROT_NONE);
}

// Opens the pages of what is no longer under way, and closes them again for what else is.
static void reopen(const char *at, size_t bytes)
{
    const Piece *piece = find(at);
    if (!piece || !open_pages(piece, at, bytes)) return;
    size_t page = page_bytes();
    const char *from = (const char *)((size_t)at & -page);
    bytes += (size_t)(at - from) + page;
    for (int writes = 0; writes < 2; writes++) // what writes closes more: it comes last
        for (size_t i = 0; i < n_pending; i++)
            if ((pending[i].access != GPU_READ) == writes && overlap(&pending[i], from, bytes))
                close_pages(piece, &pending[i]);
}

// ---- Copies under way ----

static void move_rows(char *to, size_t to_pitch, const char *from, size_t from_pitch, size_t width,
                      size_t height)
{
    for (size_t row = 0; row < height; row++)
        memcpy(to + row * to_pitch, from + row * from_pitch, width);
}

static void forget(size_t i)
{
    Pending p = pending[i];
    free(p.data);
    memmove(&pending[i], &pending[i + 1], (--n_pending - i) * sizeof *pending);
    reopen(p.at, span(&p));
}

// Room for one more, NULL: there is none.
static Pending *new_pending(const SimgpuOp *op, const void *ptr, size_t pitch, size_t width,
                            size_t height, GpuAccess access)
{
    if (n_pending == max_pending) {
        size_t larger = max_pending ? 2 * max_pending : 16;
        Pending *moved = realloc(pending, larger * sizeof *moved);
        if (!moved) return NULL;
        pending = moved;
        max_pending = larger;
    }
    Pending *p = &pending[n_pending];
    *p = (Pending){.at = (char *)ptr, .pitch = pitch, .width = width, .height = height,
                   .access = access, .name = op->entry.name, .site = op->entry.site};
    p->shared_closed = watches() && access != GPU_READ && !is_traced() && sim_fault_catches();
    return p;
}

static void place(const SimgpuOp *op, Pending *p)
{
    SimMoment moment;
    sim_moment_hold(op, &moment);
    p->stream = moment.stream;
    p->slot = moment.stream.slot;
    p->time = moment.time;
    sim_moment_let_go();
}

void sim_pinned_defer(const SimgpuOp *op, void *dst, size_t dpitch, const void *src, size_t spitch,
                      size_t width, size_t height)
{
    Pending where; // the locks are taken one after the other
    place(op, &where);
    pthread_mutex_lock(&lock);
    const Piece *piece = find(dst);
    char *to = piece ? alias_of(piece, dst) : dst;
    Pending *p = new_pending(op, dst, dpitch, width, height, GPU_WRITE);
    char *data = p ? malloc(width * height) : NULL;
    if (data) {
        move_rows(data, width, src, spitch, width, height);
        for (size_t row = 0; row < height && sim_config()->poison; row++)
            memset(to + row * dpitch, 0xff, width);
        p->data = data;
        p->stream = where.stream;
        p->slot = where.slot;
        p->time = where.time;
        n_pending++;
        if (piece) close_pages(piece, p);
    } else {
        move_rows(to, dpitch, src, spitch, width, height); // early, for want of memory to wait in
    }
    pthread_mutex_unlock(&lock);
}

// The same copy of an earlier round that nobody has waited for, or the oldest where they are too
// many, is watched no longer.
static void make_place(const Pending *p)
{
    for (size_t i = 0; i < n_pending; i++) {
        const Pending *old = &pending[i];
        bool same = old->at == p->at && old->pitch == p->pitch && old->width == p->width &&
                    old->height == p->height && old->slot == p->slot && old->access == p->access;
        if (!old->data && (same || n_pending >= MOST_WATCHED)) {
            forget(i);
            return;
        }
    }
}

void sim_pinned_watch(const SimgpuOp *op, const void *ptr, size_t pitch, size_t width,
                      size_t height, GpuAccess access)
{
    if (!watches()) return;
    Pending where;
    place(op, &where);
    pthread_mutex_lock(&lock);
    const Piece *piece = find(ptr);
    Pending *p = piece ? new_pending(op, ptr, pitch, width, height, access) : NULL;
    if (p) {
        p->stream = where.stream;
        p->slot = where.slot;
        p->time = where.time;
        Pending added = *p;
        make_place(&added);
        pending[n_pending++] = added;
        reopen(added.at, span(&added)); // what writes may have closed the same pages
    }
    pthread_mutex_unlock(&lock);
}

// Called with the lock held, like all that follows.
static void deliver_one(Pending *p)
{
    if (!p->data) return;
    const Piece *piece = find(p->at);
    if (piece && !piece->mapped) open_pages(piece, p->at, span(p));
    move_rows(piece ? alias_of(piece, p->at) : p->at, p->pitch, p->data, p->width, p->width,
              p->height);
    free(p->data);
    p->data = NULL;
}

// Of two copies to one place the later one stays: what lies under a copy comes before it.
static void deliver_up_to(size_t last)
{
    for (size_t i = 0; i < last; i++)
        if (pending[i].data && overlap(&pending[i], pending[last].at, span(&pending[last])))
            deliver_up_to(i);
    deliver_one(&pending[last]);
}

// Ends the copies that the clock covers or, without a clock, that touch the range.
static void finish(const SimClock *clock, const void *ptr, size_t bytes)
{
    for (size_t i = 0; i < n_pending;) {
        const Pending *p = &pending[i];
        bool over = clock ? p->slot < clock->n && clock->t[p->slot] >= p->time
                          : overlap(p, ptr, bytes);
        if (over) {
            deliver_up_to(i);
            forget(i);
        } else {
            i++;
        }
    }
}

void sim_pinned_deliver(const SimClock *clock)
{
    pthread_mutex_lock(&lock);
    finish(clock, NULL, 0);
    pthread_mutex_unlock(&lock);
}

// A copy that an operation has seen is still under way for the host.
void *sim_pinned_use(const void *ptr, size_t bytes)
{
    pthread_mutex_lock(&lock);
    if (!watches()) finish(NULL, ptr, bytes);
    for (size_t i = 0; i < n_pending; i++)
        if (pending[i].data && overlap(&pending[i], ptr, bytes)) deliver_up_to(i);
    const Piece *piece = find(ptr);
    if (piece && !piece->mapped) open_pages(piece, ptr, bytes);
    void *usable = piece ? alias_of(piece, ptr) : (void *)ptr;
    pthread_mutex_unlock(&lock);
    return usable;
}

// ---- Touches by the host ----

static bool holds(const Pending *p, const char *address)
{
    if (address < p->at || address >= p->at + span(p)) return false;
    return p->height == 1 || (size_t)(address - p->at) % p->pitch < p->width;
}

// The memory given back that holds the address, or the page in front of it; NULL: none does.
static const Gone *find_gone(const void *address)
{
    for (uint64_t back = 1; back <= n_gone && back <= MOST_GONE; back++) {
        const Gone *g = &gone[(n_gone - back) % MOST_GONE];
        if (g->at && (size_t)address - (size_t)g->at < g->mapped) return g;
    }
    return NULL;
}

static bool is_near(const void *ptr)
{
    return (size_t)ptr >= atomic_load(&lowest) && (size_t)ptr < atomic_load(&highest);
}

// `fatal`: the use cannot be let through.
static void report_gone(const Gone *g, const char *call, const void *ptr, size_t bytes,
                        const char *verb, const void *site, bool fatal)
{
    static const char title[] = "use of pinned memory that was given back";
    char where[WHERE], made[WHERE], freed[WHERE], body[5 * WHERE];
    gpulog_where(site, where, sizeof where);
    gpulog_where(g->made, made, sizeof made);
    gpulog_where(g->freed, freed, sizeof freed);
    snprintf(body, sizeof body,
             "%s%s%s,\n%s byte %zu of the %zu bytes of pinned memory allocated at %s\n"
             "and given back at %s.\n"
             "On a machine with a GPU this is a segmentation fault, or somebody else's data.\n"
             "Is it given back before its last use, or is this an old pointer that should have "
             "been\nrenewed?",
             call ? call : "", call ? ", called at " : "", where, verb, (size_t)ptr - (size_t)g->at,
             g->bytes, made, freed);
    sim_facts_call(call ? call : "host code", site, SIM_NO_STREAM);
    sim_facts_call("cudaFreeHost", g->freed, SIM_NO_STREAM);
    sim_facts_range(ptr, bytes);
    if (fatal) sim_fatal(SIMGPU_LIFETIME, title, "%s", body);
    sim_report(SIMGPU_LIFETIME, title, "%s", body);
}

// A copy of what is remembered, as long as it is.
static bool look_up_gone(const void *ptr, Gone *g)
{
    if (!is_near(ptr)) return false;
    pthread_mutex_lock(&lock);
    const Gone *found = find_gone(ptr);
    if (found) *g = *found;
    pthread_mutex_unlock(&lock);
    return found != NULL;
}

bool sim_pinned_check_gone(const char *call, const void *ptr, size_t bytes, const char *verb,
                           const void *site)
{
    Gone g;
    if (!look_up_gone(ptr, &g)) return true;
    report_gone(&g, call, ptr, bytes, verb, site, false);
    return false;
}

// free() and realloc() look in front of what they are given.
static void report_in_front(const Piece *piece, const void *address, const char *verb,
                            const void *site)
{
    char where[WHERE], made[WHERE];
    gpulog_where(site, where, sizeof where);
    gpulog_where(piece->site, made, sizeof made);
    sim_facts_call("host code", site, SIM_NO_STREAM);
    sim_facts_range(address, 1);
    sim_fatal(SIMGPU_POINTER, "host code touches what is in front of pinned memory",
              "%s\n%s %zu bytes before the beginning of the %zu bytes of pinned memory allocated "
              "at %s.\n"
              "On a machine with a GPU free() of pinned memory is an abort, and what lies there is "
              "somebody else's.\n"
              "Was cudaFreeHost meant in place of free, or is an index negative?",
              where, verb, piece->node.key - (size_t)address, piece->bytes, made);
}

// The piece that has the address in the closed page in front of it.
static const Piece *find_behind(const void *address)
{
    SimTreeNode *node = sim_tree_ceiling(pieces, (size_t)address);
    const Piece *piece = node ? SIM_TREE_OWNER(node, Piece, node) : NULL;
    bool near = piece && piece->mapped && node->key - (size_t)address <= page_bytes();
    return near && node->key != (size_t)address ? piece : NULL;
}

// The piece whose pages hold the address, also behind its last byte.
static Piece *find_mapped(const void *address)
{
    SimTreeNode *node = sim_tree_floor(pieces, (size_t)address);
    if (!node) return NULL;
    Piece *piece = SIM_TREE_OWNER(node, Piece, node);
    size_t bytes = piece->mapped ? piece->mapped : piece->bytes;
    return (size_t)address - node->key < bytes && can_close(piece) ? piece : NULL;
}

static void describe(const Piece *piece, const void *ptr, char *text, size_t size)
{
    char made[WHERE];
    gpulog_where(piece->site, made, sizeof made);
    snprintf(text, size, "byte %zu of the %zu bytes of pinned memory %s at %s",
             (size_t)ptr - piece->node.key, piece->bytes, piece->ours ? "allocated" : "registered",
             made);
}

void sim_pinned_describe(const void *ptr, char *text, size_t size)
{
    Piece copy = {.bytes = 0};
    pthread_mutex_lock(&lock);
    const Piece *piece = find(ptr);
    if (piece) copy = *piece;
    pthread_mutex_unlock(&lock);
    snprintf(text, size, "pinned memory");
    if (piece) describe(&copy, ptr, text, size);
}

// `call`: the system call that did it; NULL: the host's code itself.
static void report_touch(const char *call, const Piece *piece, const Pending *p,
                         const void *address, const char *verb, const void *site)
{
    char what[2 * WHERE], copy[WHERE], stream[WHERE], title[128], where[WHERE];
    gpulog_where(site, where, sizeof where);
    bool into = p->access != GPU_READ;
    describe(piece, address, what, sizeof what);
    gpulog_where(p->site, copy, sizeof copy);
    sim_stream_name(&p->stream, stream, sizeof stream);
    snprintf(title, sizeof title,
             into ? "the host %s pinned memory before the write under way to it is done"
                  : "the host %s pinned memory that is still being read",
             verb);
    sim_facts_call(call ? call : "host code", site, SIM_NO_STREAM);
    sim_facts_call(p->name, p->site, SIM_NO_STREAM);
    sim_facts_range(address, 1);
    sim_report(SIMGPU_HOST_RACE, title,
               "%s%s%s\n%s %s.\n%s, called at %s,\non %s,\n%s it, and the host has not waited for "
               "that.\n%s",
               call ? call : "", call ? ", called at " : "", where, verb, what, p->name,
               copy, stream, into ? "writes" : "reads",
               into ? "On a GPU the host may see what was there before, or half of the new.\n"
                      "Is a cudaStreamSynchronize or a cudaEventSynchronize missing before the "
                      "result is used?"
                    : "On a GPU it may take the new bytes, or half of them.\n"
                      "Is a cudaStreamSynchronize or a cudaEventSynchronize missing before the "
                      "buffer is filled again?");
}

// A touch of bytes on closed pages that no copy is about: the copies there count it.
static void count_step(const char *address)
{
    const char *page = (const char *)((size_t)address & -page_bytes());
    for (size_t i = 0; i < n_pending; i++)
        if (!pending[i].told && overlap(&pending[i], page, page_bytes())) pending[i].steps++;
}

// The host touches memory that is not there any more, or never was.
static void report_nothing_there(const void *address, const char *verb, const void *site)
{
    Gone g;
    Piece piece;
    pthread_mutex_lock(&lock);
    const Piece *behind = find_behind(address);
    if (behind) piece = *behind;
    pthread_mutex_unlock(&lock);
    if (behind) report_in_front(&piece, address, verb, site);
    if (look_up_gone(address, &g)) report_gone(&g, NULL, address, 1, verb, site, true);
}

SimPinnedTouch sim_pinned_fault(const void *address, const char *verb,
                                const void *(*find_site)(const void *), const void *instruction)
{
    bool told = false, known = false;
    Piece piece;
    Pending copy;
    pthread_mutex_lock(&lock);
    const Piece *found = find_mapped(address);
    bool nothing = !found && (find_behind(address) || find_gone(address));
    for (size_t i = 0; found && i < n_pending; i++) {
        Pending *p = &pending[i];
        bool harmless = p->access == GPU_READ && strcmp(verb, "reads") == 0;
        if (p->told || harmless || !holds(p, address)) continue;
        p->told = told = true;
        copy = *p; // of several, the last is told of
        reopen(p->at, span(p));
    }
    if (found && !told) count_step(address);
    if (found) {
        piece = *found;
        known = told || mprotect((void *)((size_t)address & -page_bytes()), page_bytes(),
                                 PROT_READ | PROT_WRITE) == 0;
    }
    pthread_mutex_unlock(&lock);
    if (nothing) report_nothing_there(address, verb, find_site(instruction));
    if (told) report_touch(NULL, &piece, &copy, address, verb, find_site(instruction));
    if (told) return PINNED_OPENED;
    return known ? PINNED_FOR_A_STEP : PINNED_NO;
}

void sim_pinned_stepped(const void *address)
{
    pthread_mutex_lock(&lock);
    reopen((const char *)((size_t)address & -page_bytes()), 1);
    pthread_mutex_unlock(&lock);
}

// ---- Touches by system calls ----

// The first byte of [ptr, ptr+bytes) that the copy is about; NULL: there is none.
static const char *first_held(const Pending *p, const char *ptr, size_t bytes)
{
    const char *end = ptr + bytes;
    for (size_t row = 0; row < p->height; row++) {
        const char *begin = p->at + row * p->pitch;
        if (begin < end && ptr < begin + p->width) return begin > ptr ? begin : ptr;
    }
    return NULL;
}

// Reports the copies under way that a system call disturbs in the range; of several, the last.
static void look_at_range(const char *call, const char *ptr, size_t bytes, bool writes,
                          const void *returns)
{
    const char *first = NULL, *held;
    Piece piece;
    Pending copy;
    pthread_mutex_lock(&lock);
    const Piece *found = find(ptr);
    for (size_t i = 0; found && i < n_pending; i++) {
        Pending *p = &pending[i];
        bool harmless = p->access == GPU_READ && !writes;
        if (p->told || harmless || !(held = first_held(p, ptr, bytes))) continue;
        p->told = true;
        first = held;
        copy = *p;
        piece = *found;
        reopen(p->at, span(p));
    }
    pthread_mutex_unlock(&lock);
    if (first)
        report_touch(call, &piece, &copy, first, writes ? "writes" : "reads",
                     sim_fault_site(returns));
}

bool sim_pinned_lend(const char *call, const void *ptr, size_t bytes, bool writes,
                     const void *returns, int *slot)
{
    if (!is_near(ptr)) return false;
    pthread_mutex_lock(&lock);
    const Piece *piece = find(ptr);
    bool is_gone = !piece && find_gone(ptr);
    size_t left = piece ? piece->bytes - ((size_t)ptr - piece->node.key) : 0;
    if (piece && bytes > left) bytes = left;
    *slot = 0;
    while (*slot < MOST_LENT && lent[*slot].at) (*slot)++;
    if (piece && *slot < MOST_LENT) {
        lent[*slot].at = ptr;
        lent[*slot].bytes = bytes;
    }
    if (piece) open_pages(piece, ptr, bytes);
    pthread_mutex_unlock(&lock);
    if (piece && !writes) look_at_range(call, ptr, bytes, false, returns);
    if (is_gone)
        sim_pinned_check_gone(call, ptr, bytes, writes ? "writes" : "reads",
                              sim_fault_site(returns));
    return piece != NULL;
}

void sim_pinned_returned(const char *call, const void *ptr, size_t bytes, size_t used, bool writes,
                         const void *returns, int slot)
{
    if (writes && used) look_at_range(call, ptr, used < bytes ? used : bytes, true, returns);
    pthread_mutex_lock(&lock);
    if (slot < MOST_LENT) lent[slot].at = NULL;
    reopen(ptr, bytes);
    pthread_mutex_unlock(&lock);
}

SimShadow *sim_pinned_shadow_hold(const void *ptr, size_t *offset)
{
    pthread_mutex_lock(&lock);
    const Piece *piece = find(ptr);
    *offset = piece ? (size_t)ptr - piece->node.key : 0;
    return piece ? piece->shadow : NULL;
}

void sim_pinned_shadow_let_go(void)
{
    pthread_mutex_unlock(&lock);
}

void sim_pinned_visit(SimLeaks *leaks)
{
    if (pthread_mutex_trylock(&lock)) return;
    for (SimTreeNode *node = sim_tree_ceiling(pieces, 0); node;
         node = sim_tree_ceiling(pieces, node->key + 1)) {
        Piece *piece = SIM_TREE_OWNER(node, Piece, node);
        sim_leak_note(leaks, THING_PINNED, (void *)node->key, piece->bytes, piece->site);
    }
    pthread_mutex_unlock(&lock);
}

// ---- Making and ending pinned memory ----

// Whether any piece touches [ptr, ptr+bytes); called with the lock held.
static bool any_piece(const void *ptr, size_t bytes)
{
    SimTreeNode *next = sim_tree_ceiling(pieces, (size_t)ptr);
    return find(ptr) || (next && next->key - (size_t)ptr < bytes);
}

static void destroy_piece(Piece *piece)
{
    if (!piece) return;
    sim_shadow_destroy(piece->shadow);
    free(piece);
}

// `alias` and `mapped`: as in Piece; NULL and 0 for memory that is mapped once.
static cudaError_t add_piece(void *ptr, size_t bytes, unsigned flags, bool ours, const void *site,
                             char *alias, size_t mapped)
{
    Piece *piece = calloc(1, sizeof *piece);
    if (!piece) return cudaErrorMemoryAllocation;
    piece->node.key = (size_t)ptr;
    piece->bytes = bytes;
    piece->flags = flags;
    piece->ours = ours;
    piece->site = site;
    piece->alias = alias ? alias : ptr;
    piece->mapped = mapped;
    if (watches()) {
        piece->shadow = sim_shadow_create(bytes, true);
        sim_fault_install();
        sim_fault_thread();
    }
    pthread_mutex_lock(&lock);
    bool taken = any_piece(ptr, bytes);
    if (!taken) sim_tree_insert(&pieces, &piece->node);
    if (!taken && (size_t)ptr < atomic_load(&lowest)) atomic_store(&lowest, (size_t)ptr);
    if (!taken && (size_t)ptr + bytes > atomic_load(&highest))
        atomic_store(&highest, (size_t)ptr + bytes);
    pthread_mutex_unlock(&lock);
    if (taken) destroy_piece(piece);
    return taken ? cudaErrorHostMemoryAlreadyRegistered : cudaSuccess;
}

static void report_early_end(const char *call, const void *site, const Piece *piece,
                             const Pending *p)
{
    char where[WHERE], what[2 * WHERE], copy[WHERE], stream[WHERE];
    gpulog_where(site, where, sizeof where);
    gpulog_where(p->site, copy, sizeof copy);
    describe(piece, p->at, what, sizeof what);
    sim_stream_name(&p->stream, stream, sizeof stream);
    sim_facts_call(call, site, SIM_NO_STREAM);
    sim_facts_call(p->name, p->site, SIM_NO_STREAM);
    sim_facts_range(p->at, span(p));
    sim_report(SIMGPU_HOST_RACE, "pinned memory is freed while a copy is in flight",
               "%s, called at %s,\ngives back the %zu bytes of pinned memory %s there.\n"
               "%s, called at %s,\non %s,\n%s %zu bytes from %s,\n"
               "and the host has not waited for that.\n"
               "On a GPU the copy may meet memory that is somebody else's by then.\n"
               "Is a cudaStreamSynchronize missing before the buffer is given back?",
               call, where, piece->bytes, piece->ours ? "allocated" : "registered", p->name, copy,
               stream, p->access == GPU_READ ? "reads" : "writes", span(p), what);
}

// Takes the piece that begins at ptr out of the table; NULL: there is none of this kind.
static Piece *remove_piece(const char *call, void *ptr, bool ours, const void *site)
{
    Pending busy;
    bool early = false;
    pthread_mutex_lock(&lock);
    Piece *piece = find(ptr);
    if (piece && (piece->node.key != (size_t)ptr || piece->ours != ours)) piece = NULL;
    if (piece) {
        for (size_t i = 0; i < n_pending && !early; i++) {
            early = watches() && !pending[i].told && overlap(&pending[i], ptr, piece->bytes);
            if (early) busy = pending[i];
        }
        finish(NULL, ptr, piece->bytes);
        sim_tree_remove(&pieces, &piece->node);
    }
    pthread_mutex_unlock(&lock);
    if (early) report_early_end(call, site, piece, &busy);
    return piece;
}

// Two mappings of the same fresh memory; false: there is no room for them.
static bool map_twice(size_t bytes, void **first, void **second)
{
    size_t page = page_bytes();
    int fd = memfd_create("simgpu-pinned", MFD_CLOEXEC), access = PROT_READ | PROT_WRITE;
    if (fd < 0) return false;
    char *front = MAP_FAILED;
    *first = *second = MAP_FAILED;
    if (sim_may_grow(fd, bytes)) {
        front = mmap(NULL, page + bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                     -1, 0);
        *second = mmap(NULL, bytes, access, MAP_SHARED, fd, 0);
    }
    if (front != MAP_FAILED)
        *first = mmap(front + page, bytes, access, MAP_SHARED | MAP_FIXED, fd, 0);
    close(fd);
    if (*first != MAP_FAILED && *second != MAP_FAILED) return true;
    if (front != MAP_FAILED) munmap(front, page + bytes);
    if (*second != MAP_FAILED) munmap(*second, bytes);
    return false;
}

static void forget_gone(Gone *g)
{
    if (!g->at) return;
    munmap((char *)(uintptr_t)g->at - page_bytes(), page_bytes() + g->mapped);
    gone_bytes -= g->mapped;
    g->at = NULL;
}

// Gives the memory back, and keeps its addresses closed until there are too many such.
static void remember_gone(const Piece *piece, const void *site)
{
    void *at = (void *)piece->node.key;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    pthread_mutex_lock(&lock);
    bool kept = mmap(at, piece->mapped, PROT_NONE, flags, -1, 0) != MAP_FAILED;
    Gone *slot = &gone[n_gone % MOST_GONE];
    forget_gone(slot);
    n_gone += kept;
    if (kept) *slot = (Gone){at, piece->bytes, piece->mapped, piece->site, site};
    if (kept) gone_bytes += piece->mapped;
    for (uint64_t i = n_gone; gone_bytes > GONE_BYTES && i < n_gone + MOST_GONE; i++)
        forget_gone(&gone[i % MOST_GONE]); // the oldest first
    pthread_mutex_unlock(&lock);
    if (!kept) munmap((char *)at - page_bytes(), page_bytes() + piece->mapped);
}

static void free_memory(void *ptr, void *alias, size_t mapped)
{
    if (mapped) {
        munmap((char *)ptr - page_bytes(), page_bytes() + mapped);
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
    size_t page = page_bytes(), mapped = (size + page - 1) / page * page;
    if (!watches() || !map_twice(mapped, &memory, &alias)) {
        mapped = 0;
        alias = NULL;
        memory = aligned_alloc(PINNED_ALIGN, rounded);
    }
    if (!memory) return sim_leave(cudaErrorMemoryAllocation);
    cudaError_t error = add_piece(memory, size, flags, true, site, alias, mapped);
    if (error == cudaSuccess) {
        *ptr = memory;
        sim_clock_pin();
    } else {
        free_memory(memory, alias, mapped);
    }
    return sim_leave(error);
}

cudaError_t cudaMallocHost(void **ptr, size_t size)
{
    SIM_ENTER();
    return allocate(ptr, size, cudaHostAllocDefault, SIM_SITE);
}

cudaError_t cudaHostAlloc(void **pHost, size_t size, unsigned int flags)
{
    SIM_ENTER();
    return allocate(pHost, size, flags, SIM_SITE);
}

static cudaError_t report_unknown(const char *call, const void *ptr, const char *maker,
                                  const void *site)
{
    char where[256];
    if (!sim_pinned_check_gone(call, ptr, 0, "gives back", site))
        return sim_leave(cudaErrorInvalidValue);
    gpulog_where(site, where, sizeof where);
    sim_facts_call(call, site, SIM_NO_STREAM);
    sim_report(SIMGPU_LIFETIME, "this is no pinned host memory",
               "%s, called at %s,\nwas given %p,\nwhich %s did not return, or which was given back "
               "already.\n"
               "On a GPU this is an invalid argument, and nothing is freed.\n"
               "Is it memory from malloc, or freed on two paths?",
               call, where, ptr, maker);
    return sim_leave(cudaErrorInvalidValue);
}

cudaError_t cudaFreeHost(void *ptr)
{
    SIM_ENTER();
    if (!ptr) return cudaSuccess;
    Piece *piece = remove_piece("cudaFreeHost", ptr, true, SIM_SITE);
    if (!piece)
        return report_unknown("cudaFreeHost", ptr, "cudaMallocHost or cudaHostAlloc", SIM_SITE);
    if (piece->mapped) {
        munmap(piece->alias, piece->mapped);
        remember_gone(piece, SIM_SITE);
    } else {
        free(ptr);
    }
    destroy_piece(piece);
    sim_clock_pin();
    return cudaSuccess;
}

cudaError_t cudaHostRegister(void *ptr, size_t size, unsigned int flags)
{
    SIM_ENTER();
    size_t offset;
    if (!ptr || !size || flags > 0xf || sim_device_of(ptr, &offset))
        return sim_leave(cudaErrorInvalidValue);
    return sim_leave(add_piece(ptr, size, flags, false, SIM_SITE, NULL, 0));
}

cudaError_t cudaHostUnregister(void *ptr)
{
    SIM_ENTER();
    Piece *piece = remove_piece("cudaHostUnregister", ptr, false, SIM_SITE);
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
    pthread_mutex_lock(&lock);
    Piece *piece = find(pHost);
    if (piece && pFlags) *pFlags = piece->flags;
    pthread_mutex_unlock(&lock);
    return sim_leave(piece && pFlags ? cudaSuccess : cudaErrorInvalidValue);
}
