/* Ranks that run out of file descriptors (ulimit -n). Who has none left says so and ends, whatever
 * it was about to open, and the others say that it ended, and by which limit: nobody waits for
 * long, and nobody is taken for dead who lives.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "heard.h"
#include "launch.h"

enum { WORLD = 3, LIMIT = 20, MOST_FILES = 64 };

typedef struct Shared {
    int lean, files; // the rank that may open no more than so many more files
    bool by_text;
    _Atomic int published, limit;
    ncclUniqueId id;
    Heard heard[WORLD];
} Shared;

static void must(bool ok)
{
    if (!ok) _exit(90);
}

// Leaves the process the lowest `more` of the descriptors that are free; returns the limit.
static int limit_files(int more)
{
    struct rlimit limit;
    int fd[MOST_FILES], last = 0;
    for (int i = 0; i < more; i++) must((fd[i] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0);
    must((last = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0);
    for (int i = 0; i < more; i++) close(fd[i]);
    close(last);
    must(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = (rlim_t)last;
    must(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    return last;
}

// ---- A rank with few descriptors ----

static int be_rank(const World *world, void *arg)
{
    Shared *shared = arg;
    ncclComm_t comm, part;
    ncclUniqueId id;
    float *x;
    hear(&shared->heard[world->rank]);
    if (world->rank == shared->lean) atomic_store(&shared->limit, limit_files(shared->files));
    must(cudaSetDevice(world->rank) == cudaSuccess);
    if (shared->by_text || world->rank == 1) must(ncclGetUniqueId(&id) == ncclSuccess);
    if (!shared->by_text && world->rank == 1) {
        shared->id = id;
        atomic_store(&shared->published, 1);
    }
    while (!shared->by_text && !atomic_load(&shared->published)) {
        if (shared->heard[1].count) return SIMGPU_FATAL_EXIT; // there is no id
        pause_for(0.001);
    }
    if (!shared->by_text) id = shared->id;
    must(ncclCommInitRank(&comm, world->size, id, world->rank) == ncclSuccess);
    must(cudaMalloc((void **)&x, 4) == cudaSuccess && cudaMemset(x, 0, 4) == cudaSuccess);
    must(ncclAllReduce(x, x, 1, ncclFloat, ncclSum, comm, NULL) == ncclSuccess);
    must(ncclCommSplit(comm, world->rank > 0, 0, &part, NULL) == ncclSuccess);
    must(ncclAllReduce(x, x, 1, ncclFloat, ncclSum, part, NULL) == ncclSuccess);
    must(cudaFree(x) == cudaSuccess);
    must(ncclCommDestroy(part) == ncclSuccess && ncclCommDestroy(comm) == ncclSuccess);
    return 0;
}

// True: it had enough.
static bool run_with(int lean, int files, bool by_text)
{
    Shared *shared = shared_alloc(sizeof *shared);
    RankEnd ends[WORLD];
    char text[64], name[64], what[96];
    bool failed = false;
    *shared = (Shared){.lean = lean, .files = files, .by_text = by_text};
    snprintf(text, sizeof text, "files-%d:1", getpid());
    if (by_text) setenv("NCCL_COMM_ID", text, 1);
    IGNORE_STATUS(launch_ranks(WORLD, LIMIT * time_factor(), be_rank, shared, ends));
    unsetenv("NCCL_COMM_ID");
    snprintf(name, sizeof name, "ulimit -n is %d", atomic_load(&shared->limit));
    snprintf(what, sizeof what, "rank %d with %d descriptors, id by %s", lean, files,
             by_text ? "text" : "process");
    for (int r = 0; r < WORLD; r++) failed |= ends[r].how != RANK_RETURNED || ends[r].code != 0;
    const char *own = shared->heard[lean].title;
    if (failed && (!strstr(own, "no file descriptor is left") || !strstr(own, name)))
        fail_msg("%s says: %s", what, own[0] ? own : "nothing");
    for (int r = 0; r < WORLD && failed; r++) {
        const char *title = shared->heard[r].title;
        if (r == lean || ends[r].how == RANK_RETURNED || strstr(title, "ended: see its report"))
            continue;
        fail_msg("%s: rank %d ended how %d, code %d, and says: %s", what, r, ends[r].how,
                 ends[r].code, title[0] ? title : "nothing");
    }
    return !failed;
}

TEST(test_few_descriptors)
{
    for (int by_text = 0; by_text < 2; by_text++)
        for (int lean = 0; lean < WORLD; lean++) {
            int files = 0;
            while (files < MOST_FILES && !run_with(lean, files, by_text)) files++;
            assert_true(files > 3 && files < MOST_FILES); // some were too few
        }
}

// ---- The report of those who wait ----

static void fill_files(void)
{
    while (open("/dev/null", O_RDONLY | O_CLOEXEC) >= 0) continue;
}

// Rank 0 has no descriptor left when it makes the part.
static int be_rank_of_part(const World *world, void *arg)
{
    Shared *shared = arg;
    ncclComm_t comm, part;
    ncclUniqueId id;
    hear(&shared->heard[world->rank]);
    must(cudaSetDevice(world->rank) == cudaSuccess);
    must(ncclGetUniqueId(&id) == ncclSuccess);
    must(ncclCommInitRank(&comm, world->size, id, world->rank) == ncclSuccess);
    if (world->rank == 0) atomic_store(&shared->limit, limit_files(4));
    if (world->rank == 0) fill_files();
    ncclCommSplit(comm, 0, 0, &part, NULL);
    return 91; // it must not come back
}

TEST(test_who_waits_names_the_limit)
{
    Shared *shared = shared_alloc(sizeof *shared);
    RankEnd ends[WORLD];
    char text[64], want[128];
    snprintf(text, sizeof text, "files-%d:2", getpid());
    setenv("NCCL_COMM_ID", text, 1);
    IGNORE_STATUS(launch_ranks(WORLD, LIMIT * time_factor(), be_rank_of_part, shared, ends));
    unsetenv("NCCL_COMM_ID");
    snprintf(want, sizeof want,
             "rank 0 ended: see its report (no file descriptor was left, ulimit -n is %d)",
             atomic_load(&shared->limit));
    int told = 0;
    for (int r = 1; r < WORLD; r++) {
        if (!strstr(shared->heard[r].title, "ended: see its report"))
            fail_msg("rank %d says: %s", r, shared->heard[r].text);
        told += strcmp(shared->heard[r].title, want) == 0; // or it speaks of the other who waits
    }
    assert_true(told > 0);
}

// ---- Nobody is dead for want of a descriptor ----

static void forbid_pidfd(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_open, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof filter[0], filter};
    must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    must(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

// As on Linux before 5.3: the others are looked at in /proc, which takes a descriptor.
static int be_rank_without(const World *world, void *arg)
{
    Shared *shared = arg;
    ncclComm_t comm;
    ncclUniqueId id;
    float *x;
    hear(&shared->heard[world->rank]);
    forbid_pidfd();
    must(cudaSetDevice(world->rank) == cudaSuccess);
    must(ncclGetUniqueId(&id) == ncclSuccess);
    must(ncclCommInitRank(&comm, world->size, id, world->rank) == ncclSuccess);
    must(cudaMalloc((void **)&x, 4) == cudaSuccess && cudaMemset(x, 0, 4) == cudaSuccess);
    if (world->rank == 0) limit_files(4);
    if (world->rank == 0) fill_files();
    if (world->rank == 1) pause_for(0.5); // rank 0 looks a few times
    must(ncclAllReduce(x, x, 1, ncclFloat, ncclSum, comm, NULL) == ncclSuccess);
    must(cudaFree(x) == cudaSuccess && ncclCommDestroy(comm) == ncclSuccess);
    return 0;
}

TEST(test_nobody_is_taken_for_dead)
{
    Shared *shared = shared_alloc(sizeof *shared);
    RankEnd ends[WORLD];
    char text[64];
    snprintf(text, sizeof text, "files-%d:3", getpid());
    setenv("NCCL_COMM_ID", text, 1);
    IGNORE_STATUS(launch_ranks(WORLD, LIMIT * time_factor(), be_rank_without, shared, ends));
    unsetenv("NCCL_COMM_ID");
    for (int r = 0; r < WORLD; r++)
        if (ends[r].how != RANK_RETURNED || ends[r].code != 0)
            fail_msg("rank %d ended how %d, code %d, and says: %s", r, ends[r].how, ends[r].code,
                     shared->heard[r].text);
}

SUITE_MAIN("simgpu/files")
