/* report_json.h: a report as a JSON object of one line, and SIMGPU_REPORT's file of them. */
#ifndef SIMGPU_REPORT_JSON_H
#define SIMGPU_REPORT_JSON_H

#include "report/report.h"

#define SIM_FACTS 16
typedef struct SimFactCall {
    int rank; // whose call; -1: this process's
    const char *name;
    const void *site;
    cudaStream_t stream;
    const char *stream_name; // NULL: none, or not known
} SimFactCall;
typedef struct SimFacts {
    int n_calls, n_ranges;
    SimFactCall call[SIM_FACTS];
    SimFactRange range[SIM_FACTS];
} SimFacts;
#define SIM_RECORD 49152
void sim_record(const SimgpuReport *report, const char *body, const SimFacts *facts, char *text,
                size_t size);
// Appends it to SIMGPU_REPORT's file; does nothing before sim_record_begin.
void sim_record_write(const char *record);
// Reads SIMGPU_REPORT. If records could not be written to that file, prints one line at once.
void sim_record_begin(void);

#endif
