/* world_from_env: each launcher's variables, and what it says of values that are none. Every case
 * is a row of a table: the environment, and the world or the line that must come of it.
 *
 * world_connect's own complaints, which need no peer, stand at the end.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
};

typedef struct Row {
    const char *environment; // "NAME=value NAME=value"
    World world;
    const char *complaint; // part of the line; NULL: must succeed
} Row;

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
        if (status != OK || world.rank != row->world.rank || world.size != row->world.size ||
            world.local_rank != row->world.local_rank ||
            world.local_size != row->world.local_size || world.meeting)
            fail_msg("\"%s\" gave status %d and rank %d of %d, local rank %d of %d",
                     row->environment, (int)status, world.rank, world.size, world.local_rank,
                     world.local_size);
    }
    set_all("");
}
#define TRY_ROWS(rows) try_rows(rows, sizeof rows / sizeof rows[0])

static void test_no_launcher(void **state)
{
    static const Row rows[] = {
        {"", {0, 1, 0, 1, NULL}, NULL},
        // What a shell inside a Slurm allocation has: nobody started this as one of four.
        {"SLURM_NTASKS=4 SLURM_NTASKS_PER_NODE=4", {0, 1, 0, 1, NULL}, NULL},
    };

    TRY_ROWS(rows);
}

static void test_torchrun(void **state)
{
    static const Row rows[] = {
        {"RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4", {5, 8, 1, 4, NULL}, NULL},
        {"RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1", {0, 1, 0, 1, NULL}, NULL},
        {"RANK=2 WORLD_SIZE=3", {2, 3, 2, 3, NULL}, NULL},
        {"RANK=6 WORLD_SIZE=8 LOCAL_RANK=2", {6, 8, 2, 3, NULL}, NULL},
    };

    TRY_ROWS(rows);
}

static void test_open_mpi(void **state)
{
    static const Row rows[] = {
        {"OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=1 "
         "OMPI_COMM_WORLD_LOCAL_SIZE=2",
         {3, 4, 1, 2, NULL},
         NULL},
        // torchrun under mpirun: the inner launcher is the one that counts.
        {"RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 "
         "OMPI_COMM_WORLD_SIZE=1",
         {1, 2, 1, 2, NULL},
         NULL},
        {"OMPI_COMM_WORLD_SIZE=4", {0}, "OMPI_COMM_WORLD_RANK is not set"},
    };

    TRY_ROWS(rows);
}

static void test_slurm(void **state)
{
    static const Row rows[] = {
        {"SLURM_PROCID=9 SLURM_NTASKS=16 SLURM_LOCALID=1 SLURM_NTASKS_PER_NODE=8",
         {9, 16, 1, 8, NULL},
         NULL},
        {"SLURM_PROCID=5 SLURM_NTASKS=8 SLURM_LOCALID=1 SLURM_TASKS_PER_NODE=4(x2)",
         {5, 8, 1, 4, NULL},
         NULL},
        {"SLURM_PROCID=1 SLURM_NTASKS=3 SLURM_LOCALID=1 SLURM_STEP_TASKS_PER_NODE=3 "
         "SLURM_TASKS_PER_NODE=8",
         {1, 3, 1, 3, NULL},
         NULL},
        // Hosts that differ: all that is certain is that local ranks 0 to 2 exist.
        {"SLURM_PROCID=2 SLURM_NTASKS=7 SLURM_LOCALID=2 SLURM_TASKS_PER_NODE=4,3",
         {2, 7, 2, 3, NULL},
         NULL},
        {"SLURM_PROCID=2 SLURM_NTASKS=2 SLURM_LOCALID=0", {0}, "SLURM_PROCID is 2"},
    };

    TRY_ROWS(rows);
}

static void test_bad_values(void **state)
{
    static const Row rows[] = {
        {"RANK=0 WORLD_SIZE=0", {0}, "WORLD_SIZE is 0: a world has at least 1 rank"},
        {"RANK=4 WORLD_SIZE=4", {0}, "RANK is 4 and WORLD_SIZE is 4: ranks are 0 to 3"},
        {"RANK=-1 WORLD_SIZE=4", {0}, "RANK is \"-1\": must be a whole number"},
        {"RANK=one WORLD_SIZE=4", {0}, "RANK is \"one\""},
        {"RANK=1x WORLD_SIZE=4", {0}, "RANK is \"1x\""},
        {"RANK=0x1 WORLD_SIZE=4", {0}, "RANK is \"0x1\""},
        {"RANK=+1 WORLD_SIZE=4", {0}, "RANK is \"+1\""},
        {"RANK= WORLD_SIZE=4", {0}, "RANK is \"\""},
        {"RANK=1.0 WORLD_SIZE=4", {0}, "RANK is \"1.0\""},
        {"RANK=0 WORLD_SIZE=99999999999", {0}, "WORLD_SIZE is \"99999999999\""},
        {"RANK=0 WORLD_SIZE=99999999999999999999", {0}, "WORLD_SIZE is \"99999999999999999999\""},
        {"RANK=1", {0}, "WORLD_SIZE is not set, but other variables of torchrun are"},
        {"WORLD_SIZE=2", {0}, "RANK is not set"},
        {"RANK=1 WORLD_SIZE=4 LOCAL_RANK=2 LOCAL_WORLD_SIZE=2",
         {0},
         "LOCAL_RANK is 2, but the host has 2 ranks (LOCAL_WORLD_SIZE)"},
        {"RANK=1 WORLD_SIZE=4 LOCAL_RANK=0 LOCAL_WORLD_SIZE=0", {0}, "LOCAL_WORLD_SIZE is 0"},
        {"RANK=1 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=4",
         {0},
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

static void test_connect_complains(void **state)
{
    expect_line("RANK=0 WORLD_SIZE=2",
                "the ranks cannot find each other: set NCCL_COMM_ID to host:port of rank 0");
    expect_line("RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=lots",
                "MASTER_PORT is \"lots\"");
    expect_line("RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=0", "MASTER_PORT is 0");
    expect_line("RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=65535",
                "MASTER_PORT is 65535");
    expect_line("RANK=0 WORLD_SIZE=100 LOCAL_RANK=0 LOCAL_WORLD_SIZE=100",
                "100 ranks on this host but ");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_no_launcher), cmocka_unit_test(test_torchrun),
    cmocka_unit_test(test_open_mpi),    cmocka_unit_test(test_slurm),
    cmocka_unit_test(test_bad_values),  cmocka_unit_test(test_connect_complains),
};
SUITE_MAIN("launch/env", tests)
