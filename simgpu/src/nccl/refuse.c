/* refuse.c: reports calls that are wrong.
 *
 * A report has the call site, and the call returns the error that NCCL returns.
 */
#include <stdarg.h>
#include <stdio.h>

#include "nccl/comm.h"
#include "nccl/names.h"
#include "nccl/refuse.h"

SIM_NCCL(ncclGetLastError)

static __thread char last_error[512] = "";

void sim_nccl_error(const char *text)
{
    snprintf(last_error, sizeof last_error, "%s", text);
}

const char *ncclGetLastError(ncclComm_t comm)
{
    return last_error;
}

// "NAME, called at file:line (function), …"
ncclResult_t sim_refuse_of(SimgpuClass kind, ncclResult_t result, const char *name,
                           const void *site, const char *other, const void *there,
                           const char *title, const char *format, ...)
{
    char where[256], text[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    gpulog_where(site, where, sizeof where);
    snprintf(last_error, sizeof last_error, "%s at %s: %s", name, where, title);
    sim_facts_call(name, site, SIM_NO_STREAM);
    if (other) sim_facts_call(other, there, SIM_NO_STREAM);
    sim_report(kind, title, "%s, called at %s,\nreturns \"%s\".\n%s", name, where,
               ncclGetErrorString(result), text);
    return result;
}

// The communicators that were destroyed last, and their call sites.
#define GONE_COMMS 64
static struct {
    const void *comm, *site;
} gone[GONE_COMMS];
static unsigned n_gone; // under sim_lock

void sim_note_gone(ncclComm_t comm, const void *site)
{
    sim_lock();
    gone[n_gone % GONE_COMMS].comm = comm;
    gone[n_gone++ % GONE_COMMS].site = site;
    sim_unlock();
}

static const void *gone_at(ncclComm_t comm)
{
    const void *site = NULL;
    sim_lock();
    for (unsigned back = 1; back <= n_gone && back <= GONE_COMMS && !site; back++)
        if (gone[(n_gone - back) % GONE_COMMS].comm == comm)
            site = gone[(n_gone - back) % GONE_COMMS].site;
    sim_unlock();
    return site;
}

static ncclResult_t refuse_gone(const char *name, const void *site, const void *destroyed)
{
    char where[256];
    gpulog_where(destroyed, where, sizeof where);
    return sim_refuse_of(SIMGPU_LIFETIME, ncclInvalidArgument, name, site, "the destruction",
                         destroyed, "not a communicator",
                         "It was destroyed at %s.\n"
                         "On real GPUs this is a crash, or a hang.\n"
                         "Is there a call after its ncclCommDestroy?",
                         where);
}

ncclResult_t sim_check_comm(ncclComm_t comm, const char *name, const void *site)
{
    if (sim_comm_lives(comm)) return ncclSuccess;
    const void *destroyed = comm ? gone_at(comm) : NULL;
    if (destroyed) return refuse_gone(name, site, destroyed);
    return sim_refuse(
        SIMGPU_LIFETIME, ncclInvalidArgument, name, site,
        comm ? "not a communicator" : "the communicator is NULL", "%s",
        comm ? "It was destroyed before, or was made by a process that forked this one.\n"
               "On real GPUs this is a crash, or a hang.\n"
               "Is there a call after its ncclCommDestroy?"
             : "On real GPUs it returns \"invalid argument\", as here.\n"
               "Did ncclCommInitRank fail, did it never run, or is another communicator meant?");
}

ncclResult_t sim_check_ready(ncclComm_t comm, const char *name, const void *site)
{
    ncclResult_t result = sim_check_comm(comm, name, site);
    if (result != ncclSuccess) return result;
    if (!atomic_load(&comm->pending)) return (ncclResult_t)atomic_load(&comm->async_error);
    return sim_refuse(
        SIMGPU_LIFETIME, ncclInvalidArgument, name, site, "the communicator is not ready",
        "It does not block, and its last operation is still in progress.\n"
        "On real GPUs it returns \"invalid argument\", as here, or happens to work.\n"
        "Do you call ncclCommGetAsyncError until it gives ncclSuccess, after each call\n"
        "that returns ncclInProgress?");
}

ncclResult_t sim_check_usable(ncclComm_t comm, const char *name, const void *site)
{
    ncclResult_t result = sim_check_ready(comm, name, site);
    if (result == ncclSuccess && comm->revoked)
        return sim_refuse(SIMGPU_LIFETIME, ncclInvalidUsage, name, site,
                          "the communicator is revoked",
                          "On real GPUs it returns \"invalid usage\", as here.\n"
                          "Only ncclCommDestroy, ncclCommSplit and ncclCommShrink may follow.");
    if (result != ncclSuccess || !comm->finalized) return result;
    char where[256];
    gpulog_where(comm->finalized, where, sizeof where);
    return sim_refuse_of(SIMGPU_LIFETIME, ncclInvalidArgument, name, site, "ncclCommFinalize",
                         comm->finalized, "the communicator is finalized",
                         "It was finalized at %s.\n"
                         "On real GPUs a second ncclCommFinalize returns \"invalid argument\", as\n"
                         "now; another call is a crash, or a hang.\n"
                         "Only ncclCommDestroy may follow. It finalizes by itself if you have not.",
                         where);
}

ncclResult_t sim_check_not_null(const void *ptr, const char *what, const char *name,
                                const void *site)
{
    if (ptr) return ncclSuccess;
    return sim_refuse(SIMGPU_POINTER, ncclInvalidArgument, name, site, "a null pointer",
                      "%s is NULL.\n"
                      "On real GPUs it returns \"invalid argument\", as here.\n"
                      "Did you mean the address of a variable?",
                      what);
}

ncclResult_t sim_check_root(ncclComm_t comm, int root, bool is_peer, const char *name,
                            const void *site)
{
    if (root >= 0 && root < comm->size) return ncclSuccess;
    return sim_refuse(SIMGPU_CALL, ncclInvalidArgument, name, site,
                      is_peer ? "a peer outside the communicator"
                              : "a root outside the communicator",
                      "%d is not one of its ranks, 0 to %d.\n"
                      "On real GPUs it returns \"invalid argument\", as here.\n"
                      "Is it a rank of the whole world, in a communicator of a part of it?",
                      root, comm->size - 1);
}
