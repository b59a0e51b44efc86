/* Kill -9 of any rank at any moment: in ncclCommInitRank before and after it joined, in
 * collectives, messages, groups and splits, while a communicator is taken down. One rank or two,
 * rank 0 too. The others end within a second, with exit status 86 and a report that names a killed
 * rank, or its process where it had not joined; who needed it no more ends well. Nothing is left
 * behind: no process, no shared memory, no socket.
 *
 * The ranks are plain forks of this program, which says who they are in a file of its own
 * (SIMGPU_WORLD, simgpu/README.md) and nothing of their ends. Of every eight seeds one kills before
 * the ranks use simgpu.
 *
 * Environment: SIMGPU_KILLS=N tries N seeds, SIMGPU_KILLS_SEED=S begins with seed S, and
 * SIMGPU_KILLS_TIMES=1 prints how long the slowest rank of each lived on. A failure names its seed.
 */
#define _GNU_SOURCE // memfd_create
#include <dirent.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "draw.h"
#include "heard.h"
#include "run.h"

enum { MOST = 6, COUNT = 257, SEEDS = 60, WORDS = 4096 };

// Seconds. Nothing here takes long; a sanitizer makes it slow, and so may a busy machine.
#define BOUND (1.0 * SLOWER)

typedef struct Rehearsal {
    uint64_t seed;
    int world;
    bool by_text;       // the id is NCCL_COMM_ID's
    bool without_pidfd; // as on Linux before 5.3
    int ranks;          // the file that says who they are
    _Atomic int all_there, ready, go;
    ncclUniqueId id;
    struct {
        _Atomic int finished;
        char told[WORDS];
    } rank[MOST];
} Rehearsal;

// ---- A rank ----

static Rehearsal *rehearsal;
static int own_rank;

static void keep_words(const SimgpuReport *report, void *arg)
{
    char *told = rehearsal->rank[own_rank].told;
    size_t n = strlen(told);
    snprintf(told + n, WORDS - n, "%s\n", report->text);
}

// A call whose partner is gone may also return an error: then the rank has been told already.
static void must(bool ok)
{
    if (!ok) _exit(SIMGPU_FATAL_EXIT);
}
#define CUDA(call) must((call) == cudaSuccess)
#define NCCL(call) must((call) == ncclSuccess)

static void forbid_pidfd(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_open, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof code[0], code};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

typedef struct Actor {
    int rank, world;
    ncclComm_t comm;
    cudaStream_t stream;
    float *x, *y; // (MOST·COUNT)
    char *id;     // room for an id on the device
} Actor;

static void swap_in_ring(const Actor *a)
{
    int next = (a->rank + 1) % a->world, last = (a->rank + a->world - 1) % a->world;
    NCCL(ncclGroupStart());
    NCCL(ncclSend(a->x, COUNT, ncclFloat, next, a->comm, a->stream));
    NCCL(ncclRecv(a->y, COUNT, ncclFloat, last, a->comm, a->stream));
    NCCL(ncclGroupEnd());
}

static void two_at_once(const Actor *a)
{
    NCCL(ncclGroupStart());
    NCCL(ncclAllReduce(a->x, a->x, COUNT, ncclFloat, ncclMax, a->comm, a->stream));
    NCCL(ncclBroadcast(a->y, a->y, COUNT, ncclFloat, a->world - 1, a->comm, a->stream));
    NCCL(ncclGroupEnd());
}

static void split(const Actor *a, uint64_t draw)
{
    ncclComm_t part;
    NCCL(ncclCommSplit(a->comm, (int)(((uint64_t)a->rank + draw) % 2), -a->rank, &part, NULL));
    NCCL(ncclAllReduce(a->y, a->y, COUNT, ncclFloat, ncclSum, part, a->stream));
    NCCL(ncclCommDestroy(part));
}

// A second communicator, whose id goes around by the first.
static void join_once_more(const Actor *a)
{
    ncclUniqueId id;
    ncclComm_t other;
    if (a->rank == 0) NCCL(ncclGetUniqueId(&id));
    if (a->rank == 0) CUDA(cudaMemcpy(a->id, &id, sizeof id, cudaMemcpyHostToDevice));
    NCCL(ncclBroadcast(a->id, a->id, sizeof id, ncclChar, 0, a->comm, a->stream));
    CUDA(cudaStreamSynchronize(a->stream));
    CUDA(cudaMemcpy(&id, a->id, sizeof id, cudaMemcpyDeviceToHost));
    NCCL(ncclCommInitRank(&other, a->world, id, a->rank));
    NCCL(ncclAllReduce(a->y, a->y, COUNT, ncclFloat, ncclSum, other, a->stream));
    NCCL(ncclCommDestroy(other));
}

static void step(const Actor *a, uint64_t draw)
{
    switch (draw % 7) {
    case 0: NCCL(ncclAllReduce(a->x, a->x, COUNT, ncclFloat, ncclMax, a->comm, a->stream)); break;
    case 1: NCCL(ncclAllGather(a->x, a->y, COUNT, ncclFloat, a->comm, a->stream)); break;
    case 2:
        NCCL(ncclReduceScatter(a->y, a->x, COUNT, ncclFloat, ncclMax, a->comm, a->stream));
        break;
    case 3: swap_in_ring(a); break;
    case 4: two_at_once(a); break;
    case 5: split(a, draw / 7); break;
    default: rehearsal->by_text ? swap_in_ring(a) : join_once_more(a); break;
    }
}

static void meet(const Rehearsal *r, Actor *a)
{
    ncclUniqueId id = r->id;
    if (r->by_text) NCCL(ncclGetUniqueId(&id));
    pause_for(1e-6 * (double)(draw_number(r->seed, 2, (uint64_t)a->rank) % 6000));
    NCCL(ncclCommInitRank(&a->comm, a->world, id, a->rank));
}

_Noreturn static void be_rank(int rank)
{
    Rehearsal *r = rehearsal;
    Actor a = {.rank = rank, .world = r->world};
    own_rank = rank;
    sanitize_note_threads();
    char path[40];
    snprintf(path, sizeof path, "/proc/self/fd/%d", r->ranks);
    setenv("SIMGPU_WORLD", path, 1);
    if (r->without_pidfd) forbid_pidfd();
    while (!atomic_load(&r->all_there)) pause_for(0.0002);
    simgpu_on_report(keep_words, NULL);
    CUDA(cudaSetDevice(rank));
    CUDA(cudaStreamCreate(&a.stream));
    CUDA(cudaMalloc((void **)&a.x, MOST * COUNT * sizeof *a.x));
    CUDA(cudaMalloc((void **)&a.y, MOST * COUNT * sizeof *a.y));
    CUDA(cudaMalloc((void **)&a.id, sizeof(ncclUniqueId)));
    CUDA(cudaMemset(a.x, 0, MOST * COUNT * sizeof *a.x));
    CUDA(cudaMemset(a.y, 0, MOST * COUNT * sizeof *a.y));
    if (rank == 0 && !r->by_text) NCCL(ncclGetUniqueId(&r->id));
    atomic_fetch_add(&r->ready, 1);
    while (!atomic_load(&r->go)) pause_for(0.0002);
    meet(r, &a);
    int steps = (int)(draw_number(r->seed, 3, 0) % 400);
    for (int i = 0; i < steps; i++) step(&a, draw_number(r->seed, 4, (uint64_t)i));
    CUDA(cudaStreamSynchronize(a.stream));
    NCCL(ncclCommFinalize(a.comm));
    NCCL(ncclCommDestroy(a.comm));
    cudaFree(a.x);
    cudaFree(a.y);
    cudaFree(a.id);
    cudaStreamDestroy(a.stream);
    atomic_store(&r->rank[rank].finished, 1);
    exit(0);
}

// ---- The one who kills ----

typedef struct End {
    pid_t pid;
    bool over;
    int status;
    double when;
} End;

static double killed; // when

static void fail_seed(const End *end, const char *words)
{
    const Rehearsal *r = rehearsal;
    for (int i = 0; i < r->world; i++)
        if (!end[i].over) kill(end[i].pid, SIGKILL);
    for (int i = 0; i < r->world; i++) {
        if (!end[i].over) waitpid(end[i].pid, NULL, 0);
        print_error("rank %d (process %d) %s, status %x, %.3f s after the kill: %s\n", i,
                    end[i].pid, end[i].over ? "ended" : "did not end", (unsigned)end[i].status,
                    end[i].when - killed, r->rank[i].told);
    }
    fail_msg("seed %llu (%d ranks, id by %s, %s pidfd): %s", (unsigned long long)r->seed, r->world,
             r->by_text ? "text" : "process", r->without_pidfd ? "without" : "with", words);
}

static void start(End *end)
{
    fflush(NULL);
    rehearsal->ranks = memfd_create("kills", 0);
    assert_true(dprintf(rehearsal->ranks, "simgpu-world 1 %d\n", rehearsal->world) > 0);
    for (int i = 0; i < rehearsal->world; i++) {
        pid_t parent = getpid();
        end[i] = (End){.pid = fork()};
        assert_true(end[i].pid >= 0);
        if (end[i].pid > 0) {
            assert_true(dprintf(rehearsal->ranks, "%d %d\n", i, (int)end[i].pid) > 0);
            continue;
        }
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent || !freopen("/dev/null", "w", stderr)) _exit(1);
        be_rank(i);
    }
}

static void await_ready(const End *end)
{
    double begin = seconds_now();
    atomic_store(&rehearsal->all_there, 1);
    while (atomic_load(&rehearsal->ready) < rehearsal->world &&
           seconds_now() - begin < 30 * time_factor())
        pause_for(0.0005);
    if (atomic_load(&rehearsal->ready) < rehearsal->world) fail_seed(end, "the ranks do not start");
}

static void kill_ranks(const End *end, int victim, int second)
{
    killed = seconds_now();
    kill(end[victim].pid, SIGKILL);
    if (second >= 0) kill(end[second].pid, SIGKILL);
}

// Waits for all, until the time given.
static void collect(End *end, double until)
{
    for (int left = rehearsal->world; left > 0 && seconds_now() < until;) {
        left = 0;
        for (int i = 0; i < rehearsal->world; i++) {
            if (end[i].over) continue;
            end[i].over = waitpid(end[i].pid, &end[i].status, WNOHANG) == end[i].pid;
            end[i].when = seconds_now();
            left += !end[i].over;
        }
        if (left) pause_for(0.0005);
    }
}

static bool names(const char *told, int victim, pid_t pid)
{
    char rank[64], process[64], place[64];
    snprintf(rank, sizeof rank, "rank %d will never arrive", victim);
    snprintf(process, sizeof process, "rocess %d", pid); // at a line's begin, or in it
    snprintf(place, sizeof place, "The memory of rank %d ", victim);
    return strstr(told, rank) || strstr(told, process) || strstr(told, place);
}

static int count_entries(const char *path)
{
    int n = 0;
    DIR *folder = opendir(path);
    while (folder && readdir(folder)) n++;
    if (folder) closedir(folder);
    return n;
}

static bool socket_is_left(const char *text)
{
    char line[512];
    bool found = false;
    FILE *file = fopen("/proc/net/unix", "r");
    while (file && !found && fgets(line, sizeof line, file)) found = strstr(line, text) != NULL;
    if (file) fclose(file);
    return found;
}

// Judges how the ranks ended; true: at least one was told of a victim.
static bool judge(const End *end, int victim, int second)
{
    const Rehearsal *r = rehearsal;
    bool told = false, ended = false;
    for (int i = 0; i < r->world; i++) {
        int status = end[i].status;
        bool dead = end[i].over && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
        if (i == victim || (i == second && dead))
            continue; // the second may end by its report first
        if (!end[i].over) fail_seed(end, "a rank lives on after the limit");
        bool well = WIFEXITED(status) && WEXITSTATUS(status) == 0 && r->rank[i].finished;
        bool by_report = WIFEXITED(status) && WEXITSTATUS(status) == SIMGPU_FATAL_EXIT;
        if (!well && !by_report) fail_seed(end, "a rank ended neither well nor by a report");
        ended |= by_report;
        told |= names(r->rank[i].told, victim, end[victim].pid) ||
                (second >= 0 && names(r->rank[i].told, second, end[second].pid));
    }
    if (ended && !told) fail_seed(end, "no report names a rank that was killed");
    return told;
}

static double slowest(const End *end)
{
    double most = 0;
    for (int i = 0; i < rehearsal->world; i++)
        if (end[i].when - killed > most) most = end[i].when - killed;
    return most;
}

// One seed: true where somebody waited for the dead, and was told.
static bool run_seed(uint64_t seed, bool without_pidfd)
{
    Rehearsal *r = rehearsal;
    End end[MOST];
    char text[64];
    memset((void *)r, 0, sizeof *r);
    r->seed = seed;
    r->world = 2 + (int)(draw_number(seed, 5, 0) % (MOST - 1));
    r->by_text = draw_number(seed, 5, 1) % 3 == 0;
    r->without_pidfd = without_pidfd;
    snprintf(text, sizeof text, "kills-%d-%llu:1", getpid(), (unsigned long long)seed);
    if (r->by_text) setenv("NCCL_COMM_ID", text, 1);
    int victim = (int)(draw_number(seed, 5, 2) % (uint64_t)r->world), second = -1;
    if (r->world > 2 && draw_number(seed, 5, 3) % 4 == 0) second = (victim + 1) % r->world;
    bool early = draw_number(seed, 5, 4) % 3 == 0; // while the ranks join
    double delay = 1e-6 * (double)(draw_number(seed, 5, 5) % (early ? 8000 : 40000));
    start(end);
    bool before = draw_number(seed, 5, 6) % 8 == 0 && victim > 0; // rank 0 makes the id
    if (before && second == 0) second = -1;
    if (before) kill_ranks(end, victim, second);
    if (before) atomic_store(&r->ready, second >= 0 ? 2 : 1); // the dead will not say so
    await_ready(end);
    atomic_store(&r->go, 1);
    killed = seconds_now();
    if (!before) pause_for(delay);
    if (!before) kill_ranks(end, victim, second);
    close(r->ranks);
    collect(end, killed + BOUND * time_factor());
    unsetenv("NCCL_COMM_ID");
    bool told = judge(end, victim, second);
    if (getenv("SIMGPU_KILLS_TIMES"))
        print_message("seed %llu: %.3f s\n", (unsigned long long)seed, slowest(end));
    if (r->by_text && socket_is_left(text)) fail_seed(end, "a socket is left");
    return told;
}

static void run_seeds(uint64_t first, uint64_t seeds, bool without_pidfd)
{
    uint64_t told = 0;
    int files = count_entries("/dev/shm");
    rehearsal = shared_alloc(sizeof *rehearsal);
    for (uint64_t seed = first; seed < first + seeds; seed++) told += run_seed(seed, without_pidfd);
    assert_int_equal(count_entries("/dev/shm"), files);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); // no process is left
    // Most die while they are waited for, or nothing was tried.
    if (2 * told < seeds) fail_msg("%d of %d kills were noticed", (int)told, (int)seeds);
}

TEST(test_kills)
{
    run_seeds(setting("SIMGPU_KILLS_SEED", 1), setting("SIMGPU_KILLS", SEEDS), false);
}

TEST(test_kills_without_pidfd)
{
    run_seeds(setting("SIMGPU_KILLS_SEED", 1) + 1000000, setting("SIMGPU_KILLS", SEEDS) / 6, true);
}

SUITE_MAIN("kills")
