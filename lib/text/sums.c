/* sums.c: sums of two numbers of two digits as training data. See sums.h. */
#include "sums.h"

#include <stddef.h>

#include "mix.h"

enum { LOWEST = 10, HIGHEST = 99, NUMBERS = HIGHEST - LOWEST + 1, PAIRS = NUMBERS * NUMBERS };
enum { PLUS = 10, EQUALS = 11, BLANK = 12, LENGTH = SUMS_T + 1 };

char sums_char(int32_t token)
{
    return token >= 0 && token < SUMS_VOCAB ? "0123456789+= "[token] : '?';
}

void sums_write(int a, int b, int32_t *in, int32_t *targets)
{
    int sum = a + b;
    const int32_t all[LENGTH] = {a / 10, a % 10,   PLUS,          b / 10,   b % 10,
                                 EQUALS, sum % 10, sum / 10 % 10, sum / 100};
    for (int t = 0; t < SUMS_T; t++) {
        in[t] = all[t];
        targets[t] = t < SUMS_ANSWER ? BLANK : all[t + 1];
    }
}

bool sums_is_held_out(int a, int b)
{
    uint64_t low = (uint64_t)(a < b ? a : b), high = (uint64_t)(a < b ? b : a);
    return mix(low << 32 | high) % 8 == 0;
}

// Pair number i of all. Steps of a length that has no divisor in common with PAIRS meet every pair
// once, far from the one before.
static SumsPair nth_pair(int i)
{
    const int stride = 3001;
    int at = (int)((int64_t)i * stride % PAIRS);
    return (SumsPair){LOWEST + at / NUMBERS, LOWEST + at % NUMBERS};
}

int sums_held_out(SumsPair *pairs, int max)
{
    int n = 0;
    for (int i = 0; i < PAIRS; i++) {
        SumsPair pair = nth_pair(i);
        if (!sums_is_held_out(pair.a, pair.b)) continue;
        if (n < max) pairs[n] = pair;
        n++;
    }
    return n;
}

void sums_batch(uint64_t seed, int step, int first, int B, int32_t *in, int32_t *targets)
{
    for (int row = 0; row < B; row++) {
        uint64_t random = mix_sequence(seed, step, first + row);
        int a, b;
        do {
            a = LOWEST + (int)(random % NUMBERS);
            b = LOWEST + (int)(random / NUMBERS % NUMBERS);
            random = mix(random);
        } while (sums_is_held_out(a, b));
        sums_write(a, b, in + (size_t)row * SUMS_T, targets + (size_t)row * SUMS_T);
    }
}
