/* schedule.h: what a rank's step costs on a modelled machine, from its log and its times (times.h).
 *
 * Communication is hidden while kernels run on the same GPU, and exposed while none does. A
 * collective begins when its last rank has arrived: waiting for others counts to what they do.
 */
#ifndef SCHEDULE_H
#define SCHEDULE_H

#include "times.h"

// Picoseconds.
typedef struct Schedule {
    int64_t step;          // from the end of the work before it to the end of its own
    int64_t compute;       // while kernels and copies run
    int64_t communication; // while collectives do
    int64_t exposed;       // … and nothing else
} Schedule;

// Of entries [first, end) of a rank's log. `times` are that rank's.
Schedule schedule_of(const TimesLog *log, const Times *times, int first, int end);

// A time of so many microseconds for a message, "12.3 µs" or "225.0 ms": one of two texts in turn.
const char *time_words(double microseconds);

#endif
