/* Which line a crash is told with: that of the code whose author reads it. The functions stand in
 * for files elsewhere: #line says where.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"

typedef struct Chain {
    void (*inner)(void *chain); // gets the rest of the chain; NULL: who calls it crashes
} Chain;

static volatile int zero; // not known to the compiler

// Calls what is next in the chain, or crashes; the call is not the last act.
#define FUNCTION(name)                                                                             \
    static __attribute__((noinline)) void name(void *chain)                                        \
    {                                                                                              \
        Chain *next = chain;                                                                       \
        if (next->inner == NULL) *(volatile int *)(uintptr_t)(8 + zero) = 1;                       \
        next->inner(next + 1);                                                                     \
        zero = 0;                                                                                  \
    }                                                                                              \
    struct Chain

#line 1 "tests/fsdp/root.c"
FUNCTION(in_test);
#line 1 "tests/launch/watch.c"
FUNCTION(in_launch_test);
#line 1 "simgpu/tests/world.c"
FUNCTION(in_simgpu_test);
#line 1 "tasks/3_forward/rules.c"
FUNCTION(in_task_test);
#line 1 "labs/1_strategies/tests_overlap.c"
FUNCTION(in_lab_test);
#line 1 "lib/nn/module.c"
FUNCTION(in_library);
#line 1 "lib/host/optimizer.c"
FUNCTION(in_given_optimizer);
#line 1 "lib/launch/world.c"
FUNCTION(in_launcher);
#line 1 "simgpu/src/streams/stream.c"
FUNCTION(in_simgpu);
#line 1 "tests/support/training.c"
FUNCTION(in_support);
#line 1 "mine/optimizer.c"
FUNCTION(in_task);
#line 1 "mine/strategies.c"
FUNCTION(in_lab);
#line 1 "labs/1_strategies/reference.c"
FUNCTION(in_reference);
#line 1 "/home/lib/nn/api.c"
FUNCTION(in_far_task);
#line 1 "/home/tests/offload.c"
FUNCTION(in_far_lab);
#line 59 "tests/harness/crash_places.c"

static void body_chain(const Rank *rank, void *arg)
{
    ((Chain *)arg)->inner((Chain *)arg + 1);
}

TEST(test_the_authors_line_is_named)
{
    static const struct {
        Chain chain[4]; // each calls the next; the last one crashes
        const char *place;
    } rows[] = {
        // The innermost of a kind.
        {{{in_test}}, "fsdp/root.c:1 (in_test)"},
        {{{in_launch_test}}, "launch/watch.c:1 (in_launch_test)"},
        {{{in_simgpu_test}}, "tests/world.c:1 (in_simgpu_test)"},
        {{{in_test}, {in_task_test}}, "3_forward/rules.c:1 (in_task_test)"},
        {{{in_library}}, "nn/module.c:1 (in_library)"},
        {{{in_library}, {in_given_optimizer}}, "host/optimizer.c:1 (in_given_optimizer)"},
        // The library before a test that it calls.
        {{{in_test}, {in_library}, {in_test}}, "nn/module.c:1 (in_library)"},
        {{{in_library}, {in_lab_test}}, "nn/module.c:1 (in_library)"},
        // What students write before both, wherever it is.
        {{{in_library}, {in_task}, {in_given_optimizer}}, "mine/optimizer.c:1 (in_task)"},
        {{{in_library}, {in_lab}, {in_library}}, "mine/strategies.c:1 (in_lab)"},
        {{{in_test}, {in_reference}, {in_library}}, "1_strategies/reference.c:1 (in_reference)"},
        {{{in_library}, {in_far_task}, {in_library}}, "nn/api.c:1 (in_far_task)"},
        {{{in_task_test}, {in_far_lab}, {in_library}}, "tests/offload.c:1 (in_far_lab)"},
        // Nobody looks for a mistake in these.
        {{{in_test}, {in_launcher}}, "fsdp/root.c:1 (in_test)"},
        {{{in_test}, {in_simgpu}}, "fsdp/root.c:1 (in_test)"},
        {{{in_test}, {in_support}}, "fsdp/root.c:1 (in_test)"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        Chain chain[4];
        char part[200];
        memcpy(chain, rows[i].chain, sizeof chain);
        char *message = run_ranks_message(1, 20, body_chain, chain);
        snprintf(part, sizeof part, ") at %s", rows[i].place);
        if (message == NULL || strstr(message, part) == NULL)
            fail_msg("row %zu: the harness said:\n%s\nmust have: %s", i,
                     message ? message : "nothing", part);
        free(message);
    }
}

SUITE_MAIN("crash_places")
