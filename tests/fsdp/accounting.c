/* Memory and communication, from the accounting: exact where the design is exact, W = 1 … 8. */
#include "claims.h"

TEST(live_bytes)
{
    for (int world = 1; world <= 8; world++) {
        claim_live_bytes(spec_mlp(3), world);
        claim_live_bytes(spec_gpt2(2), world);
    }
}

TEST(peak_at_any_depth)
{
    for (int world = 2; world <= 8; world += 3) {
        claim_forward_peak(spec_gpt2(2), world);
        claim_forward_peak(spec_gpt2(12), world);
        claim_peak(spec_gpt2(2), world);
        claim_peak(spec_gpt2(12), world);
        claim_peak(spec_mlp(12), world);
    }
}

TEST(traffic)
{
    for (int world = 1; world <= 8; world++) {
        claim_traffic(spec_mlp(3), world);
        claim_traffic(spec_gpt2(2), world);
    }
}

TEST(padding)
{
    for (int world = 1; world <= 8; world++) {
        claim_padding(spec_mlp(3), world);
        claim_padding(spec_gpt2(1), world);
    }
}

// Units smaller than the world: one output class, one hidden column.
TEST(tiny_units)
{
    Spec tiny = {.layers = 3, .B = 3, .T = 1, .in_dim = 1, .dim = 1, .vocab = 2};
    for (int world = 1; world <= 8; world++) {
        claim_padding(tiny, world);
        claim_live_bytes(tiny, world);
        claim_traffic(tiny, world);
        if (world == 2 || world == 3 || world == 4 || world == 8)
            claim_different_data(tiny, world, 20);
    }
}

SUITE_MAIN("accounting")
