/* questions.c: what a program may ask, and memory that NCCL gives: any device memory will do. */
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
SIM_NCCL(ncclMemAlloc)
SIM_NCCL(ncclMemFree)
SIM_NCCL(ncclCommRegister)
SIM_NCCL(ncclCommDeregister)
SIM_NCCL(ncclCommWindowRegister)
SIM_NCCL(ncclCommWindowDeregister)

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

// ---- Memory: any device memory will do ----

ncclResult_t ncclMemAlloc(void **ptr, size_t size)
{
    cudaError_t error = sim_malloc("cudaMalloc", ptr, size, false, HERE);
    return error == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclMemFree(void *ptr)
{
    return sim_free(ptr, HERE) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void *buff, size_t size, void **handle)
{
    ncclResult_t result = sim_check_comm(comm, "ncclCommRegister", HERE);
    if (result == ncclSuccess)
        result = sim_check_not_null(handle, "handle", "ncclCommRegister", HERE);
    if (result == ncclSuccess) *handle = buff;
    return result;
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle)
{
    return sim_check_comm(comm, "ncclCommDeregister", HERE);
}

// A window makes calls on its memory faster, and changes nothing else. The handle is the memory.
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *buff, size_t size, ncclWindow_t *win,
                                    int winFlags)
{
    const char *name = "ncclCommWindowRegister";
    ncclResult_t result = sim_check_comm(comm, name, HERE);
    if (result == ncclSuccess) result = sim_check_not_null(win, "win", name, HERE);
    if (result == ncclSuccess) result = sim_check_not_null(buff, "buff", name, HERE);
    if (result == ncclSuccess) *win = (ncclWindow_t)buff;
    return sim_grouped_error(result);
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win)
{
    return sim_check_comm(comm, "ncclCommWindowDeregister", HERE);
}
