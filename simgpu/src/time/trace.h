/* time/trace.h: SIMGPU_TRACE=file: writes the spans of the clock (time.h), all operations in
 * virtual time, as a trace for Perfetto; as Chrome's JSON if the name ends in .json.
 */
#ifndef SIMGPU_TRACE_H
#define SIMGPU_TRACE_H

#include "time/time.h"

// Begins the file that SIMGPU_TRACE names; false: it names none. Bad input ends the process with
// one line. `machine` NULL: there is no clock. From now on it needs the spans.
bool sim_trace_begin(const SimMachine *machine);
// A SimSpanHook.
void sim_trace_span(const SimSpan *span, void *arg);
// A stream's pool keeps what is freed until a synchronisation, above that many bytes; UINT64_MAX:
// forever.
void sim_trace_release_threshold(int device, uint64_t bytes);

#endif
