/* touch.c: touches of pinned memory by the host and its system calls (pinned.h).
 *
 * A fault on a closed page, or a system call on a range, is compared with the copies under way and
 * with the pieces: a touch of a copy's bytes is a race, a touch of freed memory or of the page in
 * front of a piece is a misuse, and any other touch may go on.
 */
#include <stdio.h>
#include <string.h>

#include "gpulog.h"
#include "memory/fault.h"
#include "memory/pinned_internal.h"
#include "memory/place.h"
#include "report/report.h"

#define WHERE PINNED_WHERE

// ---- Touches by the host ----

static bool holds(const PinnedCopy *p, const char *address)
{
    if (address < p->at || address >= p->at + copy_span(p)) return false;
    return p->height == 1 || (size_t)(address - p->at) % p->pitch < p->width;
}

// free() and realloc() read in front of their argument.
static void report_in_front(const PinnedPiece *piece, const void *address, const char *verb,
                            const void *site)
{
    char where[WHERE], made[WHERE];
    gpulog_where(site, where, sizeof where);
    gpulog_where(piece->site, made, sizeof made);
    sim_facts_call("host code", site, SIM_NO_STREAM);
    sim_facts_range(address, 1);
    sim_fatal(SIMGPU_POINTER, "host code accesses bytes before the start of pinned memory",
              "%s\n%s %zu bytes before the beginning of the %zu bytes of pinned memory allocated "
              "at %s.\n"
              "On a machine with a GPU free() of pinned memory aborts, and other data are in front "
              "of it.\n"
              "Was cudaFreeHost meant in place of free, or is an index negative?",
              where, verb, piece->node.key - (size_t)address, piece->bytes, made);
}

// The piece in whose front page the address is.
static const PinnedPiece *find_behind(const void *address)
{
    const PinnedPiece *piece = sim_pinned_ceiling(address);
    if (!piece || !piece->mapped || piece->node.key == (size_t)address) return NULL;
    return piece->node.key - (size_t)address <= sim_page_bytes() ? piece : NULL;
}

// The piece whose pages have the address, also after its last byte.
static PinnedPiece *find_mapped(const void *address)
{
    PinnedPiece *piece = sim_pinned_floor(address);
    if (!piece || !sim_pinned_can_close(piece)) return NULL;
    size_t bytes = piece->mapped ? piece->mapped : piece->bytes;
    return (size_t)address - piece->node.key < bytes ? piece : NULL;
}

// `call`: the system call; NULL: the host's own code.
static void report_touch(const char *call, const PinnedPiece *piece, const PinnedCopy *p,
                         const void *address, const char *verb, const void *site)
{
    char what[2 * WHERE], copy[WHERE], stream[WHERE], title[128], where[WHERE];
    gpulog_where(site, where, sizeof where);
    bool into = p->access != GPU_READ;
    sim_pinned_describe_byte(piece, address, what, sizeof what);
    gpulog_where(p->site, copy, sizeof copy);
    sim_stream_name(&p->place.stream, stream, sizeof stream);
    snprintf(title, sizeof title,
             into ? "the host %s pinned memory that is still being written"
                  : "the host %s pinned memory that is still being read",
             verb);
    sim_facts_call(call ? call : "host code", site, SIM_NO_STREAM);
    sim_facts_call(p->name, p->site, SIM_NO_STREAM);
    sim_facts_range(address, 1);
    sim_report(SIMGPU_HOST_RACE, title,
               "%s%s%s\n"
               "%s %s.\n"
               "%s, called at %s,\n"
               "on %s,\n"
               "%s it, and the host has not waited for that.\n"
               "%s",
               call ? call : "", call ? ", called at " : "", where, verb, what, p->name, copy,
               stream, into ? "writes" : "reads",
               into ? "On a GPU the host may see what was there before, or half of the new.\n"
                      "Is a cudaStreamSynchronize or a cudaEventSynchronize missing before the "
                      "result is used?"
                    : "On a GPU it may take the new bytes, or half of them.\n"
                      "Is a cudaStreamSynchronize or a cudaEventSynchronize missing before the "
                      "buffer is filled again?");
}

// A touch of bytes of no copy, on closed pages: the copies there count it.
static void count_step(const char *address)
{
    const char *page = (const char *)((size_t)address & -sim_page_bytes());
    PinnedCopy *p;
    for (size_t i = 0; (p = sim_pinned_copy(i)); i++)
        if (!p->told && copy_overlaps(p, page, sim_page_bytes())) p->steps++;
}

// The host touches memory that was freed, or never existed.
static void report_nothing_there(const void *address, const char *verb, const void *site)
{
    PinnedPiece piece;
    pthread_mutex_lock(&sim_pinned_lock);
    const PinnedPiece *behind = find_behind(address);
    if (behind) piece = *behind;
    pthread_mutex_unlock(&sim_pinned_lock);
    if (behind) report_in_front(&piece, address, verb, site);
    sim_pinned_report_freed(address, verb, site);
}

SimPinnedTouch sim_pinned_fault(const void *address, const char *verb,
                                const void *(*find_site)(const void *), const void *instruction)
{
    bool told = false, known = false;
    PinnedPiece piece;
    PinnedCopy copy, *p;
    pthread_mutex_lock(&sim_pinned_lock);
    const PinnedPiece *found = find_mapped(address);
    bool nothing = !found && (find_behind(address) || sim_pinned_is_freed(address));
    for (size_t i = 0; found && (p = sim_pinned_copy(i)); i++) {
        bool harmless = p->access == GPU_READ && strcmp(verb, "reads") == 0;
        if (p->told || harmless || !holds(p, address)) continue;
        p->told = told = true;
        copy = *p; // of several, the last is reported
        sim_pinned_reopen(p->at, copy_span(p));
    }
    if (found && !told) count_step(address);
    if (found) {
        piece = *found;
        known = told || sim_pinned_open_page(address);
    }
    pthread_mutex_unlock(&sim_pinned_lock);
    if (nothing) report_nothing_there(address, verb, find_site(instruction));
    if (told) report_touch(NULL, &piece, &copy, address, verb, find_site(instruction));
    if (told) return PINNED_OPENED;
    return known ? PINNED_FOR_A_STEP : PINNED_NO;
}

void sim_pinned_stepped(const void *address)
{
    pthread_mutex_lock(&sim_pinned_lock);
    sim_pinned_reopen((const char *)((size_t)address & -sim_page_bytes()), 1);
    pthread_mutex_unlock(&sim_pinned_lock);
}

// ---- Touches by system calls ----

// The first byte of [ptr, ptr+bytes) that the copy uses; NULL: none.
static const char *first_held(const PinnedCopy *p, const char *ptr, size_t bytes)
{
    const char *end = ptr + bytes;
    for (size_t row = 0; row < p->height; row++) {
        const char *begin = p->at + row * p->pitch;
        if (begin < end && ptr < begin + p->width) return begin > ptr ? begin : ptr;
    }
    return NULL;
}

// Reports the copies under way that a system call disturbs in the range; of several, the last.
static void check_copies_in(const char *call, const char *ptr, size_t bytes, bool writes,
                            const void *returns)
{
    const char *first = NULL, *held;
    PinnedPiece piece;
    PinnedCopy copy, *p;
    pthread_mutex_lock(&sim_pinned_lock);
    const PinnedPiece *found = sim_pinned_find(ptr);
    for (size_t i = 0; found && (p = sim_pinned_copy(i)); i++) {
        bool harmless = p->access == GPU_READ && !writes;
        if (p->told || harmless || !(held = first_held(p, ptr, bytes))) continue;
        p->told = true;
        first = held;
        copy = *p;
        piece = *found;
        sim_pinned_reopen(p->at, copy_span(p));
    }
    pthread_mutex_unlock(&sim_pinned_lock);
    if (first)
        report_touch(call, &piece, &copy, first, writes ? "writes" : "reads",
                     sim_fault_site(returns));
}

bool sim_pinned_enter_call(const char *call, const void *ptr, size_t bytes, bool writes,
                           const void *returns, int *slot)
{
    if (!sim_pinned_is_near(ptr)) return false;
    pthread_mutex_lock(&sim_pinned_lock);
    const PinnedPiece *piece = sim_pinned_find(ptr);
    bool is_gone = !piece && sim_pinned_is_freed(ptr);
    size_t left = piece ? piece->bytes - ((size_t)ptr - piece->node.key) : 0;
    if (piece && bytes > left) bytes = left;
    *slot = piece ? sim_pinned_keep_open(ptr, bytes) : 0;
    if (piece) sim_pinned_open(piece, ptr, bytes);
    pthread_mutex_unlock(&sim_pinned_lock);
    if (piece && !writes) check_copies_in(call, ptr, bytes, false, returns);
    if (is_gone)
        sim_pinned_check_gone(call, ptr, bytes, writes ? "writes" : "reads",
                              sim_fault_site(returns));
    return piece != NULL;
}

void sim_pinned_leave_call(const char *call, const void *ptr, size_t bytes, size_t used,
                           bool writes, const void *returns, int slot)
{
    if (writes && used) check_copies_in(call, ptr, used < bytes ? used : bytes, true, returns);
    pthread_mutex_lock(&sim_pinned_lock);
    sim_pinned_keep_open_no_more(slot);
    sim_pinned_reopen(ptr, bytes);
    pthread_mutex_unlock(&sim_pinned_lock);
}
