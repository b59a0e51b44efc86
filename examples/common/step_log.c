/* step_log.c: a line of JSON for each step. See step_log.h. */
#include "step_log.h"

#include <errno.h>
#include <math.h>
#include <string.h>

Status step_log_open(FILE **log, const char *path, bool append)
{
    *log = fopen(path, append ? "a" : "w");
    return *log != NULL ? OK : fail(ERR_IO, "--log %s: %s", path, strerror(errno));
}

static void put(FILE *log, const char *name, double value)
{
    if (isfinite(value))
        fprintf(log, ", \"%s\": %.9g", name, value);
    else
        fprintf(log, ", \"%s\": null", name);
}

static Status end_line(FILE *log, const char *path)
{
    fputs("}\n", log);
    return fflush(log) == 0 ? OK : fail(ERR_IO, "--log %s: %s", path, strerror(errno));
}

Status step_log_write(FILE *log, const char *path, const StepLine *line)
{
    fprintf(log, "{\"step\": %d", line->step);
    put(log, "loss", (double)line->loss);
    put(log, "norm", (double)line->norm);
    put(log, "lr", (double)line->rate);
    put(log, "tokens_per_second", line->tokens_per_second);
    fprintf(log, ", \"memory\": %llu", (unsigned long long)line->memory);
    if (line->skipped) fputs(", \"skipped\": true", log);
    return end_line(log, path);
}

Status step_log_validation(FILE *log, const char *path, int step, double loss)
{
    fprintf(log, "{\"step\": %d", step);
    if (isfinite(loss))
        fprintf(log, ", \"validation_loss\": %.17g", loss);
    else
        put(log, "validation_loss", loss);
    return end_line(log, path);
}
