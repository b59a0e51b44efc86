/* report.c: the one way to tell the user something, and fatal ends.
 *
 * A report is a title and a few lines, each with the rank in front, written to stderr in one write
 * so that reports of several ranks do not run into each other:
 *
 *   simgpu: rank 1, device 1: cudaFree of memory that is freed already
 *   simgpu: rank 1 |   called at prog.c:12 (main)
 *
 * Interface: sim_report, sim_fatal, sim_set_report_rank; simgpu_on_report,
 * simgpu_class_name.
 */
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "internal.h"

#define BODY 8192
#define TEXT 12288

static atomic_int rank = -1;
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

void simgpu_on_report(SimgpuReportHook fn, void *arg)
{
    pthread_mutex_lock(&hook_lock);
    hook.fn = fn;
    hook.arg = arg;
    pthread_mutex_unlock(&hook_lock);
}

// Text that is never overrun: what does not fit is left away.
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

// Puts the rank in front of every line of the body.
static void lay_out(Buffer *out, const char *title, const char *body)
{
    char who[40] = "";
    int r = atomic_load(&rank);
    if (r >= 0) snprintf(who, sizeof who, "rank %d", r);
    add(out, "simgpu: %s%sdevice %d: %s\n", who, r >= 0 ? ", " : "", sim_current_device(), title);
    for (const char *line = body; *line;) {
        size_t n = strcspn(line, "\n");
        add(out, "simgpu: %s%s|   %.*s\n", who, r >= 0 ? " " : "", (int)n, line);
        line += n + (line[n] == '\n');
    }
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

static const char *const class_names[SIMGPU_CLASSES] = {
    [SIMGPU_MISMATCH] = "collective mismatch",
    [SIMGPU_COMM_ORDER] = "order across communicators",
    [SIMGPU_DEADLOCK] = "missing rank or deadlock",
    [SIMGPU_GROUP] = "group misuse",
    [SIMGPU_POINTER] = "wrong pointer",
    [SIMGPU_LIFETIME] = "lifetime",
    [SIMGPU_UNINITIALISED] = "uninitialised read",
    [SIMGPU_RACE] = "race between streams",
    [SIMGPU_HOST_RACE] = "race with the host",
    [SIMGPU_OVERLAP] = "overlap",
    [SIMGPU_LEAK] = "leak",
    [SIMGPU_HOST_DEREFERENCE] = "host dereference",
    [SIMGPU_CALL] = "wrong call",
    [SIMGPU_NO_MEMORY] = "out of memory",
    [SIMGPU_SYSTEM] = "system",
};

const char *simgpu_class_name(SimgpuClass kind)
{
    return (unsigned)kind < SIMGPU_CLASSES ? class_names[kind] : "unknown";
}

void sim_facts_call(const char *name, const void *site, cudaStream_t stream)
{
}

void sim_facts_range(const void *ptr, size_t bytes)
{
}

static void report(SimgpuClass kind, const char *title, const char *format, va_list args)
{
    char body[BODY], text[TEXT];
    vsnprintf(body, sizeof body, format, args);
    Buffer out = {text, sizeof text, 0};
    text[0] = 0;
    lay_out(&out, title, body);
    write_whole(text, out.used);
    pthread_mutex_lock(&hook_lock);
    SimgpuReportHook fn = hook.fn;
    void *arg = hook.arg;
    pthread_mutex_unlock(&hook_lock);
    SimgpuReport whole = {kind, title, text, atomic_load(&rank), sim_current_device()};
    if (fn) fn(&whole, arg);
}

void sim_report(SimgpuClass kind, const char *title, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    report(kind, title, format, args);
    va_end(args);
}

void sim_fatal(SimgpuClass kind, const char *title, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    report(kind, title, format, args);
    va_end(args);
    if (sim_comm_goodbye) sim_comm_goodbye(title);
    // What the program said before is worth having, unless another thread is busy saying something.
    if (ftrylockfile(stdout) == 0) fflush(stdout);
    _exit(SIMGPU_FATAL_EXIT);
}
