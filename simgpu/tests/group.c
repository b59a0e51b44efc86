/* Groups, messages, and the ways to make communicators: one process with many devices, a thread for
 * each device, splits, two communicators, ids by NCCL_COMM_ID, and what is left over afterwards
 * (nothing).
 */
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "heard.h"

static float *filled(size_t n, float first, float step)
{
    float *x, *host = malloc(n * sizeof *host);
    for (size_t i = 0; i < n; i++) host[i] = first + (float)i * step;
    need_cuda(cudaMalloc((void **)&x, n * sizeof *x));
    send_to(x, host, n);
    free(host);
    return x;
}

static void is_line(const char *what, const float *device, size_t n, float first, float step)
{
    float *host = fetch(device, n);
    for (size_t i = 0; i < n; i++)
        check(host[i] == first + (float)i * step, "%s: element %zu is %g, want %g", what, i,
              (double)host[i], (double)(first + (float)i * step));
    free(host);
}

// ---- Messages ----

#define N 77

// Everybody sends to everybody, itself too, two messages each, in one group.
static void all_to_all(const Rank *r, void *arg)
{
    int w = r->world;
    float *x[8][2], *y[8][2];
    for (int p = 0; p < w; p++)
        for (int k = 0; k < 2; k++) {
            x[p][k] = filled(N, (float)(1000 * r->rank + 100 * p + 10 * k), 1);
            y[p][k] = filled(N, 0, 0);
        }
    need_nccl(ncclGroupStart());
    for (int k = 0; k < 2; k++)
        for (int p = 0; p < w; p++) {
            need_nccl(ncclGroupStart()); // inner groups change nothing
            need_nccl(ncclSend(x[p][k], N, ncclFloat, p, r->comm, r->stream));
            need_nccl(ncclRecv(y[p][k], N, ncclFloat, p, r->comm, r->stream));
            need_nccl(ncclGroupEnd());
        }
    need_nccl(ncclGroupEnd());
    need_cuda(cudaStreamSynchronize(r->stream));
    for (int p = 0; p < w; p++)
        for (int k = 0; k < 2; k++) {
            is_line("message", y[p][k], N, (float)(1000 * p + 100 * r->rank + 10 * k), 1);
            need_cuda(cudaFree(x[p][k]));
            need_cuda(cudaFree(y[p][k]));
        }
}

// A pipeline, without groups: rank 0 sends, the others receive and send on.
static void pipeline(const Rank *r, void *arg)
{
    float *x = filled(N, r->rank ? 0 : 5, r->rank ? 0 : 1);
    for (int i = 0; i < 10; i++) {
        if (r->rank) need_nccl(ncclRecv(x, N, ncclFloat, r->rank - 1, r->comm, r->stream));
        if (r->rank + 1 < r->world)
            need_nccl(ncclSend(x, N, ncclFloat, r->rank + 1, r->comm, r->stream));
    }
    need_cuda(cudaStreamSynchronize(r->stream));
    is_line("end of the pipeline", x, N, 5, 1);
    need_cuda(cudaFree(x));
}

static void gather_scatter(const Rank *r, void *arg)
{
    size_t w = (size_t)r->world;
    float *one = filled(N, (float)(N * r->rank), 1), *all = filled(w * N, 0, 0);
    need_nccl(ncclGather(one, all, N, ncclFloat, r->world - 1, r->comm, r->stream));
    need_cuda(cudaStreamSynchronize(r->stream));
    if (r->rank == r->world - 1) is_line("gathered", all, w * N, 0, 1);
    need_cuda(cudaMemsetAsync(one, 0, N * sizeof *one, r->stream));
    need_nccl(ncclScatter(all, one, N, ncclFloat, r->world - 1, r->comm, r->stream));
    need_cuda(cudaStreamSynchronize(r->stream));
    is_line("scattered", one, N, (float)(N * r->rank), 1);
    float *from = filled(w * N, (float)r->rank, 0);
    need_nccl(ncclAlltoAll(from, all, N, ncclFloat, r->comm, r->stream));
    need_cuda(cudaStreamSynchronize(r->stream));
    for (size_t p = 0; p < w; p++) is_line("all to all", all + p * N, N, (float)p, 0);
    need_cuda(cudaFree(from));
    need_cuda(cudaFree(one));
    need_cuda(cudaFree(all));
}

TEST(test_messages)
{
    for (int world = 1; world <= 8; world++) {
        run_ranks(world, all_to_all, NULL);
        run_ranks(world, pipeline, NULL);
        run_ranks(world, gather_scatter, NULL);
    }
}

// ---- Groups ----

// The groups of the ranks differ, and the calls of each communicator match all the same.
static void unlike_groups(const Rank *r, void *arg)
{
    ncclComm_t b;
    float *x = filled(N, 1, 0), *y = filled(N, 2, 0);
    need_nccl(ncclCommSplit(r->comm, 0, r->rank, &b, NULL));
    for (int i = 0; i < 20; i++) {
        bool first = r->rank % 2 == 0;
        need_nccl(ncclGroupStart());
        need_nccl(ncclAllReduce(first ? x : y, first ? x : y, N, ncclFloat, ncclMax,
                                first ? r->comm : b, r->stream));
        need_nccl(ncclAllReduce(first ? y : x, first ? y : x, N, ncclFloat, ncclMax,
                                first ? b : r->comm, r->stream));
        need_nccl(ncclGroupEnd());
    }
    need_nccl(ncclGroupStart()); // one group here, single calls there
    if (r->rank) need_nccl(ncclGroupEnd());
    need_nccl(ncclAllReduce(x, x, N, ncclFloat, ncclSum, r->comm, r->stream));
    need_nccl(ncclAllReduce(x, x, N, ncclFloat, ncclSum, r->comm, r->stream));
    need_nccl(ncclAllReduce(y, y, N, ncclFloat, ncclSum, b, r->stream));
    if (!r->rank) need_nccl(ncclGroupEnd());
    need_cuda(cudaStreamSynchronize(r->stream));
    is_line("x", x, N, (float)(r->world * r->world), 0);
    is_line("y", y, N, (float)(2 * r->world), 0);
    need_nccl(ncclCommDestroy(b));
    need_cuda(cudaFree(x));
    need_cuda(cudaFree(y));
}

TEST(test_groups)
{
    for (int world = 1; world <= 8; world += 1 + (world > 3)) run_ranks(world, unlike_groups, NULL);
}

// ---- One process, many devices ----

static void one_process(const Rank *r, void *arg)
{
    for (int w = 1; w <= 8; w++) {
        ncclComm_t comm[8];
        float *x[8], *y[8];
        need_nccl(ncclCommInitAll(comm, w, NULL));
        for (int d = 0; d < w; d++) {
            int device, rank, count;
            need_nccl(ncclCommCuDevice(comm[d], &device));
            need_nccl(ncclCommUserRank(comm[d], &rank));
            need_nccl(ncclCommCount(comm[d], &count));
            check(device == d && rank == d && count == w, "rank %d of %d on %d", rank, count,
                  device);
            need_cuda(cudaSetDevice(d));
            x[d] = filled(N, (float)d, 1);
            y[d] = filled((size_t)w * N, 0, 0);
        }
        need_nccl(ncclGroupStart());
        for (int d = 0; d < w; d++) {
            need_nccl(ncclAllGather(x[d], y[d], N, ncclFloat, comm[d], NULL));
            need_nccl(ncclAllReduce(x[d], x[d], N, ncclFloat, ncclSum, comm[d], NULL));
        }
        need_nccl(ncclGroupEnd());
        for (int d = 0; d < w; d++) {
            need_cuda(cudaSetDevice(d));
            need_cuda(cudaDeviceSynchronize());
            is_line("sum", x[d], N, (float)(w * (w - 1) / 2), (float)w);
            for (int p = 0; p < w; p++) is_line("gathered", y[d] + p * N, N, (float)p, 1);
            need_cuda(cudaFree(x[d]));
            need_cuda(cudaFree(y[d]));
        }
        for (int d = 0; d < w; d++) need_nccl(ncclCommDestroy(comm[d]));
        need_cuda(cudaSetDevice(0));
    }
}

// The same with ncclCommInitRank in a group, as a program for one host does.
static void init_in_group(const Rank *r, void *arg)
{
    ncclUniqueId id;
    ncclComm_t comm[4], part[4];
    need_nccl(ncclGetUniqueId(&id));
    need_nccl(ncclGroupStart());
    for (int d = 3; d >= 0; d--) {
        need_cuda(cudaSetDevice(d));
        need_nccl(ncclCommInitRank(&comm[d], 4, id, d));
    }
    need_nccl(ncclGroupEnd());
    need_nccl(ncclGroupStart());
    for (int d = 0; d < 4; d++) need_nccl(ncclCommSplit(comm[d], d % 2, -d, &part[d], NULL));
    need_nccl(ncclGroupEnd());
    for (int d = 0; d < 4; d++) {
        int rank;
        need_nccl(ncclCommUserRank(part[d], &rank));
        check(rank == 1 - d / 2, "rank %d of the whole is rank %d of its part", d, rank);
        need_nccl(ncclCommDestroy(part[d]));
        need_nccl(ncclCommDestroy(comm[d]));
    }
    need_cuda(cudaSetDevice(0));
}

TEST(test_one_process)
{
    run_ranks(1, one_process, NULL);
    run_ranks(1, init_in_group, NULL);
}

static void no_group(const Rank *r, void *arg)
{
    ncclComm_t comm[2];
    float *x[2];
    need_nccl(ncclCommInitAll(comm, 2, NULL));
    for (int d = 0; d < 2; d++) {
        need_cuda(cudaSetDevice(d));
        x[d] = filled(N, 0, 0);
    }
    hear(arg);
    for (int d = 0; d < 2; d++) ncclAllReduce(x[d], x[d], N, ncclFloat, ncclSum, comm[d], NULL);
    check(false, "came back");
}

TEST(test_no_group)
{
    Heard *heard = shared_alloc(sizeof *heard);
    free(run_ranks_message(1, 10, no_group, heard));
    assert_non_null(strstr(heard->title, "one thread waits for itself"));
    assert_non_null(strstr(heard->text, "(no_group)"));
    assert_non_null(strstr(heard->text, "ncclGroupStart"));
}

// ---- A thread for each device ----

typedef struct Worker {
    pthread_t thread;
    ncclUniqueId id;
    int rank, world;
    bool right;
} Worker;

static void *work(void *arg)
{
    Worker *w = arg;
    ncclComm_t comm;
    float *x, host[N];
    bool ok = cudaSetDevice(w->rank) == cudaSuccess &&
              ncclCommInitRank(&comm, w->world, w->id, w->rank) == ncclSuccess &&
              cudaMalloc((void **)&x, sizeof host) == cudaSuccess;
    for (int round = 0; ok && round < 50; round++) {
        for (int i = 0; i < N; i++) host[i] = (float)(w->rank + i + round);
        cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice);
        ok = ncclAllReduce(x, x, N, ncclFloat, ncclSum, comm, NULL) == ncclSuccess &&
             cudaDeviceSynchronize() == cudaSuccess;
        cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost);
        for (int i = 0; i < N; i++)
            ok = ok && host[i] == (float)(w->world * (i + round) + w->world * (w->world - 1) / 2);
    }
    w->right = ok && cudaFree(x) == cudaSuccess && ncclCommDestroy(comm) == ncclSuccess;
    return NULL;
}

RANK_TEST(test_threads, 1)
{
    for (int world = 1; world <= 8; world++) {
        Worker worker[8];
        ncclUniqueId id;
        need_nccl(ncclGetUniqueId(&id));
        for (int d = 0; d < world; d++) {
            worker[d] = (Worker){.id = id, .rank = d, .world = world};
            check(pthread_create(&worker[d].thread, NULL, work, &worker[d]) == 0, "no thread");
        }
        for (int d = 0; d < world; d++) pthread_join(worker[d].thread, NULL);
        for (int d = 0; d < world; d++) check(worker[d].right, "thread %d of %d", d, world);
    }
}

// ---- Splits ----

RANK_TEST(test_split, 1, 2, 3, 4, 5, 6, 7, 8)
{
    ncclComm_t part, none;
    int rank, count, color = r->rank % 3;
    need_nccl(ncclCommSplit(r->comm, color, -r->rank, &part, NULL)); // keys turn the order round
    need_nccl(ncclCommUserRank(part, &rank));
    need_nccl(ncclCommCount(part, &count));
    int members = (r->world - color + 2) / 3, before = r->rank / 3;
    check(count == members && rank == members - 1 - before, "rank %d of %d", rank, count);
    float *x = filled(N, (float)r->rank, 0), sum = 0;
    need_nccl(ncclAllReduce(x, x, N, ncclFloat, ncclSum, part, r->stream));
    need_cuda(cudaStreamSynchronize(r->stream));
    for (int p = color; p < r->world; p += 3) sum += (float)p;
    is_line("sum of the part", x, N, sum, 0);
    need_nccl(ncclCommDestroy(part));
    need_nccl(ncclCommSplit(r->comm, r->rank ? NCCL_SPLIT_NOCOLOR : 0, 0, &none, NULL));
    check((none == NULL) == (r->rank != 0), "only rank 0 is in it");
    if (none) need_nccl(ncclCommDestroy(none));
    need_cuda(cudaFree(x));
}

RANK_TEST(test_duplicate, 2)
{
    ncclUniqueId id;
    ncclComm_t comm = NULL;
    Heard *heard = shared_alloc(sizeof(Heard));
    float *x = filled(sizeof id, 0, 0);
    if (r->rank == 0) need_nccl(ncclGetUniqueId(&id));
    if (r->rank == 0) need_cuda(cudaMemcpy(x, &id, sizeof id, cudaMemcpyHostToDevice));
    need_cuda(cudaDeviceSynchronize());
    need_nccl(ncclBroadcast(x, x, sizeof id, ncclChar, 0, r->comm, r->stream));
    need_cuda(cudaStreamSynchronize(r->stream));
    need_cuda(cudaMemcpy(&id, x, sizeof id, cudaMemcpyDeviceToHost));
    need_cuda(cudaFree(x));
    hear(heard);
    need_cuda(cudaSetDevice(0));
    check(ncclCommInitRank(&comm, r->world, id, r->rank) == ncclInvalidUsage, "one device for two");
    check(comm == NULL, "no communicator");
    heard_is(heard, "ncclCommInitRank: duplicate GPU", "cudaSetDevice(local_rank)");
    need_cuda(cudaSetDevice(r->device));
}

// ---- NCCL_COMM_ID ----

// A program of its own as far as NCCL goes: no id is handed over.
static int meet_by_text(int rank, int world)
{
    ncclUniqueId id;
    ncclComm_t comm;
    float *x, host[4];
    for (int job = 0; job < 3; job++) { // the same text, one job after the other
        for (int i = 0; i < 4; i++) host[i] = (float)(rank + job);
        if (rank == world - 1) usleep(20000); // somebody is always late
        if (cudaSetDevice(rank) != cudaSuccess || ncclGetUniqueId(&id) != ncclSuccess) return 1;
        if (ncclCommInitRank(&comm, world, id, rank) != ncclSuccess) return 2;
        if (cudaMalloc((void **)&x, sizeof host) != cudaSuccess) return 3;
        cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice);
        if (ncclAllReduce(x, x, 4, ncclFloat, ncclSum, comm, NULL) != ncclSuccess) return 4;
        cudaDeviceSynchronize();
        cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost);
        if (host[3] != (float)(world * (world - 1) / 2 + world * job)) return 5;
        if (cudaFree(x) != cudaSuccess || ncclCommDestroy(comm) != ncclSuccess) return 6;
    }
    return 0;
}

TEST(test_comm_id)
{
    char place[64];
    for (int world = 1; world <= 8; world++) {
        pid_t pid[8];
        snprintf(place, sizeof place, "group-test-%d:%d", getpid(), world);
        for (int r = 0; r < world; r++) {
            pid[r] = fork();
            assert_true(pid[r] >= 0);
            if (pid[r]) continue;
            alarm(20);
            setenv("NCCL_COMM_ID", place, 1);
            _exit(meet_by_text(r, world));
        }
        for (int r = 0; r < world; r++) {
            int status = -1;
            while (waitpid(pid[r], &status, 0) < 0 && errno == EINTR) continue;
            assert_int_equal(status, 0);
        }
    }
}

// Two jobs with the same place at the same time: each meets its own ranks alone. What a job is, the
// environment says, or the session is.
TEST(test_two_jobs_at_one_place)
{
    enum { JOBS = 2, RANKS = 3 };
    for (int sessions = 0; sessions < 2; sessions++) {
        pid_t leader[JOBS];
        char place[64];
        snprintf(place, sizeof place, "group-jobs-%d:%d", getpid(), sessions);
        for (int job = 0; job < JOBS; job++) {
            int bad = 0, status;
            leader[job] = fork();
            assert_true(leader[job] >= 0);
            if (leader[job]) continue;
            setenv("NCCL_COMM_ID", place, 1);
            if (sessions) setsid();
            if (!sessions) setenv("SIMGPU_JOB", job ? "one" : "other", 1);
            for (int r = RANKS - 1; r >= 0; r--) {
                if (fork()) continue;
                alarm(20);
                _exit(meet_by_text(r, RANKS));
            }
            while (wait(&status) > 0) bad += status != 0;
            _exit(bad);
        }
        for (int job = 0; job < JOBS; job++) {
            int status = -1;
            while (waitpid(leader[job], &status, 0) < 0 && errno == EINTR) continue;
            assert_int_equal(status, 0);
        }
    }
}

static void other_size(const Rank *r, void *arg)
{
    ncclUniqueId id;
    ncclComm_t comm;
    char place[64];
    snprintf(place, sizeof place, "group-size-%d:1", getppid());
    setenv("NCCL_COMM_ID", place, 1);
    need_nccl(ncclGetUniqueId(&id));
    hear((Heard *)arg + r->rank);
    ncclCommInitRank(&comm, r->world + (r->rank == 1), id, r->rank);
    check(false, "rank %d came back", r->rank);
}

TEST(test_other_size)
{
    Heard *heard = shared_alloc(2 * sizeof *heard);
    free(run_ranks_message(2, 10, other_size, heard));
    for (int r = 0; r < 2; r++)
        assert_true(strstr(heard[r].title, "the ranks disagree about nranks") ||
                    strstr(heard[r].title, "ended: see its report"));
}

// ---- Leftovers ----

static int count_fds(void)
{
    int n = 0;
    DIR *dir = opendir("/proc/self/fd");
    check(dir != NULL, "no /proc/self/fd");
    while (readdir(dir)) n++;
    closedir(dir);
    return n;
}

static int count_mappings(void)
{
    int n = 0;
    char line[1024];
    FILE *maps = fopen("/proc/self/maps", "r");
    check(maps != NULL, "no /proc/self/maps");
    while (fgets(line, sizeof line, maps)) n += strstr(line, "memfd:") != NULL;
    fclose(maps);
    return n;
}

// What is counted once a thread that releases a communicator's peers has done so, ten seconds at
// most.
static int at_rest(int (*count)(void), int most)
{
    int n = count();
    for (int i = 0; i < 1000 && n > most; i++) {
        usleep(10000);
        n = count();
    }
    return n;
}

RANK_TEST(test_leftovers, 1, 4)
{
    int fds = 0, mappings = 0;
    float *x = filled(N, 1, 0);
    for (int i = 0; i < 200; i++) {
        ncclComm_t part;
        need_nccl(ncclCommSplit(r->comm, i % 5 ? 0 : r->rank, 0, &part, NULL));
        need_nccl(ncclAllReduce(x, x, N, ncclFloat, ncclMax, part, r->stream));
        need_nccl(ncclCommDestroy(part));
        if (i == 9) { // by now everything that stays is there
            fds = count_fds();
            mappings = count_mappings();
        }
    }
    int n = at_rest(count_fds, fds);
    check(n <= fds, "%d descriptors became %d", fds, n);
    n = at_rest(count_mappings, mappings);
    check(n <= mappings, "%d mappings became %d", mappings, n);
    need_cuda(cudaStreamSynchronize(r->stream));
    need_cuda(cudaFree(x));
}

SUITE_MAIN("group")
