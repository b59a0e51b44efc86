/* train_gpt2.c: trains a byte-level GPT-2 on text with FSDP, and shows what FSDP is for.
 *
 * Every rank runs this program: `build/bin/launch -n 4 build/bin/train_gpt2 FILE…`, or torchrun,
 * mpirun, srun. At the end rank 0 prints the memory that each rank held, the bytes that each
 * collective sent, the loss on held-out text beside that of a byte-frequency model, and a sample of
 * generated text. With --unsharded it trains on one GPU without FSDP: the program to run out of
 * memory with.
 */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fsdp.h"
#include "gpulog.h"
#include "launch.h"
#include "nn.h"
#include "text.h"

typedef struct Options {
    Gpt2Config model;
    AdamWConfig adamw;
    int B, T; // sequences a rank and step, tokens in a sequence
    int steps;
    int sample;     // bytes to generate at the end
    float clip;     // largest gradient norm
    bool unsharded; // one GPU, no FSDP
    bool keep;      // keep whole parameters from forward to backward
    uint64_t seed;
    int n_files;
    char **files;
} Options;

// Everything a rank trains with. Without FSDP, comm and ctx stay empty.
typedef struct Trainer {
    Options opt;
    World world;
    ncclComm_t comm;
    cudaStream_t stream;
    NnRun run;
    int device; // that this rank uses
    Module *model;
    PlainAdamW *plain;
    FsdpContext ctx;
    FsdpAdamW adamw;
    int32_t *tokens, *targets; // device: (B·T) each
    Text text;
} Trainer;

// ---- Command line ----

static void usage(FILE *out, const char *program)
{
    fprintf(
        out,
        "usage: %s [options] FILE…     (start it with build/bin/launch -n RANKS for FSDP)\n"
        "  --steps N      training steps (700)\n"
        "  --layers N     blocks (6)          --heads N    attention heads (8)\n"
        "  --dim N        width (256)         --context N  longest sequence of the model (64)\n"
        "  --batch N      sequences a rank (2) --sequence N tokens in a sequence (the context)\n"
        "  --lr X         learning rate (1.5e-3) --clip X     largest gradient norm (1)\n"
        "  --sample N     bytes of text to generate at the end (240)\n"
        "  --seed N       of weights and data (42)\n"
        "  --keep         keep whole parameters between forward and backward\n"
        "  --unsharded    one GPU, without FSDP\n",
        program);
}

// A whole number in [low, 2³¹), or an error with one line.
static Status parse_int(const char *name, const char *text, int low, int *value)
{
    char *end;
    long number = strtol(text, &end, 10);
    if (*text == '\0' || *end != '\0' || number < low || number > 0x7fffffff)
        return fail(ERR_ARGUMENT, "--%s %s: want a whole number of at least %d", name, text, low);
    *value = (int)number;
    return OK;
}

static Status parse_float(const char *name, const char *text, float *value)
{
    char *end;
    *value = strtof(text, &end);
    if (*text == '\0' || *end != '\0' || !(*value > 0.0f) || isinf(*value))
        return fail(ERR_ARGUMENT, "--%s %s: want a number above 0", name, text);
    return OK;
}

static Status parse_options(int argc, char **argv, Options *o)
{
    static const struct option names[] = {
        {"steps", 1, NULL, 's'},     {"layers", 1, NULL, 'l'},  {"heads", 1, NULL, 'h'},
        {"dim", 1, NULL, 'd'},       {"context", 1, NULL, 'c'}, {"batch", 1, NULL, 'b'},
        {"sequence", 1, NULL, 't'},  {"lr", 1, NULL, 'r'},      {"clip", 1, NULL, 'g'},
        {"sample", 1, NULL, 'n'},    {"seed", 1, NULL, 'e'},    {"keep", 0, NULL, 'k'},
        {"unsharded", 0, NULL, 'u'}, {"help", 0, NULL, 'p'},    {NULL, 0, NULL, 0},
    };
    int choice, index = 0, seed = 42;
    *o = (Options){
        .model = {.vocab = 256, .max_T = 64, .layers = 6, .heads = 8, .dim = 256},
        .adamw = {.lr = 1.5e-3f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0.1f},
        .B = 2,
        .steps = 700,
        .sample = 240,
        .clip = 1.0f,
    };
    while ((choice = getopt_long(argc, argv, "", names, &index)) != -1) {
        const char *name = choice == '?' ? "" : names[index].name;
        switch (choice) {
        case 's': TRY(parse_int(name, optarg, 1, &o->steps)); break;
        case 'l': TRY(parse_int(name, optarg, 1, &o->model.layers)); break;
        case 'h': TRY(parse_int(name, optarg, 1, &o->model.heads)); break;
        case 'd': TRY(parse_int(name, optarg, 1, &o->model.dim)); break;
        case 'c': TRY(parse_int(name, optarg, 1, &o->model.max_T)); break;
        case 'b': TRY(parse_int(name, optarg, 1, &o->B)); break;
        case 't': TRY(parse_int(name, optarg, 1, &o->T)); break;
        case 'r': TRY(parse_float(name, optarg, &o->adamw.lr)); break;
        case 'g': TRY(parse_float(name, optarg, &o->clip)); break;
        case 'n': TRY(parse_int(name, optarg, 0, &o->sample)); break;
        case 'e': TRY(parse_int(name, optarg, 0, &seed)); break;
        case 'k': o->keep = true; break;
        case 'u': o->unsharded = true; break;
        case 'p': usage(stdout, argv[0]); exit(0);
        default: return fail(ERR_ARGUMENT, "%s --help tells the options", argv[0]);
        }
    }
    if (o->T == 0) o->T = o->model.max_T;
    o->seed = (uint64_t)seed;
    o->files = argv + optind;
    o->n_files = argc - optind;
    if (o->n_files == 0)
        return fail(ERR_ARGUMENT, "no text file: %s [options] FILE… (--help)", argv[0]);
    return OK;
}

// ---- Setting up ----

static Status setup_unsharded(Trainer *t)
{
    if (t->world.size != 1)
        return fail(ERR_ARGUMENT, "--unsharded wants one rank, not %d", t->world.size);
    CUDA_TRY(cudaStreamCreate(&t->stream));
    TRY(nn_run_create(&t->run, t->stream));
    TRY(meta_materialize(t->model, t->opt.seed, t->stream));
    TRY(plain_adamw_create(&t->plain, t->model, &t->opt.adamw, &t->run));
    return OK;
}

static Status setup_sharded(Trainer *t)
{
    FsdpOptions options = {
        .reshard_after_forward = t->opt.keep ? FSDP_RESHARD_NEVER : FSDP_RESHARD_AUTO,
        .seed = t->opt.seed};
    Mesh mesh;
    TRY(world_connect(&t->world, &t->comm));
    CUDA_TRY(cudaStreamCreate(&t->stream));
    TRY(nn_run_create(&t->run, t->stream));
    TRY(mesh_1d(&mesh, t->comm));
    TRY(fsdp_context_create(&t->ctx, &mesh, t->stream));
    for (int i = 0; i < t->model->n_children; i++)
        if (strncmp(t->model->children[i]->name, "h.", 2) == 0)
            TRY(fully_shard(t->model->children[i], &t->ctx, &options));
    TRY(fully_shard(t->model, &t->ctx, &options));
    TRY(fsdp_adamw_create(&t->adamw, t->model, &t->ctx, &t->opt.adamw));
    return OK;
}

// What can be wrong with the input: the options, the text, the model's sizes. No device is touched.
static Status read_input(Trainer *t, int argc, char **argv)
{
    Options *o = &t->opt;
    TRY(parse_options(argc, argv, o));
    if (o->T > o->model.max_T)
        return fail(ERR_ARGUMENT, "--sequence %d: the model takes at most %d tokens (--context)",
                    o->T, o->model.max_T);
    TRY(text_load(&t->text, o->files, o->n_files, o->T));
    t->model = gpt2_create(&o->model);
    return t->model == NULL ? ERR_ARGUMENT : OK;
}

static Status setup(Trainer *t)
{
    size_t bytes = (size_t)t->opt.B * (size_t)t->opt.T * sizeof(int32_t);
    if (t->opt.unsharded)
        TRY(setup_unsharded(t));
    else
        TRY(setup_sharded(t));
    CUDA_TRY(cudaGetDevice(&t->device));
    CUDA_TRY(cudaMalloc((void **)&t->tokens, bytes));
    CUDA_TRY(cudaMalloc((void **)&t->targets, bytes));
    return OK;
}

static Status tear_down(Trainer *t)
{
    CUDA_TRY(cudaFree(t->tokens));
    CUDA_TRY(cudaFree(t->targets));
    if (t->opt.unsharded) {
        plain_adamw_destroy(t->plain);
        meta_release(t->model);
    } else {
        fsdp_adamw_destroy(&t->adamw);
        fsdp_unwrap(t->model);
        TRY(fsdp_context_destroy(&t->ctx));
        TRY(world_disconnect(t->comm));
    }
    module_destroy(t->model);
    TRY(nn_run_destroy(&t->run));
    CUDA_TRY(cudaStreamDestroy(t->stream));
    text_free(&t->text);
    return OK;
}

// ---- What ranks tell each other ----

// *value = its mean over the ranks.
static Status mean_over_ranks(Trainer *t, float *value)
{
    float *device = NULL;
    if (t->world.size == 1) return OK;
    CUDA_TRY(cudaMalloc((void **)&device, sizeof *value));
    CUDA_TRY(cudaMemcpyAsync(device, value, sizeof *value, cudaMemcpyHostToDevice, t->stream));
    NCCL_TRY(ncclAllReduce(device, device, 1, ncclFloat, ncclSum, t->comm, t->stream));
    CUDA_TRY(cudaMemcpyAsync(value, device, sizeof *value, cudaMemcpyDeviceToHost, t->stream));
    CUDA_TRY(cudaStreamSynchronize(t->stream));
    CUDA_TRY(cudaFree(device));
    *value /= (float)t->world.size;
    return OK;
}

// all (world) = everybody's `mine`.
static Status gather_sizes(Trainer *t, uint64_t mine, uint64_t *all)
{
    uint64_t *device = NULL;
    size_t size = (size_t)t->world.size;
    all[0] = mine;
    if (size == 1) return OK;
    CUDA_TRY(cudaMalloc((void **)&device, size * sizeof mine));
    CUDA_TRY(cudaMemcpyAsync(device + t->world.rank, &mine, sizeof mine, cudaMemcpyHostToDevice,
                             t->stream));
    NCCL_TRY(ncclAllGather(device + t->world.rank, device, 1, ncclUint64, t->comm, t->stream));
    CUDA_TRY(cudaMemcpyAsync(all, device, size * sizeof mine, cudaMemcpyDeviceToHost, t->stream));
    CUDA_TRY(cudaStreamSynchronize(t->stream));
    CUDA_TRY(cudaFree(device));
    return OK;
}

// ---- Training ----

// Copies this rank's part of the step's batch to the device.
static Status load_batch(Trainer *t, int step, bool held_out)
{
    size_t rows = (size_t)t->opt.B * (size_t)t->opt.T;
    int first = t->world.rank * t->opt.B;
    int32_t *host = malloc(2 * rows * sizeof *host);
    if (host == NULL) return fail(ERR_MEMORY, "no host memory for a batch of %zu tokens", rows);
    (held_out ? text_held_out : text_batch)(&t->text, t->opt.seed, step, first, t->opt.B, t->opt.T,
                                            host, host + rows);
    cudaError_t error = cudaMemcpy(t->tokens, host, rows * sizeof *host, cudaMemcpyHostToDevice);
    if (error == cudaSuccess)
        error = cudaMemcpy(t->targets, host + rows, rows * sizeof *host, cudaMemcpyHostToDevice);
    free(host);
    CUDA_TRY(error);
    t->run.B = t->opt.B;
    t->run.T = t->opt.T;
    return OK;
}

// The learning rate of a step: up in a line over the first steps, then down along half a cosine to
// a tenth, as is usual for GPT models.
static float rate_of(const Options *o, int step)
{
    const int warm_up = 20;
    float most = o->adamw.lr;
    if (step < warm_up) return most * (float)step / (float)warm_up;
    float done = (float)(step - warm_up) / (float)(o->steps > warm_up ? o->steps - warm_up : 1);
    return most * (0.1f + 0.45f * (1.0f + cosf(3.14159265f * done)));
}

static Status train_step(Trainer *t, int step, float *loss)
{
    const Options *o = &t->opt;
    float *logits, *dlogits, *din, norm;
    TRY(load_batch(t, step, false));
    TRY(module_forward(t->model, &t->run, t->tokens, &logits));
    TRY(cross_entropy(&t->run, logits, t->targets, o->B * o->T, o->model.vocab, loss, &dlogits));
    TRY(module_backward(t->model, &t->run, dlogits, &din));
    CUDA_TRY(cudaFreeAsync(dlogits, t->stream));
    if (o->unsharded) {
        TRY(plain_adamw_step(t->plain));
        TRY(plain_adamw_zero_grad(t->plain));
    } else {
        TRY(fsdp_clip_grad_norm(t->model, &t->ctx, o->clip, &norm));
        t->adamw.config.lr = rate_of(o, step);
        TRY(fsdp_adamw_step(&t->adamw));
        TRY(fsdp_zero_grad(t->model, &t->ctx));
    }
    return OK;
}

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static Status train(Trainer *t)
{
    const Options *o = &t->opt;
    int every = o->steps < 15 ? 1 : o->steps / 15;
    double tokens = (double)o->B * o->T * t->world.size, start = seconds_now(), last = start;
    int last_step = 0;
    for (int step = 1; step <= o->steps; step++) {
        float loss;
        TRY(train_step(t, step, &loss));
        if (step != 1 && step % every != 0 && step != o->steps) continue;
        TRY(mean_over_ranks(t, &loss));
        double now = seconds_now();
        if (t->world.rank == 0) {
            printf("step %4d of %d   loss %.4f   %6.0f tokens/s   %5.1f s\n", step, o->steps,
                   (double)loss, tokens * (step - last_step) / (now - last), now - start);
            fflush(stdout);
        }
        last = now;
        last_step = step;
    }
    return OK;
}

// The mean loss over `batches` batches of held-out text on every rank.
static Status evaluate(Trainer *t, int batches, float *loss)
{
    *loss = 0.0f;
    for (int i = 0; i < batches; i++) {
        float *logits, one;
        TRY(load_batch(t, i, true));
        TRY(module_forward(t->model, &t->run, t->tokens, &logits));
        TRY(cross_entropy(&t->run, logits, t->targets, t->opt.B * t->opt.T, t->opt.model.vocab,
                          &one, NULL));
        TRY(module_discard(t->model, &t->run));
        *loss += one / (float)batches;
    }
    return mean_over_ranks(t, loss);
}

// ---- What to show at the end ----

// What one GPU without FSDP takes at the peak of a step with the same batch: measured, by doing
// one.
static Status unsharded_step(Trainer *t, size_t *peak)
{
    float *logits, *dlogits, *din;
    PlainAdamW *adamw;
    Module *model = gpt2_create(&t->opt.model);
    if (model == NULL) return ERR_MEMORY;
    CUDA_TRY(cudaStreamSynchronize(t->stream));
    size_t before = gpulog_live_bytes(t->device);
    gpulog_reset_peak(t->device);
    TRY(meta_materialize(model, t->opt.seed, t->stream));
    TRY(plain_adamw_create(&adamw, model, &t->opt.adamw, &t->run));
    TRY(module_forward(model, &t->run, t->tokens, &logits));
    TRY(cross_entropy(&t->run, logits, t->targets, t->opt.B * t->opt.T, t->opt.model.vocab, NULL,
                      &dlogits));
    TRY(module_backward(model, &t->run, dlogits, &din));
    CUDA_TRY(cudaFreeAsync(dlogits, t->stream));
    plain_adamw_destroy(adamw);
    meta_release(model);
    module_destroy(model);
    *peak = gpulog_peak_bytes(t->device) - before;
    return OK;
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

static Status print_memory(Trainer *t, const uint64_t *live, const uint64_t *peak)
{
    int64_t n = meta_count(t->model);
    size_t whole = 0;
    bool fits = false;
    printf("\nmemory of a device, in MB  parameters, gradients, moments   at the peak of a step\n");
    for (int rank = 0; rank < t->world.size; rank++)
        printf("  rank %-2d %44.2f %23.2f\n", rank, 1e-6 * (double)live[rank],
               1e-6 * (double)peak[rank]);
    if (t->opt.unsharded) return OK;

    TRY(has_room(n, peak[0], &fits));
    printf("  one GPU without FSDP %31.2f", 16e-6 * (double)n);
    if (fits) {
        TRY(unsharded_step(t, &whole));
        printf(" %23.2f\n", 1e-6 * (double)whole);
    } else {
        printf("         does not fit\n");
    }
    printf("  (%lld parameters of 16 bytes: value, gradient, two moments; the rest are activations"
           " and,\n  with FSDP, the units that are whole)\n",
           (long long)n);
    return OK;
}

static Status report_memory(Trainer *t, uint64_t live, uint64_t peak)
{
    uint64_t *all = malloc(2 * (size_t)t->world.size * sizeof *all), *peaks = all + t->world.size;
    if (all == NULL) return fail(ERR_MEMORY, "no host memory for %d ranks", t->world.size);
    Status status = gather_sizes(t, live, all);
    if (status == OK) status = gather_sizes(t, peak, peaks);
    if (status == OK && t->world.rank == 0) status = print_memory(t, all, peaks);
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

// Draws from softmax(logits / temperature) with a random number in [0, 1).
static int draw(const float *logits, int n, float temperature, double random)
{
    double sum = 0.0, largest = logits[0], at = 0.0;
    for (int i = 1; i < n; i++) largest = fmax(largest, logits[i]);
    for (int i = 0; i < n; i++) sum += exp((logits[i] - largest) / temperature);
    for (int i = 0; i < n; i++) {
        at += exp((logits[i] - largest) / temperature) / sum;
        if (at > random) return i;
    }
    return n - 1;
}

// The next byte behind tokens (n, host): every rank runs the forward, as its parameters are needed.
static Status next_byte(Trainer *t, const int32_t *tokens, int n, int32_t *byte)
{
    int vocab = t->opt.model.vocab;
    float *logits, host[256];
    uint32_t word[4];
    const uint32_t counter[4] = {(uint32_t)n, (uint32_t)tokens[n - 1], 1, 0}, key[2] = {42, 7};
    int T = n < t->opt.T ? n : t->opt.T;
    CUDA_TRY(cudaMemcpy(t->tokens, tokens + (n - T), (size_t)T * sizeof *tokens,
                        cudaMemcpyHostToDevice));
    t->run.B = 1;
    t->run.T = T;
    TRY(module_forward(t->model, &t->run, t->tokens, &logits));
    CUDA_TRY(cudaMemcpyAsync(host, logits + (size_t)(T - 1) * (size_t)vocab,
                             (size_t)vocab * sizeof *host, cudaMemcpyDeviceToHost, t->stream));
    CUDA_TRY(cudaStreamSynchronize(t->stream));
    TRY(module_discard(t->model, &t->run));
    philox4x32_10(counter, key, word);
    *byte = draw(host, vocab, 0.7f, word[0] * 0x1p-32);
    return OK;
}

static Status sample(Trainer *t)
{
    static const char prompt[] = "The ";
    int n = (int)sizeof prompt - 1, end = n + t->opt.sample;
    int32_t *tokens = malloc((size_t)end * sizeof *tokens);
    if (tokens == NULL) return fail(ERR_MEMORY, "no host memory for a sample");
    Status status = OK;
    for (int i = 0; i < n; i++) tokens[i] = prompt[i];
    // All ranks have the same parameters and draw with the same random numbers: the same text.
    for (int i = n; i < end && status == OK; i++) status = next_byte(t, tokens, i, &tokens[i]);
    if (status == OK && t->world.rank == 0) {
        printf("\na sample, at temperature 0.7\n  ");
        for (int i = 0; i < end; i++) {
            if (tokens[i] == '\n')
                printf("\n  ");
            else
                putchar(tokens[i] >= 32 && tokens[i] < 127 ? tokens[i] : '.');
        }
        printf("\n");
    }
    free(tokens);
    return status;
}

static Status report(Trainer *t, uint64_t live, uint64_t peak)
{
    float loss;
    if (t->world.rank == 0) report_traffic(t);
    TRY(report_memory(t, live, peak));
    TRY(evaluate(t, 8, &loss));
    if (t->world.rank == 0)
        printf("\nloss on held-out text   %.4f nats a byte; a byte-frequency model's %.4f\n",
               (double)loss, text_frequency_loss(&t->text));
    if (t->opt.sample > 0) TRY(sample(t));
    return OK;
}

static Status run(Trainer *t)
{
    TRY(setup(t));
    int device = t->device;
    size_t buffers = 2 * (size_t)t->opt.B * (size_t)t->opt.T * sizeof(int32_t);
    uint64_t live = gpulog_live_bytes(device) - buffers;
    if (t->world.rank == 0)
        printf(
            "GPT-2 of %lld parameters on %d rank%s, %s, %d · %d tokens a rank, %zu bytes of text\n",
            (long long)meta_count(t->model), t->world.size, t->world.size == 1 ? "" : "s",
            t->opt.unsharded ? "without FSDP" : "FSDP", t->opt.B, t->opt.T, t->text.length);
    gpulog_reset_peak(device);
    gpulog_reset_traffic();
    TRY(train(t));
    TRY(report(t, live, gpulog_peak_bytes(device)));
    return tear_down(t);
}

int main(int argc, char **argv)
{
    Trainer trainer;
    memset(&trainer, 0, sizeof trainer);
    if (world_from_env(&trainer.world) != OK) return 2;

    // Every rank reads the same input: what is wrong with it, rank 0 says for all.
    check_set_silent(trainer.world.rank != 0);
    opterr = trainer.world.rank == 0;
    if (read_input(&trainer, argc, argv) != OK) return 2;
    check_set_silent(false);

    check_set_rank(trainer.world.size > 1 ? trainer.world.rank : -1);
    return run(&trainer) == OK ? 0 : 1;
}
