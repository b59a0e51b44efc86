/* Task 4, backward, on shapes that nobody can have written for: drawn from SEED, which is the
 * course's (grader/course.json), and not in the archive that students get. Linked as
 * tests/tasks/backward.c is; grader/hidden.py runs it.
 */
#include "claims.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

// A generator of its own (xorshift64*, Vigna 2016), so that a seed means the same everywhere.
static uint64_t draw_state;

static void draw_begin(uint64_t test)
{
    const char *text = getenv("SEED");
    uint64_t seed = text ? strtoull(text, NULL, 10) : 1;

    draw_state = (seed + 1) * 0x9e3779b97f4a7c15u + test;
    printf("SEED=%" PRIu64 "\n", seed);
}

static int draw(int low, int high)
{
    draw_state ^= draw_state >> 12;
    draw_state ^= draw_state << 25;
    draw_state ^= draw_state >> 27;
    return low + (int)((draw_state * 0x2545f4914f6cdd1du >> 33) % (uint64_t)(high - low + 1));
}

// An MLP with no size in common with those of the other tests.
static Spec draw_mlp(void)
{
    Spec spec = spec_mlp(draw(2, 5));

    spec.in_dim = draw(3, 19);
    spec.dim = draw(3, 23);
    spec.vocab = draw(3, 9);
    spec.B = draw(1, 7);
    return spec;
}

static int draw_world(const Spec *spec)
{
    int world = draw(2, 8);

    printf("%d layers, %d > %d > %d, %d rows, %d ranks\n", spec->layers, spec->in_dim, spec->dim,
           spec->vocab, spec->B, world);
    fflush(stdout);
    return world;
}

static void averages_on_drawn_shapes(void **state)
{
    draw_begin(1);
    for (int i = 0; i < 3; i++) {
        Spec spec = draw_mlp();
        claim_first_gradient(spec, draw_world(&spec));
    }
}

static void padding_on_drawn_shapes(void **state)
{
    draw_begin(2);
    for (int i = 0; i < 2; i++) {
        Spec spec = draw_mlp();
        claim_padding(spec, draw_world(&spec));
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(averages_on_drawn_shapes),
    cmocka_unit_test(padding_on_drawn_shapes),
};
SUITE_MAIN("hidden_backward", tests)
