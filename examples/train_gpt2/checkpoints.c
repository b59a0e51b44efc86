/* checkpoints.c: saves what a training needs to go on, and goes on from it. See program.h. */
#include <stdio.h>
#include <stdlib.h>

#include "checkpoint.h"
#include "program.h"

// Stages are saved one by one: a kill in between leaves them at different steps.
static Status same_step(Trainer *t, const CheckpointPosition *position)
{
    uint64_t mine = (uint64_t)position->step;
    uint64_t *all = malloc((size_t)t->world.size * sizeof *all);
    if (all == NULL) return fail(ERR_MEMORY, "no host memory for %d ranks", t->world.size);
    Status status = gather_over_ranks(t, &mine, 1, all);
    for (int i = 0; i < t->world.size && status == OK; i++)
        if (all[i] != all[0])
            status = fail(ERR_IO, "the stages' checkpoints are of steps %llu and %llu: take others",
                          (unsigned long long)all[0], (unsigned long long)all[i]);
    free(all);
    return status;
}

// Saves to the folder, in the background or not.
static Status save_to(Program *p, const char *to, int step, bool background)
{
    Trainer *t = &p->trainer;
    CheckpointPosition position = {
        .step = step, .data_seed = t->opt.seed, .sequences = t->drawn, .best_loss = p->best};
    trainer_scale(t, &position.loss_scale, &position.growth_tracker, false);
    char dir[PATH_BYTES];
    TRY(stage_dir(to, t->stages.stage, t->opt.stages, dir));
    return background ? background_save_begin(&p->saving, t, dir, &position)
                      : checkpoint_save(dir, t->model, &t->adamw, &position);
}

Status save_best(Program *p, int step)
{
    if (p->opt.save == NULL) return OK;
    char *dir = checkpoint_name(p->opt.save, "-best");
    Status status = dir != NULL ? save_to(p, dir, step, false) : ERR_MEMORY;
    free(dir);
    return status;
}

Status save_after(Program *p, int step)
{
    const TrainOptions *o = &p->opt;
    Trainer *t = &p->trainer;
    bool last = step == t->opt.steps, now = last || (o->every > 0 && step % o->every == 0);
    if (o->save == NULL) return OK;
    TRY(background_save_end(&p->saving, t, now));
    if (!now && (o->save_every == 0 || step % o->save_every != 0)) return OK;
    return save_to(p, o->save, step, !now);
}

Status resume(Program *p)
{
    Trainer *t = &p->trainer;
    CheckpointPosition position;
    if (p->opt.resume == NULL) return OK;
    char dir[PATH_BYTES];
    int stages;
    TRY(find_stages(t, p->opt.resume, &stages));
    TRY(stage_dir(p->opt.resume, t->stages.stage, stages, dir));
    TRY(stages == t->opt.stages ? checkpoint_load(dir, t->model, &t->adamw, &position)
                                : load_stages(t, p->opt.resume, stages, &position));
    TRY(same_step(t, &position));
    check_set_silent(t->world.rank != 0); // they all say so
    if (p->opt.trains && position.step >= t->opt.steps)
        return fail(ERR_ARGUMENT, "%s: %lld steps were done, and --steps is %d: nothing is left",
                    p->opt.resume, (long long)position.step, t->opt.steps);
    check_set_silent(false);
    p->done = (int)position.step;
    t->opt.seed = position.data_seed;
    t->drawn = position.sequences;
    p->best = position.best_loss;
    trainer_scale(t, &position.loss_scale, &position.growth_tracker, true);
    return OK;
}
