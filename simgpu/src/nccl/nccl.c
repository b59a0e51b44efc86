/* nccl.c: the NCCL calls: arguments, groups, names.
 *
 * A collective becomes a Call, which is checked and then run: at once, or with all others of its
 * group at the outermost ncclGroupEnd. New communicators wait for a group's end likewise, so that
 * one thread can make those of several devices. Mistakes are reported with the call site and
 * returned as NCCL returns them; if a call of a group was wrong, its end runs nothing and returns
 * that error.
 *
 * Interface: nccl.h; sim_nccl_error, sim_may_share.
 */
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nccl/comm.h"
#include "report/report.h"
#include "runtime/runtime.h"

#define HERE SIM_SITE
#define MOST_COMPARED 1024 // calls of a group whose buffers are compared, each with each

static __thread char last_error[512] = "";

void sim_nccl_error(const char *text)
{
    snprintf(last_error, sizeof last_error, "%s", text);
}

bool sim_may_share(void)
{
    const char *text = getenv("NCCL_MULTI_RANK_GPU_ENABLE");
    return text && strcmp(text, "1") == 0;
}

// ---- Mistakes ----

// "NAME, at file:line (function): …"
// `other`: a second call that it is about, at `there`; NULL: there is none.
static ncclResult_t complain_of(SimgpuClass kind, ncclResult_t result, const char *name,
                                const void *site, const char *other, const void *there,
                                const char *title, const char *format, ...)
    __attribute__((format(printf, 8, 9)));
static ncclResult_t complain_of(SimgpuClass kind, ncclResult_t result, const char *name,
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

#define complain(kind, result, name, site, ...)                                                    \
    complain_of(kind, result, name, site, NULL, NULL, __VA_ARGS__)

// Communicators that were destroyed, and where: the last ones.
#define GONE_COMMS 64
#define FEW_REDOPS 256
static struct {
    const void *comm, *site;
} gone[GONE_COMMS];
static unsigned n_gone; // under sim_lock

static void note_gone(ncclComm_t comm, const void *site)
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
    return complain_of(SIMGPU_LIFETIME, ncclInvalidArgument, name, site, "the destruction",
                       destroyed, "not a communicator",
                       "It was destroyed at %s.\n"
                       "On real GPUs this is a crash, or a hang.\n"
                       "Is there a call behind its ncclCommDestroy?",
                       where);
}

static ncclResult_t check_comm(ncclComm_t comm, const char *name, const void *site)
{
    if (sim_comm_lives(comm)) return ncclSuccess;
    const void *destroyed = comm ? gone_at(comm) : NULL;
    if (destroyed) return refuse_gone(name, site, destroyed);
    return complain(
        SIMGPU_LIFETIME, ncclInvalidArgument, name, site,
        comm ? "not a communicator" : "the communicator is NULL", "%s",
        comm ? "It was destroyed before, or was made by a process that forked this one.\n"
               "On real GPUs this is a crash, or a hang.\n"
               "Is there a call after its ncclCommDestroy?"
             : "On real GPUs it returns \"invalid argument\", as now.\n"
               "Did ncclCommInitRank fail, or did it never run?");
}

static ncclResult_t check_not_null(const void *ptr, const char *what, const char *name,
                                   const void *site)
{
    if (ptr) return ncclSuccess;
    return complain(SIMGPU_POINTER, ncclInvalidArgument, name, site, "a null pointer",
                    "%s is NULL.\n"
                    "On real GPUs it returns \"invalid argument\", as now.\n"
                    "Is it the address of a variable that is due there?",
                    what);
}

// "byte 16 of flat->shard, the 4096 bytes …", or the address of what is no device memory.
static void describe_buffer(const void *ptr, char *text, size_t size)
{
    size_t offset;
    SimDevice *device = sim_device_of(ptr, &offset);
    snprintf(text, size, "%p", ptr);
    if (device) sim_describe(device, offset, text, size);
}

static ncclResult_t check_buffer(const Call *call, const char *which, const void *ptr, size_t bytes)
{
    const char *name = sim_call_facts[call->signature.kind].name;
    char what[512];
    size_t offset;
    if (bytes == 0) return ncclSuccess;
    const SimDevice *device = ptr ? sim_device_of(ptr, &offset) : NULL;
    if (!ptr)
        return complain(
            SIMGPU_POINTER, ncclInvalidArgument, name, call->site, "a null pointer",
            "The %s buffer is NULL, %zu bytes are due there.\n"
            "On real GPUs this is an illegal memory access, and every call after it fails.\n"
            "Was it never allocated, or already freed?",
            which, bytes);
    if (!device)
        return complain(
            SIMGPU_POINTER, ncclInvalidArgument, name, call->site, "a host pointer",
            "The %s buffer %p (%zu bytes) is host memory; NCCL works on device memory.\n"
            "On real GPUs this is an illegal memory access, and every call after it fails.\n"
            "Was the device's copy of it meant?",
            which, ptr, bytes);
    if (device->index != call->comm->device) {
        describe_buffer(ptr, what, sizeof what);
        return complain(
            SIMGPU_POINTER, ncclInvalidArgument, name, call->site, "memory of another device",
            "The %s buffer (%s)\nis on device %d, the communicator's rank %d is on device %d.\n"
            "On real GPUs this is an illegal memory access, or slow.\n"
            "Was cudaSetDevice called after the buffer was allocated?",
            which, what, device->index, call->comm->rank, call->comm->device);
    }
    size_t element = sim_type_size((ncclDataType_t)call->signature.type);
    if ((uintptr_t)ptr % element == 0 || sim_config()->check == CHECK_OFF) return ncclSuccess;
    sim_stick(cudaErrorMisalignedAddress);
    sim_facts_range(ptr, bytes);
    describe_buffer(ptr, what, sizeof what);
    return complain(
        SIMGPU_POINTER, ncclInvalidArgument, name, call->site, "a misaligned pointer",
        "The %s buffer is %s:\nits address is no multiple of %zu, the size of an %s.\n"
        "On real GPUs the kernel faults (\"misaligned address\"), and every call after it fails.\n"
        "Was an offset in bytes added, where one in elements is due?",
        which, what, element, sim_type_name(call->signature.type));
}

// NCCL's rules: the buffers lie apart, or exactly where an in-place call has them.
static ncclResult_t check_overlap(const Call *call)
{
    size_t sends = sim_send_bytes(call), recvs = sim_recv_bytes(call);
    const char *send = call->send, *recv = call->recv;
    size_t rank = (size_t)call->comm->rank;
    if (!sends || !recvs || send + sends <= recv || recv + recvs <= send) return ncclSuccess;
    const char *rule = "sendbuff == recvbuff";
    bool in_place = send == recv;
    if (call->signature.kind == CALL_ALL_GATHER) {
        in_place = send == recv + rank * sends;
        rule = "sendbuff == recvbuff + rank * sendcount";
    } else if (call->signature.kind == CALL_REDUCE_SCATTER) {
        in_place = recv == send + rank * recvs;
        rule = "recvbuff == sendbuff + rank * recvcount";
    }
    if (in_place) return ncclSuccess;
    char from[512], to[512];
    describe_buffer(call->send, from, sizeof from);
    describe_buffer(call->recv, to, sizeof to);
    sim_facts_range(call->send, sends);
    sim_facts_range(call->recv, recvs);
    return complain(SIMGPU_OVERLAP, ncclInvalidArgument, sim_call_facts[call->signature.kind].name,
                    call->site, "send and receive buffer overlap",
                    "It sends %zu bytes from %s,\nand receives %zu bytes from %s.\n"
                    "For rank %zu they may overlap only in place: %s.\n"
                    "On real GPUs data are silently mixed up.\n"
                    "Was the offset counted in bytes, not elements, or with another rank's number?",
                    sends, from, recvs, to, rank, rule);
}

static bool is_destroyed(ncclComm_t comm, int own)
{
    return own >= 0 && own < comm->n_redops && !comm->redop[own].used;
}

static ncclResult_t refuse_destroyed(ncclComm_t comm, int own, const char *name, const void *site)
{
    char where[256];
    const void *destroyed = comm->redop[own].destroyed;
    gpulog_where(destroyed, where, sizeof where);
    return complain_of(SIMGPU_LIFETIME, ncclInvalidArgument, name, site, "ncclRedOpDestroy",
                       destroyed, "a reduction is used after it was destroyed",
                       "It was destroyed at %s.\n"
                       "On real GPUs it returns \"invalid argument\", as now, or it is another's.\n"
                       "Is it destroyed before its last use?",
                       where);
}

static ncclResult_t check_reduction(Call *call)
{
    const char *name = sim_call_facts[call->signature.kind].name;
    int op = (int)call->handle;
    if (call->signature.type == ncclFloat8e4m3 || call->signature.type == ncclFloat8e5m2)
        return complain(SIMGPU_CALL, ncclInvalidArgument, name, call->site,
                        "a type simgpu does not reduce", "%s can be moved but not reduced here.",
                        sim_type_name(call->signature.type));
    if (op >= 0 && op < ncclNumOps) {
        call->signature.op = op;
        return ncclSuccess;
    }
    int own = op - ncclNumOps;
    if (is_destroyed(call->comm, own))
        return refuse_destroyed(call->comm, own, name, call->site);
    if (own < 0 || own >= call->comm->n_redops || !call->comm->redop[own].used)
        return complain(SIMGPU_CALL, ncclInvalidArgument, name, call->site, "an invalid reduction",
                        "%d is no ncclRedOp_t of this communicator.\n"
                        "On real GPUs it returns \"invalid argument\", as now.\n"
                        "Was it destroyed already, or made for another communicator?",
                        op);
    if ((int)call->comm->redop[own].type != call->signature.type)
        return complain(
            SIMGPU_CALL, ncclInvalidArgument, name, call->site, "a reduction for another type",
            "It was made for %s and is used with %s.\n"
            "On real GPUs it returns \"invalid argument\", as now.\n"
            "Does every type need a reduction of its own?",
            sim_type_name(call->comm->redop[own].type), sim_type_name(call->signature.type));
    call->signature.op = SIM_PRE_MUL_SUM;
    return ncclSuccess;
}

static ncclResult_t check_call(Call *call)
{
    const CallFacts *facts = &sim_call_facts[call->signature.kind];
    ncclResult_t result = check_comm(call->comm, facts->name, call->site);
    if (result != ncclSuccess || call->signature.kind == CALL_SPLIT) return result;
    if (call->signature.type < 0 || call->signature.type >= ncclNumTypes)
        return complain(SIMGPU_CALL, ncclInvalidArgument, facts->name, call->site,
                        "an invalid data type",
                        "%d is no ncclDataType_t.\n"
                        "On real GPUs it returns \"invalid argument\", as now.\n"
                        "Are the count and the type the wrong way round?",
                        call->signature.type);
    bool message = call->signature.kind == CALL_SEND || call->signature.kind == CALL_RECV;
    if ((facts->rooted || message) &&
        (call->signature.root < 0 || call->signature.root >= call->comm->size))
        return complain(SIMGPU_CALL, ncclInvalidArgument, facts->name, call->site,
                        message ? "a peer outside the communicator"
                                : "a root outside the communicator",
                        "%d is none of its ranks 0 to %d.\n"
                        "On real GPUs it returns \"invalid argument\", as now.\n"
                        "Is it a rank of the whole world, in a communicator of a part of it?",
                        call->signature.root, call->comm->size - 1);
    if (facts->reduces) result = check_reduction(call);
    if (result == ncclSuccess)
        result = check_buffer(call, "send", call->send, sim_send_bytes(call));
    if (result == ncclSuccess)
        result = check_buffer(call, "receive", call->recv, sim_recv_bytes(call));
    return result == ncclSuccess ? check_overlap(call) : result;
}

// ---- Groups ----

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
static SimHooks hooks = {.visit = sim_comm_visit,
                         .end = check_end,
                         .idle_wait = check_wait,
                         .fatal = sim_comm_goodbye};

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

static ncclResult_t join(const Init *init, ncclComm_t *comm)
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
static ncclResult_t run_inits(const Init *init, int n)
{
    ncclComm_t *comm = calloc((size_t)n, sizeof *comm);
    ncclResult_t result = comm ? ncclSuccess : ncclSystemError;
    int joined = 0;
    for (int first = 1; first >= 0; first--)
        for (int i = 0; i < n && result == ncclSuccess; i++) {
            if ((init[i].rank == 0) != first) continue;
            result = join(&init[i], init[i].out);
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
            sim_rendezvous_withdraw(&call->desc.id);
        if (!call->new_size) continue;
        if (!grow((void **)&init, n_inits, &max, sizeof *init)) return ncclSystemError;
        init[n_inits++] = (Init){.out = call->new_comm,
                                 .size = call->new_size,
                                 .rank = call->new_rank,
                                 .device = call->comm->device,
                                 .id = call->new_id,
                                 .site = call->site,
                                 .parent = call->comm,
                                 .mates = call->phantom_mates ? call->phantom_mates : call->mates};
    }
    ncclResult_t result = n_inits ? run_inits(init, n_inits) : ncclSuccess;
    for (int i = 0; i < n; i++) free(calls[i].phantom_mates);
    free(init);
    return result;
}

static ncclResult_t run(Call *calls, int n)
{
    ncclResult_t result = sim_run_calls(calls, n);
    return result == ncclSuccess ? finish_splits(calls, n) : result;
}

static ncclResult_t grouped_error(ncclResult_t result)
{
    if (group.depth > 0 && group.error == ncclSuccess) group.error = result;
    return result;
}

// A communicator is there only when the group of its initialisation ends: NCCL allows nothing else
// in such a group ("Group Calls" in its documentation).
static ncclResult_t refuse_mixed(const char *name, const void *site, const char *other,
                                 const void *other_site)
{
    char where[256], other_where[256];
    gpulog_where(site, where, sizeof where);
    gpulog_where(other_site, other_where, sizeof other_where);
    snprintf(last_error, sizeof last_error, "%s at %s: in one group with %s", name, where, other);
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
    return grouped_error(ncclInvalidUsage);
}

static ncclResult_t submit(Call *call)
{
    if (group.n_inits)
        return refuse_mixed(sim_call_facts[call->signature.kind].name, call->site,
                            "ncclCommInitRank", group.init[0].site);
    ncclResult_t result = check_call(call);
    if (result != ncclSuccess) return grouped_error(result);
    if (group.depth == 0) return run(call, 1);
    if (!grow((void **)&group.call, group.n_calls, &group.max_calls, sizeof *call))
        return grouped_error(ncclSystemError);
    group.call[group.n_calls++] = *call;
    return ncclSuccess;
}

static ncclResult_t submit_init(const Init *init)
{
    if (group.depth == 0) return run_inits(init, 1);
    if (group.n_calls)
        return refuse_mixed("ncclCommInitRank", init->site,
                            sim_call_facts[group.call[0].signature.kind].name, group.call[0].site);
    if (!grow((void **)&group.init, group.n_inits, &group.max_inits, sizeof *init))
        return grouped_error(ncclSystemError);
    group.init[group.n_inits++] = *init;
    return ncclSuccess;
}

// Of all threads: groups that wait for their end, and where the last of them began.
static atomic_int open_groups;
static _Atomic(const void *) open_at;

static void open_group(const void *site)
{
    if (group.depth++ > 0) return;
    sim_hooks_add(&hooks);
    group.site = site;
    atomic_store(&open_at, site);
    atomic_fetch_add(&open_groups, 1);
}

ncclResult_t ncclGroupStart(void)
{
    open_group(HERE);
    return ncclSuccess;
}

// Where a call of a group writes (receives) or reads (sends).
static GpuRange message_range(const Call *call)
{
    bool receives = call->signature.kind == CALL_RECV;
    return (GpuRange){receives ? call->recv : call->send,
                      receives ? sim_recv_bytes(call) : sim_send_bytes(call),
                      receives ? GPU_WRITE : GPU_READ};
}

static bool is_message(const Call *call)
{
    return call->signature.kind == CALL_SEND || call->signature.kind == CALL_RECV;
}

// Two messages of a group move at the same time: what is received may not lie over what another
// one sends or receives. A message to oneself may stay where it is.
static bool messages_clash(const Call *into, const Call *other)
{
    GpuRange a = message_range(into), b = message_range(other);
    const char *x = a.ptr, *y = b.ptr;
    bool to_itself = into->comm == other->comm && into->signature.root == into->comm->rank &&
                     other->signature.root == other->comm->rank && x == y && a.bytes == b.bytes &&
                     other->signature.kind == CALL_SEND;
    return !to_itself && a.bytes && b.bytes && x < y + b.bytes && y < x + a.bytes;
}

static void report_clash(const Call *into, const Call *other)
{
    GpuRange a = message_range(into), b = message_range(other);
    char where[256], other_where[256], to[512], from[512];
    const char *name = sim_call_facts[other->signature.kind].name;
    gpulog_where(into->site, where, sizeof where);
    gpulog_where(other->site, other_where, sizeof other_where);
    describe_buffer(a.ptr, to, sizeof to);
    describe_buffer(b.ptr, from, sizeof from);
    sim_facts_call("ncclRecv", into->site, into->stream);
    sim_facts_call(name, other->site, other->stream);
    sim_facts_range(a.ptr, a.bytes);
    sim_facts_range(b.ptr, b.bytes);
    sim_report(SIMGPU_OVERLAP, "two messages of a group overlap",
               "ncclRecv, called at %s,\nwrites %zu bytes from %s.\n"
               "%s, called at %s,\n%s %zu bytes from %s.\n"
               "On real GPUs both move at the same time: data are silently mixed up.\n"
               "Does the exchange need a buffer to receive into, beside the one that is sent?",
               where, a.bytes, to, name, other_where, b.access == GPU_READ ? "reads" : "writes",
               b.bytes, from);
}

static void check_messages(const Call *call, int n)
{
    if (n > MOST_COMPARED || sim_config()->check == CHECK_OFF) return;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n && call[i].signature.kind == CALL_RECV; j++) {
            bool once = call[j].signature.kind == CALL_SEND || j > i;
            if (i == j || !once || !is_message(&call[j])) continue;
            if (!messages_clash(&call[i], &call[j])) continue;
            report_clash(&call[i], &call[j]);
            return;
        }
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
    const char *held_name = sim_call_facts[held->signature.kind].name;
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
        return complain(SIMGPU_GROUP, ncclInvalidUsage, "ncclGroupEnd", HERE,
                        "a group's end without its start",
                        "On real GPUs it returns \"invalid usage\", as now.\n"
                        "Is there one ncclGroupStart for every ncclGroupEnd, on the same thread?");
    if (--group.depth > 0) return ncclSuccess;
    Call *call = group.call;
    Init *init = group.init;
    int n_calls = group.n_calls, n_inits = group.n_inits;
    ncclResult_t result = group.error;
    memset(&group, 0, sizeof group);
    atomic_fetch_sub(&open_groups, 1);
    if (result == ncclSuccess && n_inits) result = run_inits(init, n_inits);
    if (result == ncclSuccess && n_calls) check_messages(call, n_calls);
    if (result == ncclSuccess && n_calls) result = run(call, n_calls);
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

// ---- Communicators ----

ncclResult_t ncclGetVersion(int *version)
{
    ncclResult_t result = check_not_null(version, "version", "ncclGetVersion", HERE);
    if (result == ncclSuccess) *version = NCCL_VERSION_CODE;
    return result;
}

static ncclResult_t make_id(RendezvousId *id)
{
    const char *place = getenv("NCCL_COMM_ID");
    *id = (RendezvousId){.magic = "SIMGPU", .by_text = 1};
    if (sim_phantoms()) return ncclSuccess; // nobody asks for it
    if (!place || !*place) return sim_rendezvous_offer(id);
    if (strlen(place) >= sizeof id->text || !strchr(place, ':'))
        return complain(SIMGPU_CALL, ncclInvalidArgument, "ncclGetUniqueId", HERE,
                        "NCCL_COMM_ID is not host:port", "It is \"%s\".", place);
    strcpy(id->text, place);
    return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *uniqueId)
{
    RendezvousId id;
    _Static_assert(sizeof id <= sizeof *uniqueId, "an id fits");
    ncclResult_t result = check_not_null(uniqueId, "uniqueId", "ncclGetUniqueId", HERE);
    if (result == ncclSuccess) result = make_id(&id);
    if (result != ncclSuccess) return result;
    memset(uniqueId, 0, sizeof *uniqueId);
    memcpy(uniqueId, &id, sizeof id);
    return ncclSuccess;
}

static ncclResult_t init_rank(ncclComm_t *comm, int size, const ncclUniqueId *id, int rank,
                              const char *name, const void *site)
{
    Init init = {
        .out = comm, .size = size, .rank = rank, .device = sim_current_device(), .site = site};
    ncclResult_t result = check_not_null(comm, "comm", name, site);
    if (result != ncclSuccess) return grouped_error(result);
    *comm = NULL;
    int most = sim_phantoms() ? SIM_MAX_PHANTOMS : SIM_MAX_RANKS;
    if (size < 1 || size > most || rank < 0 || rank >= size)
        return grouped_error(
            complain(SIMGPU_CALL, ncclInvalidArgument, name, site, "an invalid rank or size",
                     "rank %d of nranks %d; simgpu has room for %d ranks.\n"
                     "On real GPUs it returns \"invalid argument\", as now.\n"
                     "Ranks go from 0 to nranks - 1: are the two the wrong way round?",
                     rank, size, most));
    memcpy(&init.id, id, sizeof init.id);
    if (memcmp(init.id.magic, "SIMGPU", 7) != 0)
        return grouped_error(complain(SIMGPU_CALL, ncclInvalidArgument, name, site, "an invalid id",
                                      "It does not come from ncclGetUniqueId.\n"
                                      "On real GPUs this fails, or hangs until a time limit.\n"
                                      "Was it handed over whole, all %d bytes, to every rank?",
                                      NCCL_UNIQUE_ID_BYTES));
    return submit_init(&init);
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank)
{
    return init_rank(comm, nranks, &commId, rank, "ncclCommInitRank", HERE);
}

static ncclResult_t check_config(const ncclConfig_t *config, const char *name, const void *site)
{
    if (!config || config->magic == 0xcafebeef) return ncclSuccess;
    return grouped_error(complain(
        SIMGPU_CALL, ncclInvalidArgument, name, site, "a configuration without its start values",
        "On real GPUs it returns \"invalid argument\", as now.\n"
        "Does it begin with ncclConfig_t config = NCCL_CONFIG_INITIALIZER?"));
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank,
                                    ncclConfig_t *config)
{
    ncclResult_t result = check_config(config, "ncclCommInitRankConfig", HERE);
    if (result != ncclSuccess) return result;
    return init_rank(comm, nranks, &commId, rank, "ncclCommInitRankConfig", HERE);
}

ncclResult_t ncclCommInitRankScalable(ncclComm_t *newcomm, int nranks, int myrank, int nId,
                                      ncclUniqueId *commIds, ncclConfig_t *config)
{
    const char *name = "ncclCommInitRankScalable";
    ncclResult_t result = check_config(config, name, HERE);
    if (result == ncclSuccess) result = check_not_null(commIds, "commIds", name, HERE);
    if (result != ncclSuccess) return grouped_error(result);
    if (nId < 1)
        return grouped_error(
            complain(SIMGPU_CALL, ncclInvalidArgument, name, HERE, "no id", "nId is %d.", nId));
    return init_rank(newcomm, nranks, &commIds[0], myrank, name, HERE);
}

ncclResult_t ncclCommInitAll(ncclComm_t *comm, int ndev, const int *devlist)
{
    const char *name = "ncclCommInitAll";
    ncclResult_t result = check_not_null(comm, "comm", name, HERE);
    int devices = 0;
    cudaGetDeviceCount(&devices);
    if (result != ncclSuccess) return result;
    if (ndev < 1 || ndev > SIM_MAX_RANKS)
        return complain(SIMGPU_CALL, ncclInvalidArgument, name, HERE,
                        "an invalid number of devices", "ndev is %d.", ndev);
    Init init[SIM_MAX_RANKS];
    RendezvousId id;
    for (int i = 0; i < ndev; i++) {
        int device = devlist ? devlist[i] : i;
        if (device < 0 || device >= devices)
            return complain(SIMGPU_CALL, ncclInvalidArgument, name, HERE, "no such device",
                            "Rank %d is to be on device %d; there are %d (SIMGPU_DEVICES).", i,
                            device, devices);
        for (int j = 0; j < i; j++)
            if (init[j].device == device && !sim_may_share())
                return complain(SIMGPU_CALL, ncclInvalidUsage, name, HERE, "duplicate GPU",
                                "Ranks %d and %d are both to be on device %d; each needs its own.",
                                j, i, device);
        init[i] = (Init){.out = &comm[i], .size = ndev, .rank = i, .device = device, .site = HERE};
    }
    id = (RendezvousId){.magic = "SIMGPU"};
    if (!sim_phantoms()) result = sim_rendezvous_offer(&id);
    if (result != ncclSuccess) return result;
    for (int i = 0; i < ndev; i++) init[i].id = id;
    return run_inits(init, ndev);
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *newcomm,
                           ncclConfig_t *config)
{
    ncclResult_t result = check_not_null(newcomm, "newcomm", "ncclCommSplit", HERE);
    if (result == ncclSuccess) result = check_config(config, "ncclCommSplit", HERE);
    if (result != ncclSuccess) return grouped_error(result);
    if (color < 0 && color != NCCL_SPLIT_NOCOLOR)
        return grouped_error(complain(SIMGPU_CALL, ncclInvalidArgument, "ncclCommSplit", HERE,
                                      "a negative color",
                                      "%d is neither 0 or more nor NCCL_SPLIT_NOCOLOR.", color));
    Call call = {.comm = comm,
                 .signature.kind = CALL_SPLIT,
                 .site = HERE,
                 .new_comm = newcomm,
                 .desc = {.color = color, .key = key}};
    return submit(&call);
}

// Ranks work off their calls as they make them: there is nothing to flush but sends.
ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    ncclResult_t result = check_comm(comm, "ncclCommFinalize", HERE);
    if (result != ncclSuccess) return result;
    sim_board_wait(comm);
    sim_sends_wait_comm(comm, "ncclCommFinalize", HERE);
    return result;
}

static ncclResult_t destroy(ncclComm_t comm, bool abort, const char *name, const void *site)
{
    if (!comm) return ncclSuccess; // NCCL's answer, too
    ncclResult_t result = check_comm(comm, name, site);
    if (result != ncclSuccess) return result;
    for (int i = 0; i < group.n_calls; i++)
        if (group.call[i].comm == comm)
            return complain(SIMGPU_GROUP, ncclInvalidUsage, name, site,
                            "a communicator destroyed inside a group",
                            "The group holds calls on it, which begin only at ncclGroupEnd.\n"
                            "On real GPUs this is a crash, or a hang.\n"
                            "Does the ncclCommDestroy belong after the ncclGroupEnd?");
    if (!abort) sim_board_wait(comm); // before it really waits: others see its clock
    if (!abort) sim_sends_wait_comm(comm, name, site);
    if (!abort) sim_board_resolve(comm);
    note_gone(comm, site);
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

// ---- Collectives ----

static Call make_call(CallKind kind, const void *send, void *recv, size_t count,
                      ncclDataType_t type, ncclRedOp_t op, int root, ncclComm_t comm,
                      cudaStream_t stream, const void *site)
{
    Call call;
    memset(&call, 0, sizeof call); // padding too: signatures are compared as bytes
    call.comm = comm;
    call.signature.kind = kind;
    call.signature.type = (int32_t)type;
    call.signature.root = root;
    call.signature.count = count;
    call.send = send;
    call.recv = recv;
    call.handle = op;
    call.stream = stream;
    call.site = site;
    return call;
}

#define SUBMIT(kind, send, recv, count, type, op, root)                                            \
    do {                                                                                           \
        Call call_ = make_call(kind, send, recv, count, type, op, root, comm, stream, HERE);       \
        return submit(&call_);                                                                     \
    } while (0)

ncclResult_t ncclAllGather(const void *sendbuff, void *recvbuff, size_t sendcount,
                           ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream)
{
    SUBMIT(CALL_ALL_GATHER, sendbuff, recvbuff, sendcount, datatype, ncclSum, 0);
}

ncclResult_t ncclReduceScatter(const void *sendbuff, void *recvbuff, size_t recvcount,
                               ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t stream)
{
    SUBMIT(CALL_REDUCE_SCATTER, sendbuff, recvbuff, recvcount, datatype, op, 0);
}

ncclResult_t ncclAllReduce(const void *sendbuff, void *recvbuff, size_t count,
                           ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream)
{
    SUBMIT(CALL_ALL_REDUCE, sendbuff, recvbuff, count, datatype, op, 0);
}

ncclResult_t ncclReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream)
{
    SUBMIT(CALL_REDUCE, sendbuff, recvbuff, count, datatype, op, root);
}

ncclResult_t ncclBroadcast(const void *sendbuff, void *recvbuff, size_t count,
                           ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream)
{
    SUBMIT(CALL_BROADCAST, sendbuff, recvbuff, count, datatype, ncclSum, root);
}

ncclResult_t ncclBcast(void *buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                       cudaStream_t stream)
{
    SUBMIT(CALL_BROADCAST, buff, buff, count, datatype, ncclSum, root);
}

ncclResult_t ncclSend(const void *sendbuff, size_t count, ncclDataType_t datatype, int peer,
                      ncclComm_t comm, cudaStream_t stream)
{
    SUBMIT(CALL_SEND, sendbuff, NULL, count, datatype, ncclSum, peer);
}

ncclResult_t ncclRecv(void *recvbuff, size_t count, ncclDataType_t datatype, int peer,
                      ncclComm_t comm, cudaStream_t stream)
{
    SUBMIT(CALL_RECV, NULL, recvbuff, count, datatype, ncclSum, peer);
}

// Messages between this rank and all ranks from `first` on, up to `end`: what is sent to or
// received from rank r lies at element r·count of the buffer, or at its begin where `same`.
static void exchange(CallKind kind, const void *buffer, bool same, int first, int end, size_t count,
                     ncclDataType_t type, ncclComm_t comm, cudaStream_t stream, const void *site)
{
    size_t bytes = type >= 0 && type < ncclNumTypes ? count * sim_type_size(type) : 0;
    for (int r = first; r < end; r++) {
        char *at = (char *)(uintptr_t)buffer + (same ? 0 : (size_t)r * bytes);
        Call call = make_call(kind, kind == CALL_SEND ? at : NULL, kind == CALL_RECV ? at : NULL,
                              count, type, ncclSum, r, comm, stream, site);
        submit(&call);
    }
}

ncclResult_t ncclAlltoAll(const void *sendbuff, void *recvbuff, size_t count,
                          ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream)
{
    ncclResult_t result = check_comm(comm, "ncclAlltoAll", HERE);
    if (result != ncclSuccess) return grouped_error(result);
    open_group(HERE);
    exchange(CALL_SEND, sendbuff, false, 0, comm->size, count, datatype, comm, stream, HERE);
    exchange(CALL_RECV, recvbuff, false, 0, comm->size, count, datatype, comm, stream, HERE);
    return ncclGroupEnd();
}

static ncclResult_t check_root(ncclComm_t comm, int root, const char *name, const void *site)
{
    ncclResult_t result = check_comm(comm, name, site);
    if (result == ncclSuccess && (root < 0 || root >= comm->size))
        result = complain(SIMGPU_CALL, ncclInvalidArgument, name, site,
                          "a root outside the communicator",
                          "%d is none of its ranks 0 to %d.\n"
                          "On real GPUs it returns \"invalid argument\", as now.\n"
                          "Is it a rank of the whole world, in a communicator of a part of it?",
                          root, comm->size - 1);
    return grouped_error(result);
}

ncclResult_t ncclGather(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                        int root, ncclComm_t comm, cudaStream_t stream)
{
    ncclResult_t result = check_root(comm, root, "ncclGather", HERE);
    if (result != ncclSuccess) return result;
    int receives = comm->rank == root ? comm->size : 0;
    open_group(HERE);
    exchange(CALL_SEND, sendbuff, true, root, root + 1, count, datatype, comm, stream, HERE);
    exchange(CALL_RECV, recvbuff, false, 0, receives, count, datatype, comm, stream, HERE);
    return ncclGroupEnd();
}

ncclResult_t ncclScatter(const void *sendbuff, void *recvbuff, size_t count,
                         ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream)
{
    ncclResult_t result = check_root(comm, root, "ncclScatter", HERE);
    if (result != ncclSuccess) return result;
    int sends = comm->rank == root ? comm->size : 0;
    open_group(HERE);
    exchange(CALL_SEND, sendbuff, false, 0, sends, count, datatype, comm, stream, HERE);
    exchange(CALL_RECV, recvbuff, true, root, root + 1, count, datatype, comm, stream, HERE);
    return ncclGroupEnd();
}

// ---- Reductions of one's own ----

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t datatype,
                                      ncclScalarResidence_t residence, ncclComm_t comm)
{
    const char *name = "ncclRedOpCreatePreMulSum";
    ncclResult_t result = check_comm(comm, name, HERE);
    if (result == ncclSuccess) result = check_not_null(op, "op", name, HERE);
    if (result == ncclSuccess) result = check_not_null(scalar, "scalar", name, HERE);
    if (result != ncclSuccess) return result;
    if ((int)datatype < 0 || datatype >= ncclFloat8e4m3)
        return complain(SIMGPU_CALL, ncclInvalidArgument, name, HERE, "an invalid data type",
                        "%d is no type that simgpu reduces.", (int)datatype);
    // One that is destroyed is not used again as long as there are few.
    int i = comm->n_redops < FEW_REDOPS ? comm->n_redops : 0;
    while (i < comm->n_redops && comm->redop[i].used) i++;
    if (i == comm->n_redops) {
        RedOp *more = realloc(comm->redop, ((size_t)i + 1) * sizeof *more);
        if (!more) return ncclSystemError;
        comm->redop = more;
        comm->n_redops++;
    }
    comm->redop[i] = (RedOp){.used = true, .type = datatype};
    if (residence == ncclScalarDevice)
        comm->redop[i].device_scalar = scalar;
    else
        memcpy(&comm->redop[i].scalar, scalar, sim_type_size(datatype));
    *op = (ncclRedOp_t)(ncclNumOps + i);
    return ncclSuccess;
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm)
{
    ncclResult_t result = check_comm(comm, "ncclRedOpDestroy", HERE);
    if (result != ncclSuccess) return result;
    int i = (int)op - ncclNumOps;
    if (is_destroyed(comm, i)) return refuse_destroyed(comm, i, "ncclRedOpDestroy", HERE);
    if (i < 0 || i >= comm->n_redops)
        return complain(
            SIMGPU_CALL, ncclInvalidArgument, "ncclRedOpDestroy", HERE, "an invalid reduction",
            "%d was not made by ncclRedOpCreatePreMulSum.", (int)op);
    comm->redop[i].used = false;
    comm->redop[i].destroyed = HERE;
    return ncclSuccess;
}

// ---- Questions ----

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *asyncError)
{
    ncclResult_t result = check_comm(comm, "ncclCommGetAsyncError", HERE);
    if (result == ncclSuccess)
        result = check_not_null(asyncError, "asyncError", "ncclCommGetAsyncError", HERE);
    if (result == ncclSuccess) *asyncError = ncclSuccess;
    return result;
}

#define ANSWER(name, out, field)                                                                   \
    do {                                                                                           \
        ncclResult_t result_ = check_comm(comm, name, HERE);                                       \
        if (result_ == ncclSuccess) result_ = check_not_null(out, #out, name, HERE);               \
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

const char *ncclGetLastError(ncclComm_t comm)
{
    return last_error;
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
    ncclResult_t result = check_comm(comm, "ncclCommRegister", HERE);
    if (result == ncclSuccess) result = check_not_null(handle, "handle", "ncclCommRegister", HERE);
    if (result == ncclSuccess) *handle = buff;
    return result;
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle)
{
    return check_comm(comm, "ncclCommDeregister", HERE);
}

// A window makes calls on its memory faster, and changes nothing else. The handle is the memory.
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *buff, size_t size, ncclWindow_t *win,
                                    int winFlags)
{
    const char *name = "ncclCommWindowRegister";
    ncclResult_t result = check_comm(comm, name, HERE);
    if (result == ncclSuccess) result = check_not_null(win, "win", name, HERE);
    if (result == ncclSuccess) result = check_not_null(buff, "buff", name, HERE);
    if (result == ncclSuccess) *win = (ncclWindow_t)buff;
    return grouped_error(result);
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win)
{
    return check_comm(comm, "ncclCommWindowDeregister", HERE);
}
