/* share_gpu.c: runs several ranks on one GPU, to check a program where there are fewer GPUs than
 * ranks. NCCL is not made for it: the ranks' kernels wait for each other while the GPU runs one
 * process at a time, and every message goes through a socket of the host. So the user must ask for
 * it (SHARE_GPU=1), one line says that it is on, and since a hang is likely the program ends after
 * SHARE_GPU_LIMIT seconds.
 *
 * Why NCCL's variables are set as below (one that the user has set is not changed):
 *
 *   NCCL_HOSTID  NCCL refuses two ranks of one host on one GPU ("Duplicate GPU detected"). If this
 *       is set, it is the host's identity (NCCL's src/misc/utils.cc). A name for each rank makes
 *       them ranks of different hosts, which talk over the network and never through shared
 *       memory.
 *   NCCL_MULTI_RANK_GPU_ENABLE  from NCCL 2.30 on allows it outright, as an experiment. Older ones
 *       do not know the name.
 *   NCCL_MAX_CTAS, NCCL_NET_GDR_LEVEL  few blocks a rank, and no network card that writes into the
 *       GPU: what NCCL's page on its variables advises for several ranks on a GPU.
 *   NCCL_NVLS_ENABLE, NCCL_MNNVL_ENABLE  no multicast between GPUs and no NVLink between "hosts":
 *       here those are one GPU.
 *   NCCL_SOCKET_IFNAME, NCCL_IB_DISABLE, NCCL_NET  where all ranks are on one host: the network is
 *       the loopback interface, by plain sockets.
 */
#include "share_gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm_watch.h"
#include "gpulog.h"
#include "ticker.h"

#define DEFAULT_LIMIT 600.0 // seconds
#define MAX_LIMIT 1e9
#define LIMIT_OVER 124 // exit status, as timeout(1)'s and the launcher's

#define MOST_SIMULATED 256 // devices that simgpu can have

typedef struct Setting {
    const char *name, *value;
} Setting;

static const Setting everywhere[] = {
    {"NCCL_MULTI_RANK_GPU_ENABLE", "1"}, {"NCCL_MAX_CTAS", "2"},     {"NCCL_NET_GDR_LEVEL", "LOC"},
    {"NCCL_NVLS_ENABLE", "0"},           {"NCCL_MNNVL_ENABLE", "0"},
};
static const Setting on_one_host[] = {
    {"NCCL_SOCKET_IFNAME", "lo"}, {"NCCL_IB_DISABLE", "1"}, {"NCCL_NET", "Socket"}};

static double limit; // seconds
static int users;    // communicators whose ranks share

static Status read_limit(double *seconds)
{
    const char *text = getenv("SHARE_GPU_LIMIT");
    char *end;

    *seconds = DEFAULT_LIMIT;
    if (!text || !text[0]) return OK;
    *seconds = strtod(text, &end);
    if (end == text || *end || !(*seconds > 0) || *seconds > MAX_LIMIT)
        return fail(ERR_ARGUMENT, "SHARE_GPU_LIMIT is \"%s\": must be a number of seconds above 0",
                    text);
    return OK;
}

Status share_gpu_wanted(bool *wanted)
{
    const char *text = getenv("SHARE_GPU");
    double seconds;

    *wanted = text && strcmp(text, "1") == 0;
    if (!*wanted && text && text[0] && strcmp(text, "0") != 0)
        return fail(ERR_ARGUMENT, "SHARE_GPU is \"%s\": must be 0 or 1", text);
    return *wanted ? read_limit(&seconds) : OK;
}

static void over(void)
{
    char doing[400];

    gpulog_activity(doing, sizeof doing);
    fail(ERR_NCCL, "the limit of %g s for ranks that share a GPU is over (SHARE_GPU_LIMIT); %s",
         limit, doing);
    comm_watch_leave(LIMIT_OVER);
}

static void forget(void)
{
    users = 0;
}

static Ticker ticker = TICKER(over, forget);

static void set_all(const Setting *settings, size_t n)
{
    for (size_t i = 0; i < n; i++) setenv(settings[i].name, settings[i].value, 0);
}

static void tell_nccl(const World *world)
{
    char id[64];

    snprintf(id, sizeof id, "shardlab-rank-%d", world->rank);
    setenv("NCCL_HOSTID", id, 0);
    set_all(everywhere, sizeof everywhere / sizeof everywhere[0]);
    if (world->local_size == world->size)
        set_all(on_one_host, sizeof on_one_host / sizeof on_one_host[0]);
}

// In one write, and from one rank: all ranks share a terminal.
static void announce(const World *world, int devices)
{
    char line[200];

    int n = snprintf(line, sizeof line,
                     "SHARE_GPU=1: %d ranks share %d device%s: for checking correctness, slow by "
                     "nature, ends after %g s\n",
                     world->local_size, devices, devices == 1 ? "" : "s", limit);
    ssize_t ignored = write(STDERR_FILENO, line, (size_t)n);
    (void)ignored;
}

const char *share_gpu_advice(int ranks)
{
    static char advice[160];
    bool simulated = ranks <= MOST_SIMULATED && !getenv("CUDA_VISIBLE_DEVICES");

    snprintf(advice, sizeof advice,
             "start fewer ranks, or set SHARE_GPU=1 to let ranks share (slow: for checking only)");
    if (simulated)
        snprintf(advice + strlen(advice), sizeof advice - strlen(advice),
                 ", or with simgpu SIMGPU_DEVICES=%d", ranks);
    return advice;
}

Status share_gpu_begin(const World *world, int devices)
{
    double seconds;
    Status status = read_limit(&seconds);

    if (status != OK) return status;
    ticker_lock(&ticker);
    bool first = users++ == 0;
    if (first) limit = seconds;
    ticker_unlock(&ticker);
    if (!first) return OK;
    tell_nccl(world);
    if (world->rank == 0) announce(world, devices);
    return ticker_start(&ticker, seconds);
}

void share_gpu_end(void)
{
    ticker_lock(&ticker);
    bool last = users > 0 && --users == 0;
    ticker_unlock(&ticker);
    if (last) ticker_stop(&ticker);
}
