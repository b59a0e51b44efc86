/* report/: the one way to tell the user something.
 *
 *   report.c   reports on stderr, and fatal ends
 *   record.c   a report as a line of JSON
 *
 * Every other folder reports through sim_report or sim_fatal, and says with sim_facts_* which calls
 * and bytes a report is about.
 */
#ifndef SIMGPU_REPORT_H
#define SIMGPU_REPORT_H

#include <stdbool.h>
#include <stddef.h>

#include "simgpu.h"

// ---- report.c ---- Prints a report: a one-line title, then the body's lines, on stderr in one
// write, and runs the hook.
void sim_report(SimgpuClass kind, const char *title, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
// The same, then ends the process with SIMGPU_FATAL_EXIT.
_Noreturn void sim_fatal(SimgpuClass kind, const char *title, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
// Rank for the head of reports: the first communicator's, -1 before there is one.
void sim_set_report_rank(int rank);
// How many reports of mistakes this process has made.
int sim_reported(void);
// Says on stderr how many reports were counted and not printed.
void sim_report_summary(void);
// The section of simgpu/pages/mistakes.md about a class; NULL: there is none.
const char *sim_report_page(SimgpuClass kind);

// Facts of this thread's next report, in the order in which it tells them: the calls it names (the
// first is the one that is wrong; `site` as gpulog_where takes it; the report puts the line of
// source below the line of its body that names the place), and the bytes it is about. The report
// takes them and clears them. A name lives until then; SIM_NO_STREAM: the stream is not known.
#define SIM_NO_STREAM ((cudaStream_t)-1)
void sim_facts_call(const char *name, const void *site, cudaStream_t stream);
void sim_facts_named_call(const char *name, const void *site, const char *stream_name);
void sim_facts_rank_call(int rank, const char *name, const void *site, cudaStream_t stream);
void sim_facts_range(const void *ptr, size_t bytes);

// ---- record.c ---- A report as a JSON object of one line, and SIMGPU_REPORT's file of such.
#define SIM_FACTS 16
typedef struct SimFactCall {
    int rank; // whose call; -1: this process's
    const char *name;
    const void *site;
    cudaStream_t stream;
    const char *stream_name; // NULL: none, or not known
} SimFactCall;
typedef struct SimFactRange {
    const void *ptr;
    size_t bytes;
} SimFactRange;
typedef struct SimFacts {
    int n_calls, n_ranges;
    SimFactCall call[SIM_FACTS];
    SimFactRange range[SIM_FACTS];
} SimFacts;
#define SIM_RECORD 49152
void sim_record(const SimgpuReport *report, const char *body, const SimFacts *facts, char *text,
                size_t size);
void sim_record_write(const char *record);
// Says so at once, in one line, if records could not be written to such a file.
void sim_record_look(const char *path);

#endif
