/* loop.c: the steps of a training, with what is done after some of them. See program.h. */
#include <math.h>
#include <stdio.h>
#include <time.h>

#include "gpulog.h"
#include "program.h"

static Status train_step(Program *p, int step, float *loss)
{
    Trainer *t = &p->trainer;
    int B = t->opt.B * t->opt.accumulate, all = B * t->places;
    check_set_silent(t->world.rank != 0); // they all find the same
    TRY(data_batch(&p->data, t->opt.seed, step, t->drawn, t->place * B, B, all, t->opt.T, p->in,
                   p->targets));
    check_set_silent(false);
    TRY(trainer_step(t, step, p->in, p->targets, loss));
    t->drawn += (uint64_t)all;
    return OK;
}

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static bool validates_after(const Program *p, int step)
{
    int every = p->opt.val_every;
    return every > 0 && (step % every == 0 || step == p->trainer.opt.steps);
}

static Status validate(Program *p, int step)
{
    Trainer *t = &p->trainer;
    double loss;
    TRY(data_validate(&p->data, t, p->opt.val_sequences, &loss));
    bool best = isfinite(loss) && (p->best == 0.0 || loss < p->best);
    if (t->world.rank == 0)
        printf("step %4d of %d   validation loss %.6f%s\n", step, t->opt.steps, loss,
               best ? ", the best so far" : "");
    if (p->opt.log != NULL)
        TRY(agree_over_ranks(t, p->log != NULL ? step_log_validation(p->log, p->opt.log, step, loss)
                                               : OK));
    if (!best) return OK;
    p->best = loss;
    return save_best(p, step);
}

// Where a training is in time. Tokens are those of all ranks.
typedef struct Pace {
    double start, told; // seconds
    double tokens;      // since `told`, the last line
} Pace;

// What is said of a step on the terminal.
static void print_step(const Program *p, int step, float loss, const Pace *pace, double now)
{
    const Trainer *t = &p->trainer;
    int steps = t->opt.steps;
    double left = (now - pace->start) / (step - p->done) * (steps - step);
    if (t->world.rank != 0 || p->opt.figures) return;
    printf("step %4d of %d   loss %.4f   %6.0f tokens/s   %5.1f s", step, steps, (double)loss,
           pace->tokens / (now - pace->told), now - pace->start);
    if (step < steps) printf(", %.0f s left", left);
    printf("\n");
    fflush(stdout);
}

// And in the log, by rank 0; if it cannot, all ranks stop.
static Status log_step(Program *p, int step, float loss, double seconds)
{
    Trainer *t = &p->trainer;
    const StepLine line = {
        .step = step,
        .loss = loss,
        .norm = t->norm,
        .rate = t->rate,
        .tokens_per_second = (double)t->step_tokens / seconds,
        .memory = gpulog_peak_bytes(t->device),
        .skipped = t->skipped,
    };
    if (p->opt.log == NULL) return OK;
    return agree_over_ranks(t, p->log != NULL ? step_log_write(p->log, p->opt.log, &line) : OK);
}

static Status one_step(Program *p, int step, bool shown, Pace *pace)
{
    Trainer *t = &p->trainer;
    float loss;
    double before = seconds_now();
    if (step == t->opt.steps) TRY(step_time_begin(&p->step_time, t->stream));
    TRY(train_step(p, step, &loss));
    pace->tokens += (double)t->step_tokens;
    if (step == t->opt.steps) TRY(step_time_end(&p->step_time, t->stream));
    if (p->opt.figures) count_host_copies(p);
    if (t->skipped && t->world.rank == 0)
        printf("step %4d of %d   left out: the gradient's norm is %g\n", step, t->opt.steps,
               (double)t->norm);
    if (!shown && p->opt.log == NULL) return OK;
    TRY(mean_over_ranks(t, &loss));
    double now = seconds_now();
    TRY(log_step(p, step, loss, now - before));
    if (!shown) return OK;
    print_step(p, step, loss, pace, now);
    *pace = (Pace){.start = pace->start, .told = now};
    return OK;
}

Status train(Program *p)
{
    int steps = p->trainer.opt.steps, lines = p->opt.brief ? 3 : 15;
    int every = steps < lines ? 1 : steps / lines;
    Pace pace = {.start = seconds_now()};
    pace.told = pace.start;
    for (int step = p->done + 1; step <= steps; step++) {
        TRY(one_step(p, step, step == 1 || step % every == 0 || step == steps, &pace));
        if (validates_after(p, step)) TRY(validate(p, step));
        TRY(save_after(p, step));
    }
    return OK;
}
