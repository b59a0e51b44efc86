/* Ranks that end before they joined a communicator, and ranks that come late. Where a launcher says
 * who the ranks are (SIMGPU_WORLD; launch_ranks does), the others end at once with a report that
 * names the process and how it ended: by a signal, badly or well, before it used simgpu or after,
 * with either kind of id. What looks alike and is right goes on: a process that brings all ranks
 * while the others have nothing to do. Where nobody says so, a rank waits, and a notice on stderr
 * says for whom. A launcher's lines may be unfinished, odd, or later than its ranks.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "heard.h"
#include "launch.h" // whose ncclCommDestroy ends the watch of the communicator first
#include "run.h"

enum { WORLD = 3, LIMIT = 20, BAD = 3 };
enum End { KILLED, FAILED, DONE, ENDS };
enum When { BEFORE_SIMGPU, BEFORE_JOINING, WHENS };

typedef struct Shared {
    enum End end;
    enum When when;
    int victim;
    bool by_text;
    _Atomic int published;
    ncclUniqueId id;
    Heard heard[WORLD];
} Shared;

static void must(bool ok)
{
    if (!ok) _exit(90);
}

static ncclUniqueId meet(Shared *shared, int rank, int maker)
{
    ncclUniqueId id;
    if (shared->by_text) {
        must(ncclGetUniqueId(&id) == ncclSuccess);
        return id;
    }
    if (rank == maker) {
        must(ncclGetUniqueId(&shared->id) == ncclSuccess);
        atomic_store(&shared->published, 1);
    }
    while (!atomic_load(&shared->published)) pause_for(0.001);
    return shared->id;
}

// ---- With a launcher ----

static int end_now(const Shared *shared)
{
    if (shared->end == KILLED) kill(getpid(), SIGKILL);
    if (shared->end == FAILED) _exit(BAD);
    return 0;
}

static int be_rank(const World *world, void *arg)
{
    Shared *shared = arg;
    ncclComm_t comm;
    bool ends = world->rank == shared->victim;
    if (ends && shared->when == BEFORE_SIMGPU) return end_now(shared);
    hear(&shared->heard[world->rank]);
    sanitize_note_threads();
    must(cudaSetDevice(world->rank) == cudaSuccess && cudaFree(NULL) == cudaSuccess);
    ncclUniqueId id = meet(shared, world->rank, 1);
    if (ends) return end_now(shared);
    ncclCommInitRank(&comm, world->size, id, world->rank);
    return 91; // it must not come back
}

static void expect_told(const Shared *shared, const RankEnd *ends, const char *what)
{
    static const char *const words[] = {"was killed by signal 9", "exited with status 3",
                                        "exited with status 0"};
    for (int r = 0; r < WORLD; r++) {
        const Heard *heard = &shared->heard[r];
        char who[64];
        if (r == shared->victim) continue;
        snprintf(who, sizeof who, "(process %d)", (int)ends[shared->victim].pid);
        if (ends[r].how == RANK_EXITED && ends[r].code == SIMGPU_FATAL_EXIT) {
            if (strstr(heard->title, "ended: see its report")) continue; // the other's
            if (strcmp(heard->title, "a rank ended before it joined the communicator") == 0 &&
                strstr(heard->text, who) && strstr(heard->text, words[shared->end]))
                continue;
        }
        fail_msg("%s: rank %d ended how %d, code %d, and says: %s", what, r, ends[r].how,
                 ends[r].code, heard->text);
    }
}

static void run_case(const Shared *wanted)
{
    Shared *shared = shared_alloc(sizeof *shared);
    RankEnd ends[WORLD];
    char text[64], what[128];
    *shared = *wanted;
    snprintf(text, sizeof text, "world-%d:1", getpid());
    snprintf(what, sizeof what, "rank %d, end %d, %s, id by %s", shared->victim, shared->end,
             shared->when == BEFORE_SIMGPU ? "before simgpu" : "before joining",
             shared->by_text ? "text" : "process");
    if (shared->by_text) setenv("NCCL_COMM_ID", text, 1);
    IGNORE_STATUS(launch_ranks(WORLD, LIMIT * time_factor(), be_rank, shared, ends));
    unsetenv("NCCL_COMM_ID");
    expect_told(shared, ends, what);
}

TEST(test_ends_before_joining)
{
    for (int end = 0; end < ENDS; end++)
        for (int when = 0; when < WHENS; when++)
            for (int by_text = 0; by_text < 2; by_text++)
                for (int victim = 0; victim < WORLD; victim += 2)
                    run_case(
                        &(Shared){.end = end, .when = when, .victim = victim, .by_text = by_text});
}

// A rank of a world that is a launcher itself: its ranks are of the inner world.
static int be_launcher(const World *world, void *arg)
{
    RankEnd ends[WORLD];
    IGNORE_STATUS(launch_ranks(WORLD, LIMIT * time_factor(), be_rank, arg, ends));
    expect_told(arg, ends, "an inner world");
    return 0;
}

TEST(test_a_world_within_a_world)
{
    Shared *shared = shared_alloc(sizeof *shared);
    RankEnd end;
    *shared = (Shared){.end = FAILED, .when = BEFORE_SIMGPU, .victim = 2};
    assert_int_equal(launch_ranks(1, 2 * LIMIT * time_factor(), be_launcher, shared, &end), OK);
}

// ---- One process brings all ranks, and the other one has nothing to do ----

typedef struct Bringer {
    ncclUniqueId id;
    int rank;
    bool ok;
} Bringer;

static void *bring(void *arg)
{
    Bringer *bringer = arg;
    ncclComm_t comm;
    pause_for(0.2 * bringer->rank); // the first one waits, and the other process has ended
    bringer->ok = cudaSetDevice(bringer->rank) == cudaSuccess &&
                  ncclCommInitRank(&comm, 2, bringer->id, bringer->rank) == ncclSuccess &&
                  ncclCommDestroy(comm) == ncclSuccess;
    return NULL;
}

static int bring_all_by_threads(const World *world, void *arg)
{
    pthread_t thread[2];
    Bringer bringer[2];
    ncclUniqueId id;
    if (world->rank == 1) return 0;
    must(ncclGetUniqueId(&id) == ncclSuccess);
    for (int r = 0; r < 2; r++) {
        bringer[r] = (Bringer){.id = id, .rank = r};
        must(pthread_create(&thread[r], NULL, bring, &bringer[r]) == 0);
    }
    for (int r = 0; r < 2; r++) pthread_join(thread[r], NULL);
    return !bringer[0].ok || !bringer[1].ok;
}

static int bring_all_at_once(const World *world, void *arg)
{
    ncclComm_t comm[2];
    if (world->rank == 1) return 0;
    pause_for(0.1); // the other process has ended
    must(ncclCommInitAll(comm, 2, NULL) == ncclSuccess);
    for (int d = 0; d < 2; d++) must(ncclCommDestroy(comm[d]) == ncclSuccess);
    return 0;
}

TEST(test_a_process_without_a_rank)
{
    RankEnd ends[2];
    assert_int_equal(launch_ranks(2, LIMIT * time_factor(), bring_all_by_threads, NULL, ends), OK);
    assert_int_equal(launch_ranks(2, LIMIT * time_factor(), bring_all_at_once, NULL, ends), OK);
}

// A communicator of some ranks only; the third ends well while the second is still on its way.
static int be_of_a_part(const World *world, void *arg)
{
    Shared *shared = arg;
    ncclComm_t comm;
    if (world->rank == 2) return 0;
    must(cudaSetDevice(world->rank) == cudaSuccess);
    ncclUniqueId id = meet(shared, world->rank, 1);
    pause_for(0.2 * world->rank);
    must(ncclCommInitRank(&comm, 2, id, world->rank) == ncclSuccess);
    must(ncclCommDestroy(comm) == ncclSuccess);
    return 0;
}

TEST(test_a_rank_of_no_communicator)
{
    Shared *shared = shared_alloc(sizeof *shared);
    RankEnd ends[WORLD];
    assert_int_equal(launch_ranks(WORLD, LIMIT * time_factor(), be_of_a_part, shared, ends), OK);
}

// ---- Without a launcher ----

typedef struct Waiter {
    pid_t pid;
    int stderr_end;
    char text[8192];
    size_t used;
} Waiter;

// Rank `rank` of 2, a plain fork, with a notice after a second; rank `maker` makes the id.
static Waiter start_waiter(Shared *shared, int rank, int maker)
{
    Waiter waiter = {.pid = 0};
    pid_t parent = getpid();
    ncclComm_t comm;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    waiter.pid = fork();
    assert_true(waiter.pid >= 0);
    if (waiter.pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) _exit(1);
        alarm((unsigned)(LIMIT * time_factor()));
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        setenv("SIMGPU_NOTICE_SECONDS", "1", 1);
        sanitize_note_threads();
        must(cudaSetDevice(rank) == cudaSuccess);
        ncclUniqueId id = meet(shared, rank, maker);
        must(ncclCommInitRank(&comm, 2, id, rank) == ncclSuccess);
        must(ncclCommDestroy(comm) == ncclSuccess);
        _exit(0);
    }
    close(ends[1]);
    waiter.stderr_end = ends[0];
    return waiter;
}

// Reads what the rank says until the words are there, or it has ended.
static bool read_until(Waiter *waiter, const char *words)
{
    ssize_t n;
    while (!strstr(waiter->text, words)) {
        n = read(waiter->stderr_end, waiter->text + waiter->used,
                 sizeof waiter->text - 1 - waiter->used);
        if (n <= 0) return false;
        waiter->used += (size_t)n;
        waiter->text[waiter->used] = 0;
    }
    return true;
}

static void hear_from(Waiter *waiter, const char *words)
{
    if (read_until(waiter, words)) return;
    kill(waiter->pid, SIGKILL);
    waitpid(waiter->pid, NULL, 0);
    fail_msg("no \"%s\" in: %s", words, waiter->text);
}

// The first notice, after a second: a little more where the machine is busy. The next is after six.
static void expect_notice(Waiter *waiter, int rank)
{
    char words[64];
    int seconds = 0;
    snprintf(words, sizeof words, "rank %d of 2 has waited ", rank);
    hear_from(waiter, words);
    hear_from(waiter, " s in ncclCommInitRank at tests/world.c:");
    sscanf(strstr(waiter->text, words) + strlen(words), "%d", &seconds);
    assert_in_range(seconds, 1, 5);
}

static int end_of(Waiter *waiter)
{
    int status = -1;
    assert_int_equal(waitpid(waiter->pid, &status, 0), waiter->pid);
    close(waiter->stderr_end);
    return status;
}

// The other rank starts when the notice is there; then both go on as if nothing had been.
static void wait_for_late(bool by_text, int first)
{
    Shared *shared = shared_alloc(sizeof *shared);
    char text[64], words[64];
    snprintf(text, sizeof text, "late-%d-%d:1", getpid(), first);
    shared->by_text = by_text;
    if (by_text) setenv("NCCL_COMM_ID", text, 1);
    Waiter waiter = start_waiter(shared, first, first);
    expect_notice(&waiter, first);
    hear_from(&waiter, by_text ? text : "the id that process");
    if (by_text && first == 1)
        hear_from(&waiter, "Missing: rank 0");
    else {
        snprintf(words, sizeof words, "Joined: rank %d. Missing: rank %d.", first, 1 - first);
        hear_from(&waiter, words);
    }
    hear_from(&waiter, "goes on waiting");
    Waiter late = start_waiter(shared, 1 - first, first);
    unsetenv("NCCL_COMM_ID");
    assert_int_equal(end_of(&late), 0);
    assert_int_equal(end_of(&waiter), 0);
}

TEST(test_a_late_rank)
{
    wait_for_late(false, 0);
    wait_for_late(false, 1);
    wait_for_late(true, 0);
    wait_for_late(true, 1);
}

// A process of the same program and parent is nobody's rank: its end ends nothing.
TEST(test_no_guess)
{
    Shared *shared = shared_alloc(sizeof *shared);
    Waiter waiter = start_waiter(shared, 0, 0);
    pid_t other = fork();
    if (other == 0) {
        cudaSetDevice(1);
        cudaFree(NULL);
        pause_for(0.1);
        _exit(BAD);
    }
    assert_int_equal(waitpid(other, NULL, 0), other);
    expect_notice(&waiter, 0); // and lives
    Waiter late = start_waiter(shared, 1, 0);
    assert_int_equal(end_of(&late), 0);
    assert_int_equal(end_of(&waiter), 0);
}

// ---- What the file may hold ----

// A rank of a world that this test's own file describes: first `lines`, then its own line and
// `more`, at once or when it has joined and waits. It waits on, with a notice, or ends with a
// report; either says `words`.
typedef struct WorldFile {
    const char *lines;
    bool late;
    const char *more;
    bool waits;
    const char *words;
} WorldFile;

static void try_file(WorldFile as)
{
    Shared *shared = shared_alloc(sizeof *shared);
    char path[] = "/tmp/simgpu-world-XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    assert_true(dprintf(file, "%s", as.lines) > 0);
    setenv("SIMGPU_WORLD", path, 1);
    Waiter waiter = start_waiter(shared, 0, 0);
    unsetenv("SIMGPU_WORLD");
    if (as.late) hear_from(&waiter, "Joined: rank 0. Missing: rank 1.");
    assert_true(dprintf(file, "0 %d\n%s", (int)waiter.pid, as.more) > 0);
    if (as.waits)
        expect_notice(&waiter, 0);
    else
        hear_from(&waiter, "a rank ended before it joined the communicator");
    hear_from(&waiter, as.words);
    if (as.waits) kill(waiter.pid, SIGKILL);
    assert_int_equal(end_of(&waiter), as.waits ? SIGKILL : SIMGPU_FATAL_EXIT << 8);
    close(file);
    unlink(path);
}

#define OF_TWO "simgpu-world 1 2\n"
#define OF_THREE "simgpu-world 1 3\n"

TEST(test_files)
{
    try_file((WorldFile){OF_TWO, .more = "1 exited 7\n", .words = "exited with status 7"});
    try_file((WorldFile){OF_TWO, .more = "1 killed 11\n", .words = "was killed by signal 11"});
    try_file((WorldFile){OF_TWO, .more = "1 99999999\n", .words = "(process 99999999)"});
    try_file((WorldFile){"something else\n", .more = "1 exited 7\n", .waits = true,
                         .words = "Missing: rank 1."});
    // A line that is being written.
    try_file((WorldFile){OF_TWO, .more = "1 exi", .waits = true, .words = "Missing: rank 1."});
    try_file((WorldFile){OF_THREE, .more = "1 exited 7\n", .waits = true,
                         .words = "Rank 1 of the launcher's world (process 0)"});
}

// A launcher may be slower than its rank, which has joined when it is told who it is.
TEST(test_late_lines)
{
    try_file(
        (WorldFile){OF_TWO, .late = true, .more = "1 exited 7\n", .words = "exited with status 7"});
    try_file(
        (WorldFile){OF_TWO, .late = true, .more = "1 99999999\n", .words = "(process 99999999)"});
    try_file((WorldFile){OF_THREE, .late = true, .more = "1 exited 0\n2 exited 0\n",
                         .words = "exited with status 0"});
}

SUITE_MAIN("simgpu/world")
