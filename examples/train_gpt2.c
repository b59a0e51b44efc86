/* train_gpt2.c: trains a byte-level GPT-2, or a Llama, on text with FSDP, and shows what FSDP is for.
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
#include "common/options.h"
#include "common/sample.h"
#include "common/step_time.h"
#include "common/trainer.h"
#include "gpulog.h"
#include "text.h"

typedef struct Options {
    int sample;                // bytes to generate at the end
    bool brief;                // few lines: neither held-out text nor what each rank sent
    bool figures;              // one line of figures alone, for make compare
    bool attention;            // --attention was given
    const char *save, *resume; // folders of checkpoints; NULL: none
    int every;                 // steps from one save to the next; 0: one, at the end
    int n_files;
    char **files;
} Options;

typedef struct Program {
    Options opt;
    Trainer trainer;
    Text text;
    StepTime step_time;    // of the last step
    int32_t *in, *targets; // host: (accumulate·B·T) each
    int done;              // steps that a resumed training had done
} Program;

// ---- Command line ----

static void usage(FILE *out, const char *program)
{
    fprintf(
        out,
        "usage: %s [options] FILE…     (start it with build/bin/launch -n RANKS for FSDP)\n"
        "  --model X      gpt2 or llama, with the same sizes (gpt2)\n"
        "  --steps N      training steps (700)\n"
        "  --layers N     blocks (6)          --heads N    attention heads (8)\n"
        "  --dim N        width (256)         --context N  longest sequence of the model (64)\n"
        "  --kv-heads N   llama: heads of keys and values (a quarter of the heads where 4 divides\n"
        "                 them, else as many)\n"
        "  --hidden N     llama: width of the feed-forward part (8/3 of --dim)\n"
        "  --tied         llama: the head's weight is the embedding's, as GPT-2's is\n"
        "  --batch N      sequences a rank (2) --sequence N tokens in a sequence (the context)\n"
        "  --lr X         learning rate (1.5e-3) --clip X     largest gradient norm (1)\n"
        "  --sample N     bytes of text to generate at the end (240)\n"
        "  --seed N       of weights and data (42)\n"
        "  --attention X  gpt2: fused or plain (plain): fused keeps O(T) memory per\n"
        "                 head, not T x T\n"
        "  --keep         keep unsharded parameters between forward and backward\n"
        "  --strategy X   ddp, zero1, zero2 or zero3 (zero3)\n"
        "  --replicas N   HSDP: so many replicas, each sharded over the other ranks (1)\n"
        "  --accumulate N micro-batches of a step, each of --batch sequences (1)\n"
        "  --reduce-every-time   each micro-batch reduces; else the last one alone\n"
        "  --reshard-ranks N     zero3: a slice between forward and backward, on N ranks (0)\n"
        "  --uneven       micro-batches of 1 to --batch sequences, averaged by tokens\n"
        "  --dtype X      in which parameters are gathered and layers compute: float, bf16 or\n"
        "                 fp16, which scales the loss (float)\n"
        "  --reduce-dtype X  in which gradients are reduced (float)\n"
        "  --figures      one line: memory, traffic and time of a step\n"
        "  --unsharded    one GPU, without FSDP\n"
        "  --save DIR     a checkpoint in DIR at the end, and with --every N each N steps\n"
        "  --resume DIR   go on from the checkpoint in DIR, on any number of ranks\n"
        "  --brief        few lines, and at the end only the memory\n",
        program);
}

static Status parse_attention(const char *text, AttentionKind *kind)
{
    *kind = strcmp(text, "fused") == 0 ? ATTENTION_FUSED : ATTENTION_PLAIN;
    if (*kind == ATTENTION_FUSED || strcmp(text, "plain") == 0) return OK;
    return fail(ERR_ARGUMENT, "--attention is fused or plain, not '%s'", text);
}

static Status parse_strategy(const char *text, TrainerOptions *t)
{
    static const char *const NAMES[] = {"ddp", "zero1", "zero2", "zero3"}; // as Strategy has them
    t->strategic = true;
    for (int i = 0; i < 4; i++) {
        t->strategy = (Strategy)i;
        if (strcmp(text, NAMES[i]) == 0) return OK;
    }
    return fail(ERR_ARGUMENT, "--strategy is ddp, zero1, zero2 or zero3, not '%s'", text);
}

static Status parse_dtype(const char *option, const char *text, DType *dtype, TrainerOptions *t)
{
    static const char *const NAMES[] = {"float", "bf16", "fp16"}; // as DType has them
    t->strategic = t->mixed = true;
    for (int i = 0; i < 3; i++) {
        *dtype = (DType)i;
        if (strcmp(text, NAMES[i]) == 0) return OK;
    }
    return fail(ERR_ARGUMENT, "--%s is float, bf16 or fp16, not '%s'", option, text);
}

static Status parse_options(int argc, char **argv, Options *o, TrainerOptions *t)
{
    static const struct option names[] = {
        {"steps", 1, NULL, 's'},
        {"layers", 1, NULL, 'l'},
        {"heads", 1, NULL, 'h'},
        {"dim", 1, NULL, 'd'},
        {"context", 1, NULL, 'c'},
        {"batch", 1, NULL, 'b'},
        {"sequence", 1, NULL, 't'},
        {"lr", 1, NULL, 'r'},
        {"clip", 1, NULL, 'g'},
        {"sample", 1, NULL, 'n'},
        {"seed", 1, NULL, 'e'},
        {"keep", 0, NULL, 'k'},
        {"unsharded", 0, NULL, 'u'},
        {"brief", 0, NULL, 'i'},
        {"help", 0, NULL, 'p'},
        {"attention", 1, NULL, 'a'},
        {"strategy", 1, NULL, 'y'},
        {"replicas", 1, NULL, 'R'},
        {"accumulate", 1, NULL, 'm'},
        {"reduce-every-time", 0, NULL, 'v'},
        {"reshard-ranks", 1, NULL, 'H'},
        {"uneven", 0, NULL, 'q'},
        {"figures", 0, NULL, 'f'},
        {"save", 1, NULL, 'S'},
        {"every", 1, NULL, 'E'},
        {"resume", 1, NULL, 'U'},
        {"dtype", 1, NULL, 'D'},
        {"reduce-dtype", 1, NULL, 'Y'},
        {"model", 1, NULL, 'M'},
        {"kv-heads", 1, NULL, 'K'},
        {"hidden", 1, NULL, 'W'},
        {"tied", 0, NULL, 'T'},
        {NULL, 0, NULL, 0},
    };
    int choice, index = 0, seed = 42;
    *o = (Options){.sample = 240};
    *t = (TrainerOptions){
        .model = {.vocab = 256, .max_T = 64, .layers = 6, .heads = 8, .dim = 256},
        .adamw = {.lr = 1.5e-3f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0.1f},
        .B = 2,
        .steps = 700,
        .clip = 1.0f,
        .strategy = STRATEGY_ZERO3,
        .replicas = 1,
        .accumulate = 1,
    };
    while ((choice = getopt_long(argc, argv, "", names, &index)) != -1) {
        const char *name = choice == '?' ? "" : names[index].name;
        switch (choice) {
        case 's': TRY(parse_int(name, optarg, 1, &t->steps)); break;
        case 'l': TRY(parse_int(name, optarg, 1, &t->model.layers)); break;
        case 'h': TRY(parse_int(name, optarg, 1, &t->model.heads)); break;
        case 'd': TRY(parse_int(name, optarg, 1, &t->model.dim)); break;
        case 'c': TRY(parse_int(name, optarg, 1, &t->model.max_T)); break;
        case 'b': TRY(parse_int(name, optarg, 1, &t->B)); break;
        case 't': TRY(parse_int(name, optarg, 1, &t->T)); break;
        case 'r': TRY(parse_float(name, optarg, &t->adamw.lr)); break;
        case 'g': TRY(parse_float(name, optarg, &t->clip)); break;
        case 'n': TRY(parse_int(name, optarg, 0, &o->sample)); break;
        case 'e': TRY(parse_int(name, optarg, 0, &seed)); break;
        case 'a':
            TRY(parse_attention(optarg, &t->model.attention));
            o->attention = true;
            break;
        case 'y': TRY(parse_strategy(optarg, t)); break;
        case 'R':
            TRY(parse_int(name, optarg, 1, &t->replicas));
            t->strategic = true;
            break;
        case 'm':
            TRY(parse_int(name, optarg, 1, &t->accumulate));
            t->strategic = true;
            break;
        case 'v': t->reduce_every_time = true; break;
        case 'H':
            TRY(parse_int(name, optarg, 0, &t->reshard_ranks));
            t->strategic = true;
            break;
        case 'q': t->uneven = true; break;
        case 'f': o->figures = true; break;
        case 'S': o->save = optarg; break;
        case 'E': TRY(parse_int(name, optarg, 1, &o->every)); break;
        case 'U': o->resume = optarg; break;
        case 'D': TRY(parse_dtype(name, optarg, &t->policy.param_dtype, t)); break;
        case 'Y': TRY(parse_dtype(name, optarg, &t->policy.reduce_dtype, t)); break;
        case 'M': TRY(model_parse(optarg, &t->llama)); break;
        case 'K': TRY(parse_int(name, optarg, 1, &t->llama.kv_heads)); break;
        case 'W': TRY(parse_int(name, optarg, 1, &t->llama.hidden)); break;
        case 'T': t->llama.tied = true; break;
        case 'i': o->brief = true; break;
        case 'k': t->keep = true; break;
        case 'u': t->unsharded = true; break;
        case 'p': usage(stdout, argv[0]); exit(0);
        default: return fail(ERR_ARGUMENT, "%s --help tells the options", argv[0]);
        }
    }
    if (t->T == 0) t->T = t->model.max_T;
    t->seed = (uint64_t)seed;
    o->files = argv + optind;
    o->n_files = argc - optind;
    if (o->n_files == 0)
        return fail(ERR_ARGUMENT, "no text file: %s [options] FILE… (--help)", argv[0]);
    return OK;
}

// ---- Setting up ----

// What can be wrong with the input: the options, the text, the model's sizes. No device is touched.
static Status read_input(Program *p, int argc, char **argv)
{
    Trainer *t = &p->trainer;
    TRY(parse_options(argc, argv, &p->opt, &t->opt));
    TRY(model_check(&t->opt.llama, p->opt.attention));
    if (t->opt.T > t->opt.model.max_T)
        return fail(ERR_ARGUMENT, "--sequence %d: the model takes at most %d tokens (--context)",
                    t->opt.T, t->opt.model.max_T);
    if (t->opt.unsharded && t->world.size != 1)
        return fail(ERR_ARGUMENT, "--unsharded wants one rank, not %d", t->world.size);
    if (t->opt.unsharded && (p->opt.save != NULL || p->opt.resume != NULL))
        return fail(ERR_ARGUMENT, "--unsharded has no checkpoints: leave out --save and --resume");
    if (p->opt.every > 0 && p->opt.save == NULL)
        return fail(ERR_ARGUMENT, "--every %d: where to? (--save DIR)", p->opt.every);
    if (t->opt.strategic && (t->opt.unsharded || t->opt.keep))
        return fail(ERR_ARGUMENT,
                    "--strategy, --replicas, --accumulate and --dtype go neither with "
                    "--unsharded nor with --keep (zero2 keeps)");
    if (t->opt.strategy == STRATEGY_DDP && t->opt.replicas > 1)
        return fail(ERR_ARGUMENT,
                    "--strategy ddp has a replica on every rank: leave --replicas out");
    if (t->opt.replicas > t->world.size || t->world.size % t->opt.replicas != 0)
        return fail(ERR_ARGUMENT, "--replicas %d does not divide %d ranks", t->opt.replicas,
                    t->world.size);
    int shards = t->world.size / t->opt.replicas, slice = t->opt.reshard_ranks;
    if (slice > 0 &&
        (t->opt.strategy != STRATEGY_ZERO3 || slice == 1 || slice >= shards || shards % slice != 0))
        return fail(ERR_ARGUMENT,
                    "--reshard-ranks %d: it is for zero3, and divides the %d ranks that shard, but "
                    "is neither 1 (take zero2) nor all of them (leave it out)",
                    slice, shards);
    TRY(text_load(&p->text, p->opt.files, p->opt.n_files, t->opt.T));
    size_t rows = (size_t)t->opt.accumulate * (size_t)t->opt.B * (size_t)t->opt.T;
    p->in = malloc(2 * rows * sizeof *p->in);
    if (p->in == NULL) return fail(ERR_MEMORY, "no host memory for a batch of %zu tokens", rows);
    p->targets = p->in + rows;
    t->model = model_create(&t->opt.model, &t->opt.llama);
    return t->model == NULL ? ERR_ARGUMENT : OK;
}

// ---- Checkpoints ----

// Saves after the step, if it is one after which there is a save.
static Status save_after(Program *p, int step)
{
    const Options *o = &p->opt;
    Trainer *t = &p->trainer;
    if (o->save == NULL || (step != t->opt.steps && (o->every == 0 || step % o->every != 0)))
        return OK;
    CheckpointPosition position = {.step = step, .data_seed = t->opt.seed};
    trainer_scale(t, &position.loss_scale, &position.growth_tracker, false);
    return checkpoint_save(o->save, t->model, &t->adamw, &position);
}

// The model, the optimizer and the data go on where the checkpoint was made.
static Status resume(Program *p)
{
    Trainer *t = &p->trainer;
    CheckpointPosition position;
    if (p->opt.resume == NULL) return OK;
    TRY(checkpoint_load(p->opt.resume, t->model, &t->adamw, &position));
    if (position.step >= t->opt.steps)
        return fail(ERR_ARGUMENT, "%s: %lld steps were done, and --steps is %d: nothing is left",
                    p->opt.resume, (long long)position.step, t->opt.steps);
    p->done = (int)position.step;
    t->opt.seed = position.data_seed;
    trainer_scale(t, &position.loss_scale, &position.growth_tracker, true);
    if (t->world.rank == 0) printf("resumed from %s after step %d\n", p->opt.resume, p->done);
    return OK;
}

// ---- Training ----

static Status train_step(Program *p, int step, float *loss)
{
    Trainer *t = &p->trainer;
    int B = t->opt.B * t->opt.accumulate;
    text_batch(&p->text, t->opt.seed, step, t->world.rank * B, B, t->opt.T, p->in, p->targets);
    return trainer_step(t, step, p->in, p->targets, loss);
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
        text_held_out(&p->text, t->opt.seed, i, t->world.rank * t->opt.B, t->opt.B, t->opt.T, p->in,
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
    int64_t n = meta_count(t->model);
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
           1e-6 * (double)held, 16e-6 * (double)meta_count(t->model), 1e-6 * (double)peak);
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
    enum { N = 7 };
    GpuTraffic gather = gpulog_traffic(GPU_ALL_GATHER),
               scatter = gpulog_traffic(GPU_REDUCE_SCATTER),
               reduce = gpulog_traffic(GPU_ALL_REDUCE);
    uint64_t steps = (uint64_t)t->opt.steps;
    const uint64_t mine[N] = {live,
                              peak,
                              gather.sent / steps,
                              scatter.sent / steps,
                              reduce.sent / steps,
                              (gather.calls + scatter.calls + reduce.calls) / steps,
                              (uint64_t)(1e6 * (double)elapsed) / steps};
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
    long long n = (long long)meta_count(t->model);
    printf("%s of %lld parameters on %d rank%s, %s, %d · %d tokens a rank, %zu bytes of text\n",
           model_name(&t->opt.llama), n, t->world.size, t->world.size == 1 ? "" : "s",
           t->opt.unsharded ? "without FSDP" : "FSDP", t->opt.B, t->opt.T, p->text.length);
    if (p->opt.brief && t->opt.unsharded)
        printf("%.1f MB with the gradients and Adam's two moments: 16 bytes each\n",
               16e-6 * (double)n);
    fflush(stdout);
}

static Status run(Program *p)
{
    Trainer *t = &p->trainer;
    if (!t->opt.unsharded) TRY(world_connect(&t->world, &t->comm));
    if (t->world.rank == 0 && !p->opt.figures) introduce(p);
    if (p->opt.resume != NULL) checkpoint_storage_only(t->model);
    TRY(trainer_create(t));
    TRY(resume(p));
    size_t buffers = 2 * (size_t)t->opt.B * (size_t)t->opt.T * sizeof(int32_t);
    uint64_t live = gpulog_live_bytes(t->device) - buffers;
    gpulog_reset_peak(t->device);
    gpulog_reset_traffic();
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
