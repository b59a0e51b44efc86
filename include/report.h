/* report.h: what reports about a run of the six task files should name.
 *
 * simgpu and the operation log know nothing of FSDP. These calls tell them, in the words of
 * gpulog.h, which source files are the student's and what the streams are called. On real GPUs they
 * do the same for the log.
 *
 * Interface: report_own_code, report_streams.
 */
#ifndef REPORT_H
#define REPORT_H

#include "fsdp.h"

#ifdef __cplusplus
extern "C" {
#endif

// A call that comes from the file of this task ("forward": forward.c; NULL: any of the six) is
// reported with that file's line, whatever given code it went through. False: there is no such
// task.
bool report_own_code(const char *task);

// Names the context's streams as the source does. Call it after fsdp_context_create.
void report_streams(const FsdpContext *ctx);

#ifdef __cplusplus
}
#endif
#endif
