/* Different data on each rank: W ranks train as one process that does the W micro-batches in turn.
 */
#include "claims.h"

TEST(mlp)
{
    static const int worlds[] = {2, 3, 4, 8};
    for (int i = 0; i < 4; i++) claim_different_data(spec_mlp(4), worlds[i], 20);
}

TEST(gpt2)
{
    static const int worlds[] = {2, 3, 4, 8};
    for (int i = 0; i < 4; i++) claim_different_data(spec_gpt2(2), worlds[i], 20);
}

SUITE_MAIN("data_parallel")
