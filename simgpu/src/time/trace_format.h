/* time/trace_format.h: the two formats of a trace: Perfetto's own (packets of protobuf, TrackEvent)
 * and Chrome's JSON. Both have tracks, and on them slices that begin and end, points and counters;
 * arrows (flows) go from slice to slice.
 *
 *   trace_proto.c, trace_json.c   the formats: the bytes of an event
 *   trace_file.c   one file of many processes (trace_file.h)
 *   trace_memory.c   counters of memory
 *   trace.c        draws the spans (trace.h)
 */
#ifndef SIMGPU_TRACE_FORMAT_H
#define SIMGPU_TRACE_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Bytes of one event. Bytes without room are not written; then `full` is true.
typedef struct TraceBuffer {
    size_t used;
    bool full;
    unsigned char bytes[4096];
} TraceBuffer;

typedef enum TraceKind { TRACE_PROCESS, TRACE_THREAD, TRACE_COUNTER } TraceKind;

typedef struct TraceTrack {
    TraceKind kind;
    uint64_t uuid, parent; // parent: the process's uuid
    uint32_t pid;          // also the sequence id of its packets
    uint32_t tid;          // of a thread
    char name[96];
} TraceTrack;

typedef enum TraceNoteKind { TRACE_TEXT, TRACE_COUNT, TRACE_REAL } TraceNoteKind;
typedef struct TraceNote {
    const char *name;
    TraceNoteKind kind;
    const char *text;
    uint64_t count;
    double real; // not negative
} TraceNote;

typedef enum TraceFlow {
    TRACE_NO_FLOW,
    TRACE_FLOW_STARTS,
    TRACE_FLOW_GOES_ON,
    TRACE_FLOW_ENDS
} TraceFlow;

#define TRACE_NOTES 12
typedef struct TraceEvent {
    const TraceTrack *track;
    uint64_t ns;
    const char *name, *category;
    TraceFlow flow;
    uint64_t flow_id; // the same number at all ends of an arrow
    int n_notes;
    TraceNote note[TRACE_NOTES];
} TraceEvent;

typedef struct TraceFormat {
    const char *head, *between, *tail; // of the file
    void (*track)(TraceBuffer *b, const TraceTrack *track);
    void (*begin)(TraceBuffer *b, const TraceEvent *event);
    void (*end)(TraceBuffer *b, const TraceEvent *event);
    void (*point)(TraceBuffer *b, const TraceEvent *event);
    void (*counter)(TraceBuffer *b, const TraceTrack *track, uint64_t ns, uint64_t value);
} TraceFormat;
extern const TraceFormat sim_trace_proto, sim_trace_json;

void sim_trace_bytes(TraceBuffer *b, const void *bytes, size_t n);

#endif
