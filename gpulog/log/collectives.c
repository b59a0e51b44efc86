/* collectives.c: what a collective reads, writes and sends, from its arguments alone. */
#include <nccl.h>

#include "collectives.h"

#define ROW(op, name, call_, words_, send_, recv_, root_, route_, ...)                             \
    [op] = {.call = call_,                                                                         \
            .words = words_,                                                                       \
            .send = send_,                                                                         \
            .recv = recv_,                                                                         \
            .root = root_,                                                                         \
            .route = route_,                                                                       \
            __VA_ARGS__},
static const SimLogKind kinds[] = {SIM_LOG_KINDS(ROW)};
_Static_assert(sizeof kinds / sizeof kinds[0] == GPU_RECV + 1, "GPU_RECV is the last of them");

#define COUNT(op, name, ...) +1
_Static_assert(GPU_RECV - GPU_ALL_GATHER + 1 == 0 SIM_LOG_KINDS(COUNT), "each has a row");

bool gpulog_is_collective(GpuOp op)
{
    return op >= GPU_ALL_GATHER && op <= GPU_RECV;
}

const SimLogKind *sim_log_kind(GpuOp op)
{
    return gpulog_is_collective(op) ? &kinds[op] : NULL;
}

size_t sim_log_element_size(int type)
{
    static const unsigned char size[ncclNumTypes] = {
        [ncclInt8] = 1,    [ncclUint8] = 1,    [ncclInt32] = 4,      [ncclUint32] = 4,
        [ncclInt64] = 8,   [ncclUint64] = 8,   [ncclFloat16] = 2,    [ncclFloat32] = 4,
        [ncclFloat64] = 8, [ncclBfloat16] = 2, [ncclFloat8e4m3] = 1, [ncclFloat8e5m2] = 1};
    return type >= 0 && type < ncclNumTypes ? size[type] : 0;
}

static size_t extent(const SimLogCollective *c, SimLogExtent of)
{
    switch (of) {
    case EXTENT_NONE: return 0;
    case EXTENT_ONE: return c->bytes;
    case EXTENT_EACH: return c->bytes * (size_t)c->world;
    }
    return 0;
}

size_t sim_log_send_bytes(const SimLogCollective *c)
{
    const SimLogKind *kind = sim_log_kind(c->op);
    return kind->root == ROOT_SENDS && c->rank != c->root ? 0 : extent(c, kind->send);
}

size_t sim_log_recv_bytes(const SimLogCollective *c)
{
    const SimLogKind *kind = sim_log_kind(c->op);
    return kind->root == ROOT_RECEIVES && c->rank != c->root ? 0 : extent(c, kind->recv);
}

// The last of a chain sends nothing.
static size_t sent_bytes(const SimLogCollective *c)
{
    const SimLogKind *kind = sim_log_kind(c->op);
    size_t others = (size_t)c->world - 1;
    int before_root = (c->root + c->world - 1) % c->world;
    switch (kind->route) {
    case ROUTE_RING: return others * c->bytes;
    case ROUTE_RING_TWICE: return 2 * others * c->bytes / (others + 1);
    case ROUTE_CHAIN:
        return c->rank == (kind->root == ROOT_SENDS ? before_root : c->root) ? 0 : c->bytes;
    case ROUTE_PAIR: return others ? sim_log_send_bytes(c) : 0;
    }
    return 0;
}

void sim_log_count_traffic(const SimLogCollective *c, GpuLogEntry *entry)
{
    const SimLogKind *kind = sim_log_kind(c->op);
    bool each = kind->send == EXTENT_EACH || kind->recv == EXTENT_EACH;
    entry->bytes = extent(c, each ? EXTENT_EACH : EXTENT_ONE);
    entry->sent = sent_bytes(c);
}
