/* report.c: what a training shows at the end: memory, traffic, the loss on text that it has not
 * seen. See program.h.
 */
#include <stdio.h>
#include <stdlib.h>

#include "../common/generate.h"
#include "gpulog.h"
#include "program.h"

void count_host_copies(Program *p)
{
    GpuLogEntry e;
    for (; p->counted < gpulog_length(); p->counted++)
        if (gpulog_get(p->counted, &e) && e.op == GPU_COPY &&
            (e.from == GPULOG_HOST) != (e.to == GPULOG_HOST))
            p->host_bytes += e.bytes;
}

// The mean loss over `batches` batches of held-out text on every rank.
static Status evaluate(Program *p, int batches, float *loss)
{
    Trainer *t = &p->trainer;
    *loss = 0.0f;
    for (int i = 0; i < batches; i++) {
        float one;
        text_held_out(&p->data.text, t->opt.seed, i, t->place * t->opt.B, t->opt.B, t->opt.T, p->in,
                      p->targets);
        TRY(trainer_forward(t, p->in, p->targets, t->opt.B, t->opt.T, &one, NULL));
        *loss += one / (float)batches;
    }
    return mean_over_ranks(t, loss);
}

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
           "activations and the unsharded units, %.1f MB at the peak of a step.\n",
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

Status report(Program *p, uint64_t live, uint64_t peak)
{
    Trainer *t = &p->trainer;
    float loss;
    if (t->world.rank == 0 && !p->opt.brief) report_traffic(t);
    TRY(report_memory(p, live, peak));
    if (p->opt.brief || p->opt.data.train != NULL) return OK;
    TRY(evaluate(p, 8, &loss));
    if (t->world.rank == 0)
        printf("\nloss on held-out text   %.4f nats a byte; a byte-frequency model's %.4f\n",
               (double)loss, text_frequency_loss(&p->data.text));
    if (p->opt.sample > 0) TRY(sample_text(t, p->opt.sample));
    return OK;
}

Status print_figures(Program *p, uint64_t live, uint64_t peak, float elapsed)
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
