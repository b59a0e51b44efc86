/* Different data on each rank: W ranks train as one process that does the W micro-batches in turn.
 */
#include "claims.h"

static void mlp(void **state)
{
    static const int worlds[] = {2, 3, 4, 8};
    for (int i = 0; i < 4; i++) claim_different_data(spec_mlp(4), worlds[i], 20);
}

static void gpt2(void **state)
{
    static const int worlds[] = {2, 3, 4, 8};
    for (int i = 0; i < 4; i++) claim_different_data(spec_gpt2(2), worlds[i], 20);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(mlp),
    cmocka_unit_test(gpt2),
};
SUITE_MAIN("data_parallel", tests)
