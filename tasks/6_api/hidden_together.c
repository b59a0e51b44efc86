/* The six files together, on deep models and in worlds of more ranks than eight. Drawn from SEED,
 * which is the course's, and not in the archive that students get; grader/course/hidden.py runs it.
 */
#include "claims.h"
#include "draw_model.h"

TEST(trains_as_one_gpu_in_any_world)
{
    want_devices(16);
    Spec spec = draw_gpt2(3);
    int world = 1 << draw(0, 3);
    drawn_model(&spec, world);
    claim_same_data(spec, world, 5, 0.0f);
    spec = draw_mlp(9);
    world = 2 << draw(0, 3);
    drawn_model(&spec, world);
    claim_different_data(spec, world, 5);
    spec = draw_gpt2(2);
    claim_first_gradient(spec, drawn_world(&spec, 3, 11));
    spec = draw_mlp(8);
    claim_padding(spec, drawn_world(&spec, 3, 13));
    spec = draw_mlp(9);
    claim_live_bytes(spec, drawn_world(&spec, 3, 13));
    spec = draw_mlp(20);
    claim_peak(spec, drawn_world(&spec, 2, 9));
    spec = draw_gpt2(2);
    claim_traffic(spec, drawn_world(&spec, 2, 9));
}

SUITE_MAIN("hidden_together")
