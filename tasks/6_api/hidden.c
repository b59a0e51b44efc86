/* Task 6, API, on trees of modules that nobody can have written for, in worlds of more ranks than
 * eight. Drawn from SEED, which is the course's, and not in the archive that students get;
 * grader/course/hidden.py runs it.
 */
#include "draw_model.h"
#include "drawn_claims.h"

TEST(units_of_large_trees)
{
    want_devices(13);
    for (int i = 0; i < 4; i++) {
        claim_drawn_units(1, 3);
        claim_drawn_list(1, 3);
    }
    for (int i = 0; i < 2; i++) {
        claim_drawn_state(2, 13);
        claim_drawn_unwrap(2, 13);
    }
}

SUITE_MAIN("hidden_api")
