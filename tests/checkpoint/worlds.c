/* Lab 5's files of the reference: saved on every number of ranks from 1 to 8, loaded on every
 * other.
 */
#include "checkpoints.h"
#include "files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char dir[PATH_BYTES + 16];

static void save_body(const Rank *r, void *arg)
{
    Sharded s;
    CheckpointPosition position = {.step = r->world, .data_seed = 42};
    sharded_create(&s, arg, &TEST_OPTIONS, &STATE_ADAMW, r);
    state_fill(&s, r->world);
    need(checkpoint_save(dir, s.model, &s.adamw, &position));
    sharded_destroy(&s);
}

static void load_body(const Rank *r, void *arg)
{
    Sharded s;
    CheckpointPosition position = {.step = 0, .data_seed = 0};
    sharded_create(&s, arg, &TEST_OPTIONS, &STATE_ADAMW, r);
    need(checkpoint_load(dir, s.model, &s.adamw, &position));
    check(position.data_seed == 42, "the seed of the data is lost");
    state_check(&s, (int)position.step, "after the load");
    sharded_destroy(&s);
}

TEST(loads_on_every_world)
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

#ifndef BACKEND_CUDA
// Storage alone: to read it before anything was loaded is a report of simgpu's.
static void storage_only_body(const Rank *r, void *arg)
{
    Spec spec = spec_mlp(2);
    Sharded s = {.spec = spec, .rank = r->rank, .world = r->world};
    s.model = spec_create(&spec);
    checkpoint_storage_only(s.model);
    make_context(&s.ctx, r);
    need(fully_shard(s.model, &s.ctx, &TEST_OPTIONS));
    free(fetch(fsdp_unit(s.model)->flat.sharded_param.data, 4));
}

TEST(storage_only_has_no_values)
{
    char *said = run_ranks_message(1, RANKS_LIMIT, storage_only_body, NULL);
    if (said == NULL || strstr(said, "uninitialised") == NULL)
        fail_msg("expected a report of an uninitialised read: %s", said != NULL ? said : "nothing");
    free(said);
}
#endif

SUITE_MAIN("worlds")
