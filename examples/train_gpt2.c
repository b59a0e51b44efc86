/* train_gpt2.c: trains a GPT-2 or a Llama with FSDP, and shows what FSDP is for.
 *
 * Every rank runs this program: `build/bin/launch -n 4 build/bin/train_gpt2 FILE…`, or torchrun,
 * mpirun, srun. It learns from the bytes of texts, or from files of tokens (--data). At the end
 * rank 0 prints the memory that each rank held, the bytes that each collective sent, of texts the
 * loss on what was held out beside that of a byte-frequency model, and a sample. With --unsharded
 * it trains on one GPU without FSDP: the program to run out of memory with. With --save it leaves
 * checkpoints, with which --resume goes on; --from and --export are for models of Hugging Face's,
 * and --generate has a model write.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

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
    TRY(prompt_check(p));
    if (p->opt.trains) TRY(data_open(&p->data, &p->opt.data, t->opt.model.vocab, t->opt.T));
    size_t rows = (size_t)t->opt.accumulate * (size_t)t->opt.B * (size_t)t->opt.T;
    p->in = malloc(2 * rows * sizeof *p->in);
    if (p->in == NULL) return fail(ERR_MEMORY, "no host memory for a batch of %zu tokens", rows);
    p->targets = p->in + rows;
    t->model = model_create(&t->opt.model, &t->opt.llama);
    if (t->model == NULL) return ERR_ARGUMENT;
    if (p->opt.log == NULL || t->world.rank != 0) return OK;
    return step_log_open(&p->log, p->opt.log, p->opt.resume != NULL);
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

static Status train_and_report(Program *p)
{
    Trainer *t = &p->trainer;
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
    if (p->opt.figures) return print_figures(p, live, gpulog_peak_bytes(t->device), elapsed);
    TRY(report(p, live, gpulog_peak_bytes(t->device)));
    if (t->world.rank == 0) step_time_print(&p->step_time);
    return OK;
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
    if (p->opt.trains) TRY(train_and_report(p));
    TRY(folder_export(p));
    TRY(prompt_continue(p));
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
    if (program.log != NULL) fclose(program.log);
    return status == OK ? 0 : 1;
}
