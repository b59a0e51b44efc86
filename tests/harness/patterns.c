/* What the patterns of a wrong array say, and where they keep silent: each pattern on an array made
 * for it, at every world size, and beside it arrays that nearly have the pattern.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bytes.h"
#include "harness.h"

enum { MAX_N = 700 };

static float got[MAX_N], want[MAX_N], other[MAX_N];
static Param params[3];
static Module units[3], *children[2];

// Values in no pattern: all different, with both signs.
static float value_of(size_t i, unsigned seed)
{
    unsigned x = (unsigned)i * 2654435761u + seed * 40503u + 1;
    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    return (float)((int)(x % 2000001) - 1000000) / 1000.0f + 0.0003f;
}

static void fill(size_t n)
{
    for (size_t i = 0; i < n; i++) got[i] = want[i] = value_of(i, 1);
}

static const char *said(const Clues *clues, size_t n)
{
    static char text[900];
    return likely_cause(text, sizeof text, got, want, n, clues) ? text : "";
}

#define EXPECT(clues, n, part) expect(__LINE__, clues, n, part)
static void expect(int line, const Clues *clues, size_t n, const char *part)
{
    const char *text = said(clues, n);
    bool right = part[0] ? strstr(text, part) != NULL : text[0] == '\0';
    if (!right)
        fail_msg("line %d, %zu elements: the likely cause is \"%s\", must be \"%s\"", line, n, text,
                 part);
}

// Three parameters of 5, 20 and the rest of n elements.
static Layout layout_of(size_t numel, int world, int rank)
{
    static Param *pointers[3];
    Layout layout;
    int64_t sizes[3] = {5, 20, (int64_t)numel - 25};
    for (int i = 0; i < 3; i++) {
        params[i] = (Param){.ndim = 1, .shape = {sizes[i]}};
        snprintf(params[i].name, sizeof params[i].name, "p%d", i);
        pointers[i] = &params[i];
    }
    layout_params(&layout, pointers, 3, world, rank);
    return layout;
}

// ---- Names ----

TEST(names_elements)
{
    char text[300];
    Layout whole = layout_of(40, 3, LAYOUT_WHOLE), shard = layout_of(40, 3, 1);

    assert_string_equal(layout_say(&whole, 42, 0, text, sizeof text), "element 0 (p0[0])");
    assert_string_equal(layout_say(&whole, 42, 24, text, sizeof text), "element 24 (p1[19])");
    assert_string_equal(layout_say(&whole, 42, 25, text, sizeof text), "element 25 (p2[0])");
    assert_string_equal(layout_say(&whole, 42, 40, text, sizeof text), "element 40 (padding)");
    assert_string_equal(layout_say(&whole, 48, 47, text, sizeof text), "element 47 (padding)");
    assert_string_equal(layout_say(&whole, 40, 39, text, sizeof text), "element 39 (p2[14])");
    assert_string_equal(layout_say(&shard, 14, 3, text, sizeof text),
                        "element 3 of rank 1's shard (element 17 of the flat parameter: p1[12])");
    assert_string_equal(layout_say(&shard, 16, 3, text, sizeof text),
                        "element 3 of rank 1's shard (element 19 of the flat parameter: p1[14])");
    // A length that no padding gives, as a wrong flat_layout makes it, names nothing.
    assert_string_equal(layout_say(&whole, 39, 3, text, sizeof text), "element 3");
    assert_string_equal(layout_say(&shard, 13, 3, text, sizeof text), "element 3");
    assert_string_equal(layout_say(NULL, 13, 3, text, sizeof text), "element 3");
    assert_false(layout_is_padding(&shard, 13, 12));
    shard.rank = 2;
    assert_true(layout_is_padding(&shard, 14, 12));
    assert_false(layout_is_padding(&shard, 14, 11));
}

// A tied parameter is named once, and what an inner unit has is not its outer unit's.
TEST(walks_modules)
{
    static Param *of_root[2] = {&params[0], &params[1]}, *of_first[1] = {&params[2]};
    static Param *of_second[1] = {&params[0]};
    Layout layout = layout_of(40, 1, LAYOUT_WHOLE);
    units[0] = (Module){.n_params = 2, .params = of_root, .n_children = 2, .children = children};
    units[1] = (Module){.n_params = 1, .params = of_first};
    units[2] = (Module){.n_params = 1, .params = of_second};
    children[0] = &units[1];
    children[1] = &units[2];

    layout_module(&layout, &units[0], true, 1, LAYOUT_WHOLE);
    assert_int_equal(layout.n, 3);
    assert_int_equal(layout.begin[3], 40);
    units[1].hooks[HOOK_POST_FORWARD] = &(Hook){NULL, NULL, NULL};
    layout_module(&layout, &units[0], true, 1, LAYOUT_WHOLE);
    assert_int_equal(layout.n, 2);
    layout_module(&layout, &units[0], false, 1, LAYOUT_WHOLE);
    assert_int_equal(layout.n, 3);
}

// ---- Nothing to say ----

TEST(garbage_has_no_cause)
{
    for (size_t n = 1; n <= 200; n = n < 20 ? n + 1 : n * 3 / 2) {
        for (int world = 1; world <= 8; world++) {
            Layout layout = layout_of(n < 26 ? 26 : n, world, LAYOUT_WHOLE);
            Clues clues = {.layout = &layout, .world = world, .average = true, .before = other};
            size_t padded = (layout.begin[3] + (size_t)world - 1) / (size_t)world * (size_t)world;
            fill(padded);
            for (size_t i = 0; i < padded; i++) {
                other[i] = value_of(i, 3);
                got[i] = i < layout.begin[3] ? value_of(i, 2) : 0.0f;
                want[i] = i < layout.begin[3] ? want[i] : 0.0f;
            }
            EXPECT(&clues, padded, "");
            EXPECT(NULL, n, "");
        }
    }
}

// One element, or three, can be anything.
TEST(few_elements_have_no_cause)
{
    for (size_t n = 1; n <= 3; n++) {
        Clues clues = {.world = 3, .average = true, .before = other};
        fill(n);
        for (size_t i = 0; i < n; i++) got[i] = 3.0f * want[i];
        EXPECT(&clues, n, "");
        for (size_t i = 0; i < n; i++) got[i] = 0.0f;
        EXPECT(&clues, n, "");
        for (size_t i = 0; i < n; i++) got[i] = other[i] = value_of(i, 7);
        EXPECT(&clues, n, "");
    }
    fill(100);
    got[50] = 0.0f;
    EXPECT(NULL, 100, "");
    // Equal values: any factor, shift or order would explain them.
    for (size_t i = 0; i < 100; i++) want[i] = 1.0f, got[i] = 3.0f;
    EXPECT(NULL, 100, "");
}

TEST(right_has_no_cause)
{
    Clues known = {.known = "something"};
    fill(100);
    EXPECT(NULL, 100, "");
    EXPECT(&known, 100, "");
    got[3] = 77.0f;
    EXPECT(&known, 100, "something");
}

// ---- One thing everywhere ----

static void times(size_t n, double factor)
{
    for (size_t i = 0; i < n; i++) got[i] = (float)((double)want[i] * factor);
}

TEST(factors)
{
    char part[100];
    for (int world = 2; world <= 8; world++) {
        for (size_t n = 5; n < 100; n += 31) {
            Clues clues = {.world = world, .average = true};
            double w = world;
            fill(n);
            snprintf(part, sizeof part, "%d times what it must be, and there are %d ranks", world,
                     world);
            times(n, w);
            EXPECT(&clues, n, part);
            EXPECT(NULL, n, world == 2 ? "twice what it must be" : "where does this one factor");
            got[n - 1] *= 1.01f; // one element of it is something else
            EXPECT(&clues, n, "");
            snprintf(part, sizeof part, "1/%d of what it must be", world);
            times(n, 1.0 / w);
            EXPECT(&clues, n, part);
            times(n, 1.0 / (w * w));
            EXPECT(&clues, n, "does your code divide twice by");
            times(n, w * w);
            EXPECT(&clues, n, "does your code multiply by");
            times(n, -w);
            EXPECT(&clues, n, "neither the sign nor");
        }
    }
    fill(40);
    times(40, -1.0);
    EXPECT(NULL, 40, "the other sign");
    times(40, 0.5);
    EXPECT(NULL, 40, "0.5 times what it must be");
    times(40, 1e-9);
    EXPECT(NULL, 40, "");
}

TEST(zero_nan_and_unchanged)
{
    float poison, arithmetic = -NAN;
    memset(&poison, 0xff, sizeof poison);
    Clues clues = {.before = other};
    fill(60);
    memset(got, 0, sizeof got);
    EXPECT(NULL, 60, "every element is zero");
    memset(got, 0xff, sizeof got);
    EXPECT(NULL, 60, "every element is the NaN that fresh device memory");
    fill(60);
    for (size_t i = 3; i < 60; i += 5) got[i] = arithmetic;
    EXPECT(NULL, 60, "every wrong element is a NaN that arithmetic made");
    got[8] = poison;
    EXPECT(NULL, 60, "");
    for (size_t i = 0; i < 60; i++) got[i] = other[i] = value_of(i, 9);
    EXPECT(&clues, 60, "what it was before the call");
    got[59] = 1.0f;
    EXPECT(&clues, 60, "");
}

TEST(only_rounding)
{
    Clues average = {.average = true, .world = 3}, trained = {.trained = true};
    fill(50);
    for (size_t i = 0; i < 50; i++) got[i] = nextafterf(want[i], 1e30f);
    EXPECT(NULL, 50, "which is rounding");
    EXPECT(&average, 50, "one division by W");
    EXPECT(&trained, 50, "");
    got[7] *= 1.001f;
    EXPECT(NULL, 50, "");
}

// ---- Right values in the wrong place ----

TEST(shifts)
{
    for (size_t n = 12; n < 200; n += 41) {
        for (size_t by = 1; by <= 4; by++) {
            fill(n);
            for (size_t i = by; i < n; i++) got[i] = want[i - by];
            for (size_t i = 0; i < by; i++) got[i] = 12345.0f;
            EXPECT(NULL, n, "late: where is an offset too large");
            got[n / 2] = 0.5f;
            EXPECT(NULL, n, "");
            fill(n);
            for (size_t i = 0; i + by < n; i++) got[i] = want[i + by];
            for (size_t i = n - by; i < n; i++) got[i] = 12345.0f;
            EXPECT(NULL, n, "early: where is an offset too small");
        }
    }
    Layout layout = layout_of(41, 8, LAYOUT_WHOLE);
    Clues clues = {.layout = &layout};
    fill(48);
    memset(want + 41, 0, 7 * sizeof *want);
    memset(got, 0, 7 * sizeof *got);
    memcpy(got + 7, want, 41 * sizeof *got);
    EXPECT(&clues, 48, "7 places late, which is as much as there is padding");
    fill(40);
    for (size_t i = 0; i < 40; i++) got[i] = want[i % 4];
    EXPECT(NULL, 40, "from element 4 on the first four come again");
}

TEST(parts_of_ranks)
{
    for (int world = 2; world <= 8; world++) {
        size_t n = (size_t)world * 11, part = 11;
        Layout layout = layout_of(n - 1, world, LAYOUT_WHOLE);
        Clues clues = {.layout = &layout, .world = world};
        if (n - 1 < 26) continue;
        fill(n);
        want[n - 1] = 0.0f;
        for (size_t i = 0; i < n; i++) got[i] = i < n - 1 ? want[i % part] : 0.0f;
        EXPECT(&clues, n, "every rank's part is that of rank 0");
        for (size_t i = 0; i < n; i++) got[i] = want[(i + part) % n];
        EXPECT(&clues, n, world == 2 ? "lies in the place of another" : "all by the same number");
        got[0] = 0.25f;
        EXPECT(&clues, n, "");
        fill(n);
        want[n - 1] = 0.0f;
        for (size_t i = 0; i < part; i++) { // the first two change places
            got[i] = want[part + i];
            got[part + i] = want[i];
        }
        got[n - 1] = 0.0f;
        EXPECT(&clues, n,
               world == 2 ? "in the place of another" : "in another order (they lie as 1 0");
    }
}

// ---- Regions ----

TEST(regions)
{
    for (int world = 1; world <= 8; world++) {
        size_t numel = 93, n = (numel + (size_t)world - 1) / (size_t)world * (size_t)world;
        Layout layout = layout_of(numel, world, LAYOUT_WHOLE);
        Clues clues = {.layout = &layout, .world = world};
        fill(n);
        for (size_t i = numel; i < n; i++) want[i] = 0.0f;
        if (n > numel) {
            EXPECT(&clues, n, "the padding alone is wrong");
            memset(got + numel, 0xff, (n - numel) * sizeof *got);
            EXPECT(&clues, n, "It was never written");
        }
        memcpy(got, want, n * sizeof *got);
        for (size_t i = 5; i < 25; i++) got[i] = value_of(i, 4);
        EXPECT(&clues, n, "p1 alone is wrong");
        got[60] = 9.5f;
        EXPECT(&clues, n, "");
        memcpy(got, want, n * sizeof *got);
        for (size_t i = 5; i < numel; i++) got[i] = value_of(i, 5);
        if (world != 2) EXPECT(&clues, n, "p0, the first parameter, is right");
        if (world < 3) continue;
        size_t part = n / (size_t)world;
        memcpy(got, want, n * sizeof *got);
        for (size_t i = part; i < 2 * part; i++) got[i] = value_of(i, 6);
        EXPECT(&clues, n, "the part of rank 1 alone is wrong");
        for (size_t i = 0; i < numel; i++)
            got[i] = i >= part && i < 2 * part ? want[i] : value_of(i, 6);
        EXPECT(&clues, n, "the part of rank 1 alone is right");
    }
}

TEST(cut_short)
{
    Clues clues = {.before = other};
    for (size_t n = 13; n < 300; n += 67) {
        for (size_t i = 0; i < n; i++) other[i] = value_of(i, 8);
        fill(n);
        memset(got + n / 4, 0, (n - n / 4) * sizeof *got);
        EXPECT(NULL, n, "the first quarter of the array");
        fill(n);
        memset(got + n / 4, 0xff, (n - n / 4) * sizeof *got);
        EXPECT(NULL, n, "the first quarter of the array");
        fill(n);
        memcpy(got + n / 4, other + n / 4, (n - n / 4) * sizeof *got);
        EXPECT(&clues, n, "the rest is as it was before");
        EXPECT(NULL, n, "");
        fill(n);
        memset(got + n - 5, 0, 5 * sizeof *got);
        EXPECT(NULL, n, "which count ends too early");
        got[n - 3] = 1.5f; // zeros with something between them are no end
        EXPECT(NULL, n, "");
    }
    Layout layout = layout_of(60, 4, LAYOUT_WHOLE);
    Clues parts = {.layout = &layout};
    fill(60);
    memset(got + 30, 0xff, 30 * sizeof *got);
    EXPECT(&parts, 60, "the parts of the first 2 of 4 ranks are right");
}

// ---- What a test names ----

TEST(clues_come_first)
{
    Clues clues = {.n = 2, .clue = {{other, "the other"}, {got, "itself"}}};
    fill(30);
    for (size_t i = 0; i < 30; i++) other[i] = 2.0f * want[i];
    memcpy(got, other, sizeof got);
    EXPECT(&clues, 30, "the other"); // and not: twice what it must be
    clues.n = 1;
    got[29] = 0.125f;
    EXPECT(&clues, 30, "");
    // Values that are as good as the wanted ones explain nothing.
    fill(30);
    memcpy(other, want, sizeof other);
    for (size_t i = 0; i < 30; i++) got[i] = nextafterf(want[i], 1e30f);
    EXPECT(&clues, 30, "which is rounding");
}

TEST(numbers)
{
    NumberClue clues[] = {{2.0, "two"}, {3.0, "three"}, {3.0, "three again"}, {5.0, "right"}};

    assert_string_equal(number_cause(2.0, 5.0, clues, 4), LIKELY "two");
    assert_string_equal(number_cause(3.0, 5.0, clues, 4), "");
    assert_string_equal(number_cause(3.0, 5.0, clues, 2), LIKELY "three");
    assert_string_equal(number_cause(2.001, 5.0, clues, 4), "");
    assert_string_equal(number_cause(5.0000001, 5.0, clues, 4), "");
    assert_string_equal(number_cause(NAN, 5.0, clues, 4), "");
}

TEST(bytes)
{
    Sizes sizes = {
        .n = 4, .world = 2, .size = {{"root", 280}, {"l.0", 416}, {"l.1", 728}, {"l.2", 728}}};

    assert_non_null(strstr(bytes_cause(416, &sizes), "the whole buffer of unit l.0: "));
    assert_non_null(strstr(bytes_cause(728, &sizes), "of unit l.1 (or of others as large): "));
    assert_non_null(strstr(bytes_cause(696, &sizes), "of units root and l.0: "));
    assert_non_null(strstr(bytes_cause(2152, &sizes), "units root, l.0, l.1 and l.2: "));
    assert_string_equal(bytes_cause(312, &sizes), "");
    assert_string_equal(bytes_cause(0, &sizes), "");
    assert_string_equal(bytes_cause((size_t)-416, &sizes), "");
    sizes.size[0].bytes = 100; // two ways to make 828 of two units are none
    sizes.size[1].bytes = 728;
    sizes.size[2].bytes = 228;
    sizes.size[3].bytes = 600;
    assert_string_equal(bytes_cause(828, &sizes), "");
    assert_non_null(
        strstr(arrays_cause(1000, 4, 100, 400), "2 arrays of the whole length and 2 of"));
    assert_string_equal(arrays_cause(999, 4, 100, 400), "");
    assert_string_equal(arrays_cause(400, 4, 100, 100), "");
}

SUITE_MAIN("harness/patterns")
