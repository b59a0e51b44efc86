/* program.h: a small random program of CUDA and NCCL calls, and what the files of
 * simgpu/tests/random share.
 *
 * A program is a list of steps for a host that drives two devices: one step after the other, though
 * not always in the same thread. A step names a stream, an event, and the bytes it touches, all by
 * number; nothing in it depends on where the machine's
 * memory lies, so the same program can be judged, run, printed and cut.
 *
 *   program.c    the tables: kinds of steps, streams, buffers; whether a program makes sense
 *   generate.c   makes a program from a seed
 *   oracle.c     enumerates the legal orders of a program and says which steps race
 *   machine.c    runs a program on simgpu and keeps what the checker reports
 *   listing.c    a program as text that could be pasted into a C file
 *   shrink.c     makes a program smaller while it shows the same disagreement
 */
#ifndef SHARDLAB_RANDOM_PROGRAM_H
#define SHARDLAB_RANDOM_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "draw.h"

enum {
    N_DEVICES = 2,
    N_STREAMS = 9,
    N_EVENTS = 3,
    N_BUFFERS = 6,                      // there when a program begins
    N_ALLOCATIONS = 2,                  // that a program may make: buffers N_BUFFERS and behind
    PINNED = N_BUFFERS + N_ALLOCATIONS, // pinned host memory, there too
    ALL_BUFFERS = PINNED + 1,
    BUFFER_BYTES = 64,
    MAX_STEPS = 14,
    MAX_SPANS = 4,
    N_THREADS = 3, // thread 0 is the one that has always been there
};

// ---- Streams and memory: the same for all programs ----

typedef enum StreamKind { LEGACY, PER_THREAD, BLOCKING, NON_BLOCKING } StreamKind;
typedef struct StreamFact {
    const char *name;
    StreamKind kind;
    int device;
} StreamFact;
extern const StreamFact stream_facts[N_STREAMS];
extern const int event_device[N_EVENTS], buffer_device[ALL_BUFFERS];
int legacy_stream(int device);

// ---- Steps ----

enum { ALL_RANKS = -1 };

typedef enum Kind {
    // Kernels; all elements are floats.
    FILL,
    SCALE,
    ADD,
    SUM2,
    // cudaMemset*
    MEMSET_ASYNC,
    MEMSET_2D_ASYNC,
    MEMSET,
    // cudaMemcpy*: within the devices, to them (SEND) and from them (FETCH)
    COPY_ASYNC,
    COPY_2D_ASYNC,
    SEND_ASYNC,
    SEND_PINNED_ASYNC,
    FETCH_ASYNC,
    FETCH_PINNED_ASYNC,
    COPY,
    COPY_2D,
    SEND,
    SEND_PINNED,
    FETCH,
    FETCH_PINNED,
    PEER_ASYNC,
    PEER,
    // Memory
    ALLOC_ASYNC,
    FREE_ASYNC,
    FREE,
    // Collectives of both devices, in one group
    ALL_REDUCE,
    ALL_GATHER,
    REDUCE_SCATTER,
    BROADCAST,
    // A message from device 0's rank, and its receive by device 1's, some steps later
    MESSAGE_SEND,
    MESSAGE_RECV,
    // Order. A QUERY asks until it is done; an ASK asks once, and goes on whatever the answer is.
    RECORD,
    WAIT,
    STREAM_SYNC,
    STREAM_QUERY,
    STREAM_ASK,
    EVENT_SYNC,
    EVENT_QUERY,
    EVENT_ASK,
    DEVICE_SYNC,
    DESTROY,
    KINDS
} Kind;

// How a kind of step stands to streams and memory.
typedef struct KindFact {
    const char *call;
    int spans;        // that it touches
    unsigned writes;  // bit i: span i is written
    unsigned reads;   // bit i: span i is read
    int unit;         // 4: whole floats
    bool on_stream;   // it is work of `stream`
    bool legacy_only; // of the legacy default stream, as the call has no stream argument
    bool orders;      // it touches nothing, and is there for the sake of order
    int weight;       // how often it is drawn
} KindFact;
extern const KindFact kind_facts[KINDS];

// Bytes of a buffer: `rows` rows of `bytes` bytes, `pitch` apart.
typedef struct Span {
    int buffer, begin, bytes, rows, pitch;
} Span;

typedef struct Step {
    Kind kind;
    int stream;       // a collective: of device 0's rank
    int other_stream; // a collective: of device 1's rank
    int event;
    int device;           // DEVICE_SYNC
    Span span[MAX_SPANS]; // a collective: send 0, receive 0, send 1, receive 1
    bool in_place;
    // Who makes the call. A collective of another thread than 0: each rank's call has a thread of
    // its own, and this one is device 0's.
    int thread;
} Step;

typedef struct Program {
    uint64_t seed;
    int rank; // the program of this rank's process alone; ALL_RANKS: one process has both devices
    int n;
    Step step[MAX_STEPS];
    // With simgpu's clock its time decides what an ASK is told: so it was run, and bit i says that
    // step i was told "not ready".
    bool timed;
    unsigned not_ready;
} Program;

bool is_collective(Kind kind);
bool is_message(Kind kind);
// Whether it is the host's business with a stream, or with an event.
bool is_about_stream(Kind kind);
bool is_about_event(Kind kind);
// Whether it must be thread 0 that makes the call: cudaStreamPerThread is a thread's own.
bool is_of_first_thread(const Step *s);
// The device that is current at a step.
int device_of(const Step *s);
// What is left of a program for a process that has one of the devices.
void take_part(const Program *whole, int rank, Program *part);
// Whether two spans share a byte.
bool spans_meet(const Span *a, const Span *b);
// Whether the program makes sense: memory is used after its allocation, handles before they are
// destroyed, what uses freed memory is refused by its call and not by a fault, and the host never
// waits for a message before it has come to the receive.
bool is_valid(const Program *p);
// Inserts a step before `at`, takes one away; false: the program is as it was, for the result would
// be too long or make no sense.
bool insert_step(Program *p, int at, const Step *step);
// A message is sent before `at` and received at the end.
bool insert_message(Program *p, int at, const Step *send, const Step *recv);
// With a send goes its receive, and the other way round.
bool remove_step(Program *p, int at);

// ---- generate.c ----

void generate(Program *p, uint64_t seed);

// ---- oracle.c ----

// Rules that the oracle may be told to forget, for tests of the tester.
typedef enum Forget {
    FORGET_NOTHING = 0,
    FORGET_LEGACY = 1,       // the legacy default stream and blocking streams do not wait
    FORGET_RERECORD = 2,     // a wait follows the event's first record
    FORGET_PAGEABLE = 4,     // cudaMemcpy from pageable memory waits for its end
    FORGET_COLLECTIVE = 8,   // ranks do not wait for each other
    FORGET_ROWS = 16,        // a 2D access touches the gaps too
    FORGET_LAST_BYTE = 32,   // spans are a byte shorter than they are
    FORGET_FREE = 64,        // a stream-ordered free touches nothing
    FORGET_DESTROY = 128,    // the default stream waits for destroyed streams too
    FORGET_POOL = 256,       // cudaFree waits for the device whatever it frees
    FORGET_SYNC = 512,       // to wait for a blocking stream is not to wait for the default one
    FORGET_HOST_FREE = 1024, // cudaFree touches nothing
    FORGET_PINNED = 2048,    // pinned memory is nobody's
    FORGET_SERIAL = 4096,    // cudaMemcpyPeer is as any work of the default stream
    FORGET_IGNORED = 8192,   // one query is enough, whatever it answers
    FORGET_SECOND = 16384,   // the second query is as the first
} Forget;
// What the log does not say, so that gpulog_race cannot know it: the rows of a 2D copy, that a copy
// from pageable memory may run on, whether freed memory was stream ordered, whose pinned memory is,
// what cudaMemcpyPeer waits for, which ranks are of one process,
// that a stream was destroyed.
#define LOG_FORGETS                                                                                \
    (FORGET_ROWS | FORGET_PAGEABLE | FORGET_POOL | FORGET_PINNED | FORGET_SERIAL |                 \
     FORGET_COLLECTIVE | FORGET_DESTROY)

// Two steps that race.
typedef struct Pair {
    int a, b;      // a < b
    bool lifetime; // one of them allocates or frees
} Pair;

typedef struct Verdict {
    bool too_large;      // more orders than the oracle has room for: no verdict
    bool use_after_free; // a step that is issued behind the free of what it touches
    int n;
    Pair pair[MAX_STEPS * MAX_STEPS];
    size_t states; // that were visited
    int n_order;   // steps that can all be done while pair[0] is not: the witness
    int order[2 * MAX_STEPS];
} Verdict;
void judge(const Program *p, unsigned forget, Verdict *v);
// Whether the host, which waits for all that is ordered behind a message, waits for one that it has
// not come to receive.
bool waits_in_vain(const Program *p);

// ---- machine.c ----

enum { MAX_HEARD = 16 };

// What was said of a program: by the checker, and by gpulog_race.
typedef struct Heard {
    int races;                 // reports of SIMGPU_RACE and SIMGPU_LIFETIME
    int others;                // reports of other classes
    unsigned named[MAX_HEARD]; // of each race: bit i, step i is named
    bool lifetime[MAX_HEARD];  // its class is SIMGPU_LIFETIME
    char text[6000];           // the first race, else the first other report
    bool timed;                // simgpu kept a clock, and told the steps of these bits "not ready"
    unsigned not_ready;
    bool replayed;              // it is gpulog_race that was asked:
    bool log_races, log_should; // and what the oracle expects of it
    char log_text[1024];
    char trouble[256]; // a call that failed and should not have
} Heard;
// One machine a process. It asks the checker, or gpulog_race. comm: of a rank's process; NULL: one
// process has both devices.
void machine_start(bool log, bool timed, int rank, void *comm);
void machine_stop(void);
void run_program(const Program *p, Heard *heard);

// ---- listing.c ----
void print_program(FILE *out, const Program *p);
void print_witness(FILE *out, const Program *p, const Verdict *v);

// ---- shrink.c ----

typedef enum Disagreement {
    AGREE,
    MISSED,      // the oracle sees a race, the checker said nothing
    FALSE_ALARM, // the checker sees a race where the oracle sees none
    WRONG_PAIR,  // a report names no two steps that race
    STRAY,       // a report of another class
    LOG_MISSED,  // the same of gpulog_race
    LOG_ALARM,
    TROUBLE, // a call failed
} Disagreement;
extern const char *const disagreement_names[];
Disagreement compare(const Program *p, const Verdict *v, const Heard *h);
// Runs and judges the program; what both said is left in v and h.
Disagreement try_program(const Program *p, unsigned forget, Verdict *v, Heard *h);
void shrink(Program *p, unsigned forget, Disagreement what);

#endif
