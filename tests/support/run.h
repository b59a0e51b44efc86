/* run.h: what the harness's own files share: one run of a body on W ranks, and what its ranks say.
 *
 *   harness.c  run_ranks: starts the ranks, and chooses which of their troubles the test tells
 *   trouble.c  how a rank says what went wrong: rank_fails, and the hooks of backend and NOT_YET
 *   debug.c    a rank that waits for a debugger
 *   crash.c    what a rank says when a signal or exit() ends it, and the place where that was
 *   compare.c  check_equal, check_near, fetch, send_to
 *   layout.c   which element of an array is which of which parameter; unit_names.c: for reports
 *   pattern.c  the likely cause, from how an array differs; bytes.c: from a number of bytes
 *   suite.c    suite_main and the results for the grader (print_json.h)
 *   settings.c the clock, and settings from the environment
 *   draw.c     what tests draw at random, by SEED (draw.h)
 *   sanitize.c what a sanitizer is told in a build that has one
 *   backend.h  what differs between simulated and real GPUs
 */
#ifndef SHARDLAB_RUN_H
#define SHARDLAB_RUN_H

#include <stdatomic.h>

#include "harness.h"
#include "launch.h"

typedef enum TroubleKind {
    TROUBLE_NONE,
    TROUBLE_CHECK,   // a check of the test, or a call of the harness, failed
    TROUBLE_REPORT,  // simgpu reported something
    TROUBLE_NOT_YET, // a part of a task is not written
    TROUBLE_CRASH,   // a signal
    TROUBLE_EXIT,    // exit() from inside the body
    TROUBLE_HARNESS, // the harness itself could not do its part
} TroubleKind;

#define NOT_AN_ADDRESS "an address that no pointer can have"

// What one rank has to say, in memory that the parent shares.
typedef struct RankNote {
    atomic_flag taken;   // somebody writes, or has written, the text
    atomic_int kind;     // TroubleKind; set once the text is whole
    int signal;          // TROUBLE_CRASH
    char text[8192];     // the sentence, without the rank in front of it
    char place[512];     // TROUBLE_CRASH, TROUBLE_EXIT: where, found after the sentence is safe
    char at_limit[1024]; // where the rank was when it was asked to end
} RankNote;

typedef struct Run {
    int world;
    double limit; // seconds it may take from its start on
    double whole; // seconds that the limit is called in messages: the test's own where it has one
    const char *file; // of the call of run_ranks
    int line;
    RankBody body;
    void *arg;
    int *output;      // (world) read ends of the pipes that take the ranks' standard error
    int *output_in;   // (world) write ends
    atomic_int first; // the rank that had trouble first, plus 1; 0: none
    RankNote note[];  // (world)
} Run;

// The run this process is a rank of; NULL in the cmocka process.
extern Run *rank_run;
extern int rank_number;
// Set when the body has come to its end and exit() is as it should be.
extern bool rank_done;

// ---- trouble.c ----
// Tells this rank's trouble, unless it has told one. False: it had.
bool trouble_tell(TroubleKind kind, const char *format, ...) __attribute__((format(printf, 2, 3)));
// Whether this rank has had trouble to tell, whatever the memory that it shares says by now.
bool trouble_told(void);
RankNote *trouble_note(void);
// Hooks the backend's reports and NOT_YET up to this rank's note.
void trouble_listen(void);

// ---- crash.c ----
// Handlers for what can end a rank from the inside. exit_watch comes after the communicator is
// there, so that it runs before simgpu's own exit handlers.
void crash_watch(void);
void exit_watch(void);

// ---- suite.c ----
// The test that runs now has failed: `status` and the whole message for the results.
void suite_failed(const char *status, const char *message);
// The rule of the test that runs now (harness.h's RULE); NULL: none does.
const char *suite_rule(void);
// It has run a world, or left one out that is too large for this machine. A test that left all of
// them out is skipped, and not passed.
void suite_ran(void);
// What the command line asks for: whether a world of so many ranks is to run; the rank that waits
// for a debugger, -1: none.
bool suite_wants_world(int world);
int suite_debug_rank(void);
void suite_left_out(int world, const char *why);
// Ends the test as skipped, because it needs what was left out.
void suite_skip(void);
// Seconds that the running test may take in all, from SHARDLAB_LIMIT, and those that are left of
// them. False: nobody has set a limit for tests.
bool suite_limit(double *whole, double *left);

// ---- debug.c ----
// Says the process id of this rank, and returns when a debugger has it.
void debug_wait(int rank, int world);

// ---- sanitize.c ----
void sanitize_linked(void);
// At the begin of a rank: the sanitizer's own threads are none of the program's.
void sanitize_note_threads(void);

#endif
