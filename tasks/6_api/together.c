/* The six tasks together: the student's own six files train a model as one GPU would. */
#include "claims.h"
#include "draw_model.h"

TEST(equals_training_without_fsdp)
{
    claim_same_data(spec_mlp(3), 1, 20, 0.0f);
    claim_same_data(spec_gpt2(2), 1, 20, 0.0f);
    claim_same_data(spec_gpt2(2), 2, 20, 0.0f);
    claim_same_data_sgd(spec_gpt2(2), 3, 20, 3e-8f);

    // Worlds of which equal gradients have the bitwise the same average.
    Spec spec = draw_mlp(5);
    int world = 1 << draw(0, 3);
    drawn_model(&spec, world);
    claim_same_data(spec, world, 6, 0.0f);
    spec = draw_gpt2(2);
    world = 1 << draw(0, 2);
    drawn_model(&spec, world);
    claim_same_data(spec, world, 3, 0.0f);
}

TEST(averages_over_ranks)
{
    // Bitwise where W is a power of two: then dividing by W rounds nothing, wherever a program
    // does it.
    claim_different_data(spec_mlp(3), 2, 20);
    claim_different_data(spec_gpt2(2), 4, 20);
    claim_first_gradient(spec_gpt2(2), 3);
    claim_first_gradient(spec_mlp(3), 7);

    Spec spec = draw_mlp(5);
    int world = 2 << draw(0, 2);
    drawn_model(&spec, world);
    claim_different_data(spec, world, 4);
    spec = draw_mlp(5);
    claim_first_gradient(spec, drawn_world(&spec, 2, 8));
    spec = draw_gpt2(2);
    claim_first_gradient(spec, drawn_world(&spec, 2, 5));
}

TEST(padding_zero_through_training)
{
    claim_padding(spec_mlp(3), 1);
    claim_padding(spec_gpt2(1), 5);
    claim_padding(spec_mlp(3), 8);

    Spec spec = draw_mlp(4);
    claim_padding(spec, drawn_world(&spec, 2, 8));
}

TEST(memory_is_one_share)
{
    claim_live_bytes(spec_gpt2(2), 1);
    claim_live_bytes(spec_gpt2(2), 4);
    claim_peak(spec_gpt2(6), 2);
    claim_traffic(spec_gpt2(2), 3);

    Spec spec = draw_mlp(5);
    claim_live_bytes(spec, drawn_world(&spec, 1, 8));
    spec = draw_mlp(10);
    claim_peak(spec, drawn_world(&spec, 2, 8));
    spec = draw_mlp(5);
    claim_traffic(spec, drawn_world(&spec, 1, 8));
}

SUITE_MAIN("together")
