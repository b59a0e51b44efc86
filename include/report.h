/* report.h: what reports about a run of the six task files should name.
 *
 * simgpu and the operation log know nothing of FSDP. These calls tell them, in the words of
 * gpulog.h, which source files are the student's and what the streams are called. On real GPUs they
 * do the same for the log.
 *
 * A source file is known by a function that it defines. The program that is linked with the six
 * files passes these functions, so that lib/ refers to none of them:
 *
 *   static const TaskFile files[] = {TASK_FILES(TASK_FILE_ROW){NULL, NULL}};
 *   report_own_code(files, NULL);
 */
#ifndef REPORT_H
#define REPORT_H

#include "fsdp.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct TaskFile {
    const char *task;
    const void *function; // NULL: the program is linked without the file
} TaskFile;

// X(name, function) of each task: its file is name.c, which must define the function.
#define TASK_FILES(X)                                                                              \
    X(meta_init, meta_numel)                                                                       \
    X(flat_param, flat_create)                                                                     \
    X(forward, fsdp_unshard)                                                                       \
    X(backward, fsdp_begin_grad)                                                                   \
    X(optimizer, fsdp_adamw_step_default)                                                          \
    X(api, fully_shard)
#define TASK_FILE_ROW(name, function) {#name, (const void *)function},

// A call that comes from the file of this task ("forward": forward.c; NULL: any of them) is
// reported with that file's line, whatever given code it went through. False: there is no such
// task.
bool report_own_code(const TaskFile *files, const char *task);

// Names the context's streams as the source does. Call it after fsdp_context_create.
void report_streams(const FsdpContext *ctx);

#ifdef __cplusplus
}
#endif
#endif
