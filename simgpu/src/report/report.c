/* report.c: prints reports, and ends the process after a fatal one.
 *
 * A report is a title with its class and a few lines, each with the rank in front, written to
 * stderr in one write so that reports of several ranks do not run into each other:
 *
 *   simgpu: rank 1, device 1: device memory was freed twice [lifetime]
 *   simgpu: rank 1 |   cudaFree, called at prog.c:12 (main),
 *   simgpu: rank 1 |     12 | cudaFree(x);
 *   simgpu: rank 1 |          in drop (lib/drop.c:7)
 *   simgpu: rank 1 |   was given byte 0 of x, the 8 bytes allocated at prog.c:9 (main)
 *   simgpu: rank 1 |   …
 *   simgpu: rank 1 |   Read: simgpu/pages/mistakes.md, "Lifetime"
 *
 * A caller writes the body as prose. A sentence that begins with "On a GPU" or "On real GPUs" says
 * what real hardware would do, and one that ends in a question mark asks about the likely mistake.
 * The caller's facts (sim_facts_*) put source lines below the lines that name their places, and go
 * into the record (report_json.c). The place of a call is the nearest line of the program's own
 * code (gpulog_own_code); the given code that it called is below its source line.
 *
 * One mistake often causes several reports. The first report of a process is printed (if ranks
 * share it, by one of them: fold.c), the others are counted, and a line at the end of the process
 * has their number; SIMGPU_REPORTS=all prints all. A full device and a fault of the machine are
 * always reported.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "log_writer.h"
#include "report/fold.h"
#include "report/hooks.h"
#include "report/report.h"
#include "report/report_json.h"

#define BODY 8192
#define TEXT 16384
#define SOURCE_COLUMNS 72 // a longer line of source is cut

static atomic_int rank = -1;
static _Thread_local int device;
static struct {
    SimgpuReportHook fn;
    void *arg;
} hook;
static pthread_mutex_t hook_lock = PTHREAD_MUTEX_INITIALIZER;

void sim_set_report_rank(int r)
{
    int none = -1;
    atomic_compare_exchange_strong(&rank, &none, r);
}

void sim_set_report_device(int d)
{
    device = d;
}

void simgpu_on_report(SimgpuReportHook fn, void *arg)
{
    pthread_mutex_lock(&hook_lock);
    hook.fn = fn;
    hook.arg = arg;
    pthread_mutex_unlock(&hook_lock);
}

// ---- Classes ----

// ROW(class, words, id, page, mistake) of each. `page`: the section of simgpu/pages/mistakes.md;
// `mistake`: it is one of the program's, and those after the first are only counted.
#define CLASSES(ROW)                                                                               \
    ROW(MISMATCH, "collective mismatch", "collective-mismatch", "Collective mismatch", true)       \
    ROW(COMM_ORDER, "order across communicators", "order-across-communicators",                    \
        "Order across communicators", true)                                                        \
    ROW(DEADLOCK, "missing rank or deadlock", "deadlock", "Missing rank or deadlock", true)        \
    ROW(GROUP, "group misuse", "group-misuse", "Group misuse", true)                               \
    ROW(POINTER, "wrong pointer", "wrong-pointer", "Wrong pointer", true)                          \
    ROW(LIFETIME, "lifetime", "lifetime", "Lifetime", true)                                        \
    ROW(UNINITIALISED, "uninitialised read", "uninitialised-read", "Uninitialised read", true)     \
    ROW(RACE, "race between streams", "race-between-streams", "Race between streams", true)        \
    ROW(HOST_RACE, "race with the host", "race-with-the-host", "Race with the host", true)         \
    ROW(OVERLAP, "overlap", "overlap", "Overlap", true)                                            \
    ROW(LEAK, "leak", "leak", "Leak", true)                                                        \
    ROW(HOST_DEREFERENCE, "host dereference", "host-dereference", "Host dereference", true)        \
    ROW(CALL, "wrong call", "wrong-call", "Wrong call", true)                                      \
    ROW(CAPTURE, "capture", "capture", "Capture and graphs", true)                                 \
    ROW(NO_MEMORY, "out of memory", "out-of-memory", "Out of memory", false)                       \
    ROW(SYSTEM, "system", "system", NULL, false)

#define CLASS(class, ...) [SIMGPU_##class] = {__VA_ARGS__},
#define COUNT(class, ...) +1
static const struct {
    const char *words, *id, *page;
    bool mistake;
} classes[] = {CLASSES(CLASS)};
_Static_assert(CLASSES(COUNT) == SIMGPU_CLASSES, "each class has a row");

const char *simgpu_class_name(SimgpuClass kind)
{
    return (unsigned)kind < SIMGPU_CLASSES ? classes[kind].words : "unknown";
}

const char *sim_report_id(SimgpuClass kind)
{
    return (unsigned)kind < SIMGPU_CLASSES ? classes[kind].id : "unknown";
}

const char *sim_report_page(SimgpuClass kind)
{
    return (unsigned)kind < SIMGPU_CLASSES ? classes[kind].page : NULL;
}

// ---- Facts ----

static _Thread_local SimFacts facts;

void sim_facts_rank_call(int of_rank, const char *name, const void *site, cudaStream_t stream)
{
    if (facts.n_calls == SIM_FACTS) return;
    const char *stream_name = stream == SIM_NO_STREAM ? NULL : gpulog_name_of_stream(stream);
    facts.call[facts.n_calls++] = (SimFactCall){of_rank, name, site, stream, stream_name};
}

// For a stream that may be gone.
void sim_facts_named_call(const char *name, const void *site, const char *stream_name)
{
    if (facts.n_calls < SIM_FACTS)
        facts.call[facts.n_calls++] = (SimFactCall){-1, name, site, SIM_NO_STREAM, stream_name};
}

void sim_facts_call(const char *name, const void *site, cudaStream_t stream)
{
    sim_facts_rank_call(-1, name, site, stream);
}

void sim_facts_bytes(SimFactRange range)
{
    if (facts.n_ranges < SIM_FACTS) facts.range[facts.n_ranges++] = range;
}

// ---- Layout ----

// Text that never overflows: what does not fit is dropped.
typedef struct Buffer {
    char *text;
    size_t size, used;
} Buffer;

static void add(Buffer *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add(Buffer *b, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(b->text + b->used, b->size - b->used, format, args);
    va_end(args);
    if (n > 0) b->used += (size_t)n < b->size - b->used ? (size_t)n : b->size - b->used - 1;
}

// Adds the source line of the place that this line of the body names, if any, and the given code
// between. `shown` has the places that are shown already.
static void add_source(Buffer *out, const char *head, const char *line, size_t n, unsigned *shown)
{
    char where[256], other[256], source[SOURCE_COLUMNS + 1], path[512];
    for (int i = 0; i < facts.n_calls; i++) {
        const void *site = facts.call[i].site;
        if (!site || (*shown & 1u << i)) continue;
        gpulog_where(site, where, sizeof where);
        if (!memmem(line, n, where, strlen(where))) continue;
        for (int j = i; j < facts.n_calls; j++) { // two calls of one line show it once
            gpulog_where(facts.call[j].site, other, sizeof other);
            if (strcmp(where, other) == 0) *shown |= 1u << j;
        }
        const char *colon = strchr(where, ':');
        if (colon && gpulog_source(site, source, sizeof source))
            add(out, "%s|   %6d | %s\n", head, atoi(colon + 1), source);
        if (gpulog_call_path(site, path, sizeof path)) add(out, "%s|            %s\n", head, path);
    }
}

static void add_title(Buffer *out, SimgpuClass kind, const char *before, const char *title)
{
    int r = atomic_load(&rank);
    add(out, "simgpu: ");
    if (r >= 0) add(out, "rank %d, ", r);
    add(out, "device %d: %s%s", device, before, title);
    if (kind != SIMGPU_SYSTEM) add(out, " [%s]", simgpu_class_name(kind));
    add(out, "\n");
}

// Puts the rank in front of every line of the body.
static void lay_out(Buffer *out, SimgpuClass kind, const char *title, const char *body)
{
    char head[40] = "simgpu: ";
    int r = atomic_load(&rank);
    unsigned shown = 0;
    if (r >= 0) snprintf(head, sizeof head, "simgpu: rank %d ", r);
    add_title(out, kind, "", title);
    for (const char *line = body; *line;) {
        size_t n = strcspn(line, "\n");
        add(out, "%s|   %.*s\n", head, (int)n, line);
        add_source(out, head, line, n, &shown);
        line += n + (line[n] == '\n');
    }
    const char *page = sim_report_page(kind);
    if (page && *body) add(out, "%s|   Read: simgpu/pages/mistakes.md, \"%s\"\n", head, page);
}

static void write_whole(const char *text, size_t size)
{
    while (size > 0) {
        ssize_t n = write(STDERR_FILENO, text, size);
        if (n <= 0) return;
        text += n;
        size -= (size_t)n;
    }
}

// ---- Settings ----

static bool all_reports; // SIMGPU_REPORTS: not only the first
static atomic_bool begun;

static void read_settings(void)
{
    const char *text = getenv("SIMGPU_REPORTS");
    char title[160];
    all_reports = text && strcmp(text, "all") == 0;
    if (text && *text && !all_reports && strcmp(text, "first") != 0) {
        snprintf(title, sizeof title, "SIMGPU_REPORTS is \"%.80s\": must be first or all", text);
        sim_fatal(SIMGPU_SYSTEM, title, "%s", "");
    }
    sim_record_begin();
    atomic_store(&begun, true);
}

void sim_report_begin(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_settings);
}

// ---- First causes ----

// Of this process: a forked one starts again.
static struct {
    atomic_int pid;
    atomic_int printed, followed; // reports of mistakes
    atomic_bool folded;           // another rank has printed this one's
} count;

static void own_count(void)
{
    int pid = (int)getpid();
    if (atomic_exchange(&count.pid, pid) == pid) return;
    atomic_store(&count.printed, 0);
    atomic_store(&count.followed, 0);
    atomic_store(&count.folded, false);
}

int sim_reported(void)
{
    own_count();
    return atomic_load(&count.printed) + atomic_load(&count.followed);
}

// Counts a report; true: it follows from one that is printed already.
static bool follows(SimgpuClass kind)
{
    own_count();
    if (!classes[kind].mistake) return false;
    if (atomic_fetch_add(&count.printed, 1) == 0) return false;
    atomic_fetch_sub(&count.printed, 1);
    atomic_fetch_add(&count.followed, 1);
    return true;
}

void sim_report_summary(void)
{
    own_count();
    int followed = atomic_exchange(&count.followed, 0), r = atomic_load(&rank);
    char text[256];
    Buffer out = {text, sizeof text, 0};
    if (followed == 0 || all_reports || atomic_load(&count.folded)) return;
    add(&out, "simgpu: ");
    if (r >= 0) add(&out, "rank %d: ", r);
    add(&out, "%d more report%s followed from this one or came after it; SIMGPU_REPORTS=all %s\n",
        followed, followed == 1 ? "" : "s", followed == 1 ? "prints it" : "prints them");
    write_whole(text, out.used);
}

// ---- Reporting ----

// A report that is being made. It has its own memory, since a signal handler's stack is small.
typedef struct Work {
    char body[BODY], text[TEXT], record[SIM_RECORD];
} Work;

static void tell_hook(const SimgpuReport *whole)
{
    pthread_mutex_lock(&hook_lock);
    SimgpuReportHook fn = hook.fn;
    void *arg = hook.arg;
    pthread_mutex_unlock(&hook_lock);
    if (fn) fn(whole, arg);
}

static void print(const SimgpuReport *whole, bool fatal, const char *body)
{
    char line[512];
    Buffer out = {line, sizeof line, 0};
    bool first = !whole->follows && !all_reports && classes[whole->kind].mistake;
    if (first && sim_report_folded(whole, body, &facts)) {
        atomic_store(&count.folded, true);
    } else if (!whole->follows || all_reports) {
        write_whole(whole->text, strlen(whole->text));
    } else if (fatal) { // the reason of the end is always printed, at least in one line
        add_title(&out, whole->kind, "and then this ended the process: ", whole->title);
        write_whole(line, out.used);
    }
}

__attribute__((format(printf, 4, 0))) static void
report(SimgpuClass kind, bool fatal, const char *title, const char *format, va_list args)
{
    Work *work =
        mmap(NULL, sizeof *work, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (work == MAP_FAILED) {
        write_whole(title, strlen(title));
        write_whole("\n", 1);
        return;
    }
    vsnprintf(work->body, sizeof work->body, format, args);
    Buffer out = {work->text, sizeof work->text, 0};
    lay_out(&out, kind, title, work->body);
    SimgpuReport whole = {kind, title, work->text, atomic_load(&rank), device, false, work->record};
    if (kind != SIMGPU_SYSTEM) sim_report_begin();
    whole.follows = follows(kind);
    sim_record(&whole, work->body, &facts, work->record, sizeof work->record);
    print(&whole, fatal, work->body);
    memset(&facts, 0, sizeof facts);
    sim_record_write(work->record);
    tell_hook(&whole);
    munmap(work, sizeof *work);
}

void sim_report(SimgpuClass kind, const char *title, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    report(kind, false, title, format, args);
    va_end(args);
}

void sim_fatal(SimgpuClass kind, const char *title, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    report(kind, true, title, format, args);
    va_end(args);
    if (begun) sim_report_summary();
    for (const SimHooks *hooks = sim_hooks(); hooks; hooks = hooks->next)
        if (hooks->fatal) hooks->fatal();
    // Print what the program has buffered, unless another thread is printing.
    if (ftrylockfile(stdout) == 0) fflush(stdout);
    _exit(SIMGPU_FATAL_EXIT);
}
