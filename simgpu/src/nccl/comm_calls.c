/* comm_calls.c: the calls that make and destroy communicators. */
#include <stdlib.h>
#include <string.h>

#include "nccl/board.h"
#include "nccl/call.h"
#include "nccl/comm_id.h"
#include "nccl/connect.h"
#include "nccl/group.h"
#include "nccl/inside.h"
#include "nccl/kind.h"
#include "nccl/making.h"
#include "nccl/names.h"
#include "nccl/pending.h"
#include "nccl/phantom.h"
#include "nccl/refuse.h"
#include "nccl/sends.h"
#include "runtime/runtime.h"

#define HERE SIM_SITE

SIM_NCCL(ncclGetUniqueId)
SIM_NCCL(ncclCommInitRank)
SIM_NCCL(ncclCommInitRankConfig)
SIM_NCCL(ncclCommInitRankScalable)
SIM_NCCL(ncclCommInitAll)
SIM_NCCL(ncclCommSplit)
SIM_NCCL(ncclCommShrink)
SIM_NCCL(ncclCommFinalize)
SIM_NCCL(ncclCommDestroy)
SIM_NCCL(ncclCommAbort)
SIM_NCCL(ncclCommRevoke)

static ncclResult_t make_id(CommId *id)
{
    const char *place = getenv("NCCL_COMM_ID");
    *id = (CommId){.magic = "SIMGPU", .by_text = 1};
    if (sim_phantoms()) return ncclSuccess; // phantoms do not look for the id
    if (!place || !*place) return sim_comm_id_offer(id);
    if (strlen(place) >= sizeof id->text || !strchr(place, ':'))
        return sim_refuse(SIMGPU_CALL, ncclInvalidArgument, "ncclGetUniqueId", HERE,
                          "NCCL_COMM_ID is not host:port", "It is \"%s\".", place);
    strcpy(id->text, place);
    return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *uniqueId)
{
    CommId id;
    _Static_assert(sizeof id <= sizeof *uniqueId, "an id fits");
    ncclResult_t result = sim_check_not_null(uniqueId, "uniqueId", "ncclGetUniqueId", HERE);
    if (result == ncclSuccess) result = make_id(&id);
    if (result != ncclSuccess) return result;
    memset(uniqueId, 0, sizeof *uniqueId);
    memcpy(uniqueId, &id, sizeof id);
    return ncclSuccess;
}

static ncclResult_t refuse_config(const char *name, const void *site, const char *title,
                                  const char *text)
{
    return sim_refuse(SIMGPU_CALL, ncclInvalidArgument, name, site, title,
                      "On real GPUs it returns \"invalid argument\", as here.\n%s", text);
}

static bool is_switch(int value, bool *out)
{
    if (value != NCCL_CONFIG_UNDEF_INT) *out = value != 0;
    return value == NCCL_CONFIG_UNDEF_INT || value == 0 || value == 1;
}

// *options have their defaults; NULL: these.
static ncclResult_t read_config(const ncclConfig_t *config, Options *options, const char *name,
                                const void *site)
{
    bool blocking = true;
    if (!config) return ncclSuccess;
    if (config->magic != 0xcafebeef)
        return refuse_config(name, site, "a configuration without its start values",
                             "Does it begin with ncclConfig_t config = NCCL_CONFIG_INITIALIZER?");
    *options = (Options){.nonblocking = false};
    if (!is_switch(config->blocking, &blocking) ||
        !is_switch(config->splitShare, &options->split_share) ||
        !is_switch(config->shrinkShare, &options->shrink_share))
        return refuse_config(name, site, "a configuration with an invalid value",
                             "blocking, splitShare and shrinkShare are 0 or 1.");
    options->nonblocking = !blocking;
    return ncclSuccess;
}

static ncclResult_t init_rank(ncclComm_t *comm, int size, const ncclUniqueId *id, int rank,
                              const ncclConfig_t *config, const char *name, const void *site)
{
    Init init = {
        .out = comm, .size = size, .rank = rank, .device = sim_current_device(), .site = site};
    ncclResult_t result = read_config(config, &init.options, name, site);
    if (result == ncclSuccess) result = sim_check_not_null(comm, "comm", name, site);
    if (result != ncclSuccess) return sim_grouped_error(result);
    *comm = NULL;
    int most = sim_phantoms() ? SIM_MAX_PHANTOMS : SIM_MAX_RANKS;
    if (size < 1 || size > most || rank < 0 || rank >= size)
        return sim_grouped_error(
            sim_refuse(SIMGPU_CALL, ncclInvalidArgument, name, site, "an invalid rank or size",
                       "rank %d of nranks %d; simgpu has room for %d ranks.\n"
                       "On real GPUs it returns \"invalid argument\", as here.\n"
                       "Ranks go from 0 to nranks - 1: are the two the wrong way round?",
                       rank, size, most));
    memcpy(&init.id, id, sizeof init.id);
    if (memcmp(init.id.magic, "SIMGPU", 7) != 0)
        return sim_grouped_error(
            sim_refuse(SIMGPU_CALL, ncclInvalidArgument, name, site, "an invalid id",
                       "It does not come from ncclGetUniqueId.\n"
                       "On real GPUs this fails, or hangs until a time limit.\n"
                       "Did every rank get all its %d bytes?",
                       NCCL_UNIQUE_ID_BYTES));
    return sim_submit_init(&init, name);
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank)
{
    return init_rank(comm, nranks, &commId, rank, NULL, "ncclCommInitRank", HERE);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank,
                                    ncclConfig_t *config)
{
    return init_rank(comm, nranks, &commId, rank, config, "ncclCommInitRankConfig", HERE);
}

ncclResult_t ncclCommInitRankScalable(ncclComm_t *newcomm, int nranks, int myrank, int nId,
                                      ncclUniqueId *commIds, ncclConfig_t *config)
{
    const char *name = "ncclCommInitRankScalable";
    ncclResult_t result = sim_check_not_null(commIds, "commIds", name, HERE);
    if (result != ncclSuccess) return sim_grouped_error(result);
    if (nId < 1)
        return sim_grouped_error(
            sim_refuse(SIMGPU_CALL, ncclInvalidArgument, name, HERE, "no id", "nId is %d.", nId));
    return init_rank(newcomm, nranks, &commIds[0], myrank, config, name, HERE);
}

ncclResult_t ncclCommInitAll(ncclComm_t *comm, int ndev, const int *devlist)
{
    const char *name = "ncclCommInitAll";
    ncclResult_t result = sim_check_not_null(comm, "comm", name, HERE);
    int devices = 0;
    cudaGetDeviceCount(&devices);
    if (result == ncclSuccess) result = sim_check_uncaptured(name, HERE);
    if (result != ncclSuccess) return result;
    if (ndev < 1 || ndev > SIM_MAX_RANKS)
        return sim_refuse(SIMGPU_CALL, ncclInvalidArgument, name, HERE,
                          "an invalid number of devices", "ndev is %d.", ndev);
    Init init[SIM_MAX_RANKS], *own;
    CommId id;
    for (int i = 0; i < ndev; i++) {
        int device = devlist ? devlist[i] : i;
        if (device < 0 || device >= devices)
            return sim_refuse(SIMGPU_CALL, ncclInvalidArgument, name, HERE, "no such device",
                              "Rank %d is to be on device %d; there are %d (SIMGPU_DEVICES).", i,
                              device, devices);
        for (int j = 0; j < i; j++)
            if (init[j].device == device && !sim_may_share())
                return sim_refuse(
                    SIMGPU_CALL, ncclInvalidUsage, name, HERE, "duplicate GPU",
                    "Ranks %d and %d are both to be on device %d; each needs its own.", j, i,
                    device);
        init[i] = (Init){.out = &comm[i], .size = ndev, .rank = i, .device = device, .site = HERE};
    }
    id = (CommId){.magic = "SIMGPU"};
    if (!sim_phantoms()) result = sim_comm_id_offer(&id);
    if (result != ncclSuccess) return result;
    for (int i = 0; i < ndev; i++) init[i].id = id;
    own = malloc((size_t)ndev * sizeof *own);
    if (!own) return ncclSystemError;
    memcpy(own, init, (size_t)ndev * sizeof *own);
    return sim_run_inits(own, ndev);
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *newcomm,
                           ncclConfig_t *config)
{
    const char *name = "ncclCommSplit";
    ncclResult_t result = sim_check_not_null(newcomm, "newcomm", name, HERE);
    if (result == ncclSuccess) result = sim_check_usable(comm, name, HERE);
    Options options = result == ncclSuccess ? comm->options : (Options){0};
    if (result == ncclSuccess) result = read_config(config, &options, name, HERE);
    if (result != ncclSuccess) return sim_grouped_error(result);
    *newcomm = NULL; // until it is made
    if (color < 0 && color != NCCL_SPLIT_NOCOLOR)
        return sim_grouped_error(
            sim_refuse(SIMGPU_CALL, ncclInvalidArgument, name, HERE, "a negative color",
                       "%d is neither 0 or more nor NCCL_SPLIT_NOCOLOR.", color));
    Call call = {.comm = comm,
                 .signature.kind = CALL_SPLIT,
                 .site = HERE,
                 .new_comm = newcomm,
                 .new_options = options,
                 .desc = {.color = color, .key = key}};
    return sim_submit(&call);
}

// Ends what is in progress, of this thread and of others.
static void stop_calls(ncclComm_t comm)
{
    sim_sends_forget(comm);
    sim_comm_expel(comm, false);
    sim_pending_cancel(comm);
    atomic_store(&comm->async_error, ncclSuccess);
}

static int by_number(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

static ncclResult_t refuse_shrink(const void *site, const char *title, int rank, const char *text)
{
    return sim_refuse(SIMGPU_CALL, ncclInvalidArgument, "ncclCommShrink", site, title,
                      "excludeRanksList has rank %d.\n"
                      "On real GPUs it returns \"invalid argument\", or hangs.\n%s",
                      rank, text);
}

// Lists the ranks that stay: all but the n of the list.
static ncclResult_t find_stayers(Init *init, const int *list, int n)
{
    ncclComm_t comm = init->parent;
    for (int i = 0; i < n; i++) {
        int rank = list[i];
        if (rank < 0 || rank >= comm->size)
            return refuse_shrink(init->site, "a rank outside the communicator", rank,
                                 "Is it a rank of the whole world?");
        if (rank == comm->rank)
            return refuse_shrink(init->site, "a rank leaves itself out", rank,
                                 "Only the ranks that stay call ncclCommShrink.");
        init->left_out[rank / 64] |= UINT64_C(1) << rank % 64;
    }
    init->own_mates = malloc((size_t)comm->size * sizeof *init->own_mates);
    if (!init->own_mates) return ncclSystemError;
    for (int r = 0; r < comm->size; r++) {
        if (init->left_out[r / 64] >> r % 64 & 1) continue;
        if (r == comm->rank) init->rank = init->size;
        init->own_mates[init->size++] = r;
    }
    init->mates = init->own_mates;
    return ncclSuccess;
}

static ncclResult_t begin_shrink(Init *init, int *list, int n, const ncclConfig_t *config,
                                 int flags, const char *name)
{
    ncclComm_t comm = init->parent;
    ncclResult_t result = sim_check_not_null(init->out, "newcomm", name, init->site);
    if (result == ncclSuccess)
        result = sim_check_not_null(list, "excludeRanksList", name, init->site);
    if (result == ncclSuccess && n < 1)
        result =
            sim_refuse(SIMGPU_CALL, ncclInvalidArgument, name, init->site, "no rank is excluded",
                       "excludeRanksCount is %d.\n"
                       "On real GPUs it returns \"invalid argument\", as here.\n"
                       "Do you mean ncclCommSplit?",
                       n);
    if (result == ncclSuccess && (flags & NCCL_SHRINK_ABORT)) stop_calls(comm);
    if (result == ncclSuccess) result = sim_check_ready(comm, name, init->site);
    if (result != ncclSuccess) return result;
    init->options = comm->options;
    init->shares = comm->options.shrink_share && !comm->revoked && !(flags & NCCL_SHRINK_ABORT);
    result = read_config(config, &init->options, name, init->site);
    if (result == ncclSuccess) qsort(list, (size_t)n, sizeof *list, by_number); // as NCCL does
    if (result == ncclSuccess) result = find_stayers(init, list, n);
    if (result == ncclSuccess && comm->phantoms)
        result = sim_refuse(SIMGPU_CALL, ncclInvalidUsage, name, init->site,
                            "a shrink among phantom peers",
                            "No process runs the other ranks (SIMGPU_PHANTOMS).");
    if (result == ncclSuccess) *init->out = NULL;
    return result;
}

ncclResult_t ncclCommShrink(ncclComm_t comm, int *excludeRanksList, int excludeRanksCount,
                            ncclComm_t *newcomm, ncclConfig_t *config, int shrinkFlags)
{
    const char *name = "ncclCommShrink";
    ncclResult_t result = sim_check_comm(comm, name, HERE);
    if (result != ncclSuccess) return sim_grouped_error(result);
    Init init = {
        .out = newcomm, .device = comm->device, .site = HERE, .parent = comm, .shrinks = true};
    result = begin_shrink(&init, excludeRanksList, excludeRanksCount, config, shrinkFlags, name);
    if (result == ncclSuccess) return sim_submit_init(&init, name);
    free(init.own_mates);
    return sim_grouped_error(result);
}

// Ranks do the work of a call when they make it: only sends are left to flush.
ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    const char *name = "ncclCommFinalize";
    if (!comm) return ncclSuccess; // NCCL's answer, too
    ncclResult_t result = sim_check_usable(comm, name, HERE);
    if (result != ncclSuccess) return result;
    bool entered = sim_comm_enter(comm, name, HERE);
    comm->finalized = HERE;
    sim_board_wait(comm);
    if (!comm->options.nonblocking) sim_sends_wait_comm(comm, name, HERE);
    if (entered) sim_comm_exit(comm);
    return comm->options.nonblocking ? sim_pending_finalize(comm) : result;
}

static ncclResult_t refuse_in_group(const char *name, const void *site)
{
    return sim_refuse(SIMGPU_GROUP, ncclInvalidUsage, name, site,
                      "a communicator destroyed inside a group",
                      "The group holds calls on it, which begin only at ncclGroupEnd.\n"
                      "On real GPUs this is a crash, or a hang.\n"
                      "Does the %s belong after the ncclGroupEnd?",
                      name);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    const char *name = "ncclCommDestroy";
    if (!comm) return ncclSuccess; // NCCL's answer, too
    ncclResult_t result = sim_check_ready(comm, name, HERE);
    if (result != ncclSuccess) return result;
    if (sim_group_holds(comm)) return refuse_in_group(name, HERE);
    sim_comm_enter(comm, name, HERE);
    sim_board_wait(comm); // before it waits, so that the others see its clock
    sim_sends_wait_comm(comm, name, HERE);
    sim_board_resolve(comm);
    sim_note_gone(comm, HERE);
    sim_comm_exit(comm);
    sim_comm_leave(comm, HERE);
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    const char *name = "ncclCommAbort";
    if (!comm) return ncclSuccess; // NCCL's answer, too
    ncclResult_t result = sim_check_comm(comm, name, HERE);
    if (result != ncclSuccess) return result;
    if (sim_group_holds(comm)) return refuse_in_group(name, HERE);
    sim_sends_forget(comm);
    sim_comm_expel(comm, true);
    sim_pending_cancel(comm);
    if (comm->self) atomic_store(&comm->self->aborted, 1);
    sim_note_gone(comm, HERE);
    sim_comm_leave(comm, HERE);
    return ncclSuccess;
}

// Stops what is in progress, as an abort does. The communicator can then be destroyed or shrunk.
ncclResult_t ncclCommRevoke(ncclComm_t comm, int revokeFlags)
{
    const char *name = "ncclCommRevoke";
    ncclResult_t result = sim_check_comm(comm, name, HERE);
    if (result != ncclSuccess) return result;
    if (revokeFlags != NCCL_REVOKE_DEFAULT)
        return sim_refuse(SIMGPU_CALL, ncclInvalidArgument, name, HERE, "unknown flags",
                          "revokeFlags is %d; NCCL has only NCCL_REVOKE_DEFAULT.", revokeFlags);
    if (sim_group_holds(comm)) return refuse_in_group(name, HERE);
    stop_calls(comm);
    comm->revoked = true;
    return comm->options.nonblocking ? sim_pending_finalize(comm) : ncclSuccess;
}
