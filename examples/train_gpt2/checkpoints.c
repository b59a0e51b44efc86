/* checkpoints.c: saves what a training needs to go on, and goes on from it. See program.h. */
#include <stdio.h>
#include <stdlib.h>

#include "checkpoint.h"
#include "program.h"

// Saves to the folder, in the background or not.
static Status save_to(Program *p, const char *to, int step, bool background)
{
    Trainer *t = &p->trainer;
    CheckpointPosition position = {.step = step,
                                   .data_seed = t->opt.seed,
                                   .sequences = t->drawn,
                                   .best_loss = p->best,
                                   .heads = t->opt.model.heads};
    trainer_scale(t, &position.loss_scale, &position.growth_tracker, false);
    char dir[PATH_BYTES];
    TRY(stage_dir(to, t->stages.stage, t->opt.stages, dir));
    if (!background && t->opt.stages == 1)
        return checkpoint_save(dir, t->model, &t->adamw, &position);
    TRY(commit_stages(t, to));
    TRY(background_save_begin(&p->saving, t, dir, &position));
    return background ? OK : background_save_end(&p->saving, t, true);
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
    int stages;
    TRY(find_stages(t, p->opt.resume, &stages));
    TRY(stages == 1 && t->opt.stages == 1
            ? checkpoint_load(p->opt.resume, t->model, &t->adamw, &position)
            : load_stages(t, p->opt.resume, stages, &position));
    check_set_silent(t->world.rank != 0); // they all say so
    if (position.heads != 0 && position.heads != t->opt.model.heads)
        return fail(ERR_ARGUMENT, "%s: it has %d attention heads, and --heads is %d", p->opt.resume,
                    position.heads, t->opt.model.heads);
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
