/* The shrinker (shrink.h) on predicates that are made up: what is left is known, each number of it
 * is needed, and what is left still fails.
 */
#include <stdlib.h>

#include "files.h"
#include "harness.h"
#include "shrink.h"

static const Gene GENES[] = {
    {"world", 1, 8}, {"offload", 0, 1}, {"stages", 0, 4}, {"shape", 0, 9999}, {"rows", 1, 6}};
enum { WORLD, OFFLOAD, STAGES, SHAPE, ROWS, N };

static int calls;

static bool never_mind(const int *v, void *arg)
{
    calls++;
    return true;
}

// Two options together, on three ranks at least, from some size on.
static bool together(const int *v, void *arg)
{
    calls++;
    return v[WORLD] >= 3 && v[OFFLOAD] == 1 && v[STAGES] >= 2 && v[SHAPE] >= 617;
}

// Whether a number fails depends on another one.
static bool by_each_other(const int *v, void *arg)
{
    return v[WORLD] + v[ROWS] >= 8 && v[WORLD] % 2 == 0;
}

static void left_is(FailsFn fails, const char *from, const char *want)
{
    char text[200];
    int v[N];
    assert_true(case_read(GENES, N, v, from));
    assert_true(fails(v, NULL));
    calls = 0;
    int tried = shrink(GENES, N, v, fails, NULL);
    assert_true(fails(v, NULL));
    assert_string_equal(case_text(GENES, N, v, text, sizeof text), want);
    for (int i = 0; i < N; i++)
        for (int step = v[i] - GENES[i].least; step > 0; step /= 2) {
            v[i] -= step;
            if (fails(v, NULL)) fail_msg("%s can be lower: %s", GENES[i].name, want);
            v[i] += step;
        }
    if (tried > 120) fail_msg("%d cases were tried", tried);
}

TEST(all_that_is_not_needed_goes)
{
    left_is(never_mind, "world=8 offload=1 stages=4 shape=9999 rows=6", "");
    left_is(never_mind, "", "");
    left_is(together, "world=8 offload=1 stages=4 shape=9876 rows=6",
            "world=3 offload=1 stages=2 shape=617");
    left_is(together, "world=3 offload=1 stages=2 shape=617",
            "world=3 offload=1 stages=2 shape=617");
}

TEST(what_needs_each_other_stays)
{
    left_is(by_each_other, "world=8 stages=3 shape=12 rows=6", "world=2 rows=6");
    left_is(by_each_other, "world=4 shape=12 rows=6", "world=2 rows=6");
}

TEST(it_counts_what_it_tries)
{
    int v[N] = {8, 1, 4, 9000, 6};
    calls = 0;
    int tried = shrink(GENES, N, v, together, NULL);
    assert_int_equal(tried, calls);
}

TEST(a_text_is_a_case)
{
    char text[200];
    int v[N], again[N] = {0};
    assert_true(case_read(GENES, N, v, "  shape=12   world=3 "));
    assert_string_equal(case_text(GENES, N, v, text, sizeof text), "world=3 shape=12");
    assert_true(case_read(GENES, N, again, text));
    assert_memory_equal(v, again, sizeof v);
}

TEST(a_wrong_word_is_named)
{
    static const char *WRONG[][2] = {
        {"world=9", "\"world=9\": world is a whole number from 1 to 8\n"},
        {"world=0", "\"world=0\": world is a whole number from 1 to 8\n"},
        {"rows=2 world=3x", "\"world=3x\": world is a whole number from 1 to 8\n"},
        {"world=", "\"world=\": world is a whole number from 1 to 8\n"},
        {"worlds=3", "\"worlds=3\" is no part of a case; these are: world=1 offload=0 stages=0 "
                     "shape=0 rows=1\n"}};
    for (size_t i = 0; i < sizeof WRONG / sizeof *WRONG; i++) {
        int v[N], lines;
        said_begin();
        bool read = case_read(GENES, N, v, WRONG[i][0]);
        char *said = said_end(&lines);
        assert_false(read);
        assert_string_equal(said, WRONG[i][1]);
        free(said);
    }
}

SUITE_MAIN("shrinking")
