/* time/recorder_internal.h: what recorder.c, recorder_nccl.c and recorder_spans.c share. */
#ifndef SIMGPU_RECORDER_INTERNAL_H
#define SIMGPU_RECORDER_INTERNAL_H

#include "time/recorder.h"

// A point in time: the end of an item; where that is long over, its end, and no item.
typedef struct Mark {
    SimItem item;
    SimPs end;
} Mark;

// What an item is to wait for.
typedef struct After {
    SimItem *item;
    int n, room;
    SimPs not_before;
} After;
enum { AFTER_CALL, AFTER_THREAD, AFTER_STREAM, AFTER_WAKE, AFTER_GROUP, AFTER_RUN, AFTERS };

typedef struct StreamState {
    cudaStream_t handle;
    uint32_t number;
    bool legacy, blocking;
    Mark last;
} StreamState;

typedef struct DeviceState {
    Mark called; // its last call
    int rank;    // -1: not known
    StreamState *stream;
    int n_streams, streams_room;
} DeviceState;

typedef struct EventState {
    cudaEvent_t handle;
    Mark done;
    uint64_t entry; // of its record
} EventState;

// A call of a group of NCCL, until the group has ended.
typedef struct GroupCall {
    GpuLogEntry entry; // without ranges
    SimItemSpec spec;
    Mark request;
    size_t pending; // its place, counted from the first that was ever pending
    bool done;
} GroupCall;

typedef struct ThreadState {
    int number;
    bool alive;
    bool called;   // not only asked
    bool given_up; // nobody waits for it
    Mark clock;
    bool has_asked; // and the log has not got it yet:
    Mark asked;
    GroupCall *group;
    int n_group, group_room;
    After meets; // of the group's calls
} ThreadState;

typedef struct CommState {
    uint64_t comm;
    int rank;
    Mark last;
} CommState;

// An entry whose span has not been told yet.
typedef struct Pending {
    GpuLogEntry entry;
    Mark request, done, returned; // done: no item: there is no operation
    bool open;                    // its group has not ended
    SimPs work;
    bool has_cost;
    SimCollectiveCost cost;
    uint64_t record;
} Pending;

struct SimRecorder {
    const SimMachine *machine;
    SimSpread spread;
    SimEngine *engine;
    int rank; // of the process; -1: not known
    uint64_t n_operations;
    DeviceState *device;
    int n_devices;
    EventState *event; // (events_room), a hash table by handle
    size_t n_events, events_room;
    ThreadState *thread;
    int n_threads;
    Mark ended; // the latest clock of threads that have ended
    CommState *comm;
    int n_comms, comms_room;
    After after[AFTERS];
    SimSpanHook hook;
    void *hook_arg;
    Pending *pending; // in the log's order
    size_t n_pending, pending_room, n_told;
    size_t kept; // items that were left when it was last tidied
};

void *sim_record_grow(void *table, size_t count, size_t size);
void sim_after(After *after, Mark mark);
After *sim_after_none(SimRecorder *r, int which);
Mark sim_add(SimRecorder *r, SimItemSpec spec, const After *after);
Mark sim_add_host(SimRecorder *r, SimPs work, const After *after);

DeviceState *sim_record_device(SimRecorder *r, int index);
StreamState *sim_record_stream(SimRecorder *r, const GpuLogEntry *entry);
void sim_after_stream(SimRecorder *r, After *after, int device, const StreamState *s);
ThreadState *sim_record_thread(SimRecorder *r, int number);
After *sim_after_call(SimRecorder *r, ThreadState *t, int device);
Mark sim_record_request(SimRecorder *r, ThreadState *t, int device, SimPs cost);
void sim_record_stand(SimRecorder *r, ThreadState *t, Mark clock);
void sim_record_hold(SimRecorder *r, ThreadState *t, Mark clock);
SimPs sim_record_spread(SimRecorder *r, int device, SimItemKind kind, SimPs work);
uint64_t sim_record_touched(const GpuLogEntry *entry); // bytes read and written
Pending *sim_record_pend(SimRecorder *r, const GpuLogEntry *entry);

// ---- recorder_nccl.c ----
void sim_record_nccl(SimRecorder *r, ThreadState *t, const GpuLogEntry *entry);

#endif
