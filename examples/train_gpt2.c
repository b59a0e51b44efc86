/* train_gpt2.c: trains a byte-level GPT-2, or a Llama, on text with FSDP, and shows what FSDP is
 * for.
 *
 * Every rank runs this program: `build/bin/launch -n 4 build/bin/train_gpt2 FILE…`, or torchrun,
 * mpirun, srun. At the end rank 0 prints the memory that each rank held, the bytes that each
 * collective sent, the loss on held-out text beside that of a byte-frequency model, and a sample of
 * generated text. With --unsharded it trains on one GPU without FSDP: the program to run out of
 * memory with. With --save it leaves checkpoints, with which --resume goes on; --from and --export are for
 * models of Hugging Face's.
 */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "checkpoint.h"
#include "common/last_words.h"
#include "gpulog.h"
#include "train_gpt2/program.h"

// ---- Setting up ----

// What can be wrong with the input: the options, the text, the model's sizes. No device is touched.
static Status read_input(Program *p, int argc, char **argv)
{
    Trainer *t = &p->trainer;
    TRY(train_options_parse(argc, argv, &p->opt, &t->opt));
    TRY(folder_sizes(p));
    TRY(train_options_check(&p->opt, &t->opt, t->world.size));
    TRY(folder_check_free(p));
    TRY(data_open(&p->data, &p->opt.data, t->opt.model.vocab, t->opt.T));
    size_t rows = (size_t)t->opt.accumulate * (size_t)t->opt.B * (size_t)t->opt.T;
    p->in = malloc(2 * rows * sizeof *p->in);
    if (p->in == NULL) return fail(ERR_MEMORY, "no host memory for a batch of %zu tokens", rows);
    p->targets = p->in + rows;
    t->model = model_create(&t->opt.model, &t->opt.llama);
    return t->model == NULL ? ERR_ARGUMENT : OK;
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

// ---- Training ----

static Status train_step(Program *p, int step, float *loss)
{
    Trainer *t = &p->trainer;
    int B = t->opt.B * t->opt.accumulate, all = B * t->places;
    check_set_silent(t->world.rank != 0); // they all find the same
    TRY(data_batch(&p->data, t->opt.seed, step, p->drawn, t->place * B, B, all, t->opt.T, p->in,
                   p->targets));
    check_set_silent(false);
    p->drawn += (uint64_t)all;
    return trainer_step(t, step, p->in, p->targets, loss);
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
    if (!best) return OK;
    p->best = loss;
    return save_best(p, step);
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
        if (validates_after(p, step)) TRY(validate(p, step));
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

static void introduce(const Program *p)
{
    const Trainer *t = &p->trainer;
    long long n = (long long)(t->opt.unsharded ? meta_count(t->model) : t->parameters);
    if (t->world.rank != 0 || p->opt.figures) return;
    const Data *data = &p->data;
    bool tokens = p->opt.data.train != NULL;
    printf("%s of %lld parameters on %d rank%s, %s, %d · %d tokens a rank, %lld %s\n",
           model_name(&t->opt.llama), n, t->world.size, t->world.size == 1 ? "" : "s",
           t->opt.unsharded ? "without FSDP" : "FSDP", t->opt.B, t->opt.T,
           tokens ? (long long)data->train.tokens : (long long)data->text.length,
           tokens ? "tokens" : "bytes of text");
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
    if (p->opt.resume != NULL || p->opt.from != NULL) checkpoint_storage_only(t->model);
    TRY(create(t));
    TRY(folder_load(p));
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
    TRY(folder_export(p));
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
    data_close(&program.data);
    return status == OK ? 0 : 1;
}
