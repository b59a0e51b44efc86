/* SHARE_GPU=1: more ranks than devices. What is asked for, what NCCL is told, that the results are
 * those of ranks with a device each, and that a hang ends at SHARE_GPU_LIMIT.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "example_programs.h"
#include "harness.h"
#include "launch.h"

#ifndef BACKEND_CUDA // on real GPUs the number of devices is what it is
static void share(const char *devices, const char *limit)
{
    setenv("SIMGPU_DEVICES", devices, 1);
    setenv("SHARE_GPU", "1", 1);
    if (limit) setenv("SHARE_GPU_LIMIT", limit, 1);
}

static void share_no_more(void)
{
    unsetenv("SIMGPU_DEVICES");
    unsetenv("SHARE_GPU");
    unsetenv("SHARE_GPU_LIMIT");
}

// ---- Values ----

typedef struct Row {
    const char *share, *limit;
    const char *complaint; // part of the line; NULL: the value is right
} Row;

// A world of two here, which has one device and nobody else to meet.
static void connect_world_of_two(const Rank *r, void *arg)
{
    const Row *row = arg;
    const char *want = row->complaint ? row->complaint : "the ranks cannot find each other";
    World world = {.rank = 1, .size = 2, .local_rank = 1, .local_size = 2};
    ncclComm_t comm;

    setenv("SHARE_GPU", row->share, 1);
    if (row->limit) setenv("SHARE_GPU_LIMIT", row->limit, 1);
    check(world_connect(&world, &comm) == ERR_ARGUMENT, "it must fail");
    check(strstr(check_last(), want), "SHARE_GPU=%s SHARE_GPU_LIMIT=%s gave \"%s\", not \"%s\"",
          row->share, row->limit ? row->limit : "", check_last(), want);
}

TEST(test_values)
{
    static const Row rows[] = {
        {"", NULL, "2 ranks on this host but 1 device: start fewer ranks, or set SHARE_GPU=1"},
        {"0", "nonsense", "2 ranks on this host but 1 device"},
        {"yes", NULL, "SHARE_GPU is \"yes\": must be 0 or 1"},
        {"2", NULL, "SHARE_GPU is \"2\""},
        {"1", "soon", "SHARE_GPU_LIMIT is \"soon\": must be a number of seconds above 0"},
        {"1", "0", "SHARE_GPU_LIMIT is \"0\""},
        {"1", "-5", "SHARE_GPU_LIMIT is \"-5\""},
        {"1", "nan", "SHARE_GPU_LIMIT is \"nan\""},
        {"1", "inf", "SHARE_GPU_LIMIT is \"inf\""},
        {"1", "5 s", "SHARE_GPU_LIMIT is \"5 s\""},
        {"1", "", NULL},
        {"1", "90.5", NULL},
        {"1", NULL, NULL},
    };

    setenv("SIMGPU_DEVICES", "1", 1);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        Row row = rows[i];
        run_ranks(1, connect_world_of_two, &row);
    }
    share_no_more();
}

// ---- Devices, and what NCCL is told ----

static void check_variable(const char *name, const char *want)
{
    const char *got = getenv(name);

    check(want ? got && strcmp(got, want) == 0 : !got, "%s is %s, must be %s", name,
          got ? got : "not set", want ? want : "left alone");
}

static void sum_up(const Rank *r)
{
    float mine = (float)(r->rank + 1), sum = 0, *x;

    need_cuda(cudaMalloc((void **)&x, sizeof *x));
    send_to(x, &mine, 1);
    need_nccl(ncclAllReduce(x, x, 1, ncclFloat, ncclSum, r->comm, r->stream));
    need_cuda(cudaStreamSynchronize(r->stream));
    float *back = fetch(x, 1);
    sum = back[0];
    free(back);
    need_cuda(cudaFree(x));
    check(sum == (float)(r->world * (r->world + 1) / 2), "the sum is %g", (double)sum);
}

static void uses_devices(const Rank *r, void *arg)
{
    const int *devices = arg;
    bool shared = r->world > *devices;
    char id[64];

    check(r->device == r->rank % *devices, "rank %d has device %d", r->rank, r->device);
    snprintf(id, sizeof id, "shardlab-rank-%d", r->rank);
    check_variable("NCCL_HOSTID", shared ? id : NULL);
    check_variable("NCCL_SOCKET_IFNAME", shared ? "lo" : NULL);
    check_variable("NCCL_IB_DISABLE", shared ? "1" : NULL);
    check_variable("NCCL_MULTI_RANK_GPU_ENABLE", shared ? "1" : NULL);
    sum_up(r);
}

TEST(test_devices)
{
    for (int devices = 1; devices <= 3; devices++)
        for (int world = 1; world <= 5; world++) {
            char text[8];
            snprintf(text, sizeof text, "%d", devices);
            share(text, NULL);
            run_ranks(world, uses_devices, &devices);
        }
    share_no_more();
}

static void keeps_what_is_set(const Rank *r, void *arg)
{
    check_variable("NCCL_SOCKET_IFNAME", "eth7");
    check_variable("NCCL_IB_DISABLE", "0");
    check_variable("NCCL_MAX_CTAS", "9");
    sum_up(r);
}

TEST(test_user_has_the_last_word)
{
    share("1", NULL);
    setenv("NCCL_SOCKET_IFNAME", "eth7", 1);
    setenv("NCCL_IB_DISABLE", "0", 1);
    setenv("NCCL_MAX_CTAS", "9", 1);
    run_ranks(2, keeps_what_is_set, NULL);
    unsetenv("NCCL_SOCKET_IFNAME");
    unsetenv("NCCL_IB_DISABLE");
    unsetenv("NCCL_MAX_CTAS");
    share_no_more();
}

// ---- One device for two, as NCCL sees it ----

// The id of a second communicator goes from rank 0 to the others over the first one.
static ncclUniqueId pass_id(const Rank *r)
{
    ncclUniqueId id;
    char *x;

    memset(&id, 0, sizeof id);
    if (r->rank == 0) need_nccl(ncclGetUniqueId(&id));
    need_cuda(cudaMalloc((void **)&x, sizeof id));
    need_cuda(cudaMemcpyAsync(x, &id, sizeof id, cudaMemcpyHostToDevice, r->stream));
    need_nccl(ncclBroadcast(x, x, sizeof id, ncclChar, 0, r->comm, r->stream));
    need_cuda(cudaStreamSynchronize(r->stream));
    need_cuda(cudaMemcpy(&id, x, sizeof id, cudaMemcpyDeviceToHost));
    need_cuda(cudaFree(x));
    return id;
}

static ncclResult_t join(const Rank *r)
{
    ncclComm_t comm = NULL;
    ncclUniqueId id = pass_id(r);

    need_cuda(cudaSetDevice(0));
    ncclResult_t result = ncclCommInitRank(&comm, r->world, id, r->rank);
    if (result == ncclSuccess) need_nccl(ncclCommDestroy(comm));
    need_cuda(cudaSetDevice(r->device));
    return result;
}

// Both ranks want device 0; what check.h prints of it has NCCL's own words.
static int is_refused(const World *world, void *host)
{
    World alone = *world;
    ncclComm_t comm;

    alone.local_rank = 0;
    alone.local_size = 1;
    if (host) setenv("NCCL_HOSTID", host, 1);
    if (!freopen("/dev/null", "w", stderr)) return 50;
    if (world_connect(&alone, &comm) != ERR_NCCL) return 51;
    return strstr(check_last(), "invalid usage: Duplicate GPU detected : rank ") ? 0 : 52;
}

static void is_allowed(const Rank *r, void *arg)
{
    char text[16];

    snprintf(text, sizeof text, "%d", r->rank);
    setenv("NCCL_HOSTID", text, 1);
    check(join(r) == ncclSuccess, "ranks of different hosts were refused");
    unsetenv("NCCL_HOSTID");
    setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
    check(join(r) == ncclSuccess, "NCCL_MULTI_RANK_GPU_ENABLE=1 was not heeded");
}

TEST(test_one_device_for_two)
{
    static char host[] = "the same for both";
    RankEnd ends[2];

    if (launch_ranks(2, 30, is_refused, NULL, ends) != OK)
        fail_msg("two ranks of one host: rank 0 ended with %d", ends[0].code);
    if (launch_ranks(2, 30, is_refused, host, ends) != OK)
        fail_msg("two ranks with one NCCL_HOSTID: rank 0 ended with %d", ends[0].code);
    run_ranks(2, is_allowed, NULL);
}

// ---- The time limit ----

// Rank 1 never comes. Its own limit is a later one: rank 0 would else be told that it has gone.
static int hang(const World *world, void *arg)
{
    ncclComm_t comm;
    float *x;

    if (world->rank == 1) setenv("SHARE_GPU_LIMIT", "50", 1);
    TRY(world_connect(world, &comm));
    CUDA_TRY(cudaMalloc((void **)&x, sizeof *x));
    CUDA_TRY(cudaMemset(x, 0, sizeof *x));
    if (world->rank == 1)
        for (;;) pause();
    NCCL_TRY(ncclAllReduce(x, x, 1, ncclFloat, ncclSum, comm, NULL));
    return 3;
}

TEST(test_limit)
{
    RankEnd ends[2];

    share("1", "1");
    IGNORE_STATUS(launch_ranks(2, 60, hang, NULL, ends));
    share_no_more();
    if (ends[0].how != RANK_EXITED || ends[0].code != 124)
        fail_msg("rank 0 ended in way %d with %d", (int)ends[0].how, ends[0].code);
}

static void waits(const Rank *r, void *arg)
{
    float *x;

    need_cuda(cudaMalloc((void **)&x, sizeof *x));
    need_cuda(cudaMemsetAsync(x, 0, sizeof *x, r->stream));
    if (r->rank == 1)
        for (;;) pause();
    need_nccl(ncclAllReduce(x, x, 1, ncclFloat, ncclSum, r->comm, r->stream));
}

TEST(test_limit_says_where)
{
    share("1", "1");
    char *message = run_ranks_message(2, 60, waits, NULL);
    share_no_more();
    if (!message || !strstr(message, "the limit of 1 s for ranks that share a GPU is over") ||
        !strstr(message, "share.c"))
        fail_msg("at the limit was said: %s", message ? message : "nothing");
    free(message);
}

// The limit is that of a communicator's life: a process goes on for longer.
static int outlive(const World *world, void *arg)
{
    ncclComm_t comm;

    TRY(world_connect(world, &comm));
    TRY(world_disconnect(comm));
    sleep(4);
    return 0;
}

TEST(test_limit_ends_with_the_communicator)
{
    RankEnd ends[2];

    share("1", "3");
    Status status = launch_ranks(2, 60, outlive, NULL, ends);
    share_no_more();
    assert_int_equal(status, OK);
}

// ---- Training ----

// What a training prints, apart from what the ranks that share say of it on standard error.
static void train(int world, const char *settings)
{
    char command[400];

    snprintf(
        command, sizeof command,
        "env %s $LAUNCH -n %d $BIN/after_fsdp $DIR/text 2>$DIR/said || { cat $DIR/said; exit 1; }",
        settings, world);
    expect_printed(run_programs(command), 0, "step 30");
}

// Three ranks on two devices are what is uneven; SHARE_ALL=1 has two ranks and four as well.
TEST(test_training_is_the_same)
{
    bool all = getenv("SHARE_ALL") != NULL;
    for (int world = all ? 2 : 3; world <= (all ? 4 : 3); world++) {
        train(world, "SIMGPU_DEVICES=8");
        char *want = strdup(programs_printed), settings[64];
        for (int devices = 1; devices <= 2; devices++) {
            snprintf(settings, sizeof settings, "SHARE_GPU=1 SIMGPU_DEVICES=%d", devices);
            train(world, settings);
            if (strcmp(programs_printed, want) != 0)
                fail_msg("%d ranks on %d devices:\n%swith a device each:\n%s", world, devices,
                         programs_printed, want);
        }
        free(want);
    }
}
#else
TEST(test_nothing)
{
}
#endif

int main(int argc, char **argv)
{
    return example_programs_main(argc, argv, "launch/share");
}
