/* The ends that a rank does not choose: a crash, the time limit's SIGTERM, an exit() from inside
 * the code under test. Each leaves a sentence with the place in the project's own source.
 *
 * A place is found by walking the stack and resolving addresses, which takes locks and memory; in a
 * process that has just crashed either can be broken. So the sentence is told first and the place
 * is added after it, with an alarm against a walk that never ends.
 */
#define _GNU_SOURCE // REG_RIP
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

// The program's own code, from the linker: the C library may have lines too, and nobody here wrote
// them.
extern const char __executable_start[], etext[];

static bool is_ours(const void *site)
{
    return (const char *)site > __executable_start && (const char *)site <= etext;
}

// How much a reader wants to see a line of code.
typedef enum Interest {
    NONE, // nobody looks for the mistake there: simgpu, the log, the harness, what starts ranks
    TEST_CODE,
    LIBRARY,
    WRITTEN_CODE, // what the tests are about: any other file of the kit, or one from elsewhere
} Interest;

// By the path below the kit's folder, in which all of it is compiled: files in several folders have
// the same names.
static Interest interest(const GpuLogLine *line)
{
    const char *path = line->path + line->below;
    static const struct {
        const char *folder;
        Interest interest;
    } rooms[] = {
        {"simgpu/tests/", TEST_CODE},
        {"gpulog/tests/", TEST_CODE},
        {"simgpu/", NONE},
        {"gpulog/", NONE},
        {"tests/support/", NONE},
        {"lib/launch/", NONE},
        {"lib/", LIBRARY},
        {"include/", LIBRARY},
        {"tests/", TEST_CODE},
        {"tasks/", TEST_CODE},
    };
    if (!path[0]) return NONE;
    for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++)
        if (strncmp(path, rooms[i].folder, strlen(rooms[i].folder)) == 0) return rooms[i].interest;
    return strncmp(path, "labs/", 5) == 0 && strstr(path, "/tests") ? TEST_CODE : WRITTEN_CODE;
}

// The most interesting frame, innermost first; the interrupted instruction is `pc` (NULL: the
// caller's own stack is asked about), and the next line of the student's file that led there: the
// mistake may be in what was handed on.
static void find_place(const void *pc, char *place, size_t size)
{
    void *frames[MAX_FRAMES];
    GpuLogLine line;
    int n = backtrace(frames, MAX_FRAMES);
    Interest best = NONE;
    char function[sizeof line.function] = "";
    bool called = false; // who called is in the text

    // The interrupted frame is no call: one byte on, it resolves to its own line. Where the
    // unwinder did not come past the signal, the instruction is still known.
    for (int i = 0; i < n; i++)
        if (frames[i] == pc) frames[i] = (char *)frames[i] + 1;
    for (int i = -1; i < n; i++) {
        const void *site = i < 0 ? (pc ? (const char *)pc + 1 : NULL) : frames[i];
        if (!site || !is_ours(site) || !gpulog_line(site, &line)) continue;
        if (interest(&line) > best) {
            best = interest(&line);
            called = false;
            snprintf(function, sizeof function, "%s", line.function);
            snprintf(place, size, "%s", line.text);
        } else if (!called && best > NONE && strcmp(function, line.function) != 0 &&
                   gpulog_line_is_own(&line)) {
            called = true;
            size_t used = strlen(place);
            snprintf(place + used, size - used, ", called from %s", line.text);
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

    if (signal == SIGSEGV && info->si_code == SI_KERNEL) // x86 does not say which
        told = trouble_tell(TROUBLE_CRASH, "crashed (%s, " NOT_AN_ADDRESS ")%s", word, shortage);
    else if (signal == SIGSEGV || signal == SIGBUS)
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
