/* group.c: calls of a group wait for its end.
 *
 * A call that is checked is run at once, or with all others of its group at the outermost
 * ncclGroupEnd. New communicators wait for a group's end likewise, so that one thread can make
 * those of several devices. If a call of a group was wrong, its end runs nothing and returns that
 * error.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nccl/arguments.h"
#include "nccl/comm_id.h"
#include "nccl/connect.h"
#include "nccl/group.h"
#include "nccl/inside.h"
#include "nccl/kind.h"
#include "nccl/refuse.h"
#include "report/report.h"

#define HERE SIM_SITE

static __thread struct {
    int depth;
    const void *site;   // of the outermost start
    bool told;          // of a wait in between: once is enough
    ncclResult_t error; // the first one since the outermost start
    Call *call;
    int n_calls, max_calls;
    Init *init;
    int n_inits, max_inits;
} group;

static void check_end(void);
static void check_wait(const char *name, cudaStream_t stream, const void *site);
static SimHooks hooks = {
    .visit = sim_comm_visit, .end = check_end, .idle_wait = check_wait, .fatal = sim_comm_goodbye};

// Room for one more; false where there is none.
static bool grow(void **items, int n, int *max, size_t size)
{
    if (n < *max) return true;
    int more = *max ? 2 * *max : 16;
    void *grown = realloc(*items, (size_t)more * size);
    if (!grown) return false;
    *items = grown;
    *max = more;
    return true;
}

static ncclResult_t join_on_device(const Init *init, ncclComm_t *comm)
{
    sim_hooks_add(&hooks);
    int device = sim_current_device();
    if (device != init->device) cudaSetDevice(init->device);
    ncclResult_t result = sim_comm_join(init, comm);
    if (device != init->device) cudaSetDevice(device);
    return result;
}

// Joins all, then connects all. Rank 0 goes first: with NCCL_COMM_ID others find the memory through
// it.
ncclResult_t sim_run_inits(const Init *init, int n)
{
    ncclComm_t *comm = calloc((size_t)n, sizeof *comm);
    ncclResult_t result = comm ? ncclSuccess : ncclSystemError;
    int joined = 0;
    for (int first = 1; first >= 0; first--)
        for (int i = 0; i < n && result == ncclSuccess; i++) {
            if ((init[i].rank == 0) != first) continue;
            result = join_on_device(&init[i], init[i].out);
            if (result == ncclSuccess) comm[joined++] = *init[i].out;
        }
    if (result == ncclSuccess) result = sim_comm_connect(comm, joined);
    for (int i = 0; i < joined && result != ncclSuccess; i++) sim_comm_leave(comm[i], NULL);
    for (int i = 0; i < n && result != ncclSuccess; i++) *init[i].out = NULL;
    free(comm);
    return result;
}

// What is left to do of the splits once everybody's color is known.
static ncclResult_t finish_splits(Call *calls, int n)
{
    Init *init = NULL;
    int n_inits = 0, max = 0;
    for (int i = 0; i < n; i++) {
        Call *call = &calls[i];
        if (call->signature.kind != CALL_SPLIT) continue;
        *call->new_comm = NULL;
        bool offered = !call->comm->phantoms;
        if (offered && (!call->new_size || call->new_rank != 0))
            sim_comm_id_withdraw(&call->desc.id);
        if (!call->new_size) continue;
        if (!grow((void **)&init, n_inits, &max, sizeof *init)) return ncclSystemError;
        init[n_inits++] = (Init){.out = call->new_comm,
                                 .size = call->new_size,
                                 .rank = call->new_rank,
                                 .device = call->comm->device,
                                 .id = call->new_id,
                                 .site = call->site,
                                 .options = call->new_options,
                                 .shares = call->comm->options.split_share,
                                 .parent = call->comm,
                                 .mates = call->phantom_mates ? call->phantom_mates : call->mates};
    }
    ncclResult_t result = n_inits ? sim_run_inits(init, n_inits) : ncclSuccess;
    for (int i = 0; i < n; i++) free(calls[i].phantom_mates);
    free(init);
    return result;
}

static ncclResult_t run_calls(Call *calls, int n)
{
    ncclResult_t result = sim_check_messages(calls, n);
    if (result == ncclSuccess) result = sim_run_calls(calls, n);
    return result == ncclSuccess ? finish_splits(calls, n) : result;
}

ncclResult_t sim_grouped_error(ncclResult_t result)
{
    if (group.depth > 0 && group.error == ncclSuccess) group.error = result;
    return result;
}

// A communicator is there only when the group of its initialisation ends: NCCL allows nothing else
// in such a group ("Group Calls" in its documentation).
static ncclResult_t refuse_mixed(const char *name, const void *site, const char *other,
                                 const void *other_site)
{
    char where[256], other_where[256], error[512];
    gpulog_where(site, where, sizeof where);
    gpulog_where(other_site, other_where, sizeof other_where);
    snprintf(error, sizeof error, "%s at %s: in one group with %s", name, where, other);
    sim_nccl_error(error);
    sim_facts_call(name, site, SIM_NO_STREAM);
    sim_facts_call(other, other_site, SIM_NO_STREAM);
    sim_report(
        SIMGPU_GROUP, "a communicator's initialisation in a group with other calls",
        "%s, called at %s,\nreturns \"%s\". The same group has\n"
        "%s, called at %s.\n"
        "On real GPUs this is an invalid argument, a crash or a hang: the communicator is\n"
        "there only when the group ends.\n"
        "Does the initialisation need a group of its own, with its ncclGroupEnd before this?",
        name, where, ncclGetErrorString(ncclInvalidUsage), other, other_where);
    return sim_grouped_error(ncclInvalidUsage);
}

ncclResult_t sim_submit(Call *call)
{
    if (group.n_inits)
        return refuse_mixed(sim_kind(call->signature.kind)->call, call->site, "ncclCommInitRank",
                            group.init[0].site);
    ncclResult_t result = sim_check_call(call);
    if (result != ncclSuccess) return sim_grouped_error(result);
    sim_comm_enter(call->comm, sim_kind(call->signature.kind)->call, call->site);
    if (group.depth == 0) {
        result = run_calls(call, 1);
        sim_comm_exit(call->comm);
        return result;
    }
    if (!grow((void **)&group.call, group.n_calls, &group.max_calls, sizeof *call))
        return sim_grouped_error(ncclSystemError);
    group.call[group.n_calls++] = *call;
    return ncclSuccess;
}

ncclResult_t sim_submit_init(const Init *init)
{
    if (group.depth == 0) return sim_run_inits(init, 1);
    if (group.n_calls)
        return refuse_mixed("ncclCommInitRank", init->site,
                            sim_kind(group.call[0].signature.kind)->call, group.call[0].site);
    if (!grow((void **)&group.init, group.n_inits, &group.max_inits, sizeof *init))
        return sim_grouped_error(ncclSystemError);
    group.init[group.n_inits++] = *init;
    return ncclSuccess;
}

bool sim_group_holds(ncclComm_t comm)
{
    for (int i = 0; i < group.n_calls; i++)
        if (group.call[i].comm == comm) return true;
    return false;
}

// Of all threads: groups that wait for their end, and where the last of them began.
static atomic_int open_groups;
static _Atomic(const void *) open_at;

void sim_open_group(const void *site)
{
    if (group.depth++ > 0) return;
    sim_hooks_add(&hooks);
    group.site = site;
    atomic_store(&open_at, site);
    atomic_fetch_add(&open_groups, 1);
}

ncclResult_t ncclGroupStart(void)
{
    sim_open_group(HERE);
    return ncclSuccess;
}

// The host waits for a stream with nothing on it yet but the calls of a group that is still open.
static void check_wait(const char *name, cudaStream_t stream, const void *site)
{
    const Call *held = NULL;
    for (int i = 0; i < group.n_calls && !held; i++)
        if (group.call[i].stream == stream && group.call[i].signature.kind != CALL_SPLIT)
            held = &group.call[i];
    if (!held || group.told || sim_config()->check == CHECK_OFF) return;
    group.told = true;
    char where[256], held_where[256];
    const char *held_name = sim_kind(held->signature.kind)->call;
    gpulog_where(site, where, sizeof where);
    gpulog_where(held->site, held_where, sizeof held_where);
    sim_facts_call(name, site, stream);
    sim_facts_call(held_name, held->site, stream);
    sim_report(SIMGPU_GROUP, "a wait for calls that an open group still holds",
               "%s, called at %s,\nwaits for a stream that has nothing to do:\n"
               "%s, called at %s,\nbegins only at the ncclGroupEnd.\n"
               "On real GPUs this returns at once, and what comes next sees the old data.\n"
               "Does the wait belong after the ncclGroupEnd?",
               name, where, held_name, held_where);
}

ncclResult_t ncclGroupEnd(void)
{
    if (group.depth == 0)
        return sim_refuse(
            SIMGPU_GROUP, ncclInvalidUsage, "ncclGroupEnd", HERE, "a group's end without its start",
            "On real GPUs it returns \"invalid usage\", as now.\n"
            "Is there one ncclGroupStart for every ncclGroupEnd, on the same thread?");
    if (--group.depth > 0) return ncclSuccess;
    Call *call = group.call;
    Init *init = group.init;
    int n_calls = group.n_calls, n_inits = group.n_inits;
    ncclResult_t result = group.error;
    memset(&group, 0, sizeof group);
    atomic_fetch_sub(&open_groups, 1);
    if (result == ncclSuccess && n_inits) result = sim_run_inits(init, n_inits);
    if (result == ncclSuccess && n_calls) result = run_calls(call, n_calls);
    for (int i = 0; i < n_calls; i++) sim_comm_exit(call[i].comm);
    free(call);
    free(init);
    return result;
}

// At the process's end: a group that was never ended.
static void check_end(void)
{
    char where[256], calls[64] = "calls of it may never have run";
    const void *site = group.depth ? group.site : atomic_load(&open_at);
    if (atomic_load(&open_groups) == 0) return;
    if (group.depth)
        snprintf(calls, sizeof calls, "%d call%s of it never ran", group.n_calls + group.n_inits,
                 group.n_calls + group.n_inits == 1 ? "" : "s");
    gpulog_where(site, where, sizeof where);
    sim_facts_call("ncclGroupStart", site, SIM_NO_STREAM);
    sim_report(SIMGPU_GROUP, "a group that was never ended",
               "ncclGroupStart, called at %s:\n"
               "the program ends without its ncclGroupEnd; %s.\n"
               "On real GPUs nothing is sent and nobody says so: the data are what they were.\n"
               "Does a return or an error in between skip the ncclGroupEnd?",
               where, calls);
}
