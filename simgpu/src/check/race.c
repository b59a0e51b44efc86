/* race.c: operations that did not wait for each other, and reads of unwritten bytes.
 *
 * With SIMGPU_CHECK=full every access of an operation comes here: the shadow of the allocation
 * (shadow.c) compares it with the earlier ones, by the clock of the operation's stream (streams/).
 * The report is made after all locks are released. It has both operations, the bytes, what a GPU
 * would do, and a question about the likely mistake, if the records and waits of events show it.
 *
 * A stream-ordered allocation counts as an access to all its bytes, and so does its free: a race
 * with one of them is reported as a mistake of lifetime.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "check/check.h"
#include "core/config.h"
#include "log_writer.h"
#include "memory/allocation.h"
#include "memory/pinned.h"
#include "memory/place.h"
#include "report/report.h"
#include "streams/streams.h"

#define WHERE 256
#define QUESTION 1536
#define MOST_GAPS 64 // how many unwritten ranges, at most, a copy carries over from its source
#define PAIRS 64     // reported races that are remembered

// ---- Words ----

// sim_stream_name without the call site: "stream B".
static void short_name(const SimStreamId *s, char *text, size_t size)
{
    if (s->name && s->slot != SIM_HOST_SLOT) {
        snprintf(text, size, "%s", s->name);
        return;
    }
    sim_stream_name(s, text, size);
    text[strcspn(text, ",(")] = 0;
    size_t n = strlen(text);
    if (n && text[n - 1] == ' ') text[n - 1] = 0;
}

static const char *verb(const SimAccess *access)
{
    if (access->op == GPU_ALLOC) return "allocates";
    if (access->op == GPU_FREE) return "frees";
    return access->access == GPU_READ    ? "reads"
           : access->access == GPU_WRITE ? "writes"
                                         : "reads and writes";
}

// "bytes 4096 to 8191 of x, the 32768 bytes allocated at a.c:7 (main)"
static void describe_bytes(const void *ptr, size_t begin, size_t end, char *text, size_t size)
{
    char place[4 * WHERE];
    size_t offset;
    SimDevice *device = sim_device_of(ptr, &offset);
    if (device) {
        sim_describe_bytes(device, offset, end - begin, text, size);
        return;
    }
    sim_pinned_describe(ptr, place, sizeof place);
    const char *of = strstr(place, " of ");
    if (end - begin == 1)
        snprintf(text, size, "byte %zu%s", begin, of ? of : "");
    else
        snprintf(text, size, "bytes %zu to %zu%s", begin, end - 1, of ? of : "");
}

// ---- Questions ----

// Writes how the program tried to order the two, and the likely mistake. False: the hint knows
// nothing.
static bool ask_by_hint(const SimHint *hint, const char *first, const char *second, char *text,
                        size_t size)
{
    char record[WHERE], wait[WHERE], other[WHERE];
    gpulog_where(hint->record, record, sizeof record);
    gpulog_where(hint->wait, wait, sizeof wait);
    short_name(&hint->other, other, sizeof other);
    switch (hint->kind) {
    case HINT_EARLY:
        snprintf(text, size,
                 "The wait at %s\nis for an event that was recorded at %s,\n"
                 "before the work it should cover. Should the record come after that work?",
                 wait, record);
        return true;
    case HINT_RENEWED:
        snprintf(text, size,
                 "At %s the event was recorded after that work,\n"
                 "but the wait at %s\n"
                 "was called before that record, and a wait covers only records made before it.\n"
                 "Should the wait come after the record?",
                 record, wait);
        return true;
    case HINT_NEVER:
        snprintf(text, size,
                 "The wait at %s\nwas called before its event was recorded%s%s, and such a wait "
                 "waits for nothing.\nIs the cudaEventRecord missing, or too late, or should the "
                 "wait be for another event?",
                 wait, hint->record ? " at " : "", hint->record ? record : "");
        return true;
    case HINT_ELSEWHERE:
        snprintf(text, size,
                 "The wait at %s\nis for an event that was recorded on %s (at %s).\n"
                 "Was it to be recorded on %s, or should the wait be for another event?",
                 wait, other, record, first);
        return true;
    case HINT_OTHER_WAITED:
        snprintf(text, size,
                 "An event was recorded after that work (at %s),\n"
                 "but it is %s that waits for it (at %s).\nShould %s wait for it, too?",
                 record, other, wait, second);
        return true;
    case HINT_NOT_WAITED:
        snprintf(text, size,
                 "An event was recorded after that work (at %s),\nand %s did not wait for it.\n"
                 "Is there a cudaStreamWaitEvent missing?",
                 record, second);
        return true;
    case HINT_HOST_ELSEWHERE:
        snprintf(text, size, "The host waited at %s,\nbut for %s.\nWas it to wait for %s?", wait,
                 other, first);
        return true;
    case HINT_NODES:
        snprintf(text, size,
                 "Both are nodes of launched graphs, and no edges lead from one to the other.\n"
                 "If they are in one graph: did one stream not wait for the other in the "
                 "capture?\n"
                 "If they are in two: are these launched on streams that do not wait for each "
                 "other?");
        return true;
    case HINT_NONE: break;
    }
    return false;
}

// Whether one is on a default stream and the other on a non-blocking stream.
static bool passes_default(const SimStreamId *a, const SimStreamId *b)
{
    return a->device == b->device &&
           ((a->is_default && !b->blocking) || (b->is_default && !a->blocking));
}

static void ask_about_pair(const SimAccess *first, const SimAccess *second, char *text, size_t size)
{
    char one[WHERE], two[WHERE];
    short_name(&first->stream, one, sizeof one);
    short_name(&second->stream, two, sizeof two);
    if (second->stream.slot == SIM_HOST_SLOT) {
        bool other_device = first->stream.device != second->stream.device;
        snprintf(text, size,
                 other_device
                     ? "cudaFree waits for the memory's own device only. Is a synchronisation with "
                       "the other one\nmissing before it?"
                     : "cudaFree of memory of cudaMallocAsync waits for nothing. Is a "
                       "synchronisation missing before it,\n"
                       "or should it be cudaFreeAsync on the stream of the last use?");
        return;
    }
    SimHint hint = sim_stream_hint(&first->stream, first->time, first->order, &second->stream);
    if (hint.kind != HINT_NOT_WAITED && hint.kind != HINT_HOST_ELSEWHERE &&
        ask_by_hint(&hint, one, two, text, size))
        return;
    if (passes_default(&first->stream, &second->stream)) {
        bool fills = first->op == GPU_MEMSET || strncmp(first->name, "cudaMemcpy", 10) == 0;
        snprintf(text, size,
                 "A non-blocking stream does not wait for the default stream, nor vice versa%s%s.\n"
                 "Should both be on one stream, or is there an event or a synchronisation missing?",
                 first->stream.is_default && fills ? ",\nand " : "",
                 !(first->stream.is_default && fills) ? ""
                 : first->op == GPU_MEMSET
                     ? "cudaMemset returns before it is done"
                     : "cudaMemcpy from pageable memory may return before the bytes are there");
    } else if (ask_by_hint(&hint, one, two, text, size)) {
        return;
    } else if (second->op == GPU_FREE) {
        snprintf(text, size,
                 "Should it be freed on the stream that used it last, or should that stream be "
                 "waited for\nbefore the free?");
    } else if (first->op == GPU_ALLOC) {
        snprintf(text, size,
                 "Should an event be recorded on %s after the allocation, and\n"
                 "%s wait for it? Or were both meant for one stream?",
                 one, two);
    } else {
        bool early = gpulog_is_collective(first->op) && second->access != GPU_READ &&
                     !gpulog_is_collective(second->op);
        snprintf(text, size,
                 "Should an event be recorded on %s after %s, and\n"
                 "%s wait for it (cudaEventRecord, cudaStreamWaitEvent)?\n"
                 "Or were both meant for one stream?%s%s%s",
                 one, first->name, two, early ? "\nOr does " : "", early ? first->name : "",
                 early ? " come too early, before all writes to its memory are queued?" : "");
    }
}

// ---- Reports ----

// Whether a race of these two operations was reported before: one report for a pair is enough. Slot
// and time identify an operation, because a slot never has the same time twice.
static bool is_known_pair(const SimAccess *first, const SimAccess *second)
{
    static struct {
        int a, b;
        uint64_t s, t;
    } known[PAIRS];
    static unsigned next;
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    int a = first->stream.slot, b = second->stream.slot;
    bool there = false;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < PAIRS && !there; i++)
        there = known[i].a == a && known[i].b == b && known[i].s == first->time &&
                known[i].t == second->time;
    if (!there) {
        unsigned i = next++ % PAIRS;
        known[i].a = a;
        known[i].b = b;
        known[i].s = first->time;
        known[i].t = second->time;
    }
    pthread_mutex_unlock(&lock);
    return there;
}

static const char *consequence(const SimAccess *first, const SimAccess *second)
{
    if (second->op == GPU_FREE)
        return "On a GPU the memory may already belong to another allocation while it is still in "
               "use.";
    if (first->op == GPU_ALLOC)
        return "On a GPU the memory may still belong to another allocation, or not be there yet.";
    if (first->comm && first->comm == second->comm)
        return "NCCL starts the calls of one communicator in their order, one after the other; but "
               "its\nguide does not promise that, and on a GPU nothing else orders these two.";
    if (first->access == GPU_READ)
        return "On a GPU they run in either order or at once: the read may already see what "
               "the other writes.";
    if (second->access == GPU_READ)
        return "On a GPU they run in either order or at once: the read may see the old bytes, or "
               "half "
               "of the new.";
    return "On a GPU they run in either order or at once: the result is the one's, the other's, "
           "or a mixture.";
}

// The report begins with the operation that the program's own code queued (`one`). If it queued
// both, or neither, the report begins with the later one, whose call has found the conflict.
static void report_conflict(const SimAccess *second, const SimFinding *found, const void *base)
{
    const SimAccess *first = &found->first;
    char here[WHERE], there[WHERE], on[2 * WHERE], other[2 * WHERE], what[4 * WHERE];
    char question[QUESTION];
    if (is_known_pair(first, second)) return;
    bool frees = second->op == GPU_FREE, allocates = first->op == GPU_ALLOC;
    bool earlier_first = gpulog_is_own(first->site) && !gpulog_is_own(second->site);
    const SimAccess *one = earlier_first ? first : second, *two = earlier_first ? second : first;
    gpulog_where(one->site, here, sizeof here);
    gpulog_where(two->site, there, sizeof there);
    sim_stream_name(&one->stream, on, sizeof on);
    sim_stream_name(&two->stream, other, sizeof other);
    describe_bytes((const char *)base + found->begin, found->begin, found->end, what, sizeof what);
    ask_about_pair(first, second, question, sizeof question);
    sim_facts_named_call(one->name, one->site, one->stream.name);
    sim_facts_named_call(two->name, two->site, two->stream.name);
    sim_facts_range((const char *)base + found->begin, found->end - found->begin);
    sim_report(
        frees || allocates ? SIMGPU_LIFETIME : SIMGPU_RACE,
        frees       ? "memory is freed while another stream may still use it"
        : allocates ? "memory is used on a stream that does not wait for its allocation"
                    : "two operations on the same memory, and neither waits for the other",
        "%s, called at %s,\non %s,\n%s %s.\n%s\n%s, called at %s,\n"
        "on %s,\nwhich %s %s.\n%s\n%s",
        one->name, here, on, verb(one), what,
        earlier_first ? "After it, and without waiting for it, comes" : "It does not wait for",
        two->name, there, other, verb(two), frees && !earlier_first ? "them" : "the same bytes",
        consequence(first, second), question);
}

#define UNWRITTEN_ADVICE                                                                           \
    "On a GPU it reads whatever was left there, which may differ each time.\n"                     \
    "Was the padding not set to zero? A shard never gathered? A copy too short, or misplaced?\n"   \
    "Is a count or a type too large? Are zeros expected of cudaMalloc? Only cudaMemset gives "     \
    "them."

// The call site of the allocation at base, if that is in the program itself and the access is not;
// else NULL.
static const void *own_maker(const void *base, const SimAccess *access)
{
    size_t offset;
    SimAllocation found;
    SimDevice *device = sim_device_of(base, &offset);
    if (!device || gpulog_is_own(access->site) || !sim_allocation(device, offset, &found))
        return NULL;
    return gpulog_is_own(found.site) ? found.site : NULL;
}

// If the program's own code allocated the memory and given code reads it, the report begins with
// the allocation.
static void report_unwritten(const SimAccess *access, const SimFinding *found, const void *base)
{
    char here[WHERE], on[2 * WHERE], what[4 * WHERE], count[64] = "";
    size_t begin = found->unwritten_from;
    bool gaps = sim_shape_has_gaps(&access->shape);
    gpulog_where(access->site, here, sizeof here);
    sim_stream_name(&access->stream, on, sizeof on);
    describe_bytes((const char *)base + begin, begin, begin + 1, what, sizeof what);
    if (!gaps)
        snprintf(count, sizeof count, "%zu uninitialised bytes, the first of them\n",
                 found->unwritten);
    const void *maker = own_maker(base, access);
    if (maker) sim_facts_call("allocation", maker, SIM_NO_STREAM);
    sim_facts_named_call(access->name, access->site, access->stream.name);
    sim_facts_range((const char *)base + begin, gaps ? 1 : found->unwritten);
    static const char title[] = "an uninitialised read of device memory";
    if (maker)
        sim_report(SIMGPU_UNINITIALISED, title,
                   "%s%s,\n%s read by\n%s, called at %s,\non %s.\n" UNWRITTEN_ADVICE, count, what,
                   gaps ? "uninitialised, is" : "are", access->name, here, on);
    else
        sim_report(SIMGPU_UNINITIALISED, title,
                   "%s, called at %s,\non %s,\nreads %s%s%s.\n" UNWRITTEN_ADVICE, access->name,
                   here, on, count, what, gaps ? ", which is uninitialised" : "");
}

// ---- Accesses ----

// A copy does not use the values: some of its bytes may be unwritten, such as the unused triangle
// of a triangular matrix, but not all of them.
static bool carries(const SimgpuOp *op)
{
    return op && op->entry.op == GPU_COPY;
}

// Completes the access by the operation's stream and time, compares it with the earlier ones, and
// reports. op NULL: the host frees the memory (cudaFree).
static void check_access(const SimgpuOp *op, const void *ptr, SimAccess access)
{
    SimMoment moment;
    SimDevice *device;
    SimFinding found = {.conflict = false};
    size_t offset = 0, bytes = sim_shape_bytes(&access.shape);
    if (op)
        sim_moment_hold(op, &moment);
    else
        sim_moment_hold_host(&moment);
    access.stream = moment.stream;
    access.time = moment.time;
    access.order = moment.order;
    SimShadow *shadow = sim_shadow_hold(ptr, &device, &offset);
    if (!op && device) access.stream.device = device->index;
    access.begin = offset;
    if (shadow) sim_shadow_touch(shadow, &access, moment.clock, &found);
    if (carries(op) && found.some_written) found.unwritten = 0;
    if (found.unwritten) sim_shadow_set_written(shadow, offset, bytes, true);
    sim_shadow_release(device);
    sim_moment_release();
    const char *base = (const char *)ptr - offset;
    if (found.conflict) report_conflict(&access, &found, base);
    if (found.unwritten) report_unwritten(&access, &found, base);
}

void sim_race_touch(const SimgpuOp *op, const void *ptr, const SimShape *shape, GpuAccess access)
{
    size_t offset;
    bool inside;
    if (sim_config()->check != CHECK_FULL) return;
    if (sim_device_of(ptr, &offset) || sim_pinned(ptr, 1, &inside))
        check_access(op, ptr,
                     (SimAccess){.op = op->entry.op,
                                 .access = access,
                                 .name = op->entry.name,
                                 .site = op->entry.site,
                                 .comm = op->entry.collective.comm,
                                 .shape = *shape});
}

void sim_race_free(const SimgpuOp *op, const void *ptr, const void *site)
{
    if (sim_config()->check != CHECK_FULL) return;
    SimShape shape = sim_plain_shape(sim_allocated_at(ptr));
    if (shape.width > 0)
        check_access(op, ptr,
                     (SimAccess){.op = GPU_FREE,
                                 .access = GPU_WRITE,
                                 .name = op ? op->entry.name : "cudaFree",
                                 .site = site,
                                 .shape = shape});
}

void sim_race_carry(void *dst, const void *src, size_t bytes)
{
    struct {
        size_t from, to;
    } gap[MOST_GAPS];
    SimDevice *device;
    size_t offset = 0, n = 0;
    if (sim_config()->check != CHECK_FULL) return;
    SimShadow *shadow = sim_shadow_hold(src, &device, &offset);
    for (size_t at = offset, from, to;
         shadow && n < MOST_GAPS && sim_shadow_unwritten(shadow, at, offset + bytes, &from, &to);
         at = to, n++) {
        gap[n].from = from - offset;
        gap[n].to = to - offset;
    }
    sim_shadow_release(device);
    if (!n) return;
    shadow = sim_shadow_hold(dst, &device, &offset);
    for (size_t i = 0; shadow && i < n; i++)
        sim_shadow_set_written(shadow, offset + gap[i].from, gap[i].to - gap[i].from, false);
    sim_shadow_release(device);
}
