/* train_gpt2.c: trains a byte-level GPT-2, or a Llama, on text with FSDP, and shows what FSDP is
 * for.
 *
 * Every rank runs this program: `build/bin/launch -n 4 build/bin/train_gpt2 FILE…`, or torchrun,
 * mpirun, srun. At the end rank 0 prints the memory that each rank held, the bytes that each
 * collective sent, the loss on held-out text beside that of a byte-frequency model, and a sample of
 * generated text. With --unsharded it trains on one GPU without FSDP: the program to run out of
 * memory with. With --save it leaves checkpoints, with which --resume goes on.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "checkpoint.h"
#include "common/last_words.h"
#include "common/sample.h"
#include "common/step_time.h"
#include "common/trainer.h"
#include "gpulog.h"
#include "text.h"
#include "train_gpt2/options.h"

typedef struct Program {
    TrainOptions opt;
    Trainer trainer;
    Text text;
    StepTime step_time;    // of the last step
    int32_t *in, *targets; // host: (accumulate·B·T) each
    int done;              // steps that a resumed training had done
    uint64_t host_bytes;   // copied between the device and the host, as far as it was counted:
    uint64_t counted;      // so many entries of the log
} Program;

// ---- Setting up ----

// What can be wrong with the input: the options, the text, the model's sizes. No device is touched.
static Status read_input(Program *p, int argc, char **argv)
{
    Trainer *t = &p->trainer;
    TRY(train_options_parse(argc, argv, &p->opt, &t->opt));
    TRY(train_options_check(&p->opt, &t->opt, t->world.size));
    TRY(text_load(&p->text, p->opt.files, p->opt.n_files, t->opt.T));
    size_t rows = (size_t)t->opt.accumulate * (size_t)t->opt.B * (size_t)t->opt.T;
    p->in = malloc(2 * rows * sizeof *p->in);
    if (p->in == NULL) return fail(ERR_MEMORY, "no host memory for a batch of %zu tokens", rows);
    p->targets = p->in + rows;
    t->model = model_create(&t->opt.model, &t->opt.llama);
    return t->model == NULL ? ERR_ARGUMENT : OK;
}

// ---- Checkpoints ----

enum { PATH_BYTES = 4096 };

// The folder of this rank's stage, which is a model of its own; without stages DIR itself.
static Status checkpoint_dir(const Trainer *t, const char *dir, char *path)
{
    int n = t->opt.stages <= 1 ? snprintf(path, PATH_BYTES, "%s", dir)
                               : snprintf(path, PATH_BYTES, "%s-stage-%d-of-%d", dir,
                                          t->stages.stage, t->opt.stages);
    return n < PATH_BYTES ? OK : fail(ERR_ARGUMENT, "%s: the path is too long", dir);
}

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

// Saves after the step, if it is one after which there is a save.
static Status save_after(Program *p, int step)
{
    const TrainOptions *o = &p->opt;
    Trainer *t = &p->trainer;
    if (o->save == NULL || (step != t->opt.steps && (o->every == 0 || step % o->every != 0)))
        return OK;
    CheckpointPosition position = {.step = step, .data_seed = t->opt.seed};
    trainer_scale(t, &position.loss_scale, &position.growth_tracker, false);
    char dir[PATH_BYTES];
    TRY(checkpoint_dir(t, o->save, dir));
    return checkpoint_save(dir, t->model, &t->adamw, &position);
}

// What the library refuses of the options, it refuses on every rank: rank 0 says it for all.
static Status create(Trainer *t)
{
    check_set_silent(t->world.rank != 0);
    Status status = trainer_create(t), gathered = OK;
    check_set_silent(false);
    uint64_t mine = (uint64_t)status, *all = calloc((size_t)t->world.size, sizeof mine);
    if (all == NULL) return fail(ERR_MEMORY, "no host memory for %d ranks", t->world.size);
    if (status == OK || status == ERR_ARGUMENT) gathered = gather_over_ranks(t, &mine, 1, all);
    bool refused_by_all = status == ERR_ARGUMENT && gathered == OK && all[0] == mine;
    free(all);
    if (status != OK && t->world.rank != 0 && !refused_by_all) fail(status, "%s", check_last());
    return status != OK ? status : gathered;
}

// The model, the optimizer and the data go on where the checkpoint was made.
static Status resume(Program *p)
{
    Trainer *t = &p->trainer;
    CheckpointPosition position;
    if (p->opt.resume == NULL) return OK;
    char dir[PATH_BYTES];
    TRY(checkpoint_dir(t, p->opt.resume, dir));
    TRY(checkpoint_load(dir, t->model, &t->adamw, &position));
    TRY(same_step(t, &position));
    check_set_silent(t->world.rank != 0); // they all say so
    if (position.step >= t->opt.steps)
        return fail(ERR_ARGUMENT, "%s: %lld steps were done, and --steps is %d: nothing is left",
                    p->opt.resume, (long long)position.step, t->opt.steps);
    check_set_silent(false);
    p->done = (int)position.step;
    t->opt.seed = position.data_seed;
    trainer_scale(t, &position.loss_scale, &position.growth_tracker, true);
    return OK;
}

// ---- Training ----

static Status train_step(Program *p, int step, float *loss)
{
    Trainer *t = &p->trainer;
    int B = t->opt.B * t->opt.accumulate;
    text_batch(&p->text, t->opt.seed, step, t->place * B, B, t->opt.T, p->in, p->targets);
    return trainer_step(t, step, p->in, p->targets, loss);
}

// The log keeps so many entries and no more: they are counted after each step.
static void count_host_copies(Program *p)
{
    GpuLogEntry e;
    for (; p->counted < gpulog_length(); p->counted++)
        if (gpulog_get(p->counted, &e) && e.op == GPU_COPY &&
            (e.from == GPULOG_HOST) != (e.to == GPULOG_HOST))
            p->host_bytes += e.bytes;
}

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static Status train(Program *p)
{
    Trainer *t = &p->trainer;
    const TrainerOptions *o = &t->opt;
    int lines = p->opt.brief ? 3 : 15, every = o->steps < lines ? 1 : o->steps / lines;
    double tokens = 0.0, start = seconds_now(), last = start; // tokens since the last line
    for (int step = p->done + 1; step <= o->steps; step++) {
        float loss;
        if (step == o->steps) TRY(step_time_begin(&p->step_time, t->stream));
        TRY(train_step(p, step, &loss));
        tokens += (double)t->step_tokens;
        if (step == o->steps) TRY(step_time_end(&p->step_time, t->stream));
        if (p->opt.figures) count_host_copies(p);
        TRY(save_after(p, step));
        if (step != 1 && step % every != 0 && step != o->steps) continue;
        TRY(mean_over_ranks(t, &loss));
        double now = seconds_now();
        if (t->world.rank == 0 && !p->opt.figures) {
            printf("step %4d of %d   loss %.4f   %6.0f tokens/s   %5.1f s\n", step, o->steps,
                   (double)loss, tokens / (now - last), now - start);
            fflush(stdout);
        }
        last = now;
        tokens = 0.0;
    }
    return OK;
}

// The mean loss over `batches` batches of held-out text on every rank.
static Status evaluate(Program *p, int batches, float *loss)
{
    Trainer *t = &p->trainer;
    *loss = 0.0f;
    for (int i = 0; i < batches; i++) {
        float one;
        text_held_out(&p->text, t->opt.seed, i, t->place * t->opt.B, t->opt.B, t->opt.T, p->in,
                      p->targets);
        TRY(trainer_forward(t, p->in, p->targets, t->opt.B, t->opt.T, &one, NULL));
        *loss += one / (float)batches;
    }
    return mean_over_ranks(t, loss);
}

// ---- What to show at the end ----

// Whether this rank's device has room for a whole model beside what it holds, with `room` bytes of
// activations.
static Status has_room(int64_t parameters, size_t room, bool *fits)
{
    size_t free_bytes, total;
    CUDA_TRY(cudaMemGetInfo(&free_bytes, &total));
    *fits = free_bytes > 16 * (size_t)parameters + room;
    return OK;
}

// all (world, 2): the bytes that each rank held before the training, and at its peak.
static Status print_memory(Trainer *t, const uint64_t *all)
{
    int64_t n = t->parameters;
    size_t whole = 0;
    bool fits = false;
    printf("\nmemory of a device, in MB  parameters, gradients, moments   at the peak of a step\n");
    for (int rank = 0; rank < t->world.size; rank++)
        printf("  rank %-2d %44.2f %23.2f\n", rank, 1e-6 * (double)all[2 * rank],
               1e-6 * (double)all[2 * rank + 1]);
    if (t->opt.unsharded) return OK;

    TRY(has_room(n, all[1], &fits));
    printf("  one GPU without FSDP %31.2f", 16e-6 * (double)n);
    if (fits) {
        TRY(trainer_unsharded_peak(t, &whole));
        printf(" %23.2f\n", 1e-6 * (double)whole);
    } else {
        printf("         does not fit\n");
    }
    printf("  (%lld parameters of 16 bytes: value, gradient, two moments; the rest are activations"
           " and,\n  with FSDP, the units that are whole)\n",
           (long long)n);
    return OK;
}

// The same in two lines.
static void print_memory_briefly(const Trainer *t, const uint64_t *all)
{
    uint64_t held = 0, peak = 0;
    for (int rank = 0; rank < t->world.size; rank++) {
        if (all[2 * rank] > held) held = all[2 * rank];
        if (all[2 * rank + 1] > peak) peak = all[2 * rank + 1];
    }
    printf("Each GPU holds %.1f MB of parameters, gradients and moments, not %.1f MB; with the\n"
           "activations and what is unsharded at a time, %.1f MB at the peak of a step.\n",
           1e-6 * (double)held, 16e-6 * (double)t->parameters, 1e-6 * (double)peak);
}

static Status report_memory(Program *p, uint64_t live, uint64_t peak)
{
    Trainer *t = &p->trainer;
    const uint64_t mine[2] = {live, peak};
    uint64_t *all = malloc((size_t)t->world.size * sizeof mine);
    if (all == NULL) return fail(ERR_MEMORY, "no host memory for %d ranks", t->world.size);
    Status status = gather_over_ranks(t, mine, 2, all);
    if (status == OK && t->world.rank == 0) {
        if (p->opt.brief)
            print_memory_briefly(t, all);
        else
            status = print_memory(t, all);
    }
    free(all);
    return status;
}

static void report_traffic(const Trainer *t)
{
    printf("\nsent by each rank in %d steps\n", t->opt.steps);
    for (int op = GPU_ALL_GATHER; op <= GPU_RECV; op++) {
        GpuTraffic traffic = gpulog_traffic((GpuOp)op);
        if (traffic.calls > 0)
            printf("  %-15s %8llu calls %12.2f MB\n", gpulog_op_name((GpuOp)op),
                   (unsigned long long)traffic.calls, 1e-6 * (double)traffic.sent);
    }
}

static Status report(Program *p, uint64_t live, uint64_t peak)
{
    Trainer *t = &p->trainer;
    float loss;
    if (t->world.rank == 0 && !p->opt.brief) report_traffic(t);
    TRY(report_memory(p, live, peak));
    if (p->opt.brief) return OK;
    TRY(evaluate(p, 8, &loss));
    if (t->world.rank == 0)
        printf("\nloss on held-out text   %.4f nats a byte; a byte-frequency model's %.4f\n",
               (double)loss, text_frequency_loss(&p->text));
    if (p->opt.sample > 0) TRY(sample_text(t, p->opt.sample));
    return OK;
}

// The largest of the ranks' figures, in one line that grader/compare.py reads. elapsed:
// milliseconds of all steps on the device's clock.
static Status print_figures(Program *p, uint64_t live, uint64_t peak, float elapsed)
{
    Trainer *t = &p->trainer;
    static const GpuOp OPS[] = {GPU_ALL_GATHER, GPU_REDUCE_SCATTER, GPU_ALL_REDUCE, GPU_SEND};
    enum { N_OPS = 4, N = N_OPS + 5 };
    uint64_t steps = (uint64_t)t->opt.steps, mine[N] = {live, peak}, calls = 0;
    for (int i = 0; i < N_OPS; i++) {
        GpuTraffic traffic = gpulog_traffic(OPS[i]);
        mine[2 + i] = traffic.sent / steps;
        calls += traffic.calls;
    }
    mine[2 + N_OPS] = p->host_bytes / steps;
    mine[3 + N_OPS] = calls / steps;
    mine[4 + N_OPS] = (uint64_t)(1e6 * (double)elapsed) / steps;
    uint64_t *all = malloc((size_t)t->world.size * sizeof mine);
    if (all == NULL) return fail(ERR_MEMORY, "no host memory for %d ranks", t->world.size);
    Status status = gather_over_ranks(t, mine, N, all);
    if (status == OK && t->world.rank == 0) {
        printf("figures:");
        for (int i = 0; i < N; i++) {
            uint64_t most = 0;
            for (int rank = 0; rank < t->world.size; rank++)
                if (all[N * rank + i] > most) most = all[N * rank + i];
            printf(" %llu", (unsigned long long)most);
        }
        printf("\n");
    }
    free(all);
    return status;
}

static void introduce(const Program *p)
{
    const Trainer *t = &p->trainer;
    long long n = (long long)(t->opt.unsharded ? meta_count(t->model) : t->parameters);
    if (t->world.rank != 0 || p->opt.figures) return;
    printf("%s of %lld parameters on %d rank%s, %s, %d · %d tokens a rank, %zu bytes of text\n",
           model_name(&t->opt.llama), n, t->world.size, t->world.size == 1 ? "" : "s",
           t->opt.unsharded ? "without FSDP" : "FSDP", t->opt.B, t->opt.T, p->text.length);
    if (p->opt.brief && t->opt.unsharded)
        printf("%.1f MB with the gradients and Adam's two moments: 16 bytes each\n",
               16e-6 * (double)n);
    if (p->opt.resume != NULL) printf("resumed from %s after step %d\n", p->opt.resume, p->done);
    fflush(stdout);
}

static Status run(Program *p)
{
    Trainer *t = &p->trainer;
    if (!t->opt.unsharded) TRY(world_connect(&t->world, &t->comm));
    if (t->opt.unsharded) introduce(p); // nothing is refused, but it may not fit
    if (p->opt.resume != NULL) checkpoint_storage_only(t->model);
    TRY(create(t));
    TRY(resume(p));
    if (!t->opt.unsharded) introduce(p);
    uint64_t live = gpulog_live_bytes(t->device) - t->batch_bytes;
    gpulog_reset_peak(t->device);
    gpulog_reset_traffic();
    p->counted = gpulog_length();
    cudaEvent_t begin, end;
    float elapsed;
    CUDA_TRY(cudaEventCreate(&begin));
    CUDA_TRY(cudaEventCreate(&end));
    CUDA_TRY(cudaEventRecord(begin, t->stream));
    TRY(train(p));
    CUDA_TRY(cudaEventRecord(end, t->stream));
    CUDA_TRY(cudaEventSynchronize(end));
    CUDA_TRY(cudaEventElapsedTime(&elapsed, begin, end));
    CUDA_TRY(cudaEventDestroy(begin));
    CUDA_TRY(cudaEventDestroy(end));
    if (p->opt.figures)
        TRY(print_figures(p, live, gpulog_peak_bytes(t->device), elapsed));
    else
        TRY(report(p, live, gpulog_peak_bytes(t->device)));
    if (t->world.rank == 0 && !p->opt.figures) step_time_print(&p->step_time);
    bool connected = !t->opt.unsharded;
    TRY(trainer_destroy(t));
    return connected ? world_disconnect(t->comm) : OK;
}

int main(int argc, char **argv)
{
    static Program program;
    World *world = &program.trainer.world;
    if (world_from_env(world) != OK) return 2;

    // Every rank reads the same input: what is wrong with it, rank 0 says for all.
    check_set_silent(world->rank != 0);
    opterr = world->rank == 0;
    if (read_input(&program, argc, argv) != OK) return 2;
    check_set_silent(false);

    check_set_rank(world->size > 1 ? world->rank : -1);
    last_words_watch(world->rank);
    if (world->rank == 0) last_words_mark("started");
    Status status = run(&program);
    if (world->rank == 0 && status == OK) last_words_mark("done");
    free(program.in);
    text_free(&program.text);
    return status == OK ? 0 : 1;
}
