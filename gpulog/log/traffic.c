/* traffic.c: what a collective reads, writes and sends, from its arguments alone. */
#include <nccl.h>

#include "log_writer.h"

size_t gpulog_element_size(int type)
{
    static const unsigned char size[ncclNumTypes] = {
        [ncclInt8] = 1,    [ncclUint8] = 1,    [ncclInt32] = 4,      [ncclUint32] = 4,
        [ncclInt64] = 8,   [ncclUint64] = 8,   [ncclFloat16] = 2,    [ncclFloat32] = 4,
        [ncclFloat64] = 8, [ncclBfloat16] = 2, [ncclFloat8e4m3] = 1, [ncclFloat8e5m2] = 1};
    return type >= 0 && type < ncclNumTypes ? size[type] : 0;
}

size_t gpulog_send_bytes(const GpuLogCollective *c)
{
    switch (c->op) {
    case GPU_REDUCE_SCATTER: return c->bytes * (size_t)c->world;
    case GPU_BROADCAST: return c->rank == c->root ? c->bytes : 0;
    case GPU_RECV: return 0;
    default: return c->bytes;
    }
}

size_t gpulog_recv_bytes(const GpuLogCollective *c)
{
    switch (c->op) {
    case GPU_ALL_GATHER: return c->bytes * (size_t)c->world;
    case GPU_REDUCE: return c->rank == c->root ? c->bytes : 0;
    case GPU_SEND: return 0;
    default: return c->bytes;
    }
}

// Chains begin at the root of a broadcast and end at the root of a reduce; the last of one sends
// nothing.
void gpulog_count_traffic(const GpuLogCollective *c, GpuLogEntry *entry)
{
    size_t others = (size_t)c->world - 1;
    entry->bytes = c->bytes;
    entry->sent = 0;
    switch (c->op) {
    case GPU_ALL_GATHER:
    case GPU_REDUCE_SCATTER:
        entry->bytes = c->bytes * (others + 1);
        entry->sent = c->bytes * others;
        break;
    case GPU_ALL_REDUCE: entry->sent = 2 * others * c->bytes / (others + 1); break;
    case GPU_BROADCAST: entry->sent = (c->rank + 1) % c->world == c->root ? 0 : c->bytes; break;
    case GPU_REDUCE: entry->sent = c->rank == c->root ? 0 : c->bytes; break;
    case GPU_SEND: entry->sent = others ? c->bytes : 0; break;
    default: break;
    }
}
