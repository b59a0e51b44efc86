/* time/trace_file.h: one trace file of several processes.
 *
 * Each process writes its events to a part of its own, in FILE.parts. A process that ends merges
 * the parts of all that have ended, in the order of time, and renames the result to FILE; the last
 * one removes the parts. So FILE is complete at any time, and if a process is killed, the others
 * merge what it has written.
 */
#ifndef SIMGPU_TRACE_FILE_H
#define SIMGPU_TRACE_FILE_H

#include "time/trace_format.h"

// Begins this process's part of the file at path. False, with a line in error: it cannot be
// written.
bool sim_trace_file_open(const char *path, const TraceFormat *format, char *error, size_t size);
// Adds an event's bytes. Events of one time are in the file by `order`, then as they came.
void sim_trace_file_put(uint64_t ns, unsigned order, const TraceBuffer *event);
// Ends the part, and makes the file. False, with a line in error: it could not be written.
// A signal handler may call this.
bool sim_trace_file_close(char *error, size_t size);

#endif
