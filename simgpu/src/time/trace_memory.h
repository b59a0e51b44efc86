/* time/trace_memory.h: how much memory each category has, in virtual time. */
#ifndef SIMGPU_TRACE_MEMORY_H
#define SIMGPU_TRACE_MEMORY_H

#include "time/trace.h"

// A span of an allocation, a free, or a call that waits.
void sim_trace_memory_span(const SimSpan *span);
// A counter's new value. `counter`: a GpuCategory, or one of these.
enum { TRACE_ALLOCATED = GPU_CATEGORIES, TRACE_RESERVED, TRACE_COUNTERS };
typedef void (*SimTraceCount)(int device, int counter, uint64_t ns, uint64_t bytes);
// Writes all values in the order of time. Memory that is not freed has its present category.
void sim_trace_memory_tell(SimTraceCount count);

#endif
