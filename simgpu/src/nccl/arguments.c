/* arguments.c: checks the arguments of a call, and the messages of a group. */
#include <stdio.h>

#include "nccl/arguments.h"
#include "nccl/collective.h"
#include "nccl/describe.h"
#include "nccl/kind.h"
#include "nccl/redop.h"
#include "nccl/refuse.h"
#include "report/report.h"

#define MOST_COMPARED 1024 // calls of a group whose buffers are compared, each with each

static ncclResult_t check_buffer(const Call *call, const char *which, const void *ptr, size_t bytes)
{
    const char *name = sim_kind(call->signature.kind)->call;
    char what[512];
    size_t offset;
    if (bytes == 0) return ncclSuccess;
    const SimDevice *device = ptr ? sim_device_of(ptr, &offset) : NULL;
    if (!ptr)
        return sim_refuse(
            SIMGPU_POINTER, ncclInvalidArgument, name, call->site, "a null pointer",
            "The %s buffer is NULL; it should have %zu bytes.\n"
            "On real GPUs this is an illegal memory access, and every call after it fails.\n"
            "Was it never allocated, or already freed?",
            which, bytes);
    if (!device)
        return sim_refuse(
            SIMGPU_POINTER, ncclInvalidArgument, name, call->site, "a host pointer",
            "The %s buffer %p (%zu bytes) is host memory; NCCL works on device memory.\n"
            "On real GPUs this is an illegal memory access, and every call after it fails.\n"
            "Was the device's copy of it meant?",
            which, ptr, bytes);
    if (device->index != call->comm->device) {
        sim_describe_buffer(ptr, what, sizeof what);
        return sim_refuse(
            SIMGPU_POINTER, ncclInvalidArgument, name, call->site, "memory of another device",
            "The %s buffer (%s)\nis on device %d, the communicator's rank %d is on device %d.\n"
            "On real GPUs this is an illegal memory access, or slow.\n"
            "Was cudaSetDevice called after the buffer was allocated?",
            which, what, device->index, call->comm->rank, call->comm->device);
    }
    size_t element = gpulog_element_size(call->signature.type);
    if ((uintptr_t)ptr % element == 0 || sim_config()->check == CHECK_OFF) return ncclSuccess;
    sim_stick(cudaErrorMisalignedAddress);
    sim_facts_range(ptr, bytes);
    sim_describe_buffer(ptr, what, sizeof what);
    return sim_refuse(
        SIMGPU_POINTER, ncclInvalidArgument, name, call->site, "a misaligned pointer",
        "The %s buffer is %s:\nits address is not a multiple of %zu, the size of an %s.\n"
        "On real GPUs the kernel faults (\"misaligned address\"), and every call after it fails.\n"
        "Was an offset counted in bytes instead of elements?",
        which, what, element, sim_type_name(call->signature.type));
}

// NCCL's rule: the buffers do not overlap, or lie exactly as for an in-place call.
static ncclResult_t check_overlap(const Call *call)
{
    size_t sends = sim_send_bytes(call), recvs = sim_recv_bytes(call);
    const char *send = call->send, *recv = call->recv;
    size_t rank = (size_t)call->comm->rank;
    if (!sends || !recvs || send + sends <= recv || recv + recvs <= send) return ncclSuccess;
    const GpuLogKind *kind = sim_kind(call->signature.kind);
    const char *rule = NULL;
    bool in_place = false;
    switch (kind->in_place) {
    case IN_PLACE_NEVER: break;
    case IN_PLACE_SAME:
        in_place = send == recv;
        rule = "sendbuff == recvbuff";
        break;
    case IN_PLACE_SEND_IS_PART:
        in_place = send == recv + rank * sends;
        rule = "sendbuff == recvbuff + rank * sendcount";
        break;
    case IN_PLACE_RECV_IS_PART:
        in_place = recv == send + rank * recvs;
        rule = "recvbuff == sendbuff + rank * recvcount";
        break;
    }
    if (in_place) return ncclSuccess;
    char from[512], to[512];
    sim_describe_buffer(call->send, from, sizeof from);
    sim_describe_buffer(call->recv, to, sizeof to);
    sim_facts_range(call->send, sends);
    sim_facts_range(call->recv, recvs);
    return sim_refuse(
        SIMGPU_OVERLAP, ncclInvalidArgument, kind->call, call->site,
        "send and receive buffer overlap",
        "It sends %zu bytes from %s,\nand receives %zu bytes from %s.\n"
        "For rank %zu they may %s%s.\n"
        "On real GPUs data are silently mixed up.\n"
        "Is the count right? Was the offset counted in bytes, not elements, or with another "
        "rank's number?",
        sends, from, recvs, to, rank,
        rule ? "overlap only in place: " : "not overlap, as it has no form in place",
        rule ? rule : "");
}

ncclResult_t sim_check_call(Call *call)
{
    const GpuLogKind *kind = sim_kind(call->signature.kind);
    ncclResult_t result = sim_check_usable(call->comm, kind->call, call->site);
    if (result != ncclSuccess || sim_is_setup(call->signature.kind)) return result;
    if (call->signature.type < 0 || call->signature.type >= ncclNumTypes)
        return sim_refuse(SIMGPU_CALL, ncclInvalidArgument, kind->call, call->site,
                          "an invalid data type",
                          "%d is not an ncclDataType_t.\n"
                          "On real GPUs it returns \"invalid argument\", as here.\n"
                          "Are the count and the type the wrong way round?",
                          call->signature.type);
    if (kind->root != ROOT_NONE)
        result = sim_check_root(call->comm, call->signature.root, kind->root == ROOT_IS_PEER,
                                kind->call, call->site);
    if (result == ncclSuccess && kind->reduces) result = sim_check_redop(call);
    if (result == ncclSuccess)
        result = check_buffer(call, "send", call->send, sim_send_bytes(call));
    if (result == ncclSuccess)
        result = check_buffer(call, "receive", call->recv, sim_recv_bytes(call));
    return result == ncclSuccess ? check_overlap(call) : result;
}

// Where a call of a group writes (receives) or reads (sends).
static GpuRange message_range(const Call *call)
{
    bool receives = call->signature.kind == GPU_RECV;
    return (GpuRange){receives ? call->recv : call->send,
                      receives ? sim_recv_bytes(call) : sim_send_bytes(call),
                      receives ? GPU_WRITE : GPU_READ};
}

// Two messages of a group move at the same time: the buffer of a receive must not overlap that of
// another message. A message to oneself may use one buffer for both.
static bool messages_clash(const Call *into, const Call *other)
{
    GpuRange a = message_range(into), b = message_range(other);
    const char *x = a.ptr, *y = b.ptr;
    bool to_itself = into->comm == other->comm && into->signature.root == into->comm->rank &&
                     other->signature.root == other->comm->rank && x == y && a.bytes == b.bytes &&
                     other->signature.kind == GPU_SEND;
    return !to_itself && a.bytes && b.bytes && x < y + b.bytes && y < x + a.bytes;
}

static void report_clash(const Call *into, const Call *other)
{
    GpuRange a = message_range(into), b = message_range(other);
    char where[256], other_where[256], to[512], from[512];
    const char *name = sim_kind(other->signature.kind)->call;
    gpulog_where(into->site, where, sizeof where);
    gpulog_where(other->site, other_where, sizeof other_where);
    sim_describe_buffer(a.ptr, to, sizeof to);
    sim_describe_buffer(b.ptr, from, sizeof from);
    sim_facts_call("ncclRecv", into->site, into->stream);
    sim_facts_call(name, other->site, other->stream);
    sim_facts_range(a.ptr, a.bytes);
    sim_facts_range(b.ptr, b.bytes);
    sim_report(SIMGPU_OVERLAP, "two messages of a group overlap",
               "ncclRecv, called at %s,\nwrites %zu bytes from %s.\n"
               "%s, called at %s,\n%s %zu bytes from %s.\n"
               "On real GPUs both move at the same time: data are silently mixed up.\n"
               "Does the exchange need a buffer to receive into, apart from the one that is sent?",
               where, a.bytes, to, name, other_where, b.access == GPU_READ ? "reads" : "writes",
               b.bytes, from);
}

static void check_clashes(const Call *call, int n)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n && call[i].signature.kind == GPU_RECV; j++) {
            bool once = call[j].signature.kind == GPU_SEND || j > i;
            if (i == j || !once || !sim_is_message(call[j].signature.kind)) continue;
            if (!messages_clash(&call[i], &call[j])) continue;
            report_clash(&call[i], &call[j]);
            return;
        }
}

static bool is_to_itself(const Call *call)
{
    return sim_is_message(call->signature.kind) && call->signature.root == call->comm->rank;
}

// The last send to oneself without a receive in the group, or the other way round; NULL: none.
static const Call *find_alone(const Call *call, int n)
{
    for (int i = n - 1; i >= 0; i--) {
        int more = 0;
        if (!is_to_itself(&call[i])) continue;
        for (int j = 0; j < n; j++)
            if (call[j].comm == call[i].comm && is_to_itself(&call[j]))
                more += call[j].signature.kind == call[i].signature.kind ? 1 : -1;
        if (more > 0) return &call[i];
    }
    return NULL;
}

ncclResult_t sim_check_messages(const Call *call, int n)
{
    const Call *alone = find_alone(call, n);
    if (n <= MOST_COMPARED && sim_config()->check != CHECK_OFF) check_clashes(call, n);
    if (!alone) return ncclSuccess;
    bool sends = alone->signature.kind == GPU_SEND;
    return sim_refuse(SIMGPU_GROUP, ncclInvalidUsage, sim_kind(alone->signature.kind)->call,
                      alone->site, "a message from a rank to itself has no matching call",
                      "Rank %d %s itself, and nothing in the same group %s.\n"
                      "On real GPUs it returns \"invalid usage\", as here, and moves nothing.\n"
                      "Did you forget the group? A message to oneself needs an ncclSend and an\n"
                      "ncclRecv between one ncclGroupStart and its ncclGroupEnd.",
                      alone->comm->rank, sends ? "sends to" : "receives from",
                      sends ? "receives it" : "sends it");
}
