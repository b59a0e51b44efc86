/* nccl.c: collectives, messages, groups, and NCCL's memory.
 *
 * A call outside a group is logged when it returns. Calls in a group are logged in program order
 * when the outermost ncclGroupEnd has worked, because none begins before it. A non-blocking
 * communicator answers ncclInProgress, which is not a failure.
 */
#include <nccl.h>
#include <stdlib.h>

#include "collectives.h"
#include "interpose.h"

WRAPPED(ncclBcast);
// NCCL's header declares these two without a parameter list.
ncclResult_t __wrap_ncclGroupStart(void), __real_ncclGroupStart(void);
ncclResult_t __wrap_ncclGroupEnd(void), __real_ncclGroupEnd(void);
WRAPPED(ncclRedOpCreatePreMulSum);
WRAPPED(ncclRedOpDestroy);

static bool worked(ncclResult_t result)
{
    return result == ncclSuccess || result == ncclInProgress;
}

// ---- Groups ----

static _Thread_local struct {
    int depth;
    struct Kept {
        GpuLogEntry entry;
        ncclComm_t comm;
    } * call; // (max) since the outermost start
    size_t n, max;
} group;

bool in_group(void)
{
    return group.depth > 0;
}

// The entry of a message has its peer.
static void write_call(GpuLogEntry *entry, ncclComm_t comm, uint64_t number, size_t left)
{
    entry->collective = comm_call(comm, entry->op, entry->collective.peer);
    entry->collective.group = number;
    entry->collective.group_left = (int)left;
    write_entry(entry);
}

static void write_or_keep(GpuLogEntry *entry, ncclComm_t comm)
{
    if (group.depth == 0) {
        write_call(entry, comm, 0, 0);
        return;
    }
    if (group.n == group.max) {
        group.max = group.max ? 2 * group.max : 16;
        group.call = realloc(group.call, group.max * sizeof *group.call);
        if (!group.call) give_up("no host memory for a group of %zu calls", group.max);
    }
    group.call[group.n++] = (struct Kept){*entry, comm};
}

// A group of one call counts as no group.
static void write_group(bool worked)
{
    static _Atomic uint64_t groups;
    uint64_t number = group.n > 1 && worked ? ++groups : 0;
    for (size_t i = 0; i < group.n && worked; i++)
        write_call(&group.call[i].entry, group.call[i].comm, number, group.n - 1 - i);
    free(group.call);
    group.call = NULL;
    group.n = group.max = 0;
}

ncclResult_t __wrap_ncclGroupStart(void)
{
    ncclResult_t result = __real_ncclGroupStart();
    if (result == ncclSuccess) group.depth++;
    return result;
}

ncclResult_t __wrap_ncclGroupEnd(void)
{
    ncclResult_t result = WAITING("ncclGroupEnd", SITE, __real_ncclGroupEnd());
    if (group.depth > 0) group.depth--;
    if (group.depth > 0) return result;
    write_group(worked(result));
    comm_group_ended();
    return result;
}

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 22, 0)
WRAPPED(ncclGroupSimulateEnd);
ncclResult_t __wrap_ncclGroupSimulateEnd(ncclSimInfo_t *simInfo)
{
    if (!simInfo) return __wrap_ncclGroupEnd();
    ncclResult_t result = __real_ncclGroupSimulateEnd(simInfo);
    if (group.depth > 0 && --group.depth == 0) write_group(false);
    return result;
}
#endif

// ---- User-defined reductions: logged if their scalar is read from memory ----

typedef struct Scalar {
    struct Scalar *next;
    ncclComm_t comm;
    ncclRedOp_t op;
    const void *ptr;
    size_t bytes;
} Scalar;

static pthread_mutex_t scalars_lock = PTHREAD_MUTEX_INITIALIZER;
static Scalar *scalars; // few at a time

// The link to the scalar of a reduction, or to NULL. Called with the lock held.
static Scalar **find_scalar(ncclComm_t comm, ncclRedOp_t op)
{
    Scalar **link = &scalars;
    while (*link && ((*link)->comm != comm || (*link)->op != op)) link = &(*link)->next;
    return link;
}

static void forget_scalar(ncclComm_t comm, ncclRedOp_t op)
{
    pthread_mutex_lock(&scalars_lock);
    Scalar **link = find_scalar(comm, op), *found = *link;
    if (found) *link = found->next;
    pthread_mutex_unlock(&scalars_lock);
    free(found);
}

static void note_scalar(ncclComm_t comm, ncclRedOp_t op, const void *ptr, size_t bytes)
{
    Scalar *made = malloc(sizeof *made);
    if (!made) give_up("no host memory for a reduction");
    pthread_mutex_lock(&scalars_lock);
    *made = (Scalar){scalars, comm, op, ptr, bytes};
    scalars = made;
    pthread_mutex_unlock(&scalars_lock);
}

ncclResult_t __wrap_ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t datatype,
                                             ncclScalarResidence_t residence, ncclComm_t comm)
{
    ncclResult_t result = __real_ncclRedOpCreatePreMulSum(op, scalar, datatype, residence, comm);
    if (!worked(result)) return result;
    forget_scalar(comm, *op); // of a communicator that had this address before
    if (residence == ncclScalarDevice)
        note_scalar(comm, *op, scalar, gpulog_element_size((int)datatype));
    return result;
}

ncclResult_t __wrap_ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm)
{
    ncclResult_t result = __real_ncclRedOpDestroy(op, comm);
    if (worked(result)) forget_scalar(comm, op);
    return result;
}

static void add_scalar(GpuLogEntry *entry, ncclComm_t comm, ncclRedOp_t op)
{
    pthread_mutex_lock(&scalars_lock);
    const Scalar *scalar = *find_scalar(comm, op);
    if (scalar) add_range(entry, scalar->ptr, scalar->bytes, GPU_READ);
    pthread_mutex_unlock(&scalars_lock);
}

// ---- Calls ----

typedef struct Call {
    GpuOp op;
    const void *send, *recv;
    size_t count;
    ncclDataType_t type;
    ncclRedOp_t reduction;
    int root;
    ncclComm_t comm;
    cudaStream_t stream;
    const void *site;
} Call;

static void log_call(const Call *call)
{
    const GpuLogKind *kind = gpulog_kind(call->op);
    CommPlace at = comm_place(call->comm, true);
    GpuLogCollective c = {call->op, call->count * gpulog_element_size((int)call->type), at.ranks,
                          at.rank, call->root};
    GpuLogEntry entry = entry_on_device(call->op, kind->call, at.device, call->stream, call->site);
    size_t sends = gpulog_send_bytes(&c), recvs = gpulog_recv_bytes(&c);
    if (sends) add_range(&entry, call->send, sends, GPU_READ);
    if (recvs) add_range(&entry, call->recv, recvs, GPU_WRITE);
    if (call->reduction >= ncclNumOps) add_scalar(&entry, call->comm, call->reduction);
    gpulog_count_traffic(&c, &entry);
    entry.collective.peer = kind->root == ROOT_IS_PEER ? call->root : -1;
    write_or_keep(&entry, call->comm);
}

static ncclResult_t called(ncclResult_t result, const Call *call)
{
    if (worked(result)) log_call(call);
    return result;
}

#define UNPACKED(...) __VA_ARGS__
#define DEFINE(op_, call_, parameters, arguments, same, reduces)                                   \
    WRAPPED(call_);                                                                                \
    ncclResult_t __wrap_##call_ parameters                                                         \
    {                                                                                              \
        Call call = {op_, UNPACKED same, comm, stream, SITE};                                      \
        comm_place(comm, false);                                                                   \
        return called(WAITING(#call_, SITE, __real_##call_ arguments), &call);                     \
    }
#define WRAPPER(op, name, call, words, takes, ...) DEFINE(op, call, takes)
GPULOG_COLLECTIVES(WRAPPER)

ncclResult_t __wrap_ncclBcast(void *buff, size_t count, ncclDataType_t datatype, int root,
                              ncclComm_t comm, cudaStream_t stream)
{
    Call call = {GPU_BROADCAST, buff, buff, count, datatype, ncclSum, root, comm, stream, SITE};
    comm_place(comm, false);
    return called(
        WAITING("ncclBcast", SITE, __real_ncclBcast(buff, count, datatype, root, comm, stream)),
        &call);
}

// ---- Calls made of several messages: the log has the messages, all sends first ----

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
WRAPPED(ncclAlltoAll);
WRAPPED(ncclGather);
WRAPPED(ncclScatter);

enum { ALL = -1, NONE = -2 };

// Logs messages with rank `rank`, with ALL ranks or with NONE. With ALL, those of rank r are at
// element r·count of the buffer; with one rank, they are at its start.
static void log_messages(Call call, GpuOp op, const void *buffer, int rank)
{
    int world = comm_place(call.comm, true).ranks;
    size_t bytes = call.count * gpulog_element_size((int)call.type);
    if (rank == NONE) return;
    call.op = op;
    int first = rank == ALL ? 0 : rank, end = rank == ALL ? world : rank + 1;
    for (int r = first; r < end; r++) {
        call.root = r;
        call.send = call.recv = (const char *)buffer + (rank == ALL ? (size_t)r * bytes : 0);
        log_call(&call);
    }
}

// The call sends from its buffer to rank `to`, and receives from rank `from`.
static ncclResult_t exchanged(ncclResult_t result, const Call *call, int to, int from)
{
    if (!worked(result)) return result;
    group.depth++;
    log_messages(*call, GPU_SEND, call->send, to);
    log_messages(*call, GPU_RECV, call->recv, from);
    if (--group.depth == 0) write_group(true);
    return result;
}

// The ranks with which the root exchanges messages.
static int all_if_root(ncclComm_t comm, int root)
{
    CommPlace place = comm_place(comm, true);
    return place.ranks && place.rank == root ? ALL : NONE;
}

ncclResult_t __wrap_ncclAlltoAll(const void *sendbuff, void *recvbuff, size_t count,
                                 ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream)
{
    Call call = {GPU_SEND, sendbuff, recvbuff, count, datatype, ncclSum, 0, comm, stream, SITE};
    comm_place(comm, false);
    ncclResult_t result =
        WAITING("ncclAlltoAll", SITE,
                __real_ncclAlltoAll(sendbuff, recvbuff, count, datatype, comm, stream));
    return exchanged(result, &call, ALL, ALL);
}

ncclResult_t __wrap_ncclGather(const void *sendbuff, void *recvbuff, size_t count,
                               ncclDataType_t datatype, int root, ncclComm_t comm,
                               cudaStream_t stream)
{
    Call call = {GPU_SEND, sendbuff, recvbuff, count, datatype, ncclSum, 0, comm, stream, SITE};
    comm_place(comm, false);
    ncclResult_t result =
        WAITING("ncclGather", SITE,
                __real_ncclGather(sendbuff, recvbuff, count, datatype, root, comm, stream));
    return exchanged(result, &call, root, all_if_root(comm, root));
}

ncclResult_t __wrap_ncclScatter(const void *sendbuff, void *recvbuff, size_t count,
                                ncclDataType_t datatype, int root, ncclComm_t comm,
                                cudaStream_t stream)
{
    Call call = {GPU_SEND, sendbuff, recvbuff, count, datatype, ncclSum, 0, comm, stream, SITE};
    comm_place(comm, false);
    ncclResult_t result =
        WAITING("ncclScatter", SITE,
                __real_ncclScatter(sendbuff, recvbuff, count, datatype, root, comm, stream));
    return exchanged(result, &call, all_if_root(comm, root), root);
}
#endif

// ---- Memory: cudaMalloc and cudaFree in the log, as in simgpu ----

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 0)
WRAPPED(ncclMemAlloc);
WRAPPED(ncclMemFree);

ncclResult_t __wrap_ncclMemAlloc(void **ptr, size_t size)
{
    const char *name = "cudaMalloc";
    int device = current_device();
    if (!ptr || size == 0) return __real_ncclMemAlloc(ptr, size);
    if (!memory_reserve("ncclMemAlloc", device, size, SITE)) {
        *ptr = NULL;
        return ncclUnhandledCudaError;
    }
    ncclResult_t result = WAITING("ncclMemAlloc", SITE, __real_ncclMemAlloc(ptr, size));
    if (result == ncclSuccess)
        memory_made(name, *ptr, size, SITE);
    else
        memory_unreserve(device, size);
    return result;
}

ncclResult_t __wrap_ncclMemFree(void *ptr)
{
    Known known;
    bool ours = memory_leaves(ptr, &known);
    ncclResult_t result = WAITING("ncclMemFree", SITE, __real_ncclMemFree(ptr));
    if (ours && result == ncclSuccess) memory_freed("cudaFree", &known, SITE);
    if (ours && result != ncclSuccess) memory_stays(&known);
    return result;
}
#endif
