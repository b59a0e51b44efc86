/* program.h: a random program of several ranks for the clock, and what the files of
 * simgpu/tests/time share.
 *
 * A program is one list of steps for all ranks at once. A rank is a device; a process has one or
 * two. A step is a call of one rank, or a call of NCCL that all its ranks make. Every rank makes
 * the calls of its steps in the list's order, so no program can deadlock.
 *
 *   program.c   names, sizes, who takes part; removing steps
 *   cost.c      what a call costs by simgpu/pages/time.md § 6, and a machine as a file
 *   device.c    operations: when they are ready, start, share, and end
 *   calls.c     what each call queues, and what that waits for
 *   host.c      the threads: who calls when, and the clocks
 *   simulate.c  the loop over the instants at which something happens
 *   generate.c  makes a program from a seed
 *   play.c      runs a program on simgpu, and takes the same times from there (see play.h)
 *   listing.c   a program as text
 *   shrink.c    makes a program smaller while it shows a difference
 *
 * The simulator (cost.c, device.c, calls.c, host.c, simulate.c) was written from the contract,
 * which is simgpu/pages/time.md, and shares no code with simgpu. It looks at all ranks at once and
 * knows the whole program, so it needs none of the clock's art of resolving times late.
 */
#ifndef SHARDLAB_TIME_PROGRAM_H
#define SHARDLAB_TIME_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "draw.h"

typedef uint64_t Ps; // picoseconds

enum {
    MAX_RANKS = 6,
    MAX_PROCESSES = 4,
    MAX_COMMS = 5,
    MAX_CALLS = 4, // of NCCL in one step
    MAX_STEPS = 1500,
    EVENTS = 4, // of a rank, by slot
    BLOCKS = 3, // of memory that the program makes: of each kind on a rank, by slot
    MAX_BYTES = 16384,
};

// ---- The machine ----

typedef enum Link { NVLINK, PCIE, NIC, LINKS } Link;

// Figures as the machine's file has them.
typedef struct Machine {
    int gpus_per_node;
    Ps launch, collective, enqueue, allocate, free, pin, sync, query, wake;
    Ps kernel, copy, latency;     // the constant part of a cost
    double hbm, bandwidth[LINKS]; // bytes/s; 0: there is no such link
    double peak;                  // FLOP/s, of floats
    uint64_t slow_compute[2], slow_compute_nic[2], slow_transfer[2]; // p/q
} Machine;

// ---- The world ----

// The streams of a rank. Nothing but records is queued on CLOCK_STREAM: they end when they are
// queued, which shows the host's clock.
typedef enum StreamName {
    LEGACY,
    BLOCKING_A,
    BLOCKING_B,
    FREE_A,
    FREE_B,
    CLOCK_STREAM,
    STREAMS
} StreamName;

typedef struct Comm {
    int n, rank[MAX_RANKS]; // the ranks of the world, in the communicator's order
    bool split;             // of the first communicator, which is the world's
} Comm;

typedef struct World {
    int n_processes, n_ranks;
    int process[MAX_RANKS]; // rank r is device r; process p has rank p, perhaps another one
    int n_comms;
    Comm comm[MAX_COMMS]; // 0: all ranks
    // The order in which a process makes its streams: (rank, stream) as rank * STREAMS + stream.
    int made[MAX_RANKS * STREAMS];
    Machine machine;
    int slow_rank, slow_percent; // SIMGPU_SLOW; 0 %: not set
    int jitter_percent;          // SIMGPU_JITTER; 0: not set
    uint64_t jitter_seed;
} World;

// ---- Steps ----

typedef enum Kind {
    KERNEL, // reads and writes device memory
    MEMSET_ASYNC,
    MEMSET,
    COPY_ASYNC,       // within the device
    TO_DEVICE_PINNED, // Async
    TO_DEVICE_PAGEABLE,
    TO_DEVICE, // cudaMemcpy from pageable memory
    FROM_DEVICE_PINNED,
    FROM_DEVICE_PAGEABLE,
    FROM_DEVICE,
    PEER_ASYNC, // to the process's other device
    ALLOC_ASYNC,
    FREE_ASYNC,
    MALLOC,
    FREE,
    PIN, // cudaMallocHost
    UNPIN,
    RECORD,
    WAIT,
    STREAM_SYNC,
    EVENT_SYNC,
    DEVICE_SYNC,
    STREAM_QUERY,
    EVENT_QUERY,
    NCCL,
    KINDS
} Kind;
extern const char *const kind_names[KINDS];

typedef enum Collective {
    ALL_GATHER,
    REDUCE_SCATTER,
    ALL_REDUCE,
    BROADCAST,
    REDUCE,
    MESSAGE, // a send and its receive
    COLLECTIVES
} Collective;
extern const char *const collective_names[COLLECTIVES];

// A call of NCCL. The members are numbered as in the communicator.
typedef struct Call {
    Collective op;
    int comm, bytes;              // the whole buffer
    int root;                     // MESSAGE: who sends
    int to;                       // MESSAGE: who receives
    StreamName stream[MAX_RANKS]; // by member
} Call;

// Which threads of a process make its calls, from one phase to the next.
typedef enum Mode {
    FIRST_THREAD,
    NEW_THREAD,      // which ends after the phase; the first thread waits for it
    THREAD_A_DEVICE, // new ones, side by side
    SECOND_THREAD,   // which lives on, beside the first one; of a process with one rank
    MODES
} Mode;
typedef struct Phase {
    Mode mode;
    int number; // steps in a row with the same number are one phase
} Phase;

typedef struct Step {
    Kind kind;
    int section; // the random program that it belongs to
    // A call of one rank:
    int rank;
    StreamName stream;
    int slot;                // of an event, or of memory
    int from;                // WAIT: whose event it is; PEER_ASYNC: whose memory is read
    bool again;              // RECORD: with the handle that the slot has
    int read, write, update; // bytes; other operations: read
    int flops;               // KERNEL: if it says so; 0: it does not
    // NCCL:
    int n_calls;
    Call call[MAX_CALLS];
    Phase phase[MAX_PROCESSES];
} Step;

typedef struct Program {
    uint64_t seed;
    World world;
    int n;
    Step step[MAX_STEPS];
} Program;

// Before its first step, the first thread of each process makes a buffer (cudaMalloc) and pinned
// memory (cudaMallocHost) for each of its ranks.

// A call of one rank, and its operation.
typedef struct Span {
    Ps queued, returned;  // q; when the host goes on
    Ps ready, start, end; // 0 of a call that queues no work
} Span;

// What a program shows of its times. Every call but NCCL's is of one rank, so a step has one.
typedef struct Times {
    Span span[MAX_STEPS][MAX_CALLS * MAX_RANKS]; // of NCCL's by call * MAX_RANKS + rank, else 0
    Ps at[MAX_STEPS];                            // RECORD: its end
    double
        elapsed[MAX_STEPS]; // RECORD: cudaEventElapsedTime from its rank's first one, milliseconds
    bool seen[MAX_STEPS];   // RECORD: the event still is of that record in the end
    bool ready[MAX_STEPS];  // a query's answer
} Times;

// ---- program.c ----

// The number of a member of a communicator; -1: the rank is none.
int member_of(const Comm *comm, int rank);
// Whether the rank calls NCCL for it: a message has two ranks.
bool calls(const World *w, const Call *c, int rank);
// Whether a rank takes part in a step.
bool takes_part(const Program *p, const Step *s, int rank);
bool process_takes_part(const Program *p, const Step *s, int process);
bool is_query(Kind kind);
bool has_work(Kind kind); // its operation takes time
// Whether all that a step names is there: events recorded, blocks allocated.
bool is_valid(const Program *p);
// Removes steps [from, from + n); what comes later and makes no sense without them goes too.
void remove_steps(Program *p, int from, int n);

// ---- cost.c ----

Ps kernel_work(const Machine *m, uint64_t bytes, uint64_t flops);
Ps copy_work(const Machine *m, uint64_t bytes);
Ps peer_work(const Machine *m, uint64_t bytes);
Ps collective_work(const World *w, const Call *c);
// What § 7 makes of the work of a rank's operation, the process's n-th with work.
Ps slowed_work(const World *w, Ps work, int rank, uint64_t n, bool on_compute);
// The link that the call's ranks use.
Link link_of(const World *w, const Call *c);
// What the call costs the host.
Ps call_cost(const Machine *m, Kind kind);
void write_machine(FILE *out, const Machine *m);

// ---- simulate.c ----

// The times of all steps by the contract. details: an operation a line, its start and end; or NULL.
void simulate(const Program *p, Times *times, FILE *details);

// Rules of the contract that the simulator may be told to forget: random programs must show it
// soon, or they would not show a clock that has forgotten it.
typedef enum Rule {
    NO_RULE,
    STREAM_ORDER,     // what was queued before on the stream
    DEFAULT_STREAM,   // what the legacy default stream orders
    EVENT_WAITS,      // events that the stream was told to wait for
    COMM_ORDER,       // calls of a communicator follow each other
    GROUP_STREAMS,    // the streams of a group wait for each other
    GROUP_IS_AT_ONCE, // calls of a group are ready together
    FIRST_READY,      // first on compute or an engine is what was ready first
    TIES,             // and then the lower stream
    COPY_ENGINES,     // two of them
    PEER_ENGINE,      // a copy between devices uses its source's
    LATEST_ARRIVAL,   // a transfer starts at the latest arrival
    NODES,            // ranks on several nodes use the nic
    OWN_LINKS,        // links do not share with each other
    SHARING,          // transfers share a link
    SLOW_TRANSFER,    // by compute
    SLOW_COMPUTE,     // by transfers
    SLOW_BY_LINK,     // less on the network
    COPIES_COUNT,     // copies with the host count as transfers on pcie
    COPIES_SLOWED,    // and are slowed by them
    ROUNDED_UP,       // what is left of an operation at its new rate
    ROUNDED_DOWN,     // what was done of it at its old rate
    HOSTS_MEET,       // in collectives
    RECEIVERS_MEET,   // a receive's host waits for the send's request
    HOST_WAITS,       // in copies
    WAKING,           // takes `wake`
    FREE_WAITS,       // cudaFree waits for the device
    NEW_THREADS,      // begin at the clock of the first, or of those that have ended
    LAST_CALL,        // a call begins no earlier than the last one on its device
    JOINING,          // the first thread joins those that have ended
    FLOPS,            // a kernel takes as long as its FLOP
    SLOW_RANK,
    JITTER,
    LAST_CALLER,     // a call begins no earlier than the clock of who called last
    RECEIVERS_FIRST, // a call begins when all messages before it have receivers
    RULES
} Rule;
extern const char *const rule_names[RULES];
extern Rule forgotten;

// ---- generate.c ----

// `sections` random programs, one after the other, in one world.
void generate(Program *p, uint64_t seed, int sections);

// ---- play.c ----

// Runs the program on simgpu. NULL, or what failed (free it).
char *play(const Program *p, Times *times);

// ---- listing.c ----
void print_step(FILE *out, const Program *p, int at);
void print_program(FILE *out, const Program *p);

// ---- shrink.c ----

// The first step whose times differ; -1: none. span: which of its spans; -1: none of them.
int first_difference(const Program *p, const Times *want, const Times *got, int *span);
// Plays and simulates; the first difference, -1: none, -2: it could not be played (message).
int try_program(const Program *p, Times *want, Times *got, char **message);
void shrink(Program *p);

#endif
