/* The sums that the demo learns from: they are right, and those held out are in no batch. */
#include <string.h>

#include "harness.h"
#include "sums.h"

enum { B = 64, STEPS = 400 };

// The two numbers of a sequence, and the answer that its targets give.
static void read_sum(const int32_t *in, const int32_t *targets, int *a, int *b, int *sum)
{
    *a = 10 * in[0] + in[1];
    *b = 10 * in[3] + in[4];
    *sum = targets[5] + 10 * targets[6] + 100 * targets[7];
}

TEST(a_sum_is_written_units_first)
{
    int32_t in[SUMS_T], targets[SUMS_T];
    char text[SUMS_T + 1] = "", answer[SUMS_T + 1] = "";
    sums_write(23, 58, in, targets);
    for (int t = 0; t < SUMS_T; t++) {
        text[t] = sums_char(in[t]);
        answer[t] = sums_char(targets[t]);
    }
    assert_string_equal(text, "23+58=18");
    assert_string_equal(answer, "     180");
}

TEST(batches_are_right_and_hold_nothing_held_out)
{
    static const uint64_t seeds[] = {0, 42, 0xffffffffffffffffu};
    static bool seen[100][100];
    int32_t in[B * SUMS_T], targets[B * SUMS_T];
    for (size_t s = 0; s < sizeof seeds / sizeof seeds[0]; s++)
        for (int step = 1; step <= STEPS; step++) {
            sums_batch(seeds[s], step, 0, B, in, targets);
            for (int row = 0; row < B; row++) {
                int a, b, sum;
                read_sum(in + row * SUMS_T, targets + row * SUMS_T, &a, &b, &sum);
                assert_in_range(a, 10, 99);
                assert_in_range(b, 10, 99);
                assert_int_equal(sum, a + b);
                assert_false(sums_is_held_out(a, b));
                seen[a][b] = true;
            }
        }
    // The list of those held out is the other way round: none of them was seen, nearly all others
    // were.
    static SumsPair held[8100];
    static bool out[100][100];
    int n = sums_held_out(held, 8100), others = 0;
    assert_in_range(n, 8100 / 8 - 150, 8100 / 8 + 150);
    for (int i = 0; i < n; i++) {
        assert_false(out[held[i].a][held[i].b]); // each once
        out[held[i].a][held[i].b] = true;
    }
    for (int a = 10; a < 100; a++)
        for (int b = 10; b < 100; b++) {
            assert_int_equal(out[a][b], out[b][a]);
            assert_int_equal(out[a][b], sums_is_held_out(a, b));
            if (out[a][b]) assert_false(seen[a][b]);
            others += seen[a][b];
        }
    assert_true(others > (8100 - n) * 9 / 10);
}

// Whoever makes which part of a batch, the batch is the same; another step or seed is another
// batch.
TEST(a_sequence_depends_on_seed_step_and_number)
{
    int32_t in[B * SUMS_T], targets[B * SUMS_T], part[B * SUMS_T], part_targets[B * SUMS_T];
    sums_batch(42, 7, 0, B, in, targets);
    for (int first = 0; first < B; first += B / 4)
        sums_batch(42, 7, first, B / 4, part + first * SUMS_T, part_targets + first * SUMS_T);
    assert_memory_equal(in, part, sizeof in);
    assert_memory_equal(targets, part_targets, sizeof targets);
    sums_batch(42, 8, 0, B, part, part_targets);
    assert_true(memcmp(in, part, sizeof in) != 0);
    sums_batch(43, 7, 0, B, part, part_targets);
    assert_true(memcmp(in, part, sizeof in) != 0);
}

int main(int argc, char **argv)
{
    return suite_main(argc, argv, "sums");
}
