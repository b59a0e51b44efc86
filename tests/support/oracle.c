/* oracle.c: initial values by the tests' own arithmetic. See oracle.h. */
#include "oracle.h"

#include <math.h>

int64_t oracle_numel(const Param *p)
{
    int64_t numel = 1;
    for (int i = 0; i < p->ndim; i++) numel *= p->shape[i];
    return numel;
}

// Round r of ten works with the key plus r times its step: nothing grows from round to round.
void oracle_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    static const uint64_t MULTIPLIER[2] = {0xD2511F53u, 0xCD9E8D57u};
    uint32_t x[4] = {counter[0], counter[1], counter[2], counter[3]};
    for (uint32_t r = 0; r < 10; r++) {
        uint64_t low = MULTIPLIER[0] * x[0], high = MULTIPLIER[1] * x[2];
        uint32_t next[4] = {(uint32_t)(high >> 32) ^ x[1] ^ (key[0] + r * 0x9E3779B9u),
                            (uint32_t)(high & 0xFFFFFFFFu),
                            (uint32_t)(low >> 32) ^ x[3] ^ (key[1] + r * 0xBB67AE85u),
                            (uint32_t)(low & 0xFFFFFFFFu)};
        for (int i = 0; i < 4; i++) x[i] = next[i];
    }
    for (int i = 0; i < 4; i++) out[i] = x[i];
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
