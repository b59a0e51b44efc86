/* failing.h: a call of CUDA's or NCCL's, a kernel or a hook that fails, whichever it is.
 *
 * A program that uses this is linked with functions in front of those calls (--wrap, in
 * make/programs.mk); on another backend no call fails. Every rank fails in the same call, so all
 * have to make the same ones; or one rank of two fails, and the other one in the call of NCCL that
 * the first never makes (failing_follows). Calls that free never fail: nobody could free any more.
 */
#ifndef TESTS_FAILING_H
#define TESTS_FAILING_H

#include "harness.h"
#include "nn.h"

// Runs the statement, silently; its n-th call fails (failing_ends says which).
#define FAILS_AT(n, statement)                                                                     \
    do {                                                                                           \
        failing_begins(n);                                                                         \
        statement;                                                                                 \
        failing_ends();                                                                            \
    } while (0)
void failing_begins(int n);
void failing_ends(void);
// For the next FAILS_AT: made[n] will be the calls of NCCL before its n-th call, made[0] how many
// calls there are; or no call fails until so many of NCCL were made, and then the next of these.
void failing_counts(int *made, int most);
void failing_follows(int made);
int failing_calls_left(void); // until one fails; within a FAILS_AT
// "cudaMallocAsync at slices.c:57 (keep_slice)": the call that has failed in the last FAILS_AT;
// NULL: none has.
const char *failing_call(void);
// One rank alone copies what it shows to a visitor: while this is set such copies do not count.
extern bool failing_visits;

// Hooks that may fail, first and last, at each point of the module and of all below it.
void failing_add_hooks(Module *m);

#endif
