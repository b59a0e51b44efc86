/* Convergence: a small GPT-2 learns a text on 4 ranks as it does on one GPU with the whole batch.
 *
 * Here the sums are not bitwise equal (a batch of 8 against four of 2), so the curves are
 * compared, within 1e-3 of the loss at every step, and printed.
 */
#include "fsdp.h"
#include "harness.h"
#include "training.h"

#include <math.h>

enum { STEPS = 50, WORLD = 4, B = 2, T = 16, VOCAB = 128 };

static const char TEXT[] = "A unit is gathered before it runs and freed after it. A shard is "
                           "what a rank keeps. The optimizer sees shards alone, and the padding at "
                           "the end of the last of them is zero, always zero. What one rank "
                           "computes from its data the others do not know until the gradients are "
                           "summed and cut again. ";

typedef struct Curves {
    float sharded[WORLD][STEPS]; // each rank's loss on its own part
    float plain[STEPS];
} Curves;

static const AdamWConfig ADAMW = {
    .lr = 3e-3f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-5f, .weight_decay = 0.1f};

static Spec spec_of(int sequences)
{
    return (Spec){
        .gpt2 = true, .layers = 2, .B = sequences, .T = T, .dim = 32, .heads = 4, .vocab = VOCAB};
}

// Sequences first … first+n-1 of the step's global batch, and each token's successor.
static Batch text_batch(int step, int first, int n)
{
    int32_t in[WORLD * B * T], targets[WORLD * B * T];
    size_t bytes = (size_t)(n * T) * sizeof(int32_t);
    Batch batch = {NULL, NULL};
    for (int i = 0; i < n * T; i++) {
        size_t sequence = (size_t)(step * WORLD * B + first + i / T);
        size_t place = (sequence * 37 + (size_t)(i % T)) % (sizeof TEXT - 2);
        in[i] = TEXT[place];
        targets[i] = TEXT[place + 1];
    }
    need_cuda(cudaMalloc(&batch.in, bytes));
    need_cuda(cudaMalloc((void **)&batch.targets, bytes));
    need_cuda(cudaMemcpy(batch.in, in, bytes, cudaMemcpyHostToDevice));
    need_cuda(cudaMemcpy(batch.targets, targets, bytes, cudaMemcpyHostToDevice));
    need_cuda(cudaDeviceSynchronize()); // the rank's stream does not wait for the default stream
    return batch;
}

static void sharded_body(const Rank *r, void *arg)
{
    Curves *curves = arg;
    Spec spec = spec_of(B);
    Sharded s;
    sharded_create(&s, &spec, &TEST_OPTIONS, &ADAMW, r);
    for (int step = 0; step < STEPS; step++) {
        Batch batch = text_batch(step, r->rank * B, B);
        curves->sharded[r->rank][step] = train_batch(&spec, &s.run, s.model, &batch);
        need(fsdp_adamw_step(&s.adamw));
        need(fsdp_zero_grad(s.model, &s.ctx));
        batch_destroy(&batch);
    }
    sharded_destroy(&s);
}

static void plain_body(const Rank *r, void *arg)
{
    Curves *curves = arg;
    Spec spec = spec_of(WORLD * B);
    Plain plain;
    plain_create(&plain, &spec, TEST_OPTIONS.seed, &ADAMW, r->stream);
    for (int step = 0; step < STEPS; step++) {
        Batch batch = text_batch(step, 0, WORLD * B);
        curves->plain[step] = train_batch(&spec, &plain.run, plain.model, &batch);
        need(plain_adamw_step(plain.adamw));
        need(plain_adamw_zero_grad(plain.adamw));
        batch_destroy(&batch);
    }
    plain_destroy(&plain);
}

TEST(learns_as_one_gpu)
{
    needs_ranks(WORLD);
    Curves *curves = shared_alloc(sizeof *curves);
    run_ranks(WORLD, sharded_body, curves);
    run_ranks(1, plain_body, curves);

    print_message("| step   FSDP on %d ranks   one GPU, whole batch\n", WORLD);
    for (int step = 0; step < STEPS; step++) {
        float mean = 0.0f;
        for (int rank = 0; rank < WORLD; rank++) mean += curves->sharded[rank][step] / WORLD;
        float want = curves->plain[step];
        if (step % 7 == 0)
            print_message("| %4d   %15.5f   %20.5f\n", step, (double)mean, (double)want);
        if (!(fabsf(mean - want) <= 1e-3f * want))
            fail_msg("step %d: the loss is %.6f on %d ranks and %.6f on one GPU", step,
                     (double)mean, WORLD, (double)want);
    }
    if (!(curves->plain[STEPS - 1] < 0.75f * curves->plain[0]))
        fail_msg("the model did not learn: loss %.4f at first, %.4f at last",
                 (double)curves->plain[0], (double)curves->plain[STEPS - 1]);
}

SUITE_MAIN("convergence")
