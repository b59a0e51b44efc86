/* time/replay.h: computes the times of a whole world from its logs, of simulated or of real GPUs.
 *
 * A judge of a program's times uses it outside of the program's processes, with a machine of the
 * judge's choice.
 */
#ifndef SIMGPU_REPLAY_H
#define SIMGPU_REPLAY_H

#include "time/recorder.h"

// The log of one process, from its first entry on (gpulog_get). Of an entry's pointers only `name`
// is followed. If the entries are in another form, `read` makes them of `from`.
typedef struct SimLog {
    const GpuLogEntry *entry;
    size_t n;
    SimReadEntry read; // NULL: entry[i]
    const void *from;
} SimLog;

// Called for each entry of each log: in the order of its log, the logs in no order. `log` is the
// number of the log.
typedef void (*SimReplayHook)(int log, const SimSpan *span, void *arg);

// NULL, or why there are no times: the logs do not fit together. `spread` may be NULL.
const char *sim_replay_logs(const SimMachine *machine, const SimSpread *spread, const SimLog *logs,
                            int n_logs, SimReplayHook hook, void *arg);
// The same if only some of the ranks have logs, in dry runs among phantoms (nccl/phantom.c): ranks
// without a log arrive at a call when the last of the others does.
const char *sim_replay_some(const SimMachine *machine, const SimSpread *spread, const SimLog *logs,
                            int n_logs, SimReplayHook hook, void *arg);

#endif
