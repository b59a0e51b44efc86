/* compare.c: what FSDP costs and what it saves, at the end of the demo. See compare.h. */
#include "compare.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../common/last_words.h"
#include "gpulog.h"

// ---- Measuring ----

static uint64_t sent_so_far(void)
{
    return gpulog_traffic(GPU_ALL_GATHER).sent + gpulog_traffic(GPU_REDUCE_SCATTER).sent;
}

// Bytes of the batch on the device, which are the data's and not the model's.
static uint64_t batch_bytes(const Trainer *t)
{
    return 2 * (uint64_t)t->opt.B * (uint64_t)t->opt.T * sizeof(int32_t);
}

void measure_begin(const Trainer *t)
{
    gpulog_reset_traffic();
    gpulog_reset_peak(t->device);
}

void measure_end(Measured *m, const Trainer *t)
{
    uint64_t sent = sent_so_far(), peak = gpulog_peak_bytes(t->device) - batch_bytes(t);
    if (m->steps > 0 && sent != m->sent) m->uneven++;
    if (m->steps < COMPARE_STEPS) m->norm[m->steps] = t->norm;
    if (peak > m->peak) m->peak = peak;
    m->sent = sent;
    m->held = gpulog_live_bytes(t->device) - batch_bytes(t);
    m->steps++;
}

// ---- The formulas ----

// Elements of the model's units: a block's and the root's (both embeddings and the last layer norm;
// the head is tied to one of them), as they are and padded to a multiple of the world.
typedef struct Sizes {
    uint64_t numel, padded, root_padded;
} Sizes;

static Sizes sizes_of(const Gpt2Config *c, int world)
{
    uint64_t C = (uint64_t)c->dim, L = (uint64_t)c->layers, W = (uint64_t)world;
    uint64_t block = 12 * C * C + 13 * C, root = (uint64_t)(c->vocab + c->max_T + 2) * C;
    Sizes s = {.numel = L * block + root, .root_padded = (root + W - 1) / W * W};
    s.padded = L * ((block + W - 1) / W * W) + s.root_padded;
    return s;
}

// ---- Loss ----

// The same steps on rank 0 alone, without FSDP, on the batches of all ranks together; loss and norm
// (steps) of each.
static Status train_unsharded(const Trainer *t, const Source *source, uint64_t seed, int steps,
                              float *loss, float *norm)
{
    Trainer alone = {.opt = t->opt, .world = {.size = 1, .local_size = 1}};
    alone.opt.unsharded = true;
    alone.opt.B = t->opt.B * t->world.size;
    size_t rows = (size_t)alone.opt.B * (size_t)alone.opt.T;
    int32_t *in = malloc(2 * rows * sizeof *in);
    if (in == NULL) return fail(ERR_MEMORY, "no host memory for a batch of %zu tokens", rows);
    alone.model = gpt2_create(&alone.opt.model);
    Status status = alone.model == NULL ? ERR_MEMORY : trainer_create(&alone);
    for (int i = 0; i < steps && status == OK; i++) {
        source_batch(source, seed, i + 1, 0, alone.opt.B, alone.opt.T, in, in + rows);
        status = trainer_step(&alone, i + 1, in, in + rows, &loss[i]);
        norm[i] = alone.norm;
    }
    free(in);
    TRY(status);
    return trainer_destroy(&alone);
}

static void print_step(const Measured *m, const float *loss, const float *norm, int i)
{
    printf("  %4d %8.6f %8.6f %7.4f %7.4f", i + 1, (double)m->loss[i], (double)loss[i],
           (double)m->norm[i], (double)norm[i]);
}

// In two columns, where there is more than one step.
static void print_steps(const Measured *m, const float *loss, const float *norm, int n)
{
    int half = (n + 1) / 2, columns = n > 1 ? 2 : 1;
    for (int i = 0; i < columns; i++) printf("  %4s %17s %15s", "", "loss", "gradient norm");
    printf("\n");
    for (int i = 0; i < columns; i++)
        printf("  %4s %8s %8s %7s %7s", "step", "FSDP", "plain", "FSDP", "plain");
    printf("\n");
    for (int row = 0; row < half; row++) {
        print_step(m, loss, norm, row);
        if (row + half < n) print_step(m, loss, norm, row + half);
        printf("\n");
    }
}

// The largest difference of two lists, of each value or of its share; NaN where there is one.
static double largest_difference(const float *a, const float *b, int n, bool share)
{
    double largest = 0.0;
    for (int i = 0; i < n; i++) {
        double difference = fabs((double)a[i] - (double)b[i]);
        if (share && b[i] != 0.0f) difference /= fabs((double)b[i]);
        if (isnan(difference)) return difference;
        if (difference > largest) largest = difference;
    }
    return largest;
}

static bool print_verdict(const char *what, double difference, double allowed)
{
    bool equal = difference <= allowed;
    printf("  %s %.1e, allowed %.0e: %s\n", what, difference, allowed,
           equal ? "equal" : "NOT EQUAL");
    return equal;
}

// *equal: whether every step is.
static Status compare_steps(const Trainer *t, const Source *source, uint64_t seed,
                            const Measured *m, bool *equal)
{
    float loss[COMPARE_STEPS], norm[COMPARE_STEPS];
    int n = m->steps < COMPARE_STEPS ? m->steps : COMPARE_STEPS;
    TRY(train_unsharded(t, source, seed, n, loss, norm));
    printf("\nThe first %d step%s with FSDP, and the same without: one process, plain modules,\n"
           "plain AdamW, the batches of all ranks (%d) together\n",
           n, n == 1 ? "" : "s", t->world.size);
    print_steps(m, loss, norm, n);
    *equal = print_verdict("losses differ by at most", largest_difference(m->loss, loss, n, false),
                           COMPARE_TOLERANCE);
    if (!print_verdict("norms differ by a share of at most",
                       largest_difference(m->norm, norm, n, true), COMPARE_NORM_TOLERANCE))
        *equal = false;
    return OK;
}

// ---- Memory and traffic ----

enum { HELD, PEAK, SENT, UNEVEN, FIGURES };

// A row of figures that should be equal on every rank; whether they are.
static bool print_row(const char *what, const uint64_t *all, int figure, int world, uint64_t want)
{
    int bad = -1;
    for (int rank = world - 1; rank >= 0; rank--)
        if (all[rank * FIGURES + figure] != want) bad = rank;
    printf("  %-44s %12" PRIu64 " %12" PRIu64 "   %s\n", what,
           all[(bad < 0 ? 0 : bad) * FIGURES + figure], want, bad < 0 ? "equal" : "NOT EQUAL");
    if (bad >= 0 && world > 1) printf("  (measured on rank %d)\n", bad);
    return bad < 0;
}

static uint64_t highest(const uint64_t *all, int figure, int world)
{
    uint64_t most = 0;
    for (int rank = 0; rank < world; rank++)
        if (all[rank * FIGURES + figure] > most) most = all[rank * FIGURES + figure];
    return most;
}

static Status compare_bytes(Trainer *t, const uint64_t *all, bool *equal)
{
    int world = t->world.size;
    uint64_t W = (uint64_t)world;
    size_t peak = 0;
    Sizes s = sizes_of(&t->opt.model, world);
    uint64_t kept = t->opt.keep ? 2 * s.padded : 3 * s.padded - s.root_padded;
    TRY(trainer_unsharded_peak(t, &peak));

    printf("\nMemory per rank, in bytes                          measured   by formula\n");
    *equal = print_row("FSDP: parameters, gradients, moments", all, HELD, world, 16 * s.padded / W);
    printf("  %-44s %12s %12" PRIu64 "   %.1fx\n", "DDP: the same, unsharded on every rank", "",
           16 * s.numel, (double)(16 * s.numel) / (double)(16 * s.padded / W));
    printf("  %-44s %12" PRIu64 "\n", "FSDP: peak of a step, activations included",
           highest(all, PEAK, world));
    printf("  %-44s %12zu\n", "DDP: the same (one step unsharded)", peak);
    printf("  N = %" PRIu64 " parameters, padded %" PRIu64 "; FSDP 16·padded/%d, DDP 16·N\n",
           s.numel, s.padded, world);

    printf("\nSent per rank and step, in bytes                   measured   by formula\n");
    if (!print_row("FSDP: all-gathers and reduce-scatters", all, SENT, world,
                   sizeof(float) * kept / W * (W - 1)))
        *equal = false;
    printf("  %-44s %12s %12" PRIu64 "\n", "DDP: all-reduce of the gradients", "",
           sizeof(float) * 2 * s.numel * (W - 1) / W);
    printf("  4·(3·padded - root)·(W-1)/W, W = %d, root = %" PRIu64
           ": the root stays unsharded\n  after its forward, which spares one of its all-gathers\n",
           world, s.root_padded);
    for (int rank = 0; rank < world; rank++)
        if (all[rank * FIGURES + UNEVEN] > 0) {
            printf("  NOT EQUAL: rank %d did not send the same in every step\n", rank);
            *equal = false;
            break;
        }
    return OK;
}

// ---- All of it ----

static Status print_all(Trainer *t, const Source *source, uint64_t seed, const Measured *m,
                        const uint64_t *all)
{
    bool steps = false, bytes = false;
    TRY(compare_steps(t, source, seed, m, &steps));
    TRY(compare_bytes(t, all, &bytes));
    fflush(stdout);
    if (!steps)
        return fail(ERR_ARGUMENT,
                    "with FSDP the first steps are not those of the unsharded run (see above)");
    if (!bytes)
        return fail(ERR_ARGUMENT, "memory or traffic is not what the formula says (see above)");
    return OK;
}

Status compare_all(Trainer *t, const Source *source, uint64_t seed, const Measured *m)
{
    const uint64_t mine[FIGURES] = {m->held, m->peak, m->sent, m->uneven};
    uint64_t outcome = 0, *all = malloc((size_t)t->world.size * sizeof mine), first = 0;
    if (all == NULL) return fail(ERR_MEMORY, "no host memory for %d ranks", t->world.size);
    Status status = gather_over_ranks(t, mine, FIGURES, all);
    if (status == OK && t->world.rank == 0) outcome = (uint64_t)print_all(t, source, seed, m, all);
    // The others wait for rank 0 here, and learn what came of it.
    if (t->world.rank != 0) last_words_pause();
    if (status == OK) status = gather_over_ranks(t, &outcome, 1, all);
    if (status == OK) first = all[0];
    free(all);
    TRY(status);
    return (Status)first;
}
