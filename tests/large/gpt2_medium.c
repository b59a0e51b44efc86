/* GPT-2 medium (355 M parameters) on 8 simulated GPUs: one full training step.
 *
 * One GPU would hold 16 bytes for each parameter, 5.7 GB, before any activation. Eight hold an
 * eighth each, which is asserted to the byte; and all eight processes together stay below 12 GiB of
 * real memory, gathered units, activations and libraries included. Run it with `make gpt2-medium`.
 */
#include "fsdp.h"
#include "harness.h"
#include "training.h"

#include <stdio.h>
#include <string.h>

enum { WORLD = 8, PARAMETERS = 354823168 };
static const double LIMIT_SECONDS = 900.0;
static const size_t LIMIT_BYTES = (size_t)12 << 30;

typedef struct Report {
    size_t live[WORLD], peak[WORLD]; // device memory, from the accounting
    size_t real[WORLD];              // this process's share of real memory
    float loss[WORLD];
    int64_t padded;
} Report;

// Real memory of this process, where what it shares with others counts in proportion ("Pss": see
// Documentation/filesystems/proc.rst of the Linux kernel). The sum over processes is what they
// take.
static size_t real_bytes(void)
{
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    char line[256];
    size_t kib = 0;
    check(file != NULL, "/proc/self/smaps_rollup cannot be read");
    while (fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "Pss: %zu kB", &kib) == 1) break;
    fclose(file);
    check(kib > 0, "/proc/self/smaps_rollup has no line \"Pss\"");
    return kib << 10;
}

// Nobody goes on before everybody is here.
static void barrier(const Rank *r)
{
    float *one = NULL;
    need_cuda(cudaMalloc((void **)&one, sizeof *one));
    need_cuda(cudaMemsetAsync(one, 0, sizeof *one, r->stream));
    need_nccl(ncclAllReduce(one, one, 1, ncclFloat, ncclSum, r->comm, r->stream));
    need_cuda(cudaStreamSynchronize(r->stream));
    need_cuda(cudaFree(one));
}

static void body(const Rank *r, void *arg)
{
    Report *report = arg;
    Spec spec = {
        .gpt2 = true, .layers = 24, .B = 1, .T = 64, .dim = 1024, .heads = 16, .vocab = 50257};
    Gpt2Config config = {.vocab = 50257, .max_T = 1024, .layers = 24, .heads = 16, .dim = 1024};
    FsdpOptions options = {
        .reshard_after_forward = FSDP_RESHARD_ALWAYS, .align_shards = true, .seed = 42};
    AdamWConfig adamw_config = TEST_ADAMW;
    FsdpContext ctx;
    FsdpAdamW adamw;
    NnRun run;
    Module *model = gpt2_create(&config);
    check(model != NULL && meta_count(model) == PARAMETERS, "this is not GPT-2 medium");

    size_t before = gpulog_live_bytes(r->device);
    need(nn_run_create(&run, r->stream));
    make_context(&ctx, r);
    for (int i = 0; i < model->n_children; i++)
        if (strncmp(model->children[i]->name, "h.", 2) == 0)
            need(fully_shard(model->children[i], &ctx, &options));
    need(fully_shard(model, &ctx, &options));
    need(fsdp_adamw_create(&adamw, model, &ctx, &adamw_config));
    report->live[r->rank] = gpulog_live_bytes(r->device) - before;

    FlatParam *flat[32];
    int n = flat_params(model, flat, 32);
    int64_t padded = 0;
    for (int i = 0; i < n; i++) padded += flat[i]->layout.padded;
    report->padded = padded;

    Batch batch = batch_create(&spec, 1 + (uint64_t)r->rank);
    gpulog_reset_peak(r->device);
    report->loss[r->rank] = train_batch(&spec, &run, model, &batch);
    need(fsdp_adamw_step(&adamw));
    need(fsdp_zero_grad(model, &ctx));
    need_cuda(cudaStreamSynchronize(r->stream));
    report->peak[r->rank] = gpulog_peak_bytes(r->device);
    barrier(r);
    report->real[r->rank] = real_bytes();
    barrier(r);

    batch_destroy(&batch);
    fsdp_adamw_destroy(&adamw);
    fsdp_unwrap(model);
    need(fsdp_context_destroy(&ctx));
    need(nn_run_destroy(&run));
    module_destroy(model);
}

TEST(one_step_in_12_gib)
{
    Report *report = shared_alloc(sizeof *report);
    size_t real = 0;
    run_ranks_limit(WORLD, LIMIT_SECONDS, body, report);
    print_message("rank    persistent bytes     peak bytes     loss\n");
    for (int rank = 0; rank < WORLD; rank++) {
        print_message("%4d %19zu %14zu %8.4f\n", rank, report->live[rank], report->peak[rank],
                      (double)report->loss[rank]);
        real += report->real[rank];
    }
    print_message("real memory of all %d processes: %.2f GiB of %.0f; padding: %lld elements\n",
                  WORLD, (double)real / (1 << 30), (double)LIMIT_BYTES / (1 << 30),
                  (long long)(report->padded - PARAMETERS));
    for (int rank = 0; rank < WORLD; rank++) {
        assert_int_equal(report->live[rank], 16 * report->padded / WORLD);
        assert_true(report->loss[rank] > 10.0f && report->loss[rank] < 12.0f); // ln 50257 = 10.8
    }
    assert_true(report->padded - PARAMETERS < 4 * WORLD * 25);
    assert_true(real < LIMIT_BYTES);
}

SUITE_MAIN("gpt2_medium")
