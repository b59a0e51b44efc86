/* collective.c: data movement, what one rank does when every rank of its call has posted.
 *
 * All ranks work at the same time, each on a part that nobody else writes, straight in the others'
 * memory, without staging:
 *
 *   all-gather       reads every send buffer, writes its own receive buffer; or writes its own part
 *                    of what all ranks read (lent.c)
 *   reduce-scatter   reduces its chunk of every send buffer into its own receive buffer
 *   all-reduce       reduces its slice of every send buffer, writes it into every receive buffer
 *   reduce           reduces its slice of every send buffer, writes it into that of the root
 *   broadcast        reads the root's send buffer, writes its own receive buffer
 *   receive          reads the sender's send buffer, writes its own receive buffer
 *
 * In place, a slice of a receive buffer is the same slice of a send buffer, which only that
 * rank reads, block by block before it writes: safe.
 *
 * Interface: sim_do_work, sim_send_bytes, sim_recv_bytes, sim_count_traffic, sim_call_facts,
 * sim_type_size; how many bytes a call moves is gpulog/log/traffic.c's to say.
 */
#include <stdint.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "nccl/comm.h"

// Bytes of a result that is copied on to other ranks while it is in the cache.
#define BLOCK_BYTES ((size_t)64 << 10)
// Where all ranks together receive more than so many bytes, they do not stay in a cache until they
// are read. They are written to memory itself: an ordinary store first fetches what it replaces.
#define CACHED_BYTES ((size_t)16 << 20)

const CallFacts sim_call_facts[CALL_KINDS] = {
    [CALL_ALL_GATHER] = {"ncclAllGather", GPU_ALL_GATHER, false, false},
    [CALL_REDUCE_SCATTER] = {"ncclReduceScatter", GPU_REDUCE_SCATTER, true, false},
    [CALL_ALL_REDUCE] = {"ncclAllReduce", GPU_ALL_REDUCE, true, false},
    [CALL_BROADCAST] = {"ncclBroadcast", GPU_BROADCAST, false, true},
    [CALL_REDUCE] = {"ncclReduce", GPU_REDUCE, true, true},
    [CALL_SPLIT] = {"ncclCommSplit", GPU_OP_KINDS, false, false},
    [CALL_SEND] = {"ncclSend", GPU_SEND, false, false},
    [CALL_RECV] = {"ncclRecv", GPU_RECV, false, false},
};

size_t sim_type_size(ncclDataType_t type)
{
    return gpulog_element_size((int)type);
}

static size_t message_bytes(const Call *call)
{
    return (size_t)call->signature.count * sim_type_size((ncclDataType_t)call->signature.type);
}

static GpuLogCollective in_log(const Call *call)
{
    return (GpuLogCollective){sim_call_facts[call->signature.kind].op, message_bytes(call),
                              call->comm->size, call->comm->rank, call->signature.root};
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

static char *send_of(ncclComm_t comm, int rank)
{
    return comm->arena[rank] + comm->shared->slot[rank].desc.send;
}

static char *recv_of(ncclComm_t comm, int rank)
{
    return comm->arena[rank] + comm->shared->slot[rank].desc.recv;
}

// Copies a part of what is received; `cached`: it stays in a cache until it is read.
static void copy(char *to, const char *from, size_t bytes, bool cached)
{
    size_t at = 0;
    if (to == from || bytes == 0) return;
#ifdef __SSE2__
    size_t head = (SIM_CACHE_LINE - (uintptr_t)to % SIM_CACHE_LINE) % SIM_CACHE_LINE;
    if (!cached && bytes >= head + SIM_CACHE_LINE) {
        memcpy(to, from, head);
        for (at = head; bytes - at >= SIM_CACHE_LINE; at += SIM_CACHE_LINE)
            for (size_t i = at; i < at + SIM_CACHE_LINE; i += sizeof(__m128i))
                _mm_stream_si128((__m128i *)(void *)(to + i),
                                 _mm_loadu_si128((const __m128i *)(const void *)(from + i)));
        _mm_sfence(); // before anybody is told that they are there
    }
#endif
    memcpy(to + at, from + at, bytes - at);
}

// Reduces elements [begin, end) of all send buffers into the same elements, less `shift`, of the
// receive buffers of n ranks.
static void reduce_part(const Call *call, size_t begin, size_t end, size_t shift, const int *to,
                        int n, bool cached)
{
    ncclComm_t comm = call->comm;
    ncclDataType_t type = (ncclDataType_t)call->signature.type;
    size_t width = sim_type_size(type), block = BLOCK_BYTES / width;
    const void *inputs[SIM_MAX_RANKS];
    uint64_t scalars[SIM_MAX_RANKS];
    for (int r = 0; r < comm->size; r++) scalars[r] = comm->shared->slot[r].desc.scalar;
    for (size_t at = begin; at < end; at += block) {
        size_t count = end - at < block ? end - at : block, out = (at - shift) * width;
        for (int r = 0; r < comm->size; r++) inputs[r] = send_of(comm, r) + at * width;
        char *first = recv_of(comm, to[0]) + out;
        sim_reduce(first, inputs, scalars, comm->size, count, type, call->signature.op);
        for (int i = 1; i < n; i++) copy(recv_of(comm, to[i]) + out, first, count * width, cached);
    }
}

// Slices are cut at multiples of 64 elements, so that two ranks seldom write the same cache line.
static void slice_of(const ncclComm_t comm, size_t count, size_t *begin, size_t *end)
{
    size_t size = (size_t)comm->size, rank = (size_t)comm->rank;
    size_t length = (count / size + (count % size != 0) + 63) & ~(size_t)63;
    *begin = rank * length < count ? rank * length : count;
    *end = (rank + 1) * length < count ? (rank + 1) * length : count;
}

void sim_do_work(Call *call)
{
    ncclComm_t comm = call->comm;
    size_t bytes, count = (size_t)call->signature.count, begin, end;
    char *lent;
    int rank = comm->rank, root = call->signature.root, all[SIM_MAX_RANKS];
    if (call->signature.kind == CALL_SPLIT || count == 0 || sim_dry()) return;
    bytes = message_bytes(call);
    bool cached = sim_recv_bytes(call) * (size_t)comm->size <= CACHED_BYTES;
    switch (call->signature.kind) {
    case CALL_ALL_GATHER:
        lent = sim_lent_begin(call);
        if (lent) copy(lent + (size_t)rank * bytes, send_of(comm, rank), bytes, cached);
        for (int i = 0; i < comm->size && !call->borrows; i++) {
            int r = (rank + i) % comm->size; // not all from the same rank at once
            copy(recv_of(comm, rank) + (size_t)r * bytes, send_of(comm, r), bytes, cached);
        }
        break;
    case CALL_REDUCE_SCATTER:
        begin = (size_t)rank * count;
        reduce_part(call, begin, begin + count, begin, &rank, 1, cached);
        break;
    case CALL_ALL_REDUCE:
        for (int i = 0; i < comm->size; i++) all[i] = (rank + i) % comm->size;
        slice_of(comm, count, &begin, &end);
        reduce_part(call, begin, end, 0, all, comm->size, cached);
        break;
    case CALL_BROADCAST: copy(recv_of(comm, rank), send_of(comm, root), bytes, cached); break;
    case CALL_REDUCE:
        slice_of(comm, count, &begin, &end);
        reduce_part(call, begin, end, 0, &root, 1, cached);
        break;
    case CALL_RECV:
        copy(comm->arena[rank] + call->desc.recv,
             comm->arena[root] + comm->shared->channel[root][rank].send.send, bytes, cached);
        break;
    default: break;
    }
}
