/* Long random sequences of collectives, messages, groups and splits, and ranks killed at a random
 * moment of one.
 *
 * A seed says everything: the world's size, and the plan (stress/plan.h). The same plan runs with a
 * process for each rank, with a thread for each rank, and in one thread that serves all ranks by
 * groups.
 *
 * Environment: SHARDLAB_STRESS=N runs N seeds of each kind, instead of a few;
 * SHARDLAB_STRESS_SEED=S begins with seed S. A failure names its seed.
 */
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "draw.h"
#include "heard.h"
#include "stress/plan.h"

enum { BATCHES = 25, SEEDS = 8, KILLS = 50 };

static int world_of(uint64_t seed)
{
    return 2 + (int)(draw_number(seed, 1, 0) % (MAX_WORLD - 1));
}

// Whether the communicators block, and whether several threads of a rank use them in turn.
static ncclConfig_t config_of(uint64_t seed)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = draw_number(seed, 1, 1) % 2 == 0;
    return config;
}

static bool in_turn(uint64_t seed)
{
    return draw_number(seed, 1, 2) % 2 == 0;
}

static void settle(ncclComm_t comm)
{
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress) need_nccl(ncclCommGetAsyncError(comm, &state));
    need_nccl(state);
}

// ---- Three ways to have ranks ----

static void as_process(const Rank *r, void *arg)
{
    uint64_t seed = *(const uint64_t *)arg;
    Actor actor = {.rank = r->rank, .world = r->world, .in_turn = in_turn(seed)};
    ncclConfig_t config = config_of(seed);
    need_nccl(ncclCommSplit(r->comm, 0, r->rank, &actor.comm[0], &config));
    equip(&actor, 1);
    play(&actor, 1, seed, BATCHES);
    strip(&actor, 1);
    need_nccl(ncclCommDestroy(actor.comm[0]));
}

typedef struct Worker {
    pthread_t thread;
    ncclUniqueId id;
    uint64_t seed;
    int rank;
} Worker;

static void *work(void *arg)
{
    Worker *w = arg;
    Actor actor = {.rank = w->rank, .world = world_of(w->seed), .in_turn = in_turn(w->seed)};
    ncclConfig_t config = config_of(w->seed);
    need_cuda(cudaSetDevice(w->rank));
    ncclCommInitRankConfig(&actor.comm[0], actor.world, w->id, w->rank, &config);
    settle(actor.comm[0]);
    equip(&actor, 1);
    play(&actor, 1, w->seed, BATCHES);
    strip(&actor, 1);
    need_nccl(ncclCommDestroy(actor.comm[0]));
    return NULL;
}

static void as_threads(const Rank *r, void *arg)
{
    uint64_t seed = *(const uint64_t *)arg;
    Worker worker[MAX_WORLD];
    ncclUniqueId id;
    int world = world_of(seed);
    need_nccl(ncclGetUniqueId(&id));
    for (int d = 0; d < world; d++) {
        worker[d] = (Worker){.id = id, .seed = seed, .rank = d};
        check(pthread_create(&worker[d].thread, NULL, work, &worker[d]) == 0, "no thread");
    }
    for (int d = 0; d < world; d++) pthread_join(worker[d].thread, NULL);
}

static void as_one_thread(const Rank *r, void *arg)
{
    uint64_t seed = *(const uint64_t *)arg;
    int world = world_of(seed);
    Actor actor[MAX_WORLD] = {{0}};
    ncclComm_t comm[MAX_WORLD];
    ncclUniqueId id;
    ncclConfig_t config = config_of(seed);
    need_nccl(ncclGetUniqueId(&id));
    need_nccl(ncclGroupStart());
    for (int d = 0; d < world; d++) {
        need_cuda(cudaSetDevice(d));
        need_nccl(ncclCommInitRankConfig(&comm[d], world, id, d, &config));
    }
    ncclGroupEnd();
    for (int d = 0; d < world; d++) {
        settle(comm[d]);
        actor[d] = (Actor){.rank = d, .world = world, .comm = {comm[d]}, .in_turn = in_turn(seed)};
    }
    equip(actor, world);
    play(actor, world, seed, BATCHES);
    strip(actor, world);
    for (int d = 0; d < world; d++) need_nccl(ncclCommDestroy(comm[d]));
    need_cuda(cudaSetDevice(0));
}

static void run_seeds(RankBody body, bool processes)
{
    uint64_t first = setting("SHARDLAB_STRESS_SEED", 1);
    uint64_t n = setting("SHARDLAB_STRESS", SEEDS);
    for (uint64_t seed = first; seed < first + n; seed++) {
        char *message = run_ranks_message(processes ? world_of(seed) : 1, 60, body, &seed);
        if (message)
            fail_msg("with SHARDLAB_STRESS_SEED=%llu: %s", (unsigned long long)seed, message);
    }
}

TEST(test_processes)
{
    run_seeds(as_process, true);
}

TEST(test_threads)
{
    run_seeds(as_threads, false);
}

TEST(test_one_thread)
{
    run_seeds(as_one_thread, false);
}

// ---- A rank is killed ----

typedef struct Killing {
    uint64_t seed;
    int victim;
    pid_t pid; // of the victim
    Heard heard[MAX_WORLD];
} Killing;

// The kernel does it, at a moment that no call of the rank knows of.
static void kill_me_later(uint64_t nanoseconds)
{
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGKILL};
    struct itimerspec when = {.it_value = {0, (long)nanoseconds + 1}};
    check(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0, "no timer");
    check(timer_settime(timer, 0, &when, NULL) == 0, "no timer");
}

static void until_killed(const Rank *r, void *arg)
{
    Killing *killing = arg;
    Actor actor = {.rank = r->rank, .world = r->world, .comm = {r->comm}, .blocks = true};
    hear(&killing->heard[r->rank]);
    need_nccl(ncclAllGather(NULL, NULL, 0, ncclFloat, r->comm, r->stream)); // all hear
    if (r->rank == killing->victim) {
        killing->pid = getpid();
        kill_me_later(draw_number(killing->seed, 6, 0) % 40000000);
    }
    equip(&actor, 1);
    for (;;) play(&actor, 1, killing->seed, BATCHES);
}

// A survivor says who died, or that another has said so. `message` is what the harness heard.
static bool told_whole(const Killing *killing, int rank, const char *message)
{
    const Heard *heard = &killing->heard[rank];
    char process[64];
    snprintf(process, sizeof process, "rocess %d", (int)killing->pid); // or "Process"
    if (heard->count != 1 || (!strstr(heard->title, "will never arrive") &&
                              !strstr(heard->title, "ended before it joined") &&
                              !strstr(heard->title, "ended: see its report")))
        fail_msg(
            "SHARDLAB_STRESS_SEED=%llu: rank %d was killed, and rank %d made %d reports: %s\n%s",
            (unsigned long long)killing->seed, killing->victim, rank, heard->count, heard->text,
            message);
    if (strstr(heard->title, "ended: see its report")) return false;
    if (!strstr(heard->text, process))
        fail_msg("SHARDLAB_STRESS_SEED=%llu: rank %d (process %d) was killed, and rank %d says: %s",
                 (unsigned long long)killing->seed, killing->victim, (int)killing->pid, rank,
                 heard->text);
    return true;
}

static int entries_of(const char *path)
{
    DIR *folder = opendir(path);
    int n = 0;
    if (!folder) return 0;
    while (readdir(folder)) n++;
    closedir(folder);
    return n;
}

TEST(test_kills)
{
    uint64_t first = setting("SHARDLAB_STRESS_SEED", 1);
    uint64_t n = setting("SHARDLAB_STRESS", KILLS);
    Killing *killing = shared_alloc(sizeof *killing);
    int descriptors = 0;
    prctl(PR_SET_CHILD_SUBREAPER, 1); // what ranks leave behind comes to this process
    for (uint64_t seed = first; seed < first + n; seed++) {
        int world = world_of(seed);
        memset(killing, 0, sizeof *killing);
        killing->seed = seed;
        killing->victim = (int)(draw_number(seed, 7, 0) % (unsigned)world);
        char *message = run_ranks_message(world, 20, until_killed, killing);
        assert_non_null(message);
        bool told = false;
        for (int r = 0; r < world; r++)
            if (r != killing->victim) told |= told_whole(killing, r, message);
        if (!told || strstr(message, "limit"))
            fail_msg("SHARDLAB_STRESS_SEED=%llu: %s", (unsigned long long)seed, message);
        free(message);
        assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
        assert_int_equal(errno, ECHILD);
        if (seed == first) descriptors = entries_of("/proc/self/fd"); // with those that stay
    }
    assert_int_equal(entries_of("/proc/self/fd"), descriptors);
}

SUITE_MAIN("simgpu/stress")
