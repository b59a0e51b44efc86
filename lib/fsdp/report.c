/* report.c: which source files are the student's, and what the streams are called. See report.h. */
#include "report.h"

#include <string.h>

#include "gpulog.h"

bool report_own_code(const TaskFile *files, const char *task)
{
    bool found = false;
    for (; files->task != NULL; files++) {
        if (task != NULL && strcmp(task, files->task) != 0) continue;
        gpulog_own_code(files->function);
        found = true;
    }
    return found;
}

// Where a program has one stream for several uses, the compute stream's name is the one that stays.
void report_streams(const FsdpContext *ctx)
{
    gpulog_name_stream(ctx->reduce_scatter_stream, "ctx->reduce_scatter_stream");
    gpulog_name_stream(ctx->all_gather_stream, "ctx->all_gather_stream");
    gpulog_name_stream(ctx->compute_stream, "ctx->compute_stream");
}
