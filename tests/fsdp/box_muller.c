/* Normal numbers from random words: near the formula, bitwise what they always were, and normal. */
#include "box_muller.h"

#include <math.h>
#include <string.h>

#include "harness.h"

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

// SplitMix64 (Steele, Lea, Flood 2014): words that have nothing to do with Philox.
static uint32_t next_word(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return (uint32_t)((z ^ z >> 31) >> 32);
}

// Of the formula in 60 digits, each rounded to the nearest float.
TEST(known_answers)
{
    static const struct {
        uint32_t word[2], want[2];
    } table[] = {
        {{0x00000000, 0x00000000}, {0x40d5224d, 0x00000000}},
        {{0x00000000, 0x20000000}, {0x4096b55f, 0x4096b55f}},
        {{0x6627e8d5, 0xe169c58d}, {0x3f7dbb33, 0xbf6cb6b0}},
        {{0xbc57ac4c, 0x9b00dbd8}, {0xbf1e1b9f, 0xbef6d1b2}},
        {{0xffffffff, 0x12345678}, {0x00000000, 0x00000000}},
        {{0xfffffffe, 0x5fffffff}, {0xb7800000, 0x37800000}},
        {{0x00000001, 0x60000000}, {0xc09455c1, 0x409455c1}},
        {{0xb504f332, 0x7fffffff}, {0xbf55224d, 0x30a76521}},
        {{0xb504f333, 0x80000001}, {0xbf55224d, 0xb0a76521}},
        {{0x7fffffff, 0xa0000000}, {0xbf55224d, 0xbf55224d}},
        {{0x5a827998, 0xdfffffff}, {0x3f828473, 0xbf828473}},
        {{0x12345678, 0x9abcdef0}, {0xbfe92f38, 0xbfb39381}},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        uint32_t words[4] = {table[i].word[0], table[i].word[1], table[i].word[0],
                             table[i].word[1]};
        float out[4];
        box_muller4(words, out, 1);
        for (int j = 0; j < 4; j++)
            if (bits_of(out[j]) != table[i].want[j % 2])
                fail_msg("words %08x %08x, element %d: got %.9g (%08x), want %08x", words[0],
                         words[1], j, (double)out[j], bits_of(out[j]), table[i].want[j % 2]);
    }
}

enum { BLOCKS = 1 << 14, WORDS = 4 * BLOCKS };

// A million normals have the fingerprint (FNV-1a, of 32-bit words) that they had where the kit was
// written: what the compiler makes of the loop changes no bit.
TEST(a_million_have_the_same_bits)
{
    static uint32_t words[WORDS];
    static float out[WORDS];
    uint64_t generator = 7, hash = 0xcbf29ce484222325u;
    for (int round = 0; round < 16; round++) {
        for (int i = 0; i < WORDS; i++) words[i] = next_word(&generator);
        box_muller4(words, out, BLOCKS);
        for (int i = 0; i < WORDS; i++) hash = (hash ^ bits_of(out[i])) * 0x100000001b3u;
    }
    if (hash != 0xa93a2af7dafbd11bu)
        fail_msg("the fingerprint of 2^20 normals is %016llx: is box_muller.c compiled with "
                 "-ffp-contract=off, and without -ffast-math?",
                 (unsigned long long)hash);
}

// |got - want| in units in the last place of a float that is nearest to want.
static double off_by(float got, double want)
{
    int exponent;
    if (want == 0.0) return got == 0.0f ? 0.0 : INFINITY;
    frexp(want, &exponent);
    return fabs((double)got - want) / ldexp(1.0, exponent - 24);
}

// The formula by the C library. The angle is counted from the nearest axis before it becomes a
// fraction, so that nothing is lost near the axes.
static void formula(uint32_t a, uint32_t b, double want[2])
{
    double radius = sqrt(-2.0 * log((a + 1.0) * 0x1p-32));
    uint32_t axis = (b + 0x20000000u) >> 30;
    double angle = 2.0 * acos(-1.0) * (int32_t)(b - (axis << 30)) * 0x1p-32;
    double x = radius * cos(angle), y = radius * sin(angle);
    const double turned[4][2] = {{x, y}, {-y, x}, {-x, -y}, {y, -x}};
    memcpy(want, turned[axis], 2 * sizeof *want);
}

static void check_pairs(const uint32_t *words, int blocks)
{
    static float out[WORDS];
    box_muller4(words, out, (size_t)blocks);
    for (int i = 0; i < 4 * blocks; i += 2) {
        double want[2];
        formula(words[i], words[i + 1], want);
        for (int j = 0; j < 2; j++)
            if (!(off_by(out[i + j], want[j]) <= 0.51))
                fail_msg("words %08x %08x, element %d: got %.9g, want %.9g, off by %.3f units in "
                         "the last place",
                         words[i], words[i + 1], j, (double)out[i + j], want[j],
                         off_by(out[i + j], want[j]));
    }
}

// Words of all kinds: random ones, and both words around every place at which a case begins.
TEST(within_half_a_unit_of_the_formula)
{
    static uint32_t words[WORDS];
    uint64_t generator = 11;
    for (int round = 0; round < 32; round++) {
        for (int i = 0; i < WORDS; i++) words[i] = next_word(&generator) >> (i % 2 ? 0 : round);
        check_pairs(words, BLOCKS);
    }
    // √½ is where the logarithm's range begins again for each power of two, and eighths of a turn
    // are where the angle's does.
    for (int shift = 0; shift < 32; shift++)
        for (uint32_t k = 0; k < 8; k++) {
            for (uint32_t i = 0; i < 256; i++) {
                uint32_t edge = i < 128 ? 0xb504f333u >> shift : 0u - (1u << shift);
                words[2 * i] = edge + i % 128 - 64;
                words[2 * i + 1] = (k << 29) + (i / 16 % 16 - 8) * (i % 16 + 1);
            }
            check_pairs(words, 128);
        }
}

TEST(any_number_of_blocks_gives_the_same)
{
    enum { N = 67 };
    static uint32_t words[4 * N + 1];
    static float all[4 * N], part[4 * N + 2];
    uint64_t generator = 13;
    for (int i = 0; i < 4 * N; i++) words[i] = next_word(&generator);
    box_muller4(words, all, N);
    for (int n = 0; n <= N; n++)
        for (int from = 0; from + n <= N; from += 1 + from / 4) {
            memset(part, 0xff, sizeof part);
            box_muller4(words + 4 * from, part + 1, (size_t)n);
            assert_memory_equal(part + 1, all + 4 * from, (size_t)n * 4 * sizeof *part);
            assert_true(bits_of(part[0]) == 0xffffffff && bits_of(part[4 * n + 1]) == 0xffffffff);
        }
}

// Of 2^24 normals the moments, how often pairs agree, and the tails, each within five standard
// errors of what a normal distribution has.
typedef struct Figures {
    double n, sum, squares, cubes, fourths, products, largest;
    double beyond[6]; // how many are larger in magnitude than 0, 1, … 5
} Figures;

static void count(Figures *f, const float *x, int n)
{
    for (int i = 0; i < n; i++) {
        double v = (double)x[i], size = fabs(v), square = v * v;
        f->sum += v;
        f->squares += square;
        f->cubes += v * square;
        f->fourths += square * square;
        if (i % 2 == 1) f->products += v * (double)x[i - 1];
        if (size > f->largest) f->largest = size;
        for (int k = 1; k < 6; k++) f->beyond[k] += size > k;
    }
    f->n += n;
}

static void near(const char *what, double got, double want, double standard_error)
{
    if (!(fabs(got - want) < 5.0 * standard_error))
        fail_msg("%s: %g, want %g (one standard error is %g)", what, got, want, standard_error);
}

TEST(the_distribution_is_normal)
{
    static uint32_t words[WORDS];
    static float out[WORDS];
    Figures f = {0};
    uint64_t generator = 17;
    for (int round = 0; round < 256; round++) {
        for (int i = 0; i < WORDS; i++) words[i] = next_word(&generator);
        box_muller4(words, out, BLOCKS);
        count(&f, out, WORDS);
    }
    near("mean", f.sum / f.n, 0.0, sqrt(1.0 / f.n));
    near("variance", f.squares / f.n, 1.0, sqrt(2.0 / f.n));
    near("third moment", f.cubes / f.n, 0.0, sqrt(15.0 / f.n));
    near("fourth moment", f.fourths / f.n, 3.0, sqrt(96.0 / f.n));
    near("product of the two of a pair", f.products / (f.n / 2), 0.0, sqrt(2.0 / f.n));
    for (int k = 1; k < 6; k++) {
        double p = erfc(k / sqrt(2.0));
        near("how many are beyond so many deviations", f.beyond[k] / f.n, p,
             sqrt(p * (1 - p) / f.n));
    }
    assert_true(f.largest > 5.0 && f.largest <= 6.661);
}

SUITE_MAIN("box_muller")
