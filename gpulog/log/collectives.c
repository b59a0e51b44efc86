/* collectives.c: what a collective reads, writes and sends, from its arguments alone. */
#include <nccl.h>

#include "collectives.h"

#define REDUCES(parameters, arguments, same, reduces) reduces
#define ROW(op, name, call, words, takes, send, recv, root, route, in_place)                       \
    [op] = {#call, words, send, recv, root, route, REDUCES(takes), in_place},
static const GpuLogKind kinds[] = {GPULOG_COLLECTIVES(ROW)};

#define COUNT(op, ...) +1
_Static_assert(GPU_RECV - GPU_ALL_GATHER + 1 == 0 GPULOG_COLLECTIVES(COUNT),
               "GPU_ALL_GATHER is the first of them, GPU_RECV the last");

bool gpulog_is_collective(GpuOp op)
{
    return op >= GPU_ALL_GATHER && op <= GPU_RECV;
}

const GpuLogKind *gpulog_kind(GpuOp op)
{
    return gpulog_is_collective(op) ? &kinds[op] : NULL;
}

size_t gpulog_element_size(int type)
{
    static const unsigned char size[ncclNumTypes] = {
        [ncclInt8] = 1,    [ncclUint8] = 1,    [ncclInt32] = 4,      [ncclUint32] = 4,
        [ncclInt64] = 8,   [ncclUint64] = 8,   [ncclFloat16] = 2,    [ncclFloat32] = 4,
        [ncclFloat64] = 8, [ncclBfloat16] = 2, [ncclFloat8e4m3] = 1, [ncclFloat8e5m2] = 1};
    return type >= 0 && type < ncclNumTypes ? size[type] : 0;
}

static size_t extent(const GpuLogCollective *c, GpuLogExtent of)
{
    switch (of) {
    case EXTENT_NONE: return 0;
    case EXTENT_ONE: return c->bytes;
    case EXTENT_EACH: return c->bytes * (size_t)c->world;
    }
    return 0;
}

size_t gpulog_send_bytes(const GpuLogCollective *c)
{
    const GpuLogKind *kind = gpulog_kind(c->op);
    return kind->root == ROOT_SENDS && c->rank != c->root ? 0 : extent(c, kind->send);
}

size_t gpulog_recv_bytes(const GpuLogCollective *c)
{
    const GpuLogKind *kind = gpulog_kind(c->op);
    return kind->root == ROOT_RECEIVES && c->rank != c->root ? 0 : extent(c, kind->recv);
}

// The last rank of a chain sends nothing.
static size_t sent_bytes(const GpuLogCollective *c)
{
    const GpuLogKind *kind = gpulog_kind(c->op);
    size_t others = (size_t)c->world - 1;
    int before_root = (c->root + c->world - 1) % c->world;
    switch (kind->route) {
    case ROUTE_RING: return others * c->bytes;
    case ROUTE_RING_TWICE: return 2 * others * c->bytes / (others + 1);
    case ROUTE_CHAIN:
        return c->rank == (kind->root == ROOT_SENDS ? before_root : c->root) ? 0 : c->bytes;
    case ROUTE_PAIR: return others ? gpulog_send_bytes(c) : 0;
    }
    return 0;
}

void gpulog_count_traffic(const GpuLogCollective *c, GpuLogEntry *entry)
{
    const GpuLogKind *kind = gpulog_kind(c->op);
    bool each = kind->send == EXTENT_EACH || kind->recv == EXTENT_EACH;
    entry->bytes = extent(c, each ? EXTENT_EACH : EXTENT_ONE);
    entry->sent = sent_bytes(c);
}
