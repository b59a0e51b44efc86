/* The ends that a rank does not choose: a crash, the time limit's SIGTERM, an exit() from inside
 * the code under test. Each leaves a sentence with the place in the project's own source.
 *
 * A place is found by walking the stack and resolving addresses, which takes locks and memory; in a
 * process that has just crashed either can be broken. So the sentence is told first and the place
 * is added after it, with an alarm against a walk that never ends.
 */
#define _GNU_SOURCE // REG_RIP
#include <ctype.h>
#include <execinfo.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

#include "../../gpulog/log/log_writer.h"
#include "host_memory.h"
#include "run.h"

#define MAX_FRAMES 64
#define HANDLER_STACK (256 * 1024)
#define WALK_SECONDS 3

// ---- Which frame to name ----

static bool in_list(const char *word, size_t length, const char *const *list)
{
    for (; *list; list++)
        if (strlen(*list) == length && strncmp(*list, word, length) == 0) return true;
    return false;
}

// The program's own code, from the linker: the C library may have lines too, and nobody here wrote
// them.
extern const char __executable_start[], etext[];

static bool is_ours(const void *site)
{
    return (const char *)site > __executable_start && (const char *)site <= etext;
}

// Whether the place is in simgpu, the log or the harness, in which nobody looks for the mistake. By
// the whole path, since folders of the kit's library have the same names.
static bool is_hidden(const void *site)
{
    static const char *const folders[] = {"/simgpu/src/", "/gpulog/log/", "/gpulog/interpose/",
                                          "/tests/support/"};
    SimLogLine line;
    if (!sim_log_line(site, &line)) return false;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        if (strstr(line.path, folders[i])) return true;
    return false;
}

// How much a reader wants to see a place "folder/file.c:88 (function)": the task's file above all,
// then the kit's library, then the test; -1 for what starts ranks, and what has no line.
static int interest(const char *where)
{
    static const char *const task_files[] = {
        "meta_init.c", "flat_param.c", "forward.c", "backward.c", "optimizer.c", "api.c", NULL};
    static const char *const tests[] = {"tasks", "fsdp", "harness", "simgpu", NULL};
    static const char *const library[] = {"kernels", "nn", "check", NULL};
    static const char *const launch[] = {"launch_ranks.c", "watch.c", "rendezvous.c", "world.c",
                                         NULL};

    const char *colon = strchr(where, ':');
    if (!colon || !isdigit((unsigned char)colon[1])) return -1;
    const char *file = colon;
    while (file > where && file[-1] != '/') file--;
    const char *folder = file > where ? file - 1 : where;
    while (folder > where && folder[-1] != '/') folder--;
    size_t file_length = (size_t)(colon - file);
    size_t folder_length = file > where ? (size_t)(file - 1 - folder) : 0;

    if (in_list(folder, folder_length, tests)) return 1;
    if (in_list(folder, folder_length, library)) return 2;
    if (in_list(file, file_length, task_files)) return 3;
    if (in_list(file, file_length, launch)) return -1;
    return 1;
}

// The most interesting frame, innermost first; the interrupted instruction is `pc` (NULL: the
// caller's own stack is asked about).
static void find_place(const void *pc, char *place, size_t size)
{
    void *frames[MAX_FRAMES];
    char where[sizeof trouble_note()->place];
    int n = backtrace(frames, MAX_FRAMES), best = -1;

    // The interrupted frame is no call: one byte on, it resolves to its own line. Where the
    // unwinder did not come past the signal, the instruction is still known.
    for (int i = 0; i < n; i++)
        if (frames[i] == pc) frames[i] = (char *)frames[i] + 1;
    for (int i = -1; i < n; i++) {
        const void *site = i < 0 ? (pc ? (const char *)pc + 1 : NULL) : frames[i];
        if (!site || !is_ours(site) || is_hidden(site)) continue;
        gpulog_where(site, where, sizeof where);
        if (interest(where) > best) {
            best = interest(where);
            snprintf(place, size, "%s", where);
        }
    }
}

static const void *interrupted_at(const void *context)
{
    const ucontext_t *c = context;

#if defined(__x86_64__)
    return (const void *)c->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
    return (const void *)c->uc_mcontext.pc;
#else
    (void)c;
    return NULL;
#endif
}

// A walk that hangs is cut off; what has been told stays told.
static void limit_walk(void)
{
    signal(SIGALRM, SIG_DFL);
    alarm(WALK_SECONDS);
}

// ---- Crashes ----

static const char *crash_word(int signal, int code)
{
    switch (signal) {
    case SIGSEGV: return "segmentation fault";
    case SIGBUS: return "bus error";
    case SIGFPE: return code == FPE_INTDIV ? "integer division by zero" : "arithmetic error";
    case SIGILL: return "illegal instruction";
    default: return "abort";
    }
}

static void on_crash(int signal, siginfo_t *info, void *context)
{
    const char *word = crash_word(signal, info->si_code);
    // A test may see what becomes of a program whose host has no memory for it.
    const char *shortage =
        host_is_short() ? " where the test lets the host have no memory: malloc gives NULL" : "";
    bool told;

    if (signal == SIGSEGV || signal == SIGBUS)
        told = trouble_tell(TROUBLE_CRASH, "crashed (%s, address %p)%s", word, info->si_addr,
                            shortage);
    else
        told = trouble_tell(TROUBLE_CRASH, "crashed (%s)%s", word, shortage);
    if (told) {
        trouble_note()->signal = signal;
        limit_walk();
        find_place(interrupted_at(context), trouble_note()->place, sizeof trouble_note()->place);
    }
    _exit(128 + signal);
}

// ---- The time limit ----

static void on_limit(int signal, siginfo_t *info, void *context)
{
    RankNote *note = trouble_note();
    char text[sizeof note->at_limit], place[sizeof note->place] = "a place with no known line";

    snprintf(note->at_limit, sizeof note->at_limit, "was still running");
    limit_walk();
    text[0] = '\0';
    gpulog_activity(text, sizeof text);
    if (strncmp(text, "waiting", 7) == 0) {
        snprintf(note->at_limit, sizeof note->at_limit, "was %.900s", text);
    } else {
        find_place(interrupted_at(context), place, sizeof place);
        // A loop or a read outside of CUDA: the last operation says how far the rank had come.
        snprintf(note->at_limit, sizeof note->at_limit, "was still running at %.400s; it %.400s",
                 place, text);
    }
    _exit(128 + signal);
}

static void watch_signal(int signal, void (*handler)(int, siginfo_t *, void *))
{
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_ONSTACK};

    sigemptyset(&action.sa_mask);
    sigaction(signal, &action, NULL);
}

void crash_watch(void)
{
    static char handler_stack[HANDLER_STACK]; // a stack that overflowed is no place for a handler
    static const int crashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    stack_t stack = {.ss_sp = handler_stack, .ss_size = sizeof handler_stack};
    void *frame[1];
    sigset_t all;

    sigaltstack(&stack, NULL);
    backtrace(frame, 1); // its first call loads a library, which a handler must not
    for (size_t i = 0; i < sizeof crashes / sizeof crashes[0]; i++)
        watch_signal(crashes[i], on_crash);
    watch_signal(SIGTERM, on_limit);
    sigemptyset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
}

// ---- exit() ----

static void on_leave(int status, void *arg)
{
    if (rank_done || !trouble_tell(TROUBLE_EXIT, "called exit(%d)", status)) return;
    limit_walk();
    find_place(NULL, trouble_note()->place, sizeof trouble_note()->place);
    alarm(0);
}

void exit_watch(void)
{
    on_exit(on_leave, NULL);
}
