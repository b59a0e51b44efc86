/* time/replay.h: the times of a whole world whose logs are at hand: where they come from, simulated
 * GPUs or real ones, is all the same.
 *
 * Whoever judges a program by its times does it here, outside of the program's processes, on a
 * machine of its own choice.
 */
#ifndef SIMGPU_REPLAY_H
#define SIMGPU_REPLAY_H

#include "time/recorder.h"

// What one process has logged, from its first entry on (gpulog_get). Of an entry's pointers only
// `name` is looked into. Where it has the entries in another form, `read` makes them of `from`.
typedef struct SimLog {
    const GpuLogEntry *entry;
    size_t n;
    SimReadEntry read; // NULL: entry[i]
    const void *from;
} SimLog;

// Told of each entry of each log, log by log in no order, each in its own order; `log` is its
// number.
typedef void (*SimReplayHook)(int log, const SimSpan *span, void *arg);

// NULL, or why there are no times: the logs do not fit together. `spread` may be NULL.
const char *sim_replay_logs(const SimMachine *machine, const SimSpread *spread, const SimLog *logs,
                            int n_logs, SimReplayHook hook, void *arg);
// The same where only some of the ranks have logs, dry runs among phantoms (nccl/phantom.c): of a
// call, those without one arrive when the last of the others does.
const char *sim_replay_some(const SimMachine *machine, const SimSpread *spread, const SimLog *logs,
                            int n_logs, SimReplayHook hook, void *arg);

#endif
