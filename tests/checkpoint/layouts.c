/* Lab 5's and lab 6's files of the reference: a training that is saved under one layout goes on
 * under the other, bitwise as the serial oracle; and what is frozen has no moments in a checkpoint.
 */
#include <stdio.h>
#include <string.h>

#include "checkpoint.h"
#include "files.h"
#include "harness.h"
#include "per_parameter.h"
#include "strategies.h"

static char dir[PATH_BYTES + 16];

// Saved as the case says; torn down; loaded in the other layout.
static void to_the_other(Wrapped *w, const Case *c, const Rank *r, int step)
{
    CheckpointPosition position = {.step = step, .data_seed = 7};
    Case other = *c;
    bool flat = w->root->units[0]->flat.layout.ops == &FLAT_LAYOUT_OPS;
    other.layout = flat ? per_parameter_layout : c->frozen != NULL ? c->layout : NULL;
    need(checkpoint_save(dir, w->model, &w->adamw, &position));
    case_unwrap(w, r);
    case_wrap(w, &other, r);
    position = (CheckpointPosition){.step = 0, .data_seed = 0};
    need(checkpoint_load(dir, w->model, &w->adamw, &position));
    check(position.step == step && w->adamw.t == step, "step %d was saved, %lld and t %d loaded",
          step, (long long)position.step, w->adamw.t);
}

static void run_saved(int world, Case *c)
{
    char folder[PATH_BYTES];
    make_folder(folder);
    snprintf(dir, sizeof dir, "%s/state", folder);
    c->between = to_the_other;
    c->steps = 3;
    run_case(world, c);
    remove_folder(folder);
}

TEST(a_training_changes_its_layout)
{
    for (int world = 1; world <= 8; world++) {
        Case c = case_of(spec_mlp(3), STRATEGY_ZERO3, world, world % 4 == 0 ? 2 : 1, 1);
        c.layout = world % 2 == 0 ? per_parameter_layout : NULL;
        run_saved(world, &c);
    }
    for (int world = 1; world <= 4; world++) {
        Case c = case_of(spec_mlp(3), STRATEGY_ZERO3, world, 1, 1);
        c.layout = per_parameter_layout;
        c.frozen = every_third;
        run_saved(world, &c);
    }
}

// What was frozen trains now: it would begin without moments.
static void thawed_body(const Rank *r, void *arg)
{
    const Case *c = arg;
    Case thawed = *c;
    CheckpointPosition position = {.step = 1};
    Wrapped w;
    thawed.frozen = NULL;
    case_wrap(&w, c, r);
    need(checkpoint_save(dir, w.model, &w.adamw, &position));
    case_unwrap(&w, r);
    case_wrap(&w, &thawed, r);
    check_set_silent(true);
    Status status = checkpoint_load(dir, w.model, &w.adamw, &position);
    check_set_silent(false);
    check(status == ERR_IO, "moments that were never saved were loaded: status %d", status);
    if (r->rank == 0)
        check(strstr(check_last(), "was frozen and has no moments") != NULL, "the line is: %s",
              check_last());
    need(checkpoint_load(dir, w.model, NULL, &position)); // the parameters alone
    case_unwrap(&w, r);
}

TEST(what_was_frozen_has_no_moments)
{
    char folder[PATH_BYTES];
    Case c = case_of(spec_mlp(3), STRATEGY_ZERO3, 2, 1, 1);
    c.layout = per_parameter_layout;
    c.frozen = every_third;
    make_folder(folder);
    snprintf(dir, sizeof dir, "%s/state", folder);
    run_ranks(2, thawed_body, &c);
    remove_folder(folder);
}

SUITE_MAIN("layouts")
