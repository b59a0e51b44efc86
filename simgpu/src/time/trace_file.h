/* time/trace_file.h: one trace file of several processes.
 *
 * Each process writes its events to a part of its own, in FILE.parts; whoever ends puts together
 * the parts of all that have ended, in the order of time, and renames the result to FILE; the last
 * one takes the parts away. So FILE is whole at any time, and where a process is killed, its part
 * as far as it was written is in what the others put together.
 */
#ifndef SIMGPU_TRACE_FILE_H
#define SIMGPU_TRACE_FILE_H

#include "time/trace_format.h"

// Begins this process's part of the file at path. False, with a line in error: it cannot be
// written.
bool sim_trace_file_open(const char *path, const TraceFormat *format, char *error, size_t size);
// An event's bytes. Those of one time are in the file by `order`, then as they came.
void sim_trace_file_put(uint64_t ns, unsigned order, const TraceBuffer *event);
// Ends the part, and puts the file together. False, with a line in error: it could not be written.
// A signal handler may call this.
bool sim_trace_file_close(char *error, size_t size);

#endif
