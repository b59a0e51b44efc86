/* A rank's place in the world. Every launcher tells it in environment variables of its own; they
 * are one table here, and the first launcher that left its mark is taken at its word.
 *
 * Interface: world_from_env reads the place; world_connect takes the device and makes the
 * communicator.
 */
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "meeting.h"

// As TRY, without a line of its own: what is wrong with the environment is said in one.
#define PASS_ON(call)                                                                              \
    do {                                                                                           \
        Status pass_status_ = (call);                                                              \
        if (pass_status_ != OK) return pass_status_;                                               \
    } while (0)

typedef struct Launcher {
    const char *name;
    const char *rank, *size, *local_rank, *local_size; // names of variables
    bool size_alone; // the size is set elsewhere too, so that it alone says nothing
} Launcher;

// torchrun: docs.pytorch.org/docs/stable/elastic/run.html; Open MPI: its FAQ on running jobs;
// Slurm: the "OUTPUT ENVIRONMENT VARIABLES" of srun(1). A shell inside a Slurm allocation has
// SLURM_NTASKS and no SLURM_PROCID: a program started there by hand is on its own.
static const Launcher launchers[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", false},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", false},
    {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE", true},
};

// A whole number and nothing else: no sign, no space, nothing behind it.
static Status parse_number(const char *name, const char *text, int *value)
{
    char *end;

    errno = 0;
    long number = strtol(text, &end, 10);
    if (!isdigit((unsigned char)text[0]) || *end || errno || number > INT_MAX)
        return fail(ERR_ARGUMENT, "%s is \"%s\": must be a whole number, 0 or more", name, text);
    *value = (int)number;
    return OK;
}

static Status read_number(const Launcher *launcher, const char *name, int *value)
{
    const char *text = getenv(name);

    if (!text)
        return fail(ERR_ARGUMENT, "%s is not set, but other variables of %s are", name,
                    launcher->name);
    return parse_number(name, text, value);
}

// Ranks on this host, where the launcher does not say: Slurm leaves its variable out without
// --ntasks-per-node, and then SLURM_STEP_TASKS_PER_NODE or SLURM_TASKS_PER_NODE has "4(x2),3". Only
// the plain forms "4" and "4(x2)" say the same for every host; else the local rank is all that is
// known.
static Status guess_local_size(const Launcher *launcher, const World *world, int *size)
{
    *size = world->local_rank + 1;
    if (strcmp(launcher->name, "Slurm") != 0) {
        // RANK and LOCAL_RANK alone are enough to start one host by hand.
        if (world->rank == world->local_rank) *size = world->size;
        return OK;
    }
    const char *text = getenv("SLURM_STEP_TASKS_PER_NODE");
    if (!text) text = getenv("SLURM_TASKS_PER_NODE");
    int count, hosts, length = 0;
    if (text && ((sscanf(text, "%d(x%d)%n", &count, &hosts, &length) == 2 && !text[length]) ||
                 (sscanf(text, "%d%n", &count, &length) == 1 && !text[length])))
        *size = count;
    return OK;
}

static Status check_world(const Launcher *launcher, const World *world)
{
    if (world->size < 1)
        return fail(ERR_ARGUMENT, "%s is %d: a world has at least 1 rank", launcher->size,
                    world->size);
    if (world->rank >= world->size)
        return fail(ERR_ARGUMENT, "%s is %d and %s is %d: ranks are 0 to %d", launcher->rank,
                    world->rank, launcher->size, world->size, world->size - 1);
    if (world->local_size < 1)
        return fail(ERR_ARGUMENT, "%s is %d: a host has at least 1 rank", launcher->local_size,
                    world->local_size);
    if (world->local_rank >= world->local_size)
        return fail(ERR_ARGUMENT,
                    "%s is %d, but the host has %d ranks (%s): local ranks are 0 to %d",
                    launcher->local_rank, world->local_rank, world->local_size,
                    launcher->local_size, world->local_size - 1);
    if (world->local_size > world->size)
        return fail(ERR_ARGUMENT, "%s is %d, more than the whole world (%s is %d)",
                    launcher->local_size, world->local_size, launcher->size, world->size);
    return OK;
}

static Status read_world(const Launcher *launcher, World *world)
{
    PASS_ON(read_number(launcher, launcher->rank, &world->rank));
    PASS_ON(read_number(launcher, launcher->size, &world->size));
    if (getenv(launcher->local_rank))
        PASS_ON(read_number(launcher, launcher->local_rank, &world->local_rank));
    else
        world->local_rank = world->rank; // one host, started by hand
    if (getenv(launcher->local_size))
        PASS_ON(read_number(launcher, launcher->local_size, &world->local_size));
    else
        PASS_ON(guess_local_size(launcher, world, &world->local_size));
    return check_world(launcher, world);
}

static bool started_by(const Launcher *launcher)
{
    return getenv(launcher->rank) || (!launcher->size_alone && getenv(launcher->size));
}

Status world_from_env(World *world)
{
    if (!world) return fail(ERR_ARGUMENT, "world_from_env without a World to fill in");
    *world = (World){.rank = 0, .size = 1, .local_rank = 0, .local_size = 1};
    for (size_t i = 0; i < sizeof launchers / sizeof launchers[0]; i++)
        if (started_by(&launchers[i])) {
            PASS_ON(read_world(&launchers[i], world));
            check_set_rank(world->rank);
            break;
        }
    return OK;
}

static Status take_device(const World *world)
{
    int devices = 0;

    CUDA_TRY(cudaGetDeviceCount(&devices));
    if (world->local_size > devices)
        return fail(ERR_ARGUMENT,
                    "%d ranks on this host but %d device%s: start fewer ranks, or with simgpu set "
                    "SIMGPU_DEVICES=%d",
                    world->local_size, devices, devices == 1 ? "" : "s", world->local_size);
    CUDA_TRY(cudaSetDevice(world->local_rank));
    return OK;
}

// NCCL itself makes one id for all from NCCL_COMM_ID; MASTER_ADDR and MASTER_PORT are what torchrun
// sets. Its own store listens on MASTER_PORT, so ours is the next one.
static Status set_comm_id(void)
{
    const char *host = getenv("MASTER_ADDR"), *port_text = getenv("MASTER_PORT");
    char address[300];
    int port;

    if (getenv("NCCL_COMM_ID")) return OK;
    if (!host || !port_text)
        return fail(ERR_ARGUMENT,
                    "the ranks cannot find each other: set NCCL_COMM_ID to host:port of "
                    "rank 0, or MASTER_ADDR and MASTER_PORT");
    PASS_ON(parse_number("MASTER_PORT", port_text, &port));
    if (port < 1 || port > 65534)
        return fail(ERR_ARGUMENT, "MASTER_PORT is %d: must be 1 to 65534", port);
    if (strlen(host) == 0 || strlen(host) > 255)
        return fail(ERR_ARGUMENT,
                    "MASTER_ADDR is \"%s\": must be the name or address of rank 0's host", host);
    // An IPv6 address has colons of its own, and NCCL wants it in brackets.
    snprintf(address, sizeof address, strchr(host, ':') ? "[%s]:%d" : "%s:%d", host, port + 1);
    setenv("NCCL_COMM_ID", address, 1);
    return OK;
}

static Status find_id(const World *world, ncclUniqueId *id)
{
    static int connected; // communicators this process has made, the same on every rank
    Meeting *meeting = world->meeting;

    if (!meeting) {
        if (world->size > 1) PASS_ON(set_comm_id());
        NCCL_TRY(ncclGetUniqueId(id));
        return OK;
    }
    int which = connected++;
    if (world->rank != 0) return meeting_wait(meeting, which, id);
    NCCL_TRY(ncclGetUniqueId(id));
    return meeting_publish(meeting, which, id);
}

Status world_connect(const World *world, ncclComm_t *comm)
{
    ncclUniqueId id;

    if (!world || !comm)
        return fail(ERR_ARGUMENT, "world_connect without a world or without a comm");
    check_set_rank(world->rank);
    PASS_ON(take_device(world));
    PASS_ON(find_id(world, &id));
    NCCL_TRY(ncclCommInitRank(comm, world->size, id, world->rank));
    return OK;
}
