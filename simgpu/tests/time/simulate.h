/* simulate.h: what the simulator's files share: operations, and the world they happen in.
 *
 * The names are those of simgpu/pages/time.md, and so are the sections.
 */
#ifndef SHARDLAB_TIME_SIMULATE_H
#define SHARDLAB_TIME_SIMULATE_H

#include "program.h"

enum { THREADS = 2 + MAX_RANKS };  // of a process
enum { MOST_WAITS = 4 * STREAMS }; // operations that one operation waits for directly
enum { MOST_SENT = 256 };          // messages without a receiver that come before one operation

typedef enum Resource {
    NOTHING, // it takes no time
    COMPUTE,
    ENGINE_TO,
    ENGINE_FROM,
    TRANSFER,
} Resource;

typedef enum State { QUEUED, READY, RUNNING, DONE } State;

// Operations by their numbers in Sim.op.
typedef struct Waits {
    int n, op[MOST_WAITS];
} Waits;

// The messages that come before something, § 1: the latest request of those receivers that have
// made one, and the messages (in Sim.meeting) of the others.
typedef struct Sent {
    Ps received;
    int n, message[MOST_SENT];
} Sent;

typedef struct Operation {
    int step; // -1: it only stands for the end of a group
    int call; // of NCCL's in the step
    const char *what;
    int rank, stream_number; // in its process
    Waits waits;
    Resource resource;
    int engine_of; // the rank whose compute or engine it is
    bool host;     // a copy from or to the host
    Link link;     // TRANSFER
    int meeting;   // TRANSFER: with the other ranks
    bool sends;    // it is a send
    Ps work;

    State state;
    Ps ready, start, end;
    // RUNNING, § 5:
    Ps left, set; // what was left when its rate was last set, and when that was
    uint64_t rate[2];
} Operation;

// A collective, or a send and its receive: one of all its ranks.
typedef struct Meeting {
    int missing; // ranks that have not arrived
    Ps latest;   // arrival so far
    Ps start;    // once nobody is missing
    int silent;  // ranks that have not made their request
    Ps request;  // the latest so far; of a message, the send's
    Ps received; // of a message: its receiver's request; 0: it has made none
} Meeting;

// A call of a thread.
typedef struct Atom {
    int step, rank, call; // call: of NCCL's in the step
} Atom;

typedef struct Thread {
    bool is_first;      // of its process
    bool began, called; // has made a call, or asked; has made one that is no query
    Ps clock;
    Atom *atom; // what it does in this phase
    int at, n;
    bool blocked; // in its call until all of these have ended:
    Waits waiting;
    int meets; // or, for so many last atoms, until their ranks have made their requests
} Thread;

typedef struct Device {
    Ps called;           // last call, § 1
    Thread *thread;      // who made it, or has asked since
    Ps left;             // its clock, when it was there last
    int last[STREAMS];   // what was queued last on each stream; -1: nothing
    int record[EVENTS];  // what an event's slot was recorded by; -1: nothing
    int comm[MAX_COMMS]; // what was called last on each communicator; -1: nothing
    // Of the group that is being called, by communicator:
    int call[MAX_COMMS][MAX_CALLS], n_calls[MAX_COMMS]; // to be ready together
    uint64_t number[MAX_COMMS][MAX_CALLS];              // of each, among operations with work
} Device;

typedef struct Process {
    Thread thread[THREADS]; // 0: the first; 1: the second; then new ones
    int next;               // step, where the next phase begins
    Ps ended;               // the latest clock of the threads that have ended
    uint64_t works;         // operations with work so far
} Process;

typedef struct Sim {
    const Program *program;
    Times *times;
    FILE *details;
    Operation *op;
    Sent *sent; // of each operation
    int n_ops, max_ops;
    int *live, n_live;      // operations that have not ended
    Meeting *meeting;       // by step and call
    int record[MAX_STEPS];  // RECORD: its operation
    Waits asked[MAX_STEPS]; // a query: about these,
    Ps when[MAX_STEPS];     // at this time
    Device device[MAX_RANKS];
    Process process[MAX_PROCESSES];
    int stream_number[MAX_RANKS][STREAMS];
} Sim;

// ---- device.c ----

void add_wait(Waits *waits, int op);
void add_waits(Waits *waits, const Waits *more);
// Queues an operation now; the return is its number.
int queue_operation(Sim *s, const Operation *op);
// Ends what ends at t, makes ready what can be; whether anything changed.
// The messages before what waits for these operations are added.
void add_sent(const Sim *s, Sent *sent, const Waits *waits);
bool settle_operations(Sim *s, Ps t);
void start_operations(Sim *s, Ps t);
void set_rates(Sim *s, Ps t);
// The next instant at which an operation ends or a transfer starts; NEVER.
#define NEVER UINT64_MAX
Ps next_instant(const Sim *s);
bool all_done(const Sim *s, const Waits *waits);
Ps latest_end(const Sim *s, const Waits *waits);

// ---- calls.c ----

const Step *step_of(const Sim *s, const Atom *atom);
// Queues what the call of one rank queues; the return: what the host waits for, or asks about.
Waits make_call(Sim *s, const Atom *atom);
// The messages that come before a call, whose receivers it awaits.
void sent_before(const Sim *s, const Atom *atom, Sent *sent);
// Whether a call of NCCL sends to a rank to which the group sends again.
bool sends_again(const Sim *s, const Atom *atom);
void call_nccl(Sim *s, const Atom *atom);

// ---- simulate.c ----

Span *span_of(Sim *s, int step, int call, int rank);

// ---- host.c ----

void begin_processes(Sim *s);
void free_processes(Sim *s);
// The next instant at which a thread has made its request; NEVER.
Ps next_request(const Sim *s);
// Threads whose request is at t make it, those that need not wait any more go on; whether any did.
bool settle_threads(Sim *s, Ps t);
bool all_ended(const Sim *s);

#endif
