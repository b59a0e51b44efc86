/* collective.c: the collectives: the calls, and one rank's part of their work when every rank has
 * posted.
 *
 * All ranks work at the same time. Each writes a part that no other rank writes, directly in the
 * others' memory, without staging. In an in-place call a slice of a receive buffer is the same
 * slice of a send buffer. That is safe: only that rank reads it, block by block before it writes.
 *
 * Apart from its work, a collective is a row of gpulog_collectives.h; do_name here is the work of
 * row `name`.
 */
#include <stdint.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "nccl/collective.h"
#include "nccl/group.h"
#include "nccl/kind.h"
#include "nccl/lent.h"
#include "nccl/names.h"
#include "nccl/reduce.h"

#define HERE SIM_SITE

SIM_NCCL(ncclBcast)
// Bytes of a result that is copied on to other ranks while it is in the cache.
#define BLOCK_BYTES ((size_t)64 << 10)
// If all ranks together receive more bytes than this, no cache keeps them until they are read. Then
// they are written past the caches: an ordinary store first fetches what it replaces.
#define CACHED_BYTES ((size_t)16 << 20)

static size_t message_bytes(const Call *call)
{
    return (size_t)call->signature.count * gpulog_element_size(call->signature.type);
}

static GpuLogCollective in_log(const Call *call)
{
    return (GpuLogCollective){(GpuOp)call->signature.kind, message_bytes(call), call->comm->size,
                              call->comm->rank, call->signature.root};
}

size_t sim_send_bytes(const Call *call)
{
    GpuLogCollective c = in_log(call);
    return gpulog_send_bytes(&c);
}

size_t sim_recv_bytes(const Call *call)
{
    GpuLogCollective c = in_log(call);
    return gpulog_recv_bytes(&c);
}

void sim_count_traffic(const Call *call, GpuLogEntry *entry)
{
    GpuLogCollective c = in_log(call);
    gpulog_count_traffic(&c, entry);
}

// ---- The parts ----

// One rank's part of a call.
typedef struct Part {
    Call *call;
    ncclComm_t comm;
    int rank, root;
    size_t count, bytes; // the call's, in elements and in bytes
    bool cached;         // a cache keeps what is received until it is read
} Part;

static char *send_of(const Part *p, int rank)
{
    return p->comm->arena[rank] + p->comm->shared->slot[rank].desc.send;
}

static char *recv_of(const Part *p, int rank)
{
    return p->comm->arena[rank] + p->comm->shared->slot[rank].desc.recv;
}

// Copies a part of the received bytes.
static void copy(const Part *p, char *to, const char *from, size_t bytes)
{
    size_t at = 0;
    if (to == from || bytes == 0) return;
#ifdef __SSE2__
    size_t head = (SIM_CACHE_LINE - (uintptr_t)to % SIM_CACHE_LINE) % SIM_CACHE_LINE;
    if (!p->cached && bytes >= head + SIM_CACHE_LINE) {
        memcpy(to, from, head);
        for (at = head; bytes - at >= SIM_CACHE_LINE; at += SIM_CACHE_LINE)
            for (size_t i = at; i < at + SIM_CACHE_LINE; i += sizeof(__m128i))
                _mm_stream_si128((__m128i *)(void *)(to + i),
                                 _mm_loadu_si128((const __m128i *)(const void *)(from + i)));
        _mm_sfence(); // before any rank learns that they are there
    }
#endif
    memcpy(to + at, from + at, bytes - at);
}

// Reduces elements [begin, end) of all send buffers into the same elements, less `shift`, of the
// receive buffers of n ranks.
static void reduce_part(const Part *p, size_t begin, size_t end, size_t shift, const int *to, int n)
{
    ncclDataType_t type = (ncclDataType_t)p->call->signature.type;
    size_t width = gpulog_element_size(type), block = BLOCK_BYTES / width;
    const void *inputs[SIM_MAX_RANKS];
    uint64_t scalars[SIM_MAX_RANKS];
    for (int r = 0; r < p->comm->size; r++) scalars[r] = p->comm->shared->slot[r].desc.scalar;
    for (size_t at = begin; at < end; at += block) {
        size_t count = end - at < block ? end - at : block, out = (at - shift) * width;
        for (int r = 0; r < p->comm->size; r++) inputs[r] = send_of(p, r) + at * width;
        char *first = recv_of(p, to[0]) + out;
        sim_reduce(first, inputs, scalars, p->comm->size, count, type, p->call->signature.op);
        for (int i = 1; i < n; i++) copy(p, recv_of(p, to[i]) + out, first, count * width);
    }
}

// Reduces this rank's slice of all send buffers into the receive buffers of n ranks. Slices are cut
// at multiples of 64 elements, so that two ranks seldom write the same cache line.
static void reduce_slice(const Part *p, const int *to, int n)
{
    size_t size = (size_t)p->comm->size, rank = (size_t)p->rank, count = p->count;
    size_t length = (count / size + (count % size != 0) + 63) & ~(size_t)63;
    size_t begin = rank * length < count ? rank * length : count;
    size_t end = (rank + 1) * length < count ? (rank + 1) * length : count;
    reduce_part(p, begin, end, 0, to, n);
}

// ---- The work of each ----

// Reads every send buffer and writes its own receive buffer; or writes its own part of the copy
// that all ranks read (lent.c).
static void do_all_gather(const Part *p)
{
    char *lent = sim_lent_begin(p->call);
    if (lent) copy(p, lent + (size_t)p->rank * p->bytes, send_of(p, p->rank), p->bytes);
    for (int i = 0; i < p->comm->size && !p->call->borrows; i++) {
        int r = (p->rank + i) % p->comm->size; // not all from the same rank at once
        copy(p, recv_of(p, p->rank) + (size_t)r * p->bytes, send_of(p, r), p->bytes);
    }
}

// Reduces its chunk of every send buffer into its own receive buffer.
static void do_reduce_scatter(const Part *p)
{
    size_t begin = (size_t)p->rank * p->count;
    reduce_part(p, begin, begin + p->count, begin, &p->rank, 1);
}

// Writes the reduction of its slice into every receive buffer.
static void do_all_reduce(const Part *p)
{
    int all[SIM_MAX_RANKS];
    for (int i = 0; i < p->comm->size; i++) all[i] = (p->rank + i) % p->comm->size;
    reduce_slice(p, all, p->comm->size);
}

// Writes the reduction of its slice into the receive buffer of the root.
static void do_reduce(const Part *p)
{
    reduce_slice(p, &p->root, 1);
}

// Reads the root's send buffer, writes its own receive buffer.
static void do_broadcast(const Part *p)
{
    copy(p, recv_of(p, p->rank), send_of(p, p->root), p->bytes);
}

static void do_send(const Part *p)
{
    // The receiver fetches the bytes.
}

static void do_recv(const Part *p)
{
    const Channel *channel = &p->comm->shared->channel[p->root][p->rank];
    copy(p, p->comm->arena[p->rank] + p->call->desc.recv,
         p->comm->arena[p->root] + channel->send.send, p->bytes);
}

#define WORK(op, name, ...) [op] = do_##name,
static void (*const work[])(const Part *) = {GPULOG_COLLECTIVES(WORK)};

void sim_do_work(Call *call)
{
    size_t count = (size_t)call->signature.count;
    if (sim_is_setup(call->signature.kind) || count == 0 || sim_dry()) return;
    Part part = {.call = call,
                 .comm = call->comm,
                 .rank = call->comm->rank,
                 .root = call->signature.root,
                 .count = count,
                 .bytes = message_bytes(call),
                 .cached = sim_recv_bytes(call) * (size_t)call->comm->size <= CACHED_BYTES};
    work[call->signature.kind](&part);
}

// ---- The calls ----

ncclResult_t sim_call_collective(GpuOp kind, const void *send, void *recv, size_t count,
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
    return sim_submit(&call);
}

#define UNPACKED(...) __VA_ARGS__
#define NAMES(op, name, call, ...) SIM_NCCL(call)
GPULOG_COLLECTIVES(NAMES)
#define DEFINE(op_, call, parameters, arguments, same, reduces)                                    \
    ncclResult_t call parameters                                                                   \
    {                                                                                              \
        return sim_call_collective(op_, UNPACKED same, comm, stream, HERE);                        \
    }
#define CALL(op, name, call, words, takes, ...) DEFINE(op, call, takes)
GPULOG_COLLECTIVES(CALL)

ncclResult_t ncclBcast(void *buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                       cudaStream_t stream)
{
    return sim_call_collective(GPU_BROADCAST, buff, buff, count, datatype, ncclSum, root, comm,
                               stream, HERE);
}
