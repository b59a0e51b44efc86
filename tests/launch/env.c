/* world_from_env: each launcher's variables, and what it says of values that are none. Every case
 * is a row of a table: the environment, and the world or the line that must come of it.
 *
 * world_connect's own complaints, which need no peer, stand at the end.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness.h"
#include "launch.h"

static const char *const all_names[] = {
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "NCCL_COMM_ID",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "SLURM_PROCID",
    "SLURM_NTASKS",
    "SLURM_LOCALID",
    "SLURM_NTASKS_PER_NODE",
    "SLURM_STEP_TASKS_PER_NODE",
    "SLURM_TASKS_PER_NODE",
    "SLURM_NODEID",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "SLURM_JOB_NODELIST",
    "SLURM_STEP_NODELIST",
    "SLURM_GPUS_PER_TASK",
    "PMIX_NAMESPACE",
};

typedef struct Row {
    const char *environment; // "NAME=value NAME=value"
    int rank, size, local_rank, local_size;
    const char *complaint; // part of the line; NULL: must succeed
} Row;
#define NO_WORLD 0, 0, 0, 0

static void set_all(const char *environment)
{
    char copy[512];

    for (size_t i = 0; i < sizeof all_names / sizeof all_names[0]; i++) unsetenv(all_names[i]);
    snprintf(copy, sizeof copy, "%s", environment);
    for (char *word = strtok(copy, " "); word; word = strtok(NULL, " ")) {
        char *equals = strchr(word, '=');
        *equals = '\0';
        setenv(word, equals + 1, 1);
    }
}

static void try_rows(const Row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const Row *row = &rows[i];
        World world = {.rank = -1};
        set_all(row->environment);
        Status status = world_from_env(&world);
        if (row->complaint) {
            if (status != ERR_ARGUMENT || !strstr(check_last(), row->complaint))
                fail_msg("\"%s\" gave status %d and the line \"%s\", must say \"%s\"",
                         row->environment, (int)status, check_last(), row->complaint);
            continue;
        }
        if (status != OK || world.rank != row->rank || world.size != row->size ||
            world.local_rank != row->local_rank || world.local_size != row->local_size ||
            world.rendezvous)
            fail_msg("\"%s\" gave status %d and rank %d of %d, local rank %d of %d",
                     row->environment, (int)status, world.rank, world.size, world.local_rank,
                     world.local_size);
    }
    set_all("");
}
#define TRY_ROWS(rows) try_rows(rows, sizeof rows / sizeof rows[0])

TEST(test_no_launcher)
{
    static const Row rows[] = {
        {"", 0, 1, 0, 1, NULL},
        // What a shell inside a Slurm allocation has: nobody started this as one of four.
        {"SLURM_NTASKS=4 SLURM_NTASKS_PER_NODE=4", 0, 1, 0, 1, NULL},
    };

    TRY_ROWS(rows);
}

TEST(test_torchrun)
{
    static const Row rows[] = {
        {"RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4", 5, 8, 1, 4, NULL},
        {"RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1", 0, 1, 0, 1, NULL},
        {"RANK=2 WORLD_SIZE=3", 2, 3, 2, 3, NULL},
        {"RANK=6 WORLD_SIZE=8 LOCAL_RANK=2", 6, 8, 2, 3, NULL},
    };

    TRY_ROWS(rows);
}

TEST(test_open_mpi)
{
    static const Row rows[] = {
        {"OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=1 "
         "OMPI_COMM_WORLD_LOCAL_SIZE=2",
         3, 4, 1, 2, NULL},
        // torchrun under mpirun: the inner launcher is the one that counts.
        {"RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 "
         "OMPI_COMM_WORLD_SIZE=1",
         1, 2, 1, 2, NULL},
        {"OMPI_COMM_WORLD_SIZE=4", NO_WORLD, "OMPI_COMM_WORLD_RANK is not set"},
    };

    TRY_ROWS(rows);
}

TEST(test_slurm)
{
    static const Row rows[] = {
        {"SLURM_PROCID=9 SLURM_NTASKS=16 SLURM_LOCALID=1 SLURM_NTASKS_PER_NODE=8", 9, 16, 1, 8,
         NULL},
        {"SLURM_PROCID=5 SLURM_NTASKS=8 SLURM_LOCALID=1 SLURM_TASKS_PER_NODE=4(x2)", 5, 8, 1, 4,
         NULL},
        {"SLURM_PROCID=1 SLURM_NTASKS=3 SLURM_LOCALID=1 SLURM_STEP_TASKS_PER_NODE=3 "
         "SLURM_TASKS_PER_NODE=8",
         1, 3, 1, 3, NULL},
        // A step of two in a job of four a host.
        {"SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_LOCALID=1 SLURM_NTASKS_PER_NODE=4 "
         "SLURM_STEP_TASKS_PER_NODE=2",
         1, 2, 1, 2, NULL},
        // Hosts that differ: host 2 is the first of those with 3, host 4 has 1.
        {"SLURM_PROCID=10 SLURM_NTASKS=15 SLURM_LOCALID=2 SLURM_NODEID=2 "
         "SLURM_STEP_TASKS_PER_NODE=4(x2),3(x2),1",
         10, 15, 2, 3, NULL},
        {"SLURM_PROCID=14 SLURM_NTASKS=15 SLURM_LOCALID=0 SLURM_NODEID=4 "
         "SLURM_STEP_TASKS_PER_NODE=4(x2),3(x2),1",
         14, 15, 0, 1, NULL},
        // A list that is none says nothing.
        {"SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_LOCALID=0 SLURM_NODEID=1 "
         "SLURM_STEP_TASKS_PER_NODE=1(y2) SLURM_TASKS_PER_NODE=1(x2)",
         1, 2, 0, 1, NULL},
        // Hosts that differ, and no word of which this is: local ranks 0 to 2 exist, and no more is
        // certain.
        {"SLURM_PROCID=2 SLURM_NTASKS=7 SLURM_LOCALID=2 SLURM_TASKS_PER_NODE=4,3", 2, 7, 2, 3,
         NULL},
        {"SLURM_PROCID=2 SLURM_NTASKS=2 SLURM_LOCALID=0", NO_WORLD, "SLURM_PROCID is 2"},
    };

    TRY_ROWS(rows);
}

TEST(test_bad_values)
{
    static const Row rows[] = {
        {"RANK=0 WORLD_SIZE=0", NO_WORLD, "WORLD_SIZE is 0: a world has at least 1 rank"},
        {"RANK=4 WORLD_SIZE=4", NO_WORLD, "RANK is 4 and WORLD_SIZE is 4: ranks are 0 to 3"},
        {"RANK=-1 WORLD_SIZE=4", NO_WORLD, "RANK is \"-1\": must be a whole number"},
        {"RANK=one WORLD_SIZE=4", NO_WORLD, "RANK is \"one\""},
        {"RANK=1x WORLD_SIZE=4", NO_WORLD, "RANK is \"1x\""},
        {"RANK=0x1 WORLD_SIZE=4", NO_WORLD, "RANK is \"0x1\""},
        {"RANK=+1 WORLD_SIZE=4", NO_WORLD, "RANK is \"+1\""},
        {"RANK= WORLD_SIZE=4", NO_WORLD, "RANK is \"\""},
        {"RANK=1.0 WORLD_SIZE=4", NO_WORLD, "RANK is \"1.0\""},
        {"RANK=0 WORLD_SIZE=99999999999", NO_WORLD, "WORLD_SIZE is \"99999999999\""},
        {"RANK=0 WORLD_SIZE=99999999999999999999", NO_WORLD,
         "WORLD_SIZE is \"99999999999999999999\""},
        {"RANK=1", NO_WORLD, "WORLD_SIZE is not set, but other variables of torchrun are"},
        {"WORLD_SIZE=2", NO_WORLD, "RANK is not set"},
        {"RANK=1 WORLD_SIZE=4 LOCAL_RANK=2 LOCAL_WORLD_SIZE=2", NO_WORLD,
         "LOCAL_RANK is 2, but the host has 2 ranks (LOCAL_WORLD_SIZE)"},
        {"RANK=1 WORLD_SIZE=4 LOCAL_RANK=0 LOCAL_WORLD_SIZE=0", NO_WORLD, "LOCAL_WORLD_SIZE is 0"},
        {"RANK=1 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=4", NO_WORLD,
         "LOCAL_WORLD_SIZE is 4, more than the whole world (WORLD_SIZE is 2)"},
    };

    TRY_ROWS(rows);
}

// ---- world_connect: each case in a rank, as it touches the device ----

static void connect_alone(const Rank *rank, void *environment)
{
    World world;
    ncclComm_t comm;

    set_all(environment);
    need(world_from_env(&world));
    check(world_connect(&world, &comm) == ERR_ARGUMENT, "world_connect must fail with \"%s\"",
          (char *)environment);
    rank_fails("said", 0, "%s", check_last());
}

static void expect_line(const char *environment, const char *line)
{
    char *message = run_ranks_message(1, 20, connect_alone, (void *)(uintptr_t)environment);

    if (!message || !strstr(message, line))
        fail_msg("\"%s\" gave \"%s\", must say \"%s\"", environment, message ? message : "nothing",
                 line);
    free(message);
}

TEST(test_connect_complains)
{
    needs_ranks(2);
    expect_line("RANK=0 WORLD_SIZE=2",
                "the ranks cannot find each other: set NCCL_COMM_ID to host:port of rank 0");
    expect_line("RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=lots",
                "MASTER_PORT is \"lots\"");
    expect_line("RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=0", "MASTER_PORT is 0");
    expect_line("RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=65535",
                "MASTER_PORT is 65535");
    // Open MPI on two hosts does not say where rank 0 is.
    expect_line("OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=0 "
                "OMPI_COMM_WORLD_LOCAL_SIZE=1 PMIX_NAMESPACE=job",
                "the ranks cannot find each other");
    expect_line("RANK=0 WORLD_SIZE=100 LOCAL_RANK=0 LOCAL_WORLD_SIZE=100",
                "100 ranks on this host but ");
}

// ---- Where ranks meet when nobody says so. With simgpu the place is a name alone, so ranks of one
// host can play those of several. ----

#ifndef BACKEND_CUDA
typedef struct Place {
    const char *environment; // without the rank
    const char *rank_name;   // the variable for it
    bool own_host;           // each rank is on a host of its own
    const char *host;
} Place;

static void meet_somewhere(const Rank *r, void *arg)
{
    const Place *place = arg;
    char text[256], where[256];
    int rank = -1, port = 0;
    World world;
    ncclComm_t comm;

    set_all(place->environment);
    snprintf(text, sizeof text, "%d", r->rank);
    setenv(place->rank_name, text, 1);
    if (place->own_host) setenv("NCCL_HOSTID", text, 1); // else one device for two is refused
    setenv(strncmp(place->rank_name, "OMPI", 4) == 0 ? "OMPI_COMM_WORLD_LOCAL_RANK"
                                                     : "SLURM_LOCALID",
           place->own_host ? "0" : text, 1);
    need(world_from_env(&world));
    check(world.rank == r->rank && world.size == 2, "rank %d of %d", world.rank, world.size);
    need(world_connect(&world, &comm));
    need_nccl(ncclCommUserRank(comm, &rank));
    check(rank == r->rank, "the communicator has it as rank %d", rank);
    snprintf(where, sizeof where, "%s", getenv("NCCL_COMM_ID"));
    char *colon = strrchr(where, ':');
    if (colon) port = atoi(colon + 1);
    check(colon && strlen(place->host) == (size_t)(colon - where) &&
              strncmp(where, place->host, strlen(place->host)) == 0 && port >= 20000 &&
              port < 30000,
          "they met at %s, and should at %s", where, place->host);
    need(world_disconnect(comm));
    need_cuda(cudaSetDevice(r->device));
}

TEST(test_default_place)
{
    static const Place places[] = {
        {"SLURM_NTASKS=2 SLURM_TASKS_PER_NODE=2", "SLURM_PROCID", false, "127.0.0.1"},
        {"SLURM_NTASKS=2 SLURM_TASKS_PER_NODE=1(x2) SLURM_STEP_ID=3 "
         "SLURM_STEP_NODELIST=node[07-09,12],login SLURM_JOB_NODELIST=other1",
         "SLURM_PROCID", true, "node07"},
        {"SLURM_NTASKS=2 SLURM_TASKS_PER_NODE=1(x2) "
         "SLURM_JOB_NODELIST=r[2,4]-n[010-020].local,x",
         "SLURM_PROCID", true, "r2-n010.local"},
        {"SLURM_NTASKS=2 SLURM_TASKS_PER_NODE=1(x2) "
         "SLURM_STEP_NODELIST=gpu-a-1,gpu-a-2",
         "SLURM_PROCID", true, "gpu-a-1"},
        {"OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=2 "
         "SLURM_PROCID=0 SLURM_STEP_NODELIST=elsewhere",
         "OMPI_COMM_WORLD_RANK", false, "127.0.0.1"},
    };

    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        char environment[400];
        Place place = places[i];
        // A job's number of this run's own: other suites may run beside it.
        int job = (int)getpid();
        snprintf(environment, sizeof environment, "%s SLURM_JOB_ID=%d PMIX_NAMESPACE=job-%d@1",
                 place.environment, job, job);
        place.environment = environment;
        run_ranks(2, meet_somewhere, &place);
    }
}

// With --gpus-per-task each rank sees one device, its own: not more ranks than devices.
static void sees_its_own_device(const Rank *r, void *arg)
{
    World world;
    ncclComm_t comm;

    set_all("SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_LOCALID=1 SLURM_TASKS_PER_NODE=2 "
            "SLURM_GPUS_PER_TASK=1");
    need(world_from_env(&world));
    // Past the question of devices there is nobody to meet, and that is said.
    check(world_connect(&world, &comm) == ERR_ARGUMENT, "it must find nobody");
    check(strstr(check_last(), "the ranks cannot find each other"), "it says: %s", check_last());
    unsetenv("SLURM_GPUS_PER_TASK");
    check(world_connect(&world, &comm) == ERR_ARGUMENT, "two ranks on one device");
    check(strstr(check_last(), "2 ranks on this host but 1 device:"), "it says: %s", check_last());
}

TEST(test_gpus_per_task)
{
    setenv("SIMGPU_DEVICES", "1", 1);
    run_ranks(1, sees_its_own_device, NULL);
    unsetenv("SIMGPU_DEVICES");
}
#endif

SUITE_MAIN("launch/env")
