/* last_words.c: what a rank of an example says when it crashes, or comes no further. See
 * last_words.h.
 *
 * A place is found by walking the stack and resolving addresses, which takes locks and memory; in a
 * process that has just crashed either can be broken. Where the walk crashes or does not end, the
 * line is said without the place.
 */
#define _GNU_SOURCE // REG_RIP
#include "last_words.h"

#include <execinfo.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

#include "../../gpulog/log/log_writer.h"
#include "report.h"

#define MAX_FRAMES 64
#define HANDLER_STACK (256 * 1024)
#define WALK_SECONDS 3

static unsigned step_seconds; // 0: nobody watches
static int own_rank;

static void write_line(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void write_line(const char *format, ...)
{
    char text[1600];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (n >= (int)sizeof text) n = sizeof text - 1;
    ssize_t ignored = write(STDERR_FILENO, text, (size_t)n);
    (void)ignored;
}

// The program's own code, from the linker.
extern const char __executable_start[], etext[];

// Whether a place "folder/file.c:88 (function)" is in a task's file, which stands above all.
#define PLACE_IN(name, function) "/" #name ".c:",
static bool is_task_file(const char *where)
{
    static const char *const files[] = {TASK_FILES(PLACE_IN)};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        if (strstr(where, files[i]) != NULL) return true;
    return false;
}

// Lines of simgpu, of its log and of this file are none of a reader's. By the path below the kit's
// folder: a reader's own folder may be called like one of simgpu's.
static bool is_of_interest(const GpuLogLine *line)
{
    static const char *const hidden[] = {"simgpu/", "gpulog/", __FILE__};
    const char *path = line->path + line->below;
    for (size_t i = 0; i < sizeof hidden / sizeof hidden[0]; i++)
        if (strncmp(path, hidden[i], strlen(hidden[i])) == 0) return false;
    return path[0] != '\0';
}

// The innermost frame in a task's file; else the innermost with a line. `pc` is the interrupted
// instruction.
static void find_place(const char *pc, char *place, size_t size)
{
    void *frames[MAX_FRAMES + 1];
    int n = backtrace(frames + 1, MAX_FRAMES) + 1;
    bool found = false;
    frames[0] = (void *)(pc + 1); // no call: one byte on, it resolves to its own line
    snprintf(place, size, "a place with no known line");
    for (int i = 0; i < n; i++) {
        GpuLogLine line;
        const char *site = frames[i];
        if (site <= __executable_start || site > etext || (i > 0 && site == pc)) continue;
        if (!gpulog_line(site, &line) || !is_of_interest(&line)) continue;
        if (found && !is_task_file(line.text)) continue;
        snprintf(place, size, "%s", line.text);
        found = true;
        if (is_task_file(line.text)) return;
    }
}

static const char *interrupted_at(const void *context)
{
    const ucontext_t *c = context;
#if defined(__x86_64__)
    return (const char *)c->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
    return (const char *)c->uc_mcontext.pc;
#else
    (void)c;
    return NULL;
#endif
}

static void watch(int signal, void (*handler)(int, siginfo_t *, void *))
{
    // SA_NODEFER: a crash within a handler has its own.
    struct sigaction action = {.sa_sigaction = handler,
                               .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
    sigemptyset(&action.sa_mask);
    sigaction(signal, &action, NULL);
}

static char unplaced[256]; // what to say where the walk fails
static int exit_status;

static void on_lost_walk(int signal, siginfo_t *info, void *context)
{
    write_line("[rank %d] %s\n", own_rank, unplaced);
    _exit(exit_status);
}

static void begin_walk(int status, const char *text)
{
    snprintf(unplaced, sizeof unplaced, "%s", text);
    exit_status = status;
    watch(SIGSEGV, on_lost_walk);
    watch(SIGBUS, on_lost_walk);
    watch(SIGABRT, on_lost_walk);
    watch(SIGALRM, on_lost_walk);
    alarm(WALK_SECONDS);
}

static void on_crash(int signal, siginfo_t *info, void *context)
{
    char place[512], text[128];
    snprintf(text, sizeof text, "crashed (%s)",
             signal == SIGSEGV   ? "segmentation fault"
             : signal == SIGBUS  ? "bus error"
             : signal == SIGFPE  ? "arithmetic error, such as a division by zero"
             : signal == SIGABRT ? "abort"
                                 : "illegal instruction");
    begin_walk(128 + signal, text);
    find_place(interrupted_at(context), place, sizeof place);
    write_line("[rank %d] %s at %s\n", own_rank, text, place);
    _exit(128 + signal);
}

static void on_alarm(int signal, siginfo_t *info, void *context)
{
    char doing[1024] = "", place[512], text[128];
    snprintf(text, sizeof text, "no step ended for %u seconds", step_seconds);
    begin_walk(LAST_WORDS_LIMIT_EXIT, text);
    gpulog_activity(doing, sizeof doing);
    find_place(interrupted_at(context), place, sizeof place);
    if (strncmp(doing, "waiting", 7) != 0)
        write_line("[rank %d] %s; the rank was still running at %s\n", own_rank, text, place);
    else
        write_line("[rank %d] %s; the rank was %s%s%s\n", own_rank, text, doing,
                   is_task_file(doing) ? "" : ", called from ", is_task_file(doing) ? "" : place);
    _exit(LAST_WORDS_LIMIT_EXIT);
}

static unsigned limit_of_a_step(void)
{
    const char *limit = getenv("SHARDLAB_STEP_LIMIT"), *factor = getenv("SHARDLAB_TIME_FACTOR");
    double seconds = limit != NULL ? strtod(limit, NULL) : LAST_WORDS_SECONDS;
    double times = factor != NULL ? strtod(factor, NULL) : 1.0;
    if (!(seconds >= 1.0 && seconds < 1e6)) seconds = LAST_WORDS_SECONDS;
    return (unsigned)(seconds * (times > 1.0 && times < 1e3 ? times : 1.0));
}

void last_words_watch(int rank)
{
    static char handler_stack[HANDLER_STACK]; // a stack that overflowed is no place for a handler
    static const int crashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    stack_t stack = {.ss_sp = handler_stack, .ss_size = sizeof handler_stack};
    void *frame[1];
    own_rank = rank;
    step_seconds = limit_of_a_step();
    sigaltstack(&stack, NULL);
    backtrace(frame, 1); // its first call loads a library, which a handler must not
    for (size_t i = 0; i < sizeof crashes / sizeof crashes[0]; i++) watch(crashes[i], on_crash);
    watch(SIGALRM, on_alarm);
}

void last_words_step(void)
{
    if (step_seconds > 0) alarm(step_seconds);
}

void last_words_pause(void)
{
    alarm(0);
}

void last_words_mark(const char *word)
{
    const char *path = getenv("SHARDLAB_PROGRESS");
    FILE *file = path != NULL ? fopen(path, "a") : NULL;
    if (file == NULL) return;
    fprintf(file, "%s\n", word);
    fclose(file);
}
