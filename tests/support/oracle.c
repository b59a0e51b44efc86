/* oracle.c: initial values by the tests' own arithmetic. See oracle.h. */
#include "oracle.h"

#include "pattern.h"

#include <math.h>
#include <string.h>

int64_t oracle_numel(const Param *p)
{
    int64_t numel = 1;
    for (int i = 0; i < p->ndim; i++) numel *= p->shape[i];
    return numel;
}

// Mistakes that somebody makes in it, in one place each.
enum {
    NARROW,      // the products have 32 bits
    NARROW_LOW,  // that of word 0 alone
    NARROW_HIGH, // that of word 2 alone
    KEPT_KEY,    // each round works with the first key
    EARLY_KEY,   // the key has grown before the first round
    NINE,        // rounds
    ELEVEN,      // rounds
    MULTIPLIERS, // each word has the other's multiplier
    KEY_STEPS,   // each word of the key grows by the other's step; with a key of 0: takes its place
    NO_CROSSING, // each product's halves stay on its own side
    SLIPS
};

// Round r of ten works with the key plus r times its step: nothing grows from round to round.
static void philox_by(int slip, const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    static const uint64_t MULTIPLIER[2] = {0xD2511F53u, 0xCD9E8D57u};
    static const uint32_t STEP[2] = {0x9E3779B9u, 0xBB67AE85u};
    const uint64_t all = UINT64_MAX, narrow = UINT32_MAX;
    const uint64_t low_keeps = slip == NARROW || slip == NARROW_LOW ? narrow : all;
    const uint64_t high_keeps = slip == NARROW || slip == NARROW_HIGH ? narrow : all;
    uint32_t x[4] = {counter[0], counter[1], counter[2], counter[3]};
    const uint32_t rounds = slip == NINE ? 9 : slip == ELEVEN ? 11 : 10;
    for (uint32_t r = 0; r < rounds; r++) {
        uint32_t grown = slip == KEPT_KEY ? 0 : slip == EARLY_KEY ? r + 1 : r;
        uint64_t low = MULTIPLIER[slip == MULTIPLIERS] * x[0] & low_keeps;
        uint64_t high = MULTIPLIER[slip != MULTIPLIERS] * x[2] & high_keeps;
        if (slip == NO_CROSSING) {
            uint64_t other = low;
            low = high;
            high = other;
        }
        uint32_t next[4] = {
            (uint32_t)(high >> 32) ^ x[1] ^ (key[0] + grown * STEP[slip == KEY_STEPS]),
            (uint32_t)(high & 0xFFFFFFFFu),
            (uint32_t)(low >> 32) ^ x[3] ^ (key[1] + grown * STEP[slip != KEY_STEPS]),
            (uint32_t)(low & 0xFFFFFFFFu)};
        for (int i = 0; i < 4; i++) x[i] = next[i];
    }
    for (int i = 0; i < 4; i++) out[i] = x[i];
}

void oracle_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    philox_by(SLIPS, counter, key, out);
}

const char *philox_cause(const uint32_t counter[4], const uint32_t key[2], const uint32_t got[4])
{
    static const char *const cause[SLIPS] = {
        [NARROW] = LIKELY "these are the words of products of 32 bits: is a factor a uint64_t "
                          "before it is multiplied?",
        [NARROW_LOW] = LIKELY "these are the words where the product of word 0 has 32 bits: is a "
                              "factor a uint64_t before it is multiplied?",
        [NARROW_HIGH] = LIKELY "these are the words where the product of word 2 has 32 bits: is a "
                               "factor a uint64_t before it is multiplied?",
        [KEPT_KEY] = LIKELY "these are the words of a key that stays as it is: what is added to "
                            "it after each round?",
        [EARLY_KEY] = LIKELY "these are the words of a key that has grown before the first round: "
                             "with which key does that one work?",
        [NINE] = LIKELY "these are the words after nine rounds: how often does the loop run?",
        [ELEVEN] = LIKELY "these are the words after eleven rounds: how often does the loop run?",
        [MULTIPLIERS] = LIKELY "these are the words where each multiplier has the other's place: "
                               "which one belongs to word 0?",
        [KEY_STEPS] = LIKELY "these are the words where the two words of the key, or what they "
                             "grow by, are exchanged: where does key[0] go, and its step?",
        [NO_CROSSING] = LIKELY "these are the words where each product stays on its own side: to "
                               "which words does the product of word 0 go?",
    };
    for (int slip = 0; slip < SLIPS; slip++) {
        uint32_t words[4];
        philox_by(slip, counter, key, words);
        if (memcmp(words, got, sizeof words) == 0) return cause[slip];
    }
    return "";
}

void oracle_init(const Param *p, uint64_t seed, int64_t begin, int64_t n, float *want)
{
    uint32_t words[4] = {0};
    uint64_t made = UINT64_MAX; // the block that words are of
    for (int64_t k = 0; k < n; k++) {
        uint64_t i = (uint64_t)(begin + k);
        if (p->init != INIT_NORMAL) {
            want[k] = p->init == INIT_ONE ? 1.0f : 0.0f;
            continue;
        }
        if (made != i / 4) {
            made = i / 4;
            uint32_t counter[4] = {(uint32_t)made, (uint32_t)(made >> 32), p->id, 0};
            uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
            oracle_philox(counter, key, words);
        }
        uint32_t a = words[i % 4 / 2 * 2], b = words[i % 4 / 2 * 2 + 1];
        double radius = sqrt(-2.0 * log((a + 1.0) * 0x1p-32));
        double angle = 2.0 * acos(-1.0) * b * 0x1p-32;
        want[k] = (float)((double)p->init_std * radius * (i % 2 == 0 ? cos(angle) : sin(angle)));
    }
}
