/* step_log.h: what a training says of each step to a program: a line of JSON. */
#ifndef EXAMPLES_STEP_LOG_H
#define EXAMPLES_STEP_LOG_H

#include <stdint.h>
#include <stdio.h>

#include "check.h"

#define Status CHECKED_STATUS // as check.h says

typedef struct StepLine {
    int step;
    float loss, norm, rate; // norm: of the gradient, before it was clipped
    double tokens_per_second;
    uint64_t memory; // bytes, the most that rank 0's device has held so far
    bool skipped;    // the optimizer left the step out (--on-nan, or a loss scale)
} StepLine;

// A new file, or the end of one that is there. ERR_IO.
Status step_log_open(FILE **log, const char *path, bool append);
// JSON has no NaN and no infinity: they are written as null. The line is in the file on return.
Status step_log_write(FILE *log, const char *path, const StepLine *line);
Status step_log_validation(FILE *log, const char *path, int step, double loss);

#undef Status

#endif
