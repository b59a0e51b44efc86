/* The same data on every rank: W = 1 ... 8 train as one GPU without FSDP does.
 *
 * Bitwise for W = 1, 2, 4, 8: a sum of W equal gradients divided by W is the gradient. For W =
 * 3, 5, 6, 7 that division rounds, and no parameter may differ by more than 3e-8. That is the
 * distance of two floats between 1/4 and 1/2, so the weights of that MLP are made small. Two things
 * of GPT-2 want another measure there. Its layer norms have weights near 1, where floats lie 6e-8
 * apart: the bound is on the distance of all parameters, relative to their norm. And its key bias
 * has a gradient of zero in theory, of whose rounding noise AdamW makes steps of +-lr: it is
 * trained with SGD.
 */
#include "claims.h"

TEST(one_rank)
{
    claim_same_data(spec_mlp(4), 1, 20, 0.0f);
    claim_same_data(spec_gpt2(2), 1, 20, 0.0f);
}

TEST(powers_of_two)
{
    for (int world = 2; world <= 8; world *= 2) {
        claim_same_data(spec_mlp(4), world, 20, 0.0f);
        claim_same_data(spec_gpt2(2), world, 20, 0.0f);
    }
}

TEST(other_worlds)
{
    static const int worlds[] = {3, 5, 6, 7};
    Spec small = spec_mlp(4);
    small.init_std = 0.05f;
    for (int i = 0; i < 4; i++) {
        claim_same_data(small, worlds[i], 20, 3e-8f);
        claim_same_data_sgd(spec_gpt2(2), worlds[i], 20, 3e-8f);
    }
}

TEST(reshard_or_keep)
{
    claim_reshard(spec_gpt2(3), 2, 10);
    claim_reshard(spec_gpt2(3), 3, 10);
    claim_reshard(spec_mlp(6), 4, 10);
}

SUITE_MAIN("equivalence")
