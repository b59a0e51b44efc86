/* What the sanitizers are told, for every suite: make SANITIZE=address,undefined test, and the same
 * with thread. Their runtimes ask for these strings before main begins; ASAN_OPTIONS and the like
 * in the environment still have the last word.
 *
 * A finding aborts the rank. Then it is a crash like any other: the harness tells it with its place
 * and with the sanitizer's summary. Without that it would be a line on a rank's standard error,
 * which nobody reads of a test that passes.
 *
 * Interface: sanitize_linked, which does nothing: a reference to it makes the linker take this file
 * from the library (suite.c); sanitize_note_threads.
 */
#include "run.h"

#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

// The names are the runtimes' own: sanitizer/asan_interface.h and its neighbours.
const char *__asan_default_options(void);
const char *__ubsan_default_options(void);
const char *__tsan_default_options(void);

// Leaks are not looked for: simgpu's tables of streams and events are mapped, not allocated, and
// memory that only they point to would count as lost.
const char *__asan_default_options(void)
{
    return "abort_on_error=1:detect_leaks=0";
}

const char *__ubsan_default_options(void)
{
    return "halt_on_error=1:abort_on_error=1:print_stacktrace=1:print_summary=1";
}

// Ranks are forked, some of them from a process that has threads already: die_after_fork=0 lets
// them go on. The handler of the time limit does what no handler may count on, and says so
// (crash.c): report_signal_unsafe=0. A process that a fatal report of simgpu ends joins no threads:
// report_thread_leaks=0.
const char *__tsan_default_options(void)
{
    return "halt_on_error=1:abort_on_error=1:die_after_fork=0:report_signal_unsafe=0:"
           "report_thread_leaks=0:atexit_sleep_ms=0";
}

void sanitize_linked(void)
{
}

#ifdef __SANITIZE_THREAD__
void simgpu_helper_threads(int change) __attribute__((weak));

static void *do_nothing(void *arg)
{
    return arg;
}

// ThreadSanitizer has a thread of its own in every process, and one more once there is another
// thread.
void sanitize_note_threads(void)
{
    pthread_t thread;
    struct stat st;
    if (!simgpu_helper_threads || pthread_create(&thread, NULL, do_nothing, NULL) != 0) return;
    pthread_join(thread, NULL);
    usleep(50000); // until it is gone from /proc, too
    if (stat("/proc/self/task", &st) == 0) simgpu_helper_threads((int)st.st_nlink - 2 - 1);
}
#else
void sanitize_note_threads(void)
{
}
#endif
