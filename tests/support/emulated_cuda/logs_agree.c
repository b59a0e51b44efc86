/* logs_agree.c: compares the interposer's log with simgpu's own, entry by entry.
 *
 * Three things only one party can write down, and they are passed over. A kernel that had nothing
 * to do is never launched, so simgpu does not hear of it. With GPULOG_POISON=1 the interposer fills
 * fresh memory, which it does not log and simgpu does. And the site: simgpu sees the interposer
 * call, so all that can be asked of the interposer's site is that it is not in the interposer too.
 *
 * Of a graph's launch the two have other streams and events, in which its order is the same: what
 * only orders its nodes is passed over.
 *
 * The wrapped gpulog_reset_peak and gpulog_reset_traffic reset both; the wrapped gpulog_own_code,
 * gpulog_name_stream and gpulog_name_elements are heard by both.
 */
#include "emulated_cuda/logs_agree.h"

#include "../../../gpulog/log/log_writer.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEVICES 64

__typeof__(gpulog_frames) inner_gpulog_frames;

// ---- Resets are meant for both ----

__typeof__(gpulog_reset_peak) __wrap_gpulog_reset_peak, __real_gpulog_reset_peak;
__typeof__(gpulog_reset_traffic) __wrap_gpulog_reset_traffic, __real_gpulog_reset_traffic;

void __wrap_gpulog_reset_peak(int device)
{
    __real_gpulog_reset_peak(device);
    inner_gpulog_reset_peak(device);
}

void __wrap_gpulog_reset_traffic(void)
{
    __real_gpulog_reset_traffic();
    inner_gpulog_reset_traffic();
}

// ---- What reports should name is for both: the reports here are simgpu's ----

__typeof__(gpulog_own_code) __wrap_gpulog_own_code, __real_gpulog_own_code;
__typeof__(gpulog_name_stream) __wrap_gpulog_name_stream, __real_gpulog_name_stream;
__typeof__(gpulog_name_elements) __wrap_gpulog_name_elements, __real_gpulog_name_elements;

void __wrap_gpulog_own_code(const void *function)
{
    __real_gpulog_own_code(function);
    inner_gpulog_own_code(function);
}

void __wrap_gpulog_name_stream(cudaStream_t stream, const char *format, ...)
{
    char name[128];
    va_list args;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    __real_gpulog_name_stream(stream, "%s", name);
    inner_gpulog_name_stream(stream, "%s", name);
}

void __wrap_gpulog_name_elements(GpuElements elements, void *arg)
{
    __real_gpulog_name_elements(elements, arg);
    inner_gpulog_name_elements(elements, arg);
}

// ---- What an entry says ----

typedef struct Text {
    char *text;
    size_t size, used;
} Text;

static void add_text(Text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add_text(Text *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(t->text + t->used, t->size - t->used, format, args);
    va_end(args);
    if (n > 0) t->used += (size_t)n < t->size - t->used ? (size_t)n : t->size - t->used - 1;
}

static void say_entry(Text *t, const char *whose, const GpuLogEntry *e)
{
    static const char *const access[] = {"?", "read", "write", "update"};
    char where[256];
    gpulog_where(e->site, where, sizeof where);
    add_text(t,
             "\n%s %" PRIu64 ": %s (%s), device %d, stream %p (%s), event %p, host %s, %zu bytes, "
             "%zu sent, at %s",
             whose, e->index, e->name, gpulog_op_name(e->op), e->device, (void *)e->stream,
             e->blocking_stream ? "blocking" : "not blocking", (void *)e->event,
             e->host_waits ? "waits" : "goes on", e->bytes, e->sent, where);
    add_text(t,
             "\n    thread %d, stream %u, %s, from %d to %d, product %" PRIu64 " x %" PRIu64
             " x %" PRIu64 " x %" PRIu64 " of type %d",
             e->thread, (unsigned)e->stream_number, e->pool ? "of a pool" : "of no pool", e->from,
             e->to, e->product.batch, e->product.rows, e->product.cols, e->product.inner,
             (int)e->type);
    if (gpulog_is_collective(e->op))
        add_text(t,
                 "\n    call %" PRIu64 " of communicator %" PRIx64
                 ", rank %d of %d, peer %d, group %" PRIu64 " (%d left)",
                 e->collective.call, e->collective.comm, e->collective.rank, e->collective.ranks,
                 e->collective.peer, e->collective.group, e->collective.group_left);
    for (int i = 0; i < e->n_ranges; i++)
        add_text(t, "\n    %s %zu bytes at %p", access[e->range[i].access & 3], e->range[i].bytes,
                 e->range[i].ptr);
}

// ---- Whether two entries agree ----

// A thread's own stream has a handle that only simgpu knows.
static bool same_stream(const GpuLogEntry *outer, const GpuLogEntry *inner)
{
    if (outer->stream == cudaStreamPerThread) return inner->stream != NULL;
    return outer->stream == inner->stream;
}

static bool same_ranges(const GpuLogEntry *outer, const GpuLogEntry *inner)
{
    if (outer->n_ranges != inner->n_ranges) return false;
    for (int i = 0; i < outer->n_ranges; i++)
        if (outer->range[i].ptr != inner->range[i].ptr ||
            outer->range[i].bytes != inner->range[i].bytes ||
            outer->range[i].access != inner->range[i].access)
            return false;
    return true;
}

static bool is_kernel(const GpuLogEntry *e)
{
    return e->op == GPU_KERNEL && strcmp(e->name, "cudaLaunchHostFunc") != 0 &&
           strcmp(e->name, "cudaStreamAddCallback") != 0;
}

// Communicators have other numbers, and the interposer does not know of nodes.
static bool same_collective(const GpuCollective *outer, const GpuCollective *inner)
{
    return !outer->comm == !inner->comm && outer->call == inner->call &&
           !outer->group == !inner->group && outer->group_left == inner->group_left &&
           outer->ranks == inner->ranks && outer->rank == inner->rank && outer->peer == inner->peer;
}

// Which device is used first, only simgpu knows where there are several; and which stream is made
// first, where several threads make some.
static bool one_order;

// Asked for by logs_in_any_order.
static bool any_order;

void logs_in_any_order(void)
{
    any_order = true;
}

static bool has_one_order(void)
{
    GpuLogEntry first, entry;
    for (uint64_t i = 0; i < inner_gpulog_length(); i++) {
        if (!inner_gpulog_get(i, &entry)) return false;
        if (i == 0) first = entry;
        if (entry.device != first.device || entry.thread != first.thread) return false;
    }
    return true;
}

// Streams are numbered in the same order: simgpu may have made some that the interposer never saw.
static bool same_number(uint32_t outer, uint32_t inner)
{
    static struct {
        uint32_t outer, inner;
    } seen[256];
    static int n;
    for (int i = 0; i < n; i++) {
        if (outer == seen[i].outer && inner == seen[i].inner) return true;
        if ((outer < seen[i].outer) != (inner < seen[i].inner) ||
            (outer == seen[i].outer) != (inner == seen[i].inner))
            return false;
    }
    if (n < (int)(sizeof seen / sizeof seen[0])) {
        seen[n].outer = outer;
        seen[n++].inner = inner;
    }
    return true;
}

// What the clock needs to know. Of groups of products the interposer does not read the shapes, and
// a thread's own stream has no number.
static bool same_facts(const GpuLogEntry *outer, const GpuLogEntry *inner)
{
    bool numbered = one_order && outer->op != GPU_ALLOC && outer->op != GPU_FREE &&
                    outer->op != GPU_DEVICE_SYNC && outer->stream != cudaStreamPerThread;
    bool copied = outer->op != GPU_COPY || (outer->to == inner->to && outer->from == inner->from);
    bool product = memcmp(&outer->product, &inner->product, sizeof outer->product) == 0 &&
                   (inner->product.batch == 0 || outer->type == inner->type);
    bool collective =
        !gpulog_is_collective(outer->op) || same_collective(&outer->collective, &inner->collective);
    return copied && product && collective && outer->pool == inner->pool &&
           (any_order || outer->thread == inner->thread) &&
           (!numbered || same_number(outer->stream_number, inner->stream_number));
}

static bool only_orders_nodes(const GpuLogEntry *e)
{
    return e->launch && (e->op == GPU_EVENT_RECORD || e->op == GPU_STREAM_WAIT);
}

static bool same_node(const GpuLogEntry *outer, const GpuLogEntry *inner)
{
    return outer->launch == inner->launch && outer->op == inner->op &&
           strcmp(outer->name, inner->name) == 0 && outer->device == inner->device &&
           outer->bytes == inner->bytes && outer->sent == inner->sent && same_ranges(outer, inner);
}

static bool same_entry(const GpuLogEntry *outer, const GpuLogEntry *inner)
{
    if (outer->launch && outer->op != GPU_GRAPH_LAUNCH) return same_node(outer, inner);
    return outer->op == inner->op && strcmp(outer->name, inner->name) == 0 &&
           outer->device == inner->device && same_stream(outer, inner) &&
           outer->event == inner->event && outer->blocking_stream == inner->blocking_stream &&
           outer->host_waits == inner->host_waits && outer->bytes == inner->bytes &&
           outer->sent == inner->sent && same_ranges(outer, inner) && same_facts(outer, inner);
}

// A kernel's launcher hands its caller to both; of any other call the interposer's site must not be
// in the interposer. Looked up once a site, as far as they fit.
static bool site_is_right(const GpuLogEntry *outer, const GpuLogEntry *inner)
{
    static const void *right[256];
    const void **known = &right[((uintptr_t)outer->site * 0x9e3779b97f4a7c15u) >> 56];
    char where[256];
    if (is_kernel(outer)) {
        // Both keep a stack of their own, with the same innermost frame.
        const void *one[GPULOG_FRAMES], *other[GPULOG_FRAMES];
        return gpulog_frames(outer->site, one) > 0 && inner_gpulog_frames(inner->site, other) > 0 &&
               one[0] == other[0];
    }
    if (*known == outer->site) return true;
    gpulog_where(outer->site, where, sizeof where);
    if (strstr(where, "(__wrap_")) return false;
    *known = outer->site;
    return true;
}

// ---- The logs ----

static bool is_poison(const GpuLogEntry *inner)
{
    const char *poison = getenv("GPULOG_POISON");
    return poison && strcmp(poison, "1") == 0 &&
           (inner->op == GPU_MEMSET || inner->op == GPU_STREAM_SYNC);
}

static bool differ(Text *t, const GpuLogEntry *outer, const GpuLogEntry *inner)
{
    add_text(t, "the interposer's log and simgpu's differ:");
    if (outer) say_entry(t, "interposer", outer);
    if (!outer) add_text(t, "\nthe interposer's end here");
    if (inner) say_entry(t, "simgpu", inner);
    if (!inner) add_text(t, "\nsimgpu's end here");
    return false;
}

static bool entries_agree(Text *t)
{
    GpuLogEntry outer, inner;
    uint64_t o = 0, i = 0;
    if (gpulog_length() && !gpulog_get(0, &outer)) return true; // the first ones were dropped
    for (;;) {
        bool more_outer = gpulog_get(o, &outer), more_inner = inner_gpulog_get(i, &inner);
        if (!more_outer && !more_inner) return true;
        if (more_outer && more_inner && same_entry(&outer, &inner)) {
            if (!site_is_right(&outer, &inner)) return differ(t, &outer, &inner);
            o++;
            i++;
        } else if (more_inner && only_orders_nodes(&inner)) {
            i++;
        } else if (more_outer && only_orders_nodes(&outer)) {
            o++;
        } else if (more_inner && is_poison(&inner)) {
            i++;
        } else if (more_outer && is_kernel(&outer)) {
            o++;
        } else {
            return differ(t, more_outer ? &outer : NULL, more_inner ? &inner : NULL);
        }
    }
}

// The next entry of a thread, from *at on; which is moved behind it.
static bool next_of(bool (*get)(uint64_t, GpuLogEntry *), int thread, uint64_t *at, GpuLogEntry *e)
{
    while (get(*at, e)) {
        ++*at;
        if (e->thread == thread && !only_orders_nodes(e)) return true;
    }
    return false;
}

static int number_of_threads(bool (*get)(uint64_t, GpuLogEntry *))
{
    GpuLogEntry e;
    int last = -1;
    for (uint64_t i = 0; get(i, &e); i++)
        if (e.thread > last) last = e.thread;
    return last + 1;
}

// Whether the interposer's thread wrote down what simgpu's did, one entry after the other. says:
// the first two that differ.
static bool threads_agree(Text *t, int outer_thread, int inner_thread, bool says)
{
    GpuLogEntry outer, inner;
    uint64_t o = 0, i = 0;
    for (;;) {
        bool more_outer = next_of(gpulog_get, outer_thread, &o, &outer);
        bool more_inner = next_of(inner_gpulog_get, inner_thread, &i, &inner);
        if (!more_outer && !more_inner) return true;
        if (more_outer && more_inner && same_entry(&outer, &inner)) continue;
        if (says) differ(t, more_outer ? &outer : NULL, more_inner ? &inner : NULL);
        return false;
    }
}

// Several threads write at once, and each log numbers them by their first call as it comes in: in
// any order, each thread of simgpu's log has a thread of the interposer's with the same entries.
static bool entries_agree_in_any_order(Text *t)
{
    int n = number_of_threads(inner_gpulog_get);
    if (n != number_of_threads(gpulog_get)) {
        add_text(t, "the interposer has %d threads, simgpu %d", number_of_threads(gpulog_get), n);
        return false;
    }
    bool *taken = calloc((size_t)n + 1, sizeof *taken), agree = taken != NULL;
    for (int inner = 0; inner < n && agree; inner++) {
        int outer = 0;
        while (outer < n && (taken[outer] || !threads_agree(t, outer, inner, false))) outer++;
        agree = outer < n || threads_agree(t, inner, inner, true);
        if (outer < n) taken[outer] = true;
    }
    free(taken);
    return agree;
}

// ---- Figures ----

static bool traffic_agrees(Text *t)
{
    for (int op = 0; op < GPU_OP_KINDS; op++) {
        GpuTraffic outer = gpulog_traffic((GpuOp)op), inner = inner_gpulog_traffic((GpuOp)op);
        if (outer.calls == inner.calls && outer.bytes == inner.bytes && outer.sent == inner.sent)
            continue;
        add_text(t,
                 "traffic of %s: the interposer has %" PRIu64 " calls, %" PRIu64 " bytes, %" PRIu64
                 " sent; simgpu has %" PRIu64 ", %" PRIu64 ", %" PRIu64,
                 gpulog_op_name((GpuOp)op), outer.calls, outer.bytes, outer.sent, inner.calls,
                 inner.bytes, inner.sent);
        return false;
    }
    return true;
}

static bool memory_agrees(Text *t)
{
    for (int d = 0; d < DEVICES; d++) {
        size_t outer_live = gpulog_live_bytes(d), inner_live = inner_gpulog_live_bytes(d);
        size_t outer_peak = gpulog_peak_bytes(d), inner_peak = inner_gpulog_peak_bytes(d);
        if (outer_live == inner_live && (outer_peak == inner_peak || any_order)) continue;
        add_text(
            t,
            "device %d: the interposer has %zu live bytes and a peak of %zu; simgpu has %zu and "
            "%zu",
            d, outer_live, outer_peak, inner_live, inner_peak);
        return false;
    }
    return true;
}

bool logs_agree(char *text, size_t size)
{
    Text t = {text, size, 0};
    if (size > 0) text[0] = '\0';
    one_order = !any_order && has_one_order();
    bool logs = any_order ? entries_agree_in_any_order(&t) : entries_agree(&t);
    return logs && traffic_agrees(&t) && memory_agrees(&t);
}
