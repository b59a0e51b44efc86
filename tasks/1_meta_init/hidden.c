/* Task 1, meta init, on shapes, ties and cuts that nobody can have written for: drawn from SEED,
 * which is the course's (course.json), and not in the archive that students get. Linked as
 * tests.c is; grader/course/hidden.py runs it.
 */
#include "drawn_claims.h"
#include "harness.h"

TEST(any_slice_of_any_model)
{
    for (int i = 0; i < 3; i++) {
        claim_drawn_counts();
        claim_drawn_walk();
        claim_drawn_walk();
        claim_drawn_slices(60);
        claim_drawn_constants();
    }
}

SUITE_MAIN("hidden_meta_init")
