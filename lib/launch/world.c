/* world.c: a rank's place in the world. Every launcher has environment variables of its own for it.
 * They are one table here, and the first launcher in it whose variables are set is believed.
 */
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/comm_watch.h"
#include "cuda/share_gpu.h"
#include "rendezvous.h"

// As TRY, but prints no line: what is wrong with the environment is one line.
#define PASS_ON(call)                                                                              \
    do {                                                                                           \
        Status pass_status_ = (call);                                                              \
        if (pass_status_ != OK) return pass_status_;                                               \
    } while (0)

typedef struct Launcher {
    const char *name;
    const char *rank, *size, *local_rank, *local_size; // names of variables
    bool size_alone; // others set the size, too: alone it is no sign of this launcher
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

// Reads a whole number and nothing else: no sign, no space, nothing after it.
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

// Slurm counts the tasks of each host of a step in a list such as "4(x2),3": host 0 and 1 have 4,
// host 2 has 3. Returns the count of this host; 0: the variable does not say.
static int slurm_local_size(const char *name)
{
    const char *list = getenv(name), *node_text = getenv("SLURM_NODEID");
    int node = node_text ? atoi(node_text) : 0, count, length;

    if (!list || (!node_text && strchr(list, ','))) return 0;
    while (sscanf(list, "%d%n", &count, &length) == 1) {
        int hosts = 1, closed = 0;
        list += length;
        if (sscanf(list, "(x%d)%n", &hosts, &closed) == 1 && closed > 0) list += closed;
        if (*list && *list != ',') return 0;
        if (node < hosts) return count > 0 ? count : 0;
        node -= hosts;
        if (*list == ',') list++;
    }
    return 0;
}

// The number of ranks on this host where no variable has it: only the local rank is known.
static int guess_local_size(const World *world, bool slurm)
{
    int size = slurm ? slurm_local_size("SLURM_TASKS_PER_NODE") : 0;

    if (size > 0) return size;
    // RANK and LOCAL_RANK alone are enough to start one host by hand.
    return !slurm && world->rank == world->local_rank ? world->size : world->local_rank + 1;
}

// SLURM_NTASKS_PER_NODE is the job's request and does not change in a step with fewer ranks. If
// Slurm has counted the ranks of the step, that count comes first.
static Status read_local_size(const Launcher *launcher, World *world)
{
    bool slurm = strcmp(launcher->name, "Slurm") == 0;

    if (slurm) {
        world->local_size = slurm_local_size("SLURM_STEP_TASKS_PER_NODE");
        if (world->local_size > 0) return OK;
    }
    if (getenv(launcher->local_size))
        return read_number(launcher, launcher->local_size, &world->local_size);
    world->local_size = guess_local_size(world, slurm);
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
    PASS_ON(read_local_size(launcher, world));
    return check_world(launcher, world);
}

static bool started_by(const Launcher *launcher)
{
    return getenv(launcher->rank) || (!launcher->size_alone && getenv(launcher->size));
}

// The launcher that started this process; NULL: none did. One may run inside another, such as
// mpirun in a Slurm job: the first in the table counts.
static const Launcher *find_launcher(void)
{
    for (size_t i = 0; i < sizeof launchers / sizeof launchers[0]; i++)
        if (started_by(&launchers[i])) return &launchers[i];
    return NULL;
}

static bool launcher_is(const char *name)
{
    const Launcher *launcher = find_launcher();

    return launcher && strcmp(launcher->name, name) == 0;
}

Status world_from_env(World *world)
{
    const Launcher *launcher = find_launcher();

    if (!world) return fail(ERR_ARGUMENT, "world_from_env without a World to fill in");
    *world = (World){.rank = 0, .size = 1, .local_rank = 0, .local_size = 1};
    if (!launcher) return OK;
    PASS_ON(read_world(launcher, world));
    check_set_rank(world->rank);
    return OK;
}

// ---- The device ----

// With --gpus-per-task Slurm shows each rank its own devices alone (srun(1): the option implies
// --gpu-bind=per_task). A rank sees fewer devices than the host has ranks, yet no two share one.
static bool has_own_devices(const World *world)
{
    return !world->rendezvous && launcher_is("Slurm") && getenv("SLURM_GPUS_PER_TASK");
}

// Memory that cudaFreeAsync frees stays with the process for its next cudaMallocAsync. By default
// CUDA gives it back to the system at every synchronisation, and fetches it again ("Stream Ordered
// Memory Allocator" in the CUDA programming guide): FSDP allocates and frees the same buffers in
// every unit of every step.
static Status keep_freed_memory(int device)
{
    cudaMemPool_t pool;
    uint64_t all = UINT64_MAX;

    CUDA_TRY(cudaDeviceGetDefaultMemPool(&pool, device));
    CUDA_TRY(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &all));
    return OK;
}

// Takes the device; *shared says whether other ranks of this host may have the same one.
static Status take_device(const World *world, int *devices, bool *shared)
{
    bool wanted = false;

    CUDA_TRY(cudaGetDeviceCount(devices));
    PASS_ON(share_gpu_wanted(&wanted));
    *shared = world->local_size > *devices && !has_own_devices(world);
    if (*shared && !wanted)
        return fail(ERR_ARGUMENT, "%d ranks on this host but %d device%s: %s", world->local_size,
                    *devices, *devices == 1 ? "" : "s", share_gpu_advice(world->local_size));
    CUDA_TRY(cudaSetDevice(world->local_rank % *devices));
    // Ranks that share a GPU need the memory that others have freed.
    return *shared ? OK : keep_freed_memory(world->local_rank % *devices);
}

// ---- Where the ranks meet ----

// The first host of a Slurm list: "node[07-09,12],login" begins with node07. False: none, or it
// does not fit.
static bool first_host(const char *list, char *host, size_t size)
{
    size_t n = 0;
    bool inside = false, past = false; // inside brackets; past the first number there

    for (; *list && (*list != ',' || inside); list++) {
        if (*list == '[' || *list == ']') {
            inside = *list == '[';
            past = false;
        } else if (inside && (*list == ',' || *list == '-')) {
            past = true;
        } else if (!past && n + 1 < size) {
            host[n++] = *list;
        }
    }
    host[n] = '\0';
    return n > 0 && n + 1 < size;
}

// A port chosen by the number of the job. It is below the ports that Linux gives out by itself
// (32768 and up), so that only another job can have it, and successive jobs have different ones.
static int port_of(uint64_t number)
{
    return 20000 + (int)(number % 10000);
}

// Where Slurm started the ranks, rank 0 is on the first host of the step's list. It is not
// SLURM_LAUNCH_NODE_IPADDR: that is where srun runs, which may be a login node.
static bool slurm_rendezvous(bool one_host, char *host, size_t size, int *port)
{
    const char *job = getenv("SLURM_JOB_ID"), *step = getenv("SLURM_STEP_ID");
    const char *list = getenv("SLURM_STEP_NODELIST");

    if (!launcher_is("Slurm") || !job) return false;
    if (!list) list = getenv("SLURM_JOB_NODELIST");
    *port = port_of(31 * strtoull(job, NULL, 10) + (step ? strtoull(step, NULL, 10) : 0));
    if (one_host) return snprintf(host, size, "127.0.0.1") > 0;
    return list && first_host(list, host, size);
}

// Open MPI does not say on which host rank 0 is, so this works on one host alone. The job's name
// contains the number of mpirun's process (PMIx: PMIX_NAMESPACE): two jobs have different names.
static bool open_mpi_rendezvous(bool one_host, char *host, size_t size, int *port)
{
    const char *job = getenv("PMIX_NAMESPACE");
    uint64_t number = 5381;

    if (!launcher_is("Open MPI") || !job || !one_host) return false;
    for (; *job; job++) number = number * 33 + (unsigned char)*job;
    *port = port_of(number);
    return snprintf(host, size, "127.0.0.1") > 0;
}

static void set_comm_id(const char *host, int port)
{
    char address[300];

    // An IPv6 address has colons of its own, and NCCL wants it in brackets.
    snprintf(address, sizeof address, strchr(host, ':') ? "[%s]:%d" : "%s:%d", host, port);
    setenv("NCCL_COMM_ID", address, 1);
}

// torchrun sets MASTER_ADDR and MASTER_PORT. Its own store listens on MASTER_PORT, so we take the
// next port.
static Status master_comm_id(const char *host, const char *port_text)
{
    int port;

    PASS_ON(parse_number("MASTER_PORT", port_text, &port));
    if (port < 1 || port > 65534)
        return fail(ERR_ARGUMENT, "MASTER_PORT is %d: must be 1 to 65534", port);
    if (strlen(host) == 0 || strlen(host) > 255)
        return fail(ERR_ARGUMENT,
                    "MASTER_ADDR is \"%s\": must be the name or address of rank 0's host", host);
    set_comm_id(host, port + 1);
    return OK;
}

// NCCL makes one id for all ranks from NCCL_COMM_ID. Sets it if nobody has.
static Status find_rendezvous(const World *world)
{
    const char *master = getenv("MASTER_ADDR"), *port_text = getenv("MASTER_PORT");
    bool one_host = world->local_size == world->size;
    char host[256];
    int port;

    if (getenv("NCCL_COMM_ID")) return OK;
    if (master && port_text) return master_comm_id(master, port_text);
    if (!master && !port_text &&
        (slurm_rendezvous(one_host, host, sizeof host, &port) ||
         open_mpi_rendezvous(one_host, host, sizeof host, &port))) {
        set_comm_id(host, port);
        return OK;
    }
    return fail(ERR_ARGUMENT, "the ranks cannot find each other: set NCCL_COMM_ID to host:port of "
                              "rank 0, or MASTER_ADDR and MASTER_PORT");
}

static Status find_id(const World *world, ncclUniqueId *id)
{
    static int connected; // communicators this process has made, the same on every rank
    Rendezvous *rendezvous = world->rendezvous;

    if (!rendezvous) {
        if (world->size > 1) PASS_ON(find_rendezvous(world));
        NCCL_TRY(ncclGetUniqueId(id));
        return OK;
    }
    int which = connected++;
    if (which >= RENDEZVOUS_IDS)
        return fail(ERR_ARGUMENT, "forked ranks can call world_connect %d times at most",
                    RENDEZVOUS_IDS);
    if (world->rank != 0) return rendezvous_wait(rendezvous, which, id);
    NCCL_TRY(ncclGetUniqueId(id));
    rendezvous_publish(rendezvous, which, id);
    return OK;
}

static Status connect(const World *world, ncclComm_t *comm)
{
    ncclUniqueId id;

    PASS_ON(find_id(world, &id));
    NCCL_TRY(ncclCommInitRank(comm, world->size, id, world->rank));
    return comm_watch(*comm);
}

Status world_connect(const World *world, ncclComm_t *comm)
{
    int devices = 0;
    bool shared = false;

    if (!world || !comm)
        return fail(ERR_ARGUMENT, "world_connect without a world or without a comm");
    check_set_rank(world->rank);
    PASS_ON(take_device(world, &devices, &shared));
    if (shared) PASS_ON(share_gpu_begin(world, devices));
    Status status = connect(world, comm);
    if (status != OK && shared) share_gpu_end();
    return status;
}

Status world_disconnect(ncclComm_t comm)
{
    if (!comm) return fail(ERR_ARGUMENT, "world_disconnect without a communicator");
    world_unwatch(comm);
    NCCL_TRY((ncclCommDestroy)(comm));
    share_gpu_end();
    return OK;
}
