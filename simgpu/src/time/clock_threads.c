/* clock_threads.c: finds the program's threads, and which of them sleep.
 *
 * No wait for a thread that sleeps outside of simgpu lasts forever: see "What is outside" in
 * simgpu/pages/time.md. A thread counts as asleep if it has not run for SLEEP_SECONDS and its clock
 * has not moved. A thread that waits in simgpu does not count: another will wake it.
 *
 * The functions that clock.h declares need the clock's lock.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core/error.h"
#include "time/clock.h"
#include "time/tables.h"

#define SLEEP_SECONDS 0.1
#define LOOK_SECONDS 0.02 // between two checks of a thread: each opens files

// A thread of the program, by its number in the log.
typedef struct Sleeper {
    int number, tid;
    bool alive;
    int inside;    // simgpu, where it waits
    SimItem clock; // at the last check
    uint64_t ran;  // nanoseconds until then
    double since;  // when it fell asleep; 0: it does not sleep
    double look;   // time of the next check
    bool released; // just now: it still sleeps
} Sleeper;

static Sleeper *sleepers;
static int n_sleepers;
static pthread_key_t thread_key;
static _Thread_local bool known;

static void thread_ended(void *arg)
{
    int number = (int)(intptr_t)arg - 1;
    if (sim_is_forked() || sim_clock_is_finished()) return;
    sim_clock_lock();
    sim_feed_thread_ended(number);
    for (int i = 0; i < n_sleepers; i++)
        if (sleepers[i].number == number) sleepers[i].alive = false;
    sim_clock_unlock();
    sim_clock_ring();
}

void sim_threads_begin(void)
{
    pthread_key_create(&thread_key, thread_ended);
}

static Sleeper *sleeper_of(int number)
{
    for (int i = 0; i < n_sleepers; i++)
        if (sleepers[i].alive && sleepers[i].number == number) return &sleepers[i];
    return NULL;
}

static void add_sleeper(int number, int tid)
{
    if (sleeper_of(number)) return;
    int i = 0;
    while (i < n_sleepers && sleepers[i].alive) i++;
    if (i == n_sleepers) {
        sleepers = sim_table_grow(sleepers, (size_t)i + 1, sizeof *sleepers);
        n_sleepers++;
    }
    sleepers[i] = (Sleeper){.number = number, .tid = tid, .alive = true};
}

// The calling thread's number in the log. It is registered here at its first call.
int sim_clock_thread(void)
{
    int number = gpulog_thread();
    if (known) return number;
    known = true;
    sim_clock_recorder();
    pthread_setspecific(thread_key, (void *)(intptr_t)(number + 1));
    add_sleeper(number, (int)syscall(SYS_gettid));
    if (number) sim_feed_thread_began(number);
    return number;
}

void sim_thread_inside(int change)
{
    Sleeper *s = sleeper_of(gpulog_thread());
    if (s) s->inside += change;
}

void sim_threads_over(void)
{
    for (int i = 0; i < n_sleepers; i++)
        if (sleepers[i].alive && sleepers[i].number) {
            sim_feed_thread_ended(sleepers[i].number);
            sleepers[i].alive = false;
        }
    sim_feed_thread_ended(0);
}

// ---- Asleep ----

static bool read_line(int tid, const char *file, char line[256])
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/%s", tid, file);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, line, 255);
    if (fd >= 0) close(fd);
    if (n <= 0) return false;
    line[n] = 0;
    return true;
}

// Whether it sleeps, and how long it has run until now. If the system does not say how long, that
// is 0.
static bool is_asleep(int tid, uint64_t *ran)
{
    char line[256];
    *ran = 0;
    if (!read_line(tid, "stat", line)) return true; // it is gone
    const char *name_end = strrchr(line, ')');
    bool asleep = name_end && name_end[1] == ' ' && (name_end[2] == 'S' || name_end[2] == 'Z');
    if (asleep && read_line(tid, "schedstat", line)) *ran = strtoull(line, NULL, 10);
    return asleep;
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

// Whether it has slept long enough at its clock. If its clock has moved, it has just made a call.
// One that had slept long enough is checked at every query: it is released from clock to clock.
static bool has_slept(Sleeper *s, SimItem clock)
{
    uint64_t ran;
    double now = seconds();
    bool moved = clock != s->clock;
    s->clock = clock;
    if (moved) s->since = 0;
    bool is_over = s->since > 0 && now - s->since >= SLEEP_SECONDS;
    if (!moved && !is_over && now < s->look) return false;
    s->look = now + LOOK_SECONDS;
    if (moved) return false;
    bool asleep = is_asleep(s->tid, &ran);
    if (!asleep || s->since == 0 || ran != s->ran) s->since = asleep ? now : 0;
    s->ran = ran;
    return asleep && now - s->since >= SLEEP_SECONDS;
}

// Whether the thread waits in simgpu: it makes no call before its clock is reached.
static bool is_inside(int tid)
{
    for (int i = 0; i < n_sleepers; i++)
        if (sleepers[i].alive && sleepers[i].tid == tid) return sleepers[i].inside > 0;
    return false;
}

// One number for how long the other threads of the process, without those that wait in simgpu, have
// run until now: it changes if one of them has run or is new. False: one of them is running, or
// would be if a core were free.
static bool look_at_all(uint64_t *ran_by_all)
{
    bool asleep = true;
    int self = (int)syscall(SYS_gettid);
    DIR *tasks = opendir("/proc/self/task");
    *ran_by_all = 0;
    for (struct dirent *task; tasks && asleep && (task = readdir(tasks));) {
        uint64_t ran;
        int tid = atoi(task->d_name);
        if (tid <= 0 || tid == self || is_inside(tid)) continue;
        asleep = is_asleep(tid, &ran);
        *ran_by_all += sim_mix(sim_mix((uint64_t)tid) + ran);
    }
    if (tasks) closedir(tasks);
    return asleep;
}

// Whether a thread of the process runs: it may be about to make its first call. A thread may wake
// another and fall asleep between two checks, so that both are seen asleep. Only if none has run
// between two checks of all threads did all sleep at the end of the first one.
static bool somebody_runs(void)
{
    uint64_t first, second;
    return !look_at_all(&first) || !look_at_all(&second) || first != second;
}

// Whether threads hold the engine back, and all of them sleep. Those that were released a moment
// ago still sleep.
static bool all_sleep(const SimRecorder *recorder, int but)
{
    bool all = true, any = false;
    for (int i = 0; i < n_sleepers; i++) {
        Sleeper *s = &sleepers[i];
        if (!s->alive || s->number == but || !sim_record_stands(recorder, s->number)) continue;
        all &= !s->inside && (s->released || has_slept(s, sim_record_at(recorder, s->number)));
        any = true;
    }
    return any && all;
}

bool sim_clock_release_sleepers(int but, SimPs until, bool again)
{
    SimRecorder *recorder = sim_clock_recorder();
    bool released = false;
    add_sleeper(0, (int)getpid()); // the first thread counts from the start
    for (int i = 0; i < n_sleepers && !again; i++) sleepers[i].released = false;
    if (!all_sleep(recorder, but) || until == SIM_FOREVER) return false;
    if (!again && somebody_runs()) return false;
    if (sim_clock_is_awaited()) return false; // that thread sleeps for the lock of this one
    if (sim_feed_behind(gpulog_length())) return false;
    for (int i = 0; i < n_sleepers; i++) {
        Sleeper *s = &sleepers[i];
        if (!s->alive || s->number == but || !sim_record_stands(recorder, s->number)) continue;
        sim_record_release(recorder, s->number, until);
        s->clock = sim_record_at(recorder, s->number); // it still sleeps
        s->released = released = true;
    }
    return released;
}
