/* train_step.c: what a training step of examples/train_gpt2 costs, and starting up: the same
 * trainer (examples/common/trainer.h), on drawn tokens of any vocabulary.
 *
 *   [launch -n W] train_step [--layers N] [--heads N] [--dim N] [--context N] [--vocab N]
 *                            [--batch N] [--sequence N] [--warm-up N] [--steps N] [--unsharded]
 *                            [--graph] [--attention plain|fused]
 *
 * --batch is of each rank. With --steps 0 nothing is trained. Rank 0 prints one line of JSON:
 *
 *   ranks, parameters; tokens: of a step, of all ranks
 *   start_user, start_sys, start_wall  seconds until the first step could begin, per rank
 *   first         CPU seconds of the steps of the warm-up, all ranks together
 *   cpu, wall     a number per step: CPU seconds of all ranks together, seconds of rank 0
 *   peak          VmHWM in bytes, per rank
 *   loss          of the last step, this rank's
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "../examples/common/options.h"
#include "../examples/common/trainer.h"

typedef struct Bench {
    Trainer trainer;
    int warm_up, steps;
    int32_t *in, *targets; // host: (B·T) each
    // What this rank found, in nanoseconds, and its peak in bytes.
    enum { START_USER, START_SYS, START_WALL, FIRST, PEAK, STEPS } layout;
    uint64_t *found, *all; // (STEPS + 2·steps): of each step CPU time and time; of all ranks
    float loss;
} Bench;

// ---- Clocks ----

static uint64_t wall_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t nanoseconds(struct timeval t)
{
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_usec * 1000u;
}

// User and system time of all threads of the process.
static uint64_t cpu_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static Status read_peak(uint64_t *bytes)
{
    char line[256];
    unsigned long long kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    if (file == NULL) return fail(ERR_IO, "/proc/self/status cannot be read");
    while (kib == 0 && fgets(line, sizeof line, file)) sscanf(line, "VmHWM: %llu kB", &kib);
    fclose(file);
    *bytes = kib * 1024;
    return kib > 0 ? OK : fail(ERR_IO, "/proc/self/status has no VmHWM");
}

// ---- The command line ----

static const char *const ATTENTIONS[] = {"plain", "fused", NULL}; // as AttentionKind

static Status parse(Bench *b, int argc, char **argv)
{
    TrainerOptions *t = &b->trainer.opt;
    const World *world = &b->trainer.world;
    int rest;
    bool help;
    const Option options[] = {
        {"layers", OPTION_INT, &t->model.layers, 1, NULL, NULL},
        {"heads", OPTION_INT, &t->model.heads, 1, NULL, NULL},
        {"dim", OPTION_INT, &t->model.dim, 1, NULL, NULL},
        {"context", OPTION_INT, &t->model.max_T, 1, NULL, NULL},
        {"vocab", OPTION_INT, &t->model.vocab, 2, NULL, NULL},
        {"batch", OPTION_INT, &t->B, 1, NULL, NULL},
        {"sequence", OPTION_INT, &t->T, 1, NULL, NULL},
        {"warm-up", OPTION_INT, &b->warm_up, 0, NULL, NULL},
        {"steps", OPTION_INT, &b->steps, 0, NULL, NULL},
        {"unsharded", OPTION_FLAG, &t->unsharded, 0, NULL, NULL},
        {"graph", OPTION_FLAG, &t->graph, 0, NULL, NULL},
        {"attention", OPTION_CHOICE, &t->model.attention, 0, ATTENTIONS, NULL},
    };
    *t = (TrainerOptions){
        .model = {.vocab = 256, .max_T = 64, .layers = 6, .heads = 8, .dim = 256},
        .adamw = {.lr = 1e-4f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0.1f},
        .B = 2,
        .clip = 1.0f,
        .seed = 42};
    b->warm_up = 1;
    b->steps = 5;
    TRY(options_parse(options, sizeof options / sizeof options[0], argc, argv, &rest, &help));
    if (help || rest < argc)
        return fail(ERR_ARGUMENT, "train_step: options only; bench/train_step.c says which");
    if (t->T == 0) t->T = t->model.max_T;
    if (t->T > t->model.max_T)
        return fail(ERR_ARGUMENT, "--sequence %d: the model takes at most %d tokens", t->T,
                    t->model.max_T);
    if (t->unsharded && world->size != 1)
        return fail(ERR_ARGUMENT, "--unsharded wants one rank, not %d", world->size);
    t->steps = b->warm_up + b->steps;
    if (t->steps < 1) t->steps = 1;
    return OK;
}

static Status prepare(Bench *b)
{
    Trainer *t = &b->trainer;
    size_t rows = (size_t)t->opt.B * (size_t)t->opt.T, n = (size_t)(STEPS + 2 * b->steps);
    b->in = malloc(2 * rows * sizeof *b->in);
    b->found = calloc(n, sizeof *b->found);
    b->all = calloc(n * (size_t)t->world.size, sizeof *b->all);
    if (b->in == NULL || b->found == NULL || b->all == NULL)
        return fail(ERR_MEMORY, "no host memory for a batch of %zu tokens", rows);
    b->targets = b->in + rows;
    t->model = model_create(&t->opt.model, &t->opt.llama);
    return t->model == NULL ? ERR_ARGUMENT : OK;
}

// ---- The steps ----

// Other tokens on each rank and in each step.
static void draw(Bench *b, int step)
{
    const TrainerOptions *o = &b->trainer.opt;
    uint32_t state = 8812u * (uint32_t)step + 31u * (uint32_t)b->trainer.world.rank;
    int rows = o->B * o->T;
    for (int i = 0; i < 2 * rows; i++) {
        state = state * 1664525u + 1013904223u;
        b->in[i] = (int32_t)((state >> 4) % (uint32_t)o->model.vocab);
    }
}

static Status one_step(Bench *b, int step)
{
    Trainer *t = &b->trainer;
    draw(b, step);
    TRY(trainer_step(t, step, b->in, b->targets, &b->loss));
    CUDA_TRY(cudaStreamSynchronize(t->stream));
    return OK;
}

static Status train(Bench *b)
{
    uint64_t cpu = cpu_now();
    for (int step = 1; step <= b->warm_up && b->steps > 0; step++) TRY(one_step(b, step));
    b->found[FIRST] = cpu_now() - cpu;
    for (int i = 0; i < b->steps; i++) {
        uint64_t *found = b->found + STEPS + 2 * i, wall = wall_now();
        cpu = cpu_now();
        TRY(one_step(b, b->warm_up + 1 + i));
        found[0] = cpu_now() - cpu;
        found[1] = wall_now() - wall;
    }
    return read_peak(&b->found[PEAK]);
}

// ---- What was found ----

static void print_ranks(const Bench *b, const char *name, int what, double unit)
{
    int size = b->trainer.world.size, n = STEPS + 2 * b->steps;
    printf(", \"%s\": [", name);
    for (int r = 0; r < size; r++)
        printf("%s%.9g", r > 0 ? ", " : "", unit * (double)b->all[(size_t)r * (size_t)n + what]);
    printf("]");
}

static double sum(const Bench *b, int what)
{
    double total = 0.0;
    size_t n = (size_t)(STEPS + 2 * b->steps);
    for (int r = 0; r < b->trainer.world.size; r++)
        total += 1e-9 * (double)b->all[(size_t)r * n + (size_t)what];
    return total;
}

static void print(const Bench *b, int64_t parameters)
{
    const Trainer *t = &b->trainer;
    printf("{\"ranks\": %d, \"parameters\": %lld, \"tokens\": %d", t->world.size,
           (long long)parameters, t->world.size * t->opt.B * t->opt.T);
    print_ranks(b, "start_user", START_USER, 1e-9);
    print_ranks(b, "start_sys", START_SYS, 1e-9);
    print_ranks(b, "start_wall", START_WALL, 1e-9);
    printf(", \"first\": %.9g, \"cpu\": [", sum(b, FIRST));
    for (int i = 0; i < b->steps; i++) printf("%s%.9g", i > 0 ? ", " : "", sum(b, STEPS + 2 * i));
    printf("], \"wall\": [");
    for (int i = 0; i < b->steps; i++)
        printf("%s%.9g", i > 0 ? ", " : "", 1e-9 * (double)b->all[STEPS + 2 * i + 1]);
    printf("]");
    print_ranks(b, "peak", PEAK, 1.0);
    printf(", \"loss\": %.6g}\n", isfinite(b->loss) ? (double)b->loss : -1.0);
}

static Status run(Bench *b, uint64_t started)
{
    Trainer *t = &b->trainer;
    struct rusage used;
    if (!t->opt.unsharded) TRY(world_connect(&t->world, &t->comm));
    TRY(trainer_create(t));
    CUDA_TRY(cudaStreamSynchronize(t->stream));
    getrusage(RUSAGE_SELF, &used);
    b->found[START_USER] = nanoseconds(used.ru_utime);
    b->found[START_SYS] = nanoseconds(used.ru_stime);
    b->found[START_WALL] = wall_now() - started;
    TRY(train(b));
    TRY(gather_over_ranks(t, b->found, STEPS + 2 * b->steps, b->all));
    if (t->world.rank == 0) print(b, t->parameters);
    bool connected = !t->opt.unsharded;
    TRY(trainer_destroy(t));
    return connected ? world_disconnect(t->comm) : OK;
}

int main(int argc, char **argv)
{
    static Bench bench;
    World *world = &bench.trainer.world;
    uint64_t started = wall_now();
    if (world_from_env(world) != OK) return 2;
    check_set_silent(world->rank != 0);
    if (parse(&bench, argc, argv) != OK || prepare(&bench) != OK) return 2;
    check_set_silent(false);
    check_set_rank(world->size > 1 ? world->rank : -1);
    Status status = run(&bench, started);
    free(bench.in);
    free(bench.found);
    free(bench.all);
    return status == OK ? 0 : 1;
}
