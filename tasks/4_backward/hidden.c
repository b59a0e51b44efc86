/* Task 4, backward, on shapes that nobody can have written for and in worlds of more ranks than
 * eight. Drawn from SEED, which is the course's (course.json), and not in the archive that
 * students get. Linked as tests.c is; grader/course/hidden.py runs it.
 */
#include "claims.h"
#include "draw_model.h"

TEST(averages_on_drawn_shapes)
{
    want_devices(13);
    for (int i = 0; i < 3; i++) {
        Spec spec = draw_mlp(8);
        claim_first_gradient(spec, drawn_world(&spec, 2, 13));
    }
    Spec spec = draw_gpt2(3);
    claim_first_gradient(spec, drawn_world(&spec, 3, 9));
    spec = draw_mlp(5);
    int world = 2 << draw(0, 2);
    drawn_model(&spec, world);
    claim_different_data(spec, world, 4);
}

TEST(padding_on_drawn_shapes)
{
    want_devices(13);
    for (int i = 0; i < 3; i++) {
        Spec spec = draw_mlp(5);
        claim_padding(spec, drawn_world(&spec, 2, 13));
    }
}

SUITE_MAIN("hidden_backward")
