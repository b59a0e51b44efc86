/* time/recorder_internal.h: what the recorder's files share. */
#ifndef SIMGPU_RECORDER_INTERNAL_H
#define SIMGPU_RECORDER_INTERNAL_H

#include "time/recorder.h"

// A point in time: the end of an item; if that is long past, its time, and no item.
typedef struct Mark {
    SimItem item;
    SimPs end;
} Mark;

// What an item will wait for.
typedef struct After {
    SimItem *item;
    int n, room;
    SimPs not_before;
} After;
enum {
    AFTER_CALL,
    AFTER_THREAD,
    AFTER_STREAM,
    AFTER_WAKE,
    AFTER_RUN,
    AFTER_OPS,
    AFTER_RECEIVED,
    AFTER_MEETS,
    AFTERS
};

typedef struct StreamState {
    cudaStream_t handle;
    uint32_t number;
    bool legacy, blocking;
    Mark last;
    Mark received; // when all messages that are sent before its next operation have a receiver
} StreamState;

typedef struct DeviceState {
    Mark called;   // its last call
    int thread;    // that made it, or has queried since; -1: none, or it has ended
    bool is_there; // it has called on no other device since
    Mark left;     // its clock then
    int rank;      // -1: not known
    StreamState *stream;
    int n_streams, streams_room;
} DeviceState;

typedef struct EventState {
    cudaEvent_t handle;
    Mark done, received;
    uint64_t entry; // of its record
} EventState;

// A call of a group of NCCL, until the group has ended.
typedef struct GroupCall {
    GpuLogEntry entry; // without ranges
    SimItemSpec spec;
    Mark request;
    Mark received;  // a send's: when its receiver makes its request
    size_t pending; // its place, counted from the first that was ever pending
    bool done;
} GroupCall;

typedef struct ThreadState {
    int number;
    bool alive;
    bool called;   // it has made a call other than queries
    bool in_group; // makes requests of one group
    Mark clock;
    Mark before;    // its last call of NCCL,
    uint64_t met;   // of which the entry is the one before this; 0: none
    bool has_asked; // and the log has not got it yet:
    Mark asked;
    GroupCall *group;
    int n_group, group_room;
} ThreadState;

typedef struct CommState {
    uint64_t comm;
    int rank;
    Mark last, received;
} CommState;

// An entry whose span is not passed to the hook yet.
typedef struct Pending {
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
    Pending *pending;           // in the log's order
    GpuLogEntry *pending_entry; // of each; NULL where they are read
    SimReadEntry read;
    const void *read_from;
    size_t n_pending, pending_room, n_told;
    size_t kept; // items that were left at the last cleanup
};

// ---- recorder_state.c ----
void sim_after(After *after, Mark mark);
After *sim_after_none(SimRecorder *r, int which);
// What a new operation on the stream will wait for; the same for all streams of a device.
void sim_after_stream(SimRecorder *r, After *after, int device, const StreamState *s);
void sim_after_device(SimRecorder *r, After *after, int device);
// The receivers of messages that were sent before such an operation.
void sim_after_received(SimRecorder *r, After *after, int device, const StreamState *s);
void sim_after_received_mark(const SimRecorder *r, After *after, Mark received);
Mark sim_all_received(SimRecorder *r, const After *received);
Mark sim_add(SimRecorder *r, SimItemSpec spec, const After *after);
Mark sim_add_host(SimRecorder *r, SimPs work, const After *after);
DeviceState *sim_record_device(SimRecorder *r, int index);
StreamState *sim_record_stream(SimRecorder *r, const GpuLogEntry *entry);
EventState *sim_record_event(SimRecorder *r, cudaEvent_t handle, bool make);

// ---- recorder_host.c ----
ThreadState *sim_record_thread(SimRecorder *r, int number);
After *sim_after_call(SimRecorder *r, ThreadState *t,
                      int device); // its next call begins after that
Mark sim_record_request(SimRecorder *r, ThreadState *t, int device, SimPs cost);
// The host proceeds when `for_` is done and it is awake; when it has met the others.
void sim_record_wait(SimRecorder *r, ThreadState *t, const After *for_);
void sim_record_meet(SimRecorder *r, ThreadState *t, After *with);
void sim_record_await_receivers(SimRecorder *r, ThreadState *t, After *received);

// ---- recorder.c ----
bool sim_record_is_query(const GpuLogEntry *entry);
SimPs sim_record_cost(const SimRecorder *r, const GpuLogEntry *entry);       // the host's
void sim_after_wait(SimRecorder *r, After *after, const GpuLogEntry *entry); // that only waits
SimPs sim_record_spread(SimRecorder *r, int device, SimItemKind kind, SimPs work);
uint64_t sim_record_touched(const GpuLogEntry *entry); // bytes read and written
Pending *sim_record_pend(SimRecorder *r, const GpuLogEntry *entry);

// ---- recorder_nccl.c ----
void sim_record_nccl(SimRecorder *r, ThreadState *t, const GpuLogEntry *entry);
void sim_record_end_group(SimRecorder *r, ThreadState *t, uint64_t but); // but: that group

#endif
