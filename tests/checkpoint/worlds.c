/* Lab 5's files of the reference: saved on every number of ranks from 1 to 8, loaded on every other.
 */
#include "checkpoints.h"
#include "files.h"

#include <stdio.h>

static char dir[PATH_BYTES + 16];

static void save_body(const Rank *r, void *arg)
{
    Sharded s;
    CheckpointPosition position = {r->world, 42};
    sharded_create(&s, arg, &TEST_OPTIONS, &STATE_ADAMW, r);
    state_fill(&s, r->world);
    need(checkpoint_save(dir, s.model, &s.adamw, &position));
    sharded_destroy(&s);
}

static void load_body(const Rank *r, void *arg)
{
    Sharded s;
    CheckpointPosition position = {0, 0};
    sharded_create(&s, arg, &TEST_OPTIONS, &STATE_ADAMW, r);
    need(checkpoint_load(dir, s.model, &s.adamw, &position));
    check(position.data_seed == 42, "the seed of the data is lost");
    state_check(&s, (int)position.step, "after the load");
    sharded_destroy(&s);
}

static void loads_on_every_world(void **state)
{
    char folder[PATH_BYTES];
    Spec spec = spec_gpt2(1);
    make_folder(folder);
    snprintf(dir, sizeof dir, "%s/model", folder);
    for (int from = 1; from <= 8; from++) {
        run_ranks(from, save_body, &spec);
        for (int to = 1; to <= 8; to++) run_ranks(to, load_body, &spec);
    }
    remove_folder(folder);
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(loads_on_every_world)};
SUITE_MAIN("worlds", tests)
