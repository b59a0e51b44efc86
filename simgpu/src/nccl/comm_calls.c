/* comm_calls.c: communicators are made and destroyed by a program's calls. */
#include <stdlib.h>
#include <string.h>

#include "nccl/board.h"
#include "nccl/call.h"
#include "nccl/comm_id.h"
#include "nccl/connect.h"
#include "nccl/group.h"
#include "nccl/inside.h"
#include "nccl/kind.h"
#include "nccl/phantom.h"
#include "nccl/refuse.h"
#include "nccl/sends.h"
#include "runtime/runtime.h"

#define HERE SIM_SITE

static ncclResult_t make_id(CommId *id)
{
    const char *place = getenv("NCCL_COMM_ID");
    *id = (CommId){.magic = "SIMGPU", .by_text = 1};
    if (sim_phantoms()) return ncclSuccess; // nobody asks for it
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
                      "On real GPUs it returns \"invalid argument\", as now.\n%s", text);
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
                       "On real GPUs it returns \"invalid argument\", as now.\n"
                       "Ranks go from 0 to nranks - 1: are the two the wrong way round?",
                       rank, size, most));
    memcpy(&init.id, id, sizeof init.id);
    if (memcmp(init.id.magic, "SIMGPU", 7) != 0)
        return sim_grouped_error(
            sim_refuse(SIMGPU_CALL, ncclInvalidArgument, name, site, "an invalid id",
                       "It does not come from ncclGetUniqueId.\n"
                       "On real GPUs this fails, or hangs until a time limit.\n"
                       "Was it handed over whole, all %d bytes, to every rank?",
                       NCCL_UNIQUE_ID_BYTES));
    return sim_submit_init(&init);
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
    if (result != ncclSuccess) return result;
    if (ndev < 1 || ndev > SIM_MAX_RANKS)
        return sim_refuse(SIMGPU_CALL, ncclInvalidArgument, name, HERE,
                          "an invalid number of devices", "ndev is %d.", ndev);
    Init init[SIM_MAX_RANKS];
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
    return sim_run_inits(init, ndev);
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

// Ranks work off their calls as they make them: there is nothing to flush but sends.
ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    const char *name = "ncclCommFinalize";
    if (!comm) return ncclSuccess; // NCCL's answer, too
    ncclResult_t result = sim_check_usable(comm, name, HERE);
    if (result != ncclSuccess) return result;
    bool entered = sim_comm_enter(comm, name, HERE);
    comm->finalized = HERE;
    sim_board_wait(comm);
    sim_sends_wait_comm(comm, name, HERE);
    if (entered) sim_comm_exit(comm);
    return result;
}

static ncclResult_t destroy(ncclComm_t comm, bool abort, const char *name, const void *site)
{
    if (!comm) return ncclSuccess; // NCCL's answer, too
    ncclResult_t result = sim_check_comm(comm, name, site);
    if (result != ncclSuccess) return result;
    if (sim_group_holds(comm))
        return sim_refuse(SIMGPU_GROUP, ncclInvalidUsage, name, site,
                          "a communicator destroyed inside a group",
                          "The group holds calls on it, which begin only at ncclGroupEnd.\n"
                          "On real GPUs this is a crash, or a hang.\n"
                          "Does the ncclCommDestroy belong after the ncclGroupEnd?");
    if (!abort) sim_comm_enter(comm, name, site);
    if (!abort) sim_board_wait(comm); // before it really waits: others see its clock
    if (!abort) sim_sends_wait_comm(comm, name, site);
    if (!abort) sim_board_resolve(comm);
    sim_note_gone(comm, site);
    sim_comm_leave(comm, site);
    return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    return destroy(comm, false, "ncclCommDestroy", HERE);
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    return destroy(comm, true, "ncclCommAbort", HERE);
}
