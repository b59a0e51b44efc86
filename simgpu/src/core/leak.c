/* leak.c: reports what the program has not freed when it ends.
 *
 * If a program ends well (main returns, or exit(0)) and had no other report, the report lists the
 * device memory, pinned memory, streams, events, communicators and cuBLAS handles that it did not
 * free, by the place that made them; and a group that was never ended. The default streams and
 * memory pools, which the program did not make, are not leaks; nor is what cudaDeviceReset removed.
 *
 * The exit handler is installed when the program starts, so that the program's own handlers run
 * before it.
 */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/config.h"
#include "core/error.h"
#include "core/leak.h"
#include "log_writer.h"
#include "report/hooks.h"
#include "report/report.h"

#define LINES 12     // places that a report names
#define SEARCHED 256 // places that are compared for being on one line
#define WHERE 256
#define TEXT 4096

// What one place has made and the program has not freed.
typedef struct Leak {
    SimThing thing;
    const void *site, *ptr; // ptr: one of them
    size_t bytes, count;
} Leak;

struct SimLeaks {
    Leak *leak;
    size_t n, room;
};

static atomic_bool was_reset;

void sim_leak_reset(void)
{
    atomic_store(&was_reset, true);
}

// cudaDeviceReset has removed what these belonged to.
static bool went_with_reset(SimThing thing)
{
    return atomic_load(&was_reset) && thing >= THING_PINNED;
}

void sim_leak_note(SimLeaks *leaks, SimThing thing, const void *ptr, size_t bytes, const void *site)
{
    size_t i = 0;
    if (went_with_reset(thing)) return;
    while (i < leaks->n && (leaks->leak[i].site != site || leaks->leak[i].thing != thing)) i++;
    if (i == leaks->n) {
        if (leaks->n == leaks->room) {
            size_t room = leaks->room ? 2 * leaks->room : 32;
            Leak *larger = realloc(leaks->leak, room * sizeof *larger);
            if (!larger) return;
            leaks->leak = larger;
            leaks->room = room;
        }
        leaks->leak[leaks->n++] = (Leak){thing, site, ptr, 0, 0};
    }
    leaks->leak[i].bytes += bytes;
    leaks->leak[i].count++;
}

// The largest first; without sizes the most numerous; then in the order of SimThing.
static int by_size(const void *a, const void *b)
{
    const Leak *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    if (x->count != y->count) return x->count < y->count ? 1 : -1;
    return (int)x->thing - (int)y->thing;
}

static const struct {
    const char *one, *many, *undo;
} words[SIM_THINGS] = {
    [THING_MEMORY] = {"allocation of device memory", "allocations of device memory", "cudaFree"},
    [THING_POOL] = {"memory pool", "memory pools", "cudaMemPoolDestroy"},
    [THING_PINNED] = {"allocation of pinned memory", "allocations of pinned memory",
                      "cudaFreeHost or cudaHostUnregister"},
    [THING_STREAM] = {"stream", "streams", "cudaStreamDestroy"},
    [THING_EVENT] = {"event", "events", "cudaEventDestroy"},
    [THING_GRAPH] = {"graph", "graphs", "cudaGraphDestroy"},
    [THING_GRAPH_EXEC] = {"executable graph", "executable graphs", "cudaGraphExecDestroy"},
    [THING_COMM] = {"communicator", "communicators", "ncclCommDestroy"},
    [THING_BLAS] = {"cuBLAS handle", "cuBLAS handles", "cublasDestroy"},
};

static void describe_leak(const Leak *leak, char *text, size_t size)
{
    char where[WHERE], name[128] = "", bytes[48] = "";
    gpulog_where(leak->site, where, sizeof where);
    if (leak->bytes) {
        gpulog_name_of(leak->count == 1 ? leak->ptr : NULL, leak->site, name, sizeof name);
        snprintf(bytes, sizeof bytes, " (%zu bytes)", leak->bytes);
    }
    snprintf(text, size, "  %zu %s%s%s%s, made at %s\n", leak->count,
             leak->count == 1 ? words[leak->thing].one : words[leak->thing].many, bytes,
             name[0] ? ": " : "", name, where);
}

// The compiler may unroll a loop, so that one line has several call sites. They are one place.
static void join_lines(SimLeaks *leaks)
{
    char where[WHERE], other[WHERE];
    size_t kept = 0;
    for (size_t i = 0; i < leaks->n; i++) {
        Leak leak = leaks->leak[i];
        size_t same = 0;
        gpulog_where(leak.site, where, sizeof where);
        for (; same < kept && same < SEARCHED; same++) {
            gpulog_where(leaks->leak[same].site, other, sizeof other);
            if (leaks->leak[same].thing == leak.thing && strcmp(where, other) == 0) break;
        }
        if (same == kept || same == SEARCHED) {
            leaks->leak[kept++] = leak;
        } else {
            leaks->leak[same].bytes += leak.bytes;
            leaks->leak[same].count += leak.count;
        }
    }
    leaks->n = kept;
}

static void report(const SimLeaks *leaks)
{
    char list[TEXT] = "", title[160], line[WHERE + 256];
    size_t count = 0, used = 0;
    for (size_t i = 0; i < leaks->n; i++) count += leaks->leak[i].count;
    for (size_t i = 0; i < leaks->n && i < LINES; i++) {
        const Leak *leak = &leaks->leak[i];
        describe_leak(leak, line, sizeof line);
        used += (size_t)snprintf(list + used, sizeof list - used, "%s", line);
        sim_facts_call(words[leak->thing].one, leak->site, SIM_NO_STREAM);
        if (leak->thing == THING_MEMORY && leak->count == 1)
            sim_facts_bytes(
                (SimFactRange){leak->ptr, leak->bytes, leak->ptr, leak->bytes, leak->site});
    }
    if (leaks->n > LINES)
        snprintf(list + used, sizeof list - used, "  and more, of %zu other places\n",
                 leaks->n - LINES);
    snprintf(title, sizeof title, "%zu resource%s never freed", count,
             count == 1 ? " was" : "s were");
    sim_report(
        SIMGPU_LEAK, title,
        "Alive when the program ended:\n"
        "%sOn a GPU the driver takes all of it back now; in a program that goes on, such things\n"
        "add up until the device is full. Is there a %s missing,\n"
        "or does an early return skip it?",
        list, words[leaks->leak[0].thing].undo);
}

// Whether this process has made a report, or only has a copy of its parent's state.
static bool is_ours(void)
{
    return sim_config_ready() && sim_config()->check != CHECK_OFF && !sim_is_forked() &&
           sim_reported() == 0;
}

static void look_for_leaks(void)
{
    SimLeaks leaks = {NULL, 0, 0};
    for (const SimHooks *hooks = sim_hooks(); hooks; hooks = hooks->next)
        if (hooks->visit) hooks->visit(&leaks);
    if (leaks.n) {
        join_lines(&leaks);
        qsort(leaks.leak, leaks.n, sizeof *leaks.leak, by_size);
        report(&leaks);
    }
    free(leaks.leak);
}

static void on_end(int status)
{
    for (const SimHooks *hooks = sim_hooks(); hooks && status == 0; hooks = hooks->next)
        if (hooks->end && is_ours()) hooks->end();
    if (status == 0 && is_ours()) look_for_leaks();
    if (sim_config_ready()) sim_report_summary();
}

__attribute__((constructor(200))) static void watch_end(void)
{
    sim_on_end(on_end);
}
