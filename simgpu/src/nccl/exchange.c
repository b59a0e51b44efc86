/* exchange.c: calls that are several messages: all-to-all, gather, scatter. */
#include "collectives.h"
#include "nccl/collective.h"
#include "nccl/comm.h"
#include "nccl/group.h"
#include "nccl/names.h"
#include "nccl/refuse.h"
#include "runtime/runtime.h"

#define HERE SIM_SITE

SIM_NCCL(ncclAlltoAll)
SIM_NCCL(ncclGather)
SIM_NCCL(ncclScatter)

// Sends to, or receives from, ranks `first` to `end` - 1: the message of rank r is at element
// r·count of the buffer or, with `same`, at its beginning.
static void exchange(GpuOp kind, const void *buffer, bool same, int first, int end, size_t count,
                     ncclDataType_t type, ncclComm_t comm, cudaStream_t stream, const void *site)
{
    size_t bytes = count * gpulog_element_size((int)type);
    for (int r = first; r < end; r++) {
        char *at = (char *)(uintptr_t)buffer + (same ? 0 : (size_t)r * bytes);
        sim_call_collective(kind, kind == GPU_SEND ? at : NULL, kind == GPU_RECV ? at : NULL, count,
                            type, ncclSum, r, comm, stream, site);
    }
}

ncclResult_t ncclAlltoAll(const void *sendbuff, void *recvbuff, size_t count,
                          ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream)
{
    ncclResult_t result = sim_check_comm(comm, "ncclAlltoAll", HERE);
    if (result != ncclSuccess) return sim_grouped_error(result);
    sim_open_group(HERE);
    exchange(GPU_SEND, sendbuff, false, 0, comm->size, count, datatype, comm, stream, HERE);
    exchange(GPU_RECV, recvbuff, false, 0, comm->size, count, datatype, comm, stream, HERE);
    return sim_close_group();
}

static ncclResult_t check_root(ncclComm_t comm, int root, const char *name, const void *site)
{
    ncclResult_t result = sim_check_comm(comm, name, site);
    if (result == ncclSuccess) result = sim_check_root(comm, root, false, name, site);
    return sim_grouped_error(result);
}

ncclResult_t ncclGather(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                        int root, ncclComm_t comm, cudaStream_t stream)
{
    ncclResult_t result = check_root(comm, root, "ncclGather", HERE);
    if (result != ncclSuccess) return result;
    int receives = comm->rank == root ? comm->size : 0;
    sim_open_group(HERE);
    exchange(GPU_SEND, sendbuff, true, root, root + 1, count, datatype, comm, stream, HERE);
    exchange(GPU_RECV, recvbuff, false, 0, receives, count, datatype, comm, stream, HERE);
    return sim_close_group();
}

ncclResult_t ncclScatter(const void *sendbuff, void *recvbuff, size_t count,
                         ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream)
{
    ncclResult_t result = check_root(comm, root, "ncclScatter", HERE);
    if (result != ncclSuccess) return result;
    int sends = comm->rank == root ? comm->size : 0;
    sim_open_group(HERE);
    exchange(GPU_SEND, sendbuff, false, 0, sends, count, datatype, comm, stream, HERE);
    exchange(GPU_RECV, recvbuff, true, root, root + 1, count, datatype, comm, stream, HERE);
    return sim_close_group();
}
