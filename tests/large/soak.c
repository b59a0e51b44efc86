/* The soak: random right programs on 8 ranks, for an hour, without a report, a leak or growth.
 *
 * A round has a seed. In it, the ranks make a communicator, play a random plan of collectives,
 * messages, groups and splits (simgpu/stress/plan.h), and destroy it; then each rank runs random
 * programs of two devices of its own, of streams, events, copies, pinned memory and threads, that
 * the oracle of the race checker calls right (simgpu/random/program.h). All results are checked. At
 * the end of a round nothing is left of it; so every process must be as large as it was after the
 * first rounds: its memory, descriptors, threads and mappings, and the machine's /dev/shm.
 *
 * Run it with `make soak`. Environment: SOAK_SECONDS=3600, and SOAK_SEED=1, the first round's seed.
 * Every minute, rank 0 prints a line.
 */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../../simgpu/tests/random/program.h"
#include "../../simgpu/tests/stress/plan.h"
#include "draw.h"
#include "harness.h"
#include "run.h"

enum { WORLD = 8, BATCHES = 25, PROGRAMS = 20, WARM_ROUNDS = 300, LEAST_ROUNDS = 600 };
// The allocator of C keeps pages as it likes. A leak of 100 bytes a round is more.
static const long SLACK_KIB = 1024;
// Of a device's arena the pages stay that a random layout has once reached, its own and the peers';
// a device keeps up to 16 MB of freed memory back, so records become rare, and end.
static const long ARENAS_KIB = 8192;
enum { MORE_MAPPINGS = 4 };

typedef struct Size {
    long memory, arenas; // KiB: the process's own; pages of arenas, and of what else ranks share
    long live;           // bytes that are allocated on its devices
    long descriptors;    // open
    long threads, mappings, shm;
} Size;

typedef struct Soak {
    double seconds;
    uint64_t seed, rounds, calls;
    uint64_t programs[WORLD];
    Size warm[WORLD], end[WORLD];
} Soak;

static double number_of(const char *name, double otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strtod(text, NULL) : otherwise;
}

// ---- How large a process is ----

static long entries_of(const char *path)
{
    DIR *folder = opendir(path);
    long n = 0;
    if (!folder) return 0;
    while (readdir(folder)) n++;
    closedir(folder);
    return n;
}

// The number behind a word of /proc/self/status.
static long status_of(const char *word)
{
    char line[256];
    long value = -1;
    FILE *file = fopen("/proc/self/status", "r");
    check(file != NULL, "/proc/self/status cannot be read");
    while (value < 0 && fgets(line, sizeof line, file))
        if (strncmp(line, word, strlen(word)) == 0) value = strtol(line + strlen(word), NULL, 10);
    fclose(file);
    check(value >= 0, "/proc/self/status has no line %s", word);
    return value;
}

static long lines_of(const char *path)
{
    FILE *file = fopen(path, "r");
    long n = 0;
    check(file != NULL, "%s cannot be read", path);
    for (int c; (c = getc(file)) != EOF;) n += c == '\n';
    fclose(file);
    return n;
}

static Size size_now(void)
{
    size_t live = 0;
    for (int d = 0; d < WORLD; d++) live += gpulog_live_bytes(d);
    return (Size){.memory = status_of("RssAnon:"),
                  .arenas = status_of("RssShmem:"),
                  .live = (long)live,
                  .descriptors = entries_of("/proc/self/fd"),
                  .threads = status_of("Threads:"),
                  .mappings = lines_of("/proc/self/maps"),
                  .shm = entries_of("/dev/shm")};
}

static void print_size(const char *when, const Size *s)
{
    printf("%s: %ld KiB, %ld KiB of arenas, %ld bytes live, %ld descriptors, %ld threads, %ld "
           "mappings, %ld in /dev/shm\n",
           when, s->memory, s->arenas, s->live, s->descriptors, s->threads, s->mappings, s->shm);
    fflush(stdout);
}

static bool has_grown(const Size *from, const Size *to)
{
    return to->memory > from->memory + SLACK_KIB || to->arenas > from->arenas + ARENAS_KIB ||
           to->live > from->live || to->descriptors > from->descriptors ||
           to->threads > from->threads || to->mappings > from->mappings + MORE_MAPPINGS ||
           to->shm > from->shm;
}

// ---- A round ----

static void play_plan(const Rank *r, uint64_t seed)
{
    Actor actor = {.rank = r->rank, .world = r->world};
    need_nccl(ncclCommSplit(r->comm, 0, r->rank, &actor.comm[0], NULL));
    equip(&actor, 1);
    play(&actor, 1, seed, BATCHES);
    strip(&actor, 1);
    need_nccl(ncclCommDestroy(actor.comm[0]));
}

// Programs that a rank draws until enough are right.
static void run_programs(const Rank *r, uint64_t seed, Soak *soak)
{
    Program p;
    Verdict v;
    Heard h;
    machine_start(false, true, ALL_RANKS, NULL);
    for (int done = 0; done < PROGRAMS; seed++) {
        generate(&p, draw_number(seed, 30 + (uint64_t)r->rank, 0));
        p.timed = true; // right whatever its queries are told: "not ready" orders nothing
        p.not_ready = ~0U;
        judge(&p, FORGET_NOTHING, &v);
        if (v.n || v.too_large || v.use_after_free) continue;
        run_program(&p, &h);
        check(h.races + h.others == 0, "SEED=%llu RANDOM_PROGRAMS=1 is right: %s",
              (unsigned long long)p.seed, h.text);
        check(!h.trouble[0], "SEED=%llu RANDOM_PROGRAMS=1: %s", (unsigned long long)p.seed,
              h.trouble);
        soak->programs[r->rank]++;
        done++;
    }
    machine_stop();
    trouble_listen(); // the machine has listened to the reports itself
    need_cuda(cudaSetDevice(r->device));
}

// Whether rank 0 says that there is another round: all must agree.
static bool goes_on(const Rank *r, double end)
{
    float *x, more = seconds_now() < end;
    need_cuda(cudaMalloc((void **)&x, sizeof more));
    need_cuda(cudaMemcpyAsync(x, &more, sizeof more, cudaMemcpyHostToDevice, r->stream));
    need_nccl(ncclBroadcast(x, x, 1, ncclFloat, 0, r->comm, r->stream));
    need_cuda(cudaStreamSynchronize(r->stream));
    need_cuda(cudaMemcpy(&more, x, sizeof more, cudaMemcpyDeviceToHost));
    need_cuda(cudaFree(x));
    return more > 0;
}

static void soak_rank(const Rank *r, void *arg)
{
    Soak *soak = arg;
    double begin = seconds_now(), due = begin + 60;
    for (uint64_t round = 0; goes_on(r, begin + soak->seconds) || round < LEAST_ROUNDS; round++) {
        play_plan(r, soak->seed + round);
        run_programs(r, soak->seed + round * 1000, soak);
        if (round == WARM_ROUNDS) soak->warm[r->rank] = size_now();
        if (r->rank != 0) continue;
        soak->rounds++;
        if (round == WARM_ROUNDS) print_size("warm", &soak->warm[0]);
        if (seconds_now() < due) continue;
        Size size = size_now();
        printf("%.0f s, %llu rounds; ", seconds_now() - begin, (unsigned long long)soak->rounds);
        print_size("rank 0", &size);
        due += 60;
    }
    soak->end[r->rank] = size_now();
}

TEST(test_soak)
{
    Soak *soak = shared_alloc(sizeof *soak);
    setenv("SIMGPU_LOG", "1000", 1); // the log grows until it is full
    soak->seconds = number_of("SOAK_SECONDS", 3600);
    soak->seed = (uint64_t)number_of("SOAK_SEED", 1);
    run_ranks_limit(WORLD, 2 * soak->seconds + 600, soak_rank, soak);
    uint64_t programs = 0;
    bool grown = false;
    for (int r = 0; r < WORLD; r++) {
        programs += soak->programs[r];
        grown |= has_grown(&soak->warm[r], &soak->end[r]);
        printf("rank %d, ", r);
        print_size("warm", &soak->warm[r]);
        print_size("        at the end", &soak->end[r]);
    }
    printf("%llu rounds of %d ranks, and %llu programs, from SOAK_SEED=%llu\n",
           (unsigned long long)soak->rounds, WORLD, (unsigned long long)programs,
           (unsigned long long)soak->seed);
    if (grown) fail_msg("a rank has grown since its round %d", WARM_ROUNDS);
}

SUITE_MAIN("soak")
