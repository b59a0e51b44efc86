/* group.c: keeps the calls of a group until its end.
 *
 * A checked call runs at once, or with all others of its group at the outermost ncclGroupEnd. New
 * communicators are made at the end of a group, too, so that one thread can make those of several
 * devices. If a call of a group was wrong, the end of the group runs nothing and returns that
 * error.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "machine/machine.h"
#include "nccl/arguments.h"
#include "nccl/board.h"
#include "nccl/captured.h"
#include "nccl/collective.h"
#include "nccl/comm_id.h"
#include "nccl/group.h"
#include "nccl/inside.h"
#include "nccl/kind.h"
#include "nccl/making.h"
#include "nccl/names.h"
#include "nccl/pending.h"
#include "nccl/refuse.h"
#include "nccl/registered.h"
#include "report/report.h"
#include "time/clock.h"
#include "time/time.h"

#define HERE SIM_SITE
#define SIM_INFO_MAGIC 0x74685283 // of NCCL_SIM_INFO_INITIALIZER

SIM_NCCL(ncclGroupStart)
SIM_NCCL(ncclGroupEnd)
SIM_NCCL(ncclGroupSimulateEnd)

static __thread struct {
    int depth;
    const void *site;   // of the outermost start
    bool told;          // a wait within the group has been reported: once is enough
    ncclResult_t error; // the first one since the outermost start
    Call *call;
    int n_calls, max_calls;
    Init *init;
    int n_inits, max_inits;
    const char *first; // the name of its first call
    const void *first_site;
    bool nonblocking;
} group;

static void check_end(void);
static void check_wait(const char *name, cudaStream_t stream, const void *site);
static SimHooks hooks = {
    .visit = sim_comm_visit, .end = check_end, .idle_wait = check_wait, .fatal = sim_comm_goodbye};

void sim_group_hooks(void)
{
    sim_hooks_add(&hooks);
}

// Makes room for one more; false: no memory.
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

ncclResult_t sim_finish_setups(Call *calls, int n_calls, Init **init, int *n)
{
    int max = 0;
    *init = NULL;
    *n = 0;
    for (int i = 0; i < n_calls; i++) {
        Call *call = &calls[i];
        if (call->signature.kind == CALL_WINDOW) sim_window_made(call);
        if (call->signature.kind != CALL_SPLIT) continue;
        *call->new_comm = NULL;
        bool offered = !call->comm->phantoms;
        if (offered && (!call->new_size || call->new_rank != 0))
            sim_comm_id_withdraw(&call->desc.id);
        if (!call->new_size) continue;
        if (!grow((void **)init, *n, &max, sizeof **init)) return ncclSystemError;
        (*init)[(*n)++] = (Init){.out = call->new_comm,
                                 .size = call->new_size,
                                 .rank = call->new_rank,
                                 .device = call->comm->device,
                                 .id = call->new_id,
                                 .site = call->site,
                                 .options = call->new_options,
                                 .shares = call->comm->options.split_share,
                                 .parent = call->comm,
                                 .mates = call->phantom_mates ? call->phantom_mates : call->mates,
                                 .own_mates = call->phantom_mates};
    }
    return ncclSuccess;
}

// Frees calls that belong to the caller.
static ncclResult_t wait_for_calls(Call *calls, int n)
{
    Init *init;
    int n_inits;
    ncclResult_t result = sim_run_calls(calls, n);
    if (result == ncclSuccess) result = sim_finish_setups(calls, n, &init, &n_inits);
    return result == ncclSuccess && n_inits ? sim_run_inits(init, n_inits) : result;
}

static ncclResult_t run_one(Call *call)
{
    ncclResult_t result = sim_check_messages(call, 1);
    if (result == ncclSuccess && sim_capture_calls(call, 1, &result)) {
        if (call->entered) sim_comm_exit(call->comm);
        return result;
    }
    bool waits = !call->comm->options.nonblocking;
    if (result == ncclSuccess && waits) result = wait_for_calls(call, 1);
    if (call->entered) sim_comm_exit(call->comm);
    if (result != ncclSuccess || waits) return result;
    Call *kept = malloc(sizeof *kept);
    if (!kept) return ncclSystemError;
    *kept = *call;
    return sim_pending_calls(kept, 1);
}

ncclResult_t sim_grouped_error(ncclResult_t result)
{
    if (group.depth > 0 && group.error == ncclSuccess) group.error = result;
    return result;
}

// A call on a communicator that has no place in a group with that earlier one.
static ncclResult_t refuse_mixed(ncclResult_t result, const char *name, const void *site,
                                 const char *title, const char *text)
{
    char other_where[256];
    gpulog_where(group.first_site, other_where, sizeof other_where);
    return sim_grouped_error(
        sim_refuse_of(SIMGPU_GROUP, result, name, site, group.first, group.first_site, title,
                      "The same group has\n%s, called at %s.\n%s", group.first, other_where, text));
}

// Adds a call to the group, if it may be in it. A communicator exists only when the group of its
// initialisation ends: NCCL allows nothing else in such a group ("Group Calls" in its
// documentation).
static ncclResult_t join_group(bool init, bool nonblocking, const char *name, const void *site)
{
    if (!group.first) {
        group.first = name;
        group.first_site = site;
        group.nonblocking = nonblocking;
    }
    if (init ? group.n_calls : group.n_inits)
        return refuse_mixed(
            ncclInvalidUsage, name, site,
            "a communicator's initialisation in a group with other calls",
            "On real GPUs this is an invalid argument, a crash or a hang: the communicator is\n"
            "there only when the group ends.\n"
            "Does the initialisation need a group of its own, with its ncclGroupEnd before this?");
    if (group.nonblocking != nonblocking)
        return refuse_mixed(
            ncclInvalidArgument, name, site,
            "communicators that block and that do not in one group",
            "On real GPUs it returns \"invalid argument\", as here.\n"
            "Is config.blocking the same for all of them? Those that differ need two groups.");
    return ncclSuccess;
}

// Making a communicator, or a window, allocates and frees memory: not safe in a capture.
ncclResult_t sim_check_uncaptured(const char *name, const void *site)
{
    if (!sim_unsafe_hook || sim_unsafe_hook(name, site) == cudaSuccess) return ncclSuccess;
    return sim_grouped_error(ncclUnhandledCudaError);
}

ncclResult_t sim_submit(Call *call)
{
    const char *name = sim_kind(call->signature.kind)->call;
    bool setup = sim_is_setup(call->signature.kind);
    if (setup && sim_check_uncaptured(name, call->site) != ncclSuccess)
        return ncclUnhandledCudaError;
    if (group.n_inits) return join_group(false, group.nonblocking, name, call->site);
    ncclResult_t result = sim_check_call(call);
    if (result != ncclSuccess) return sim_grouped_error(result);
    call->entered = sim_comm_enter(call->comm, name, call->site);
    if (group.depth == 0) return run_one(call);
    result = join_group(false, call->comm->options.nonblocking, name, call->site);
    if (result != ncclSuccess) return result;
    if (!grow((void **)&group.call, group.n_calls, &group.max_calls, sizeof *call))
        return sim_grouped_error(ncclSystemError);
    group.call[group.n_calls++] = *call;
    return ncclSuccess;
}

static ncclResult_t run_inits(Init *init, int n, bool nonblocking)
{
    return nonblocking ? sim_pending_inits(init, n) : sim_run_inits(init, n);
}

ncclResult_t sim_submit_init(const Init *init, const char *name)
{
    if (sim_check_uncaptured(name, init->site) != ncclSuccess) return ncclUnhandledCudaError;
    if (group.depth == 0) {
        Init *own = malloc(sizeof *own);
        if (!own) return ncclSystemError;
        *own = *init;
        // Until a child is made, its parent counts.
        const Options *mode = init->parent ? &init->parent->options : &init->options;
        return run_inits(own, 1, mode->nonblocking);
    }
    const Options *mode = init->parent ? &init->parent->options : &init->options;
    ncclResult_t result = join_group(true, mode->nonblocking, name, init->site);
    if (result != ncclSuccess) return result;
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

// How many groups are open in all threads, and where the last of them began.
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

// The host waits for a stream whose only work is the calls of a group that is still open.
static void check_wait(const char *name, cudaStream_t stream, const void *site)
{
    const Call *held = NULL;
    for (int i = 0; i < group.n_calls && !held; i++)
        if (group.call[i].stream == stream && !sim_is_setup(group.call[i].signature.kind))
            held = &group.call[i];
    if (!held || group.told || sim_config()->check == CHECK_OFF) return;
    group.told = true;
    char where[256], held_where[256];
    const char *held_name = sim_kind(held->signature.kind)->call;
    gpulog_where(site, where, sizeof where);
    gpulog_where(held->site, held_where, sizeof held_where);
    sim_facts_call(name, site, stream);
    sim_facts_call(held_name, held->site, stream);
    sim_report(SIMGPU_GROUP, "a wait for calls of a group that is still open",
               "%s, called at %s,\nwaits for a stream that has nothing to do:\n"
               "%s, called at %s,\nbegins only at the ncclGroupEnd.\n"
               "On real GPUs this returns at once, and what comes next sees the old data.\n"
               "Does the wait belong after the ncclGroupEnd?",
               name, where, held_name, held_where);
}

static ncclResult_t run_calls(Call *calls, int n, bool nonblocking)
{
    ncclResult_t result = sim_check_messages(calls, n);
    bool captured = result == ncclSuccess && sim_capture_calls(calls, n, &result);
    if (result == ncclSuccess && !captured && !nonblocking) result = wait_for_calls(calls, n);
    for (int i = 0; i < n; i++)
        if (calls[i].entered) sim_comm_exit(calls[i].comm);
    if (result == ncclSuccess && !captured && nonblocking) return sim_pending_calls(calls, n);
    free(calls);
    return result;
}

// Ends the group of this thread and runs its calls or, with `dry`, drops them.
static ncclResult_t end_group(bool dry)
{
    Call *call = group.call;
    Init *init = group.init;
    int n_calls = group.n_calls, n_inits = group.n_inits;
    ncclResult_t result = group.error;
    bool nonblocking = group.nonblocking;
    memset(&group, 0, sizeof group);
    atomic_fetch_sub(&open_groups, 1);
    if (result == ncclSuccess && !dry && n_inits) return run_inits(init, n_inits, nonblocking);
    if (result == ncclSuccess && !dry && n_calls) return run_calls(call, n_calls, nonblocking);
    for (int i = 0; i < n_calls; i++)
        if (call[i].entered) sim_comm_exit(call[i].comm);
    for (int i = 0; i < n_inits; i++) free(init[i].own_mates);
    free(call);
    free(init);
    return result;
}

ncclResult_t sim_close_group(void)
{
    return --group.depth > 0 ? ncclSuccess : end_group(false);
}

static ncclResult_t refuse_end(const char *name, const void *site)
{
    return sim_refuse(SIMGPU_GROUP, ncclInvalidUsage, name, site,
                      "ncclGroupEnd without ncclGroupStart",
                      "On real GPUs it returns \"invalid usage\", as here.\n"
                      "Is there one ncclGroupStart for every ncclGroupEnd, on the same thread?");
}

ncclResult_t ncclGroupEnd(void)
{
    return group.depth == 0 ? refuse_end("ncclGroupEnd", HERE) : sim_close_group();
}

// Microseconds that the calls take on the modelled machine: the longest latency, and their work.
static float estimate(const Call *calls, int n)
{
    SimPs latency = 0, work = 0;
    for (int i = 0; i < n && sim_clock_on(); i++) {
        const Call *call = &calls[i];
        bool message = sim_is_message(call->signature.kind);
        if (sim_is_setup(call->signature.kind) || call->comm->size < 2) continue;
        int nodes = sim_board_nodes(call->comm, message ? call->signature.root : -1);
        size_t sends = sim_send_bytes(call), recvs = sim_recv_bytes(call);
        SimCollectiveCost cost = sim_cost_collective(
            sim_clock_machine(), (GpuOp)call->signature.kind, message ? 2 : call->comm->size, nodes,
            sends > recvs ? sends : recvs);
        if (latency < cost.latency) latency = cost.latency;
        work += cost.work;
    }
    return (float)((double)(latency + work) * 1e-6);
}

// Estimates the time of the calls of the group. No call runs, and the group ends.
ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t *simInfo)
{
    const char *name = "ncclGroupSimulateEnd";
    if (group.depth == 0) return refuse_end(name, HERE);
    if (!simInfo || group.depth > 1) return sim_close_group(); // NCCL's answer, too
    group.depth = 0;
    if (group.error == ncclSuccess && simInfo->magic != SIM_INFO_MAGIC)
        group.error = sim_refuse(SIMGPU_CALL, ncclInvalidArgument, name, HERE,
                                 "an ncclSimInfo_t that was not initialised",
                                 "On real GPUs it returns \"invalid argument\", as here.\n"
                                 "Does it begin with NCCL_SIM_INFO_INITIALIZER?");
    if (group.error == ncclSuccess) simInfo->estimatedTime = estimate(group.call, group.n_calls);
    return end_group(true);
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
               "On real GPUs nothing is sent, silently: the data do not change.\n"
               "Does a return or an error in between skip the ncclGroupEnd?",
               where, calls);
}
