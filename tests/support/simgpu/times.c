/* times.c: times from logs, with simgpu's clock. See times.h. */
#include "times.h"

#include <stdlib.h>
#include <string.h>

#include "time/replay.h"

// What a call's name says that nothing else does, in place of a pointer that a rank could forge.
enum { NAME_PLAIN, NAME_ASYNC, NAME_QUERY };
static const char *const names[] = {"", "Async", "Query"};

bool times_are_known(void)
{
    return true;
}

void times_copy(TimesLog *log)
{
    uint64_t length = gpulog_length();
    log->full = length > TIMES_MOST;
    for (uint64_t i = 0; i < length && i < TIMES_MOST; i++) {
        GpuLogEntry *entry = &log->entry[i];
        if (!gpulog_get(i, entry)) log->full = true;
        uintptr_t name = NAME_PLAIN;
        if (strstr(entry->name, names[NAME_ASYNC])) name = NAME_ASYNC;
        if (strstr(entry->name, names[NAME_QUERY])) name = NAME_QUERY;
        entry->name = (const char *)name; // NOLINT: no pointer
        log->n = (int)i + 1;
    }
}

// A rank may have written anything.
static const char *read_log(const TimesLog *log, GpuLogEntry *entry)
{
    if (log->full) return "a rank made more calls than there is room for";
    if (log->n < 0 || log->n > TIMES_MOST) return "a rank's log has no length";
    memcpy(entry, log->entry, (size_t)log->n * sizeof *entry);
    for (int i = 0; i < log->n; i++) {
        uintptr_t name = (uintptr_t)entry[i].name;
        entry[i].index = (uint64_t)i;
        entry[i].name = names[name <= NAME_QUERY ? name : NAME_PLAIN];
        if (entry[i].n_ranges < 0 || entry[i].n_ranges > GPULOG_RANGES || entry[i].op < 0 ||
            entry[i].op >= GPU_OP_KINDS || entry[i].type < GPU_F64 || entry[i].type > GPU_FP8)
            return "an entry of a rank's log is none";
    }
    return NULL;
}

static void note(int log, const SimSpan *span, void *arg)
{
    Times *times = (Times *)arg + (size_t)log * TIMES_MOST + span->entry->index;
    SimPs latency = span->cost ? span->cost->latency : 0;
    *times = (Times){(int64_t)(span->start - latency), (int64_t)span->end};
}

const char *times_replay(const char *machine, const TimesLog *logs, int ranks, Times *times)
{
    static char error[300];
    const SimMachine *m = sim_machine(machine, error, sizeof error);
    if (!m) return error;
    GpuLogEntry *copy = calloc((size_t)ranks * TIMES_MOST, sizeof *copy);
    SimLog *log = calloc((size_t)ranks, sizeof *log);
    const char *wrong = copy && log ? NULL : "no host memory for the logs";
    for (int i = 0; i < ranks && !wrong; i++) {
        log[i] = (SimLog){.entry = copy + (size_t)i * TIMES_MOST, .n = (size_t)logs[i].n};
        wrong = read_log(&logs[i], copy + (size_t)i * TIMES_MOST);
    }
    if (!wrong) wrong = sim_replay_logs(m, NULL, log, ranks, note, times);
    free(copy);
    free(log);
    return wrong;
}

const char *times_peaks(const char *machine, int64_t peak[2])
{
    static char error[300];
    const SimMachine *m = sim_machine(machine, error, sizeof error);
    if (!m) return error;
    peak[0] = (int64_t)(m->peak[SIM_F32] / 1e9);
    peak[1] = (int64_t)(m->peak[SIM_TF32] / 1e9);
    return NULL;
}
