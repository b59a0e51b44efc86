/* report/: all messages to the user.
 *
 *   report.c       reports on stderr, and fatal ends
 *   fold.c         prints a report that several ranks make once
 *   report_json.c  a report as a line of JSON, and SIMGPU_REPORT's file of them (report_json.h)
 *   hooks.c        calls parts of simgpu that a program may not link (hooks.h)
 *   end.c          the end of a process by exit
 *
 * The lowest room: it does not depend on devices, streams or memory. All other rooms report by
 * sim_report or sim_fatal, and sim_facts_* give the calls and bytes of a report.
 */
#ifndef SIMGPU_REPORT_H
#define SIMGPU_REPORT_H

#include <stdbool.h>
#include <stddef.h>

#include "simgpu.h"

// Prints a report: a one-line title, then the body's lines, on stderr in one write, and runs the
// hook.
void sim_report(SimgpuClass kind, const char *title, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
// The same, then ends the process with SIMGPU_FATAL_EXIT.
_Noreturn void sim_fatal(SimgpuClass kind, const char *title, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
// Sets the rank in the head of reports, once: that of the first communicator. Before, it is -1.
void sim_set_report_rank(int rank);
// Sets this thread's current device, for the head of reports. Before, it is 0.
void sim_set_report_device(int device);
// Reads SIMGPU_REPORTS and SIMGPU_REPORT, once. Before that, only faults of the settings or of the
// machine are reported.
void sim_report_begin(void);
// How many reports of mistakes this process has made.
int sim_reported(void);
// Prints on stderr how many reports were counted and not printed.
void sim_report_summary(void);
// The name of a class in records, "race-between-streams"; and the section of
// simgpu/pages/mistakes.md about it, NULL: there is none.
const char *sim_report_id(SimgpuClass kind);
const char *sim_report_page(SimgpuClass kind);

// Facts of this thread's next report: the calls that it names, in its order, the wrong one first,
// and its bytes. The report uses and clears them; names must live until then. `site` is as for
// gpulog_where. The report prints the source line below the line of the body that names the site.
// SIM_NO_STREAM: the stream is not known.
#define SIM_NO_STREAM ((cudaStream_t)-1)
void sim_facts_call(const char *name, const void *site, cudaStream_t stream);
void sim_facts_named_call(const char *name, const void *site, const char *stream_name);
void sim_facts_rank_call(int rank, const char *name, const void *site, cudaStream_t stream);
// Callers that know the allocations use sim_facts_range (memory/place.h), which finds `base`.
typedef struct SimFactRange {
    const void *ptr;
    size_t bytes;
    const void *base; // of the allocation that holds ptr, or held it last; NULL: none is known
    size_t allocated; // its bytes
    const void *made; // the call site that made it
} SimFactRange;
void sim_facts_bytes(SimFactRange range);

#endif
