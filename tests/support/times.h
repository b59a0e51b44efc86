/* times.h: when what ranks did would have happened on a modelled machine, from their logs.
 *
 * A rank copies its log for the process that started it. That one, which never runs the code under
 * test, plays the logs again on a machine of its own choice (simgpu/src/time/replay.h): whatever a
 * rank does to its own clock has no say. Logs of real GPUs are timed in the same way.
 */
#ifndef TIMES_H
#define TIMES_H

#include <stdbool.h>
#include <stdint.h>

#include "gpulog.h"

#define TIMES_MOST 16384 // entries of a rank

typedef struct TimesLog {
    int n;
    bool full; // there was no room for all
    GpuLogEntry entry[TIMES_MOST];
} TimesLog;

// Whether logs of this backend can be timed.
bool times_are_known(void);
// The process's whole log, up to now.
void times_copy(TimesLog *log);

// Picoseconds since the rank began. A collective begins when its last rank has arrived.
typedef struct Times {
    int64_t begin, end;
} Times;

// Fills in times[rank · TIMES_MOST + entry]. NULL, or in a sentence why there are none.
const char *times_replay(const char *machine, const TimesLog *logs, int ranks, Times *times);
// GFLOP/s of the machine for floats, and for floats that tensor cores round (TF32). NULL, or why
// not.
const char *times_peaks(const char *machine, int64_t peak[2]);

#endif
