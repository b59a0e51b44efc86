/* questions.c: the calls that ask for a property. */
#include "nccl/group.h"
#include "nccl/names.h"
#include "nccl/pending.h"
#include "nccl/refuse.h"
#include "runtime/runtime.h"

#define HERE SIM_SITE

SIM_NCCL(ncclGetVersion)
SIM_NCCL(ncclCommGetAsyncError)
SIM_NCCL(ncclResetDebugInit)
SIM_NCCL(ncclCommCount)
SIM_NCCL(ncclCommCuDevice)
SIM_NCCL(ncclCommUserRank)
SIM_NCCL(ncclGetErrorString)

ncclResult_t ncclGetVersion(int *version)
{
    ncclResult_t result = sim_check_not_null(version, "version", "ncclGetVersion", HERE);
    if (result == ncclSuccess) *version = NCCL_VERSION_CODE;
    return result;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *asyncError)
{
    ncclResult_t result = sim_check_comm(comm, "ncclCommGetAsyncError", HERE);
    if (result == ncclSuccess)
        result = sim_check_not_null(asyncError, "asyncError", "ncclCommGetAsyncError", HERE);
    if (result != ncclSuccess) return result;
    sim_pending_ask(comm);
    bool over = !atomic_load(&comm->pending);
    *asyncError = over ? (ncclResult_t)atomic_load(&comm->async_error) : ncclInProgress;
    return ncclSuccess;
}

void ncclResetDebugInit(void)
{
}

#define ANSWER(name, out, field)                                                                   \
    do {                                                                                           \
        ncclResult_t result_ = sim_check_ready(comm, name, HERE);                                  \
        if (result_ == ncclSuccess) result_ = sim_check_not_null(out, #out, name, HERE);           \
        if (result_ == ncclSuccess) *(out) = comm->field;                                          \
        return result_;                                                                            \
    } while (0)

ncclResult_t ncclCommCount(const ncclComm_t comm, int *count)
{
    ANSWER("ncclCommCount", count, size);
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device)
{
    ANSWER("ncclCommCuDevice", device, device);
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank)
{
    ANSWER("ncclCommUserRank", rank, rank);
}

const char *ncclGetErrorString(ncclResult_t result)
{
    static const char *const text[ncclNumResults] = {
        "no error",
        "unhandled cuda error",
        "unhandled system error",
        "internal error",
        "invalid argument",
        "invalid usage",
        "remote process exited or there was a network error",
        "NCCL operation in progress"};
    return (int)result >= 0 && result < ncclNumResults ? text[result] : "unknown result code";
}
