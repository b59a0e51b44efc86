/* collectives.h: the calls of NCCL that move data, a row each: what simgpu, the interposer and the
 * log know of them, but the work itself (simgpu/src/nccl/collective.c).
 *
 * Sizes are counted from `bytes`, the call's count times the size of an element.
 */
#ifndef GPULOG_COLLECTIVES_H
#define GPULOG_COLLECTIVES_H

#include "gpulog.h"

// What a rank's buffer holds: nothing, `bytes`, or as many for each rank.
typedef enum SimLogExtent { EXTENT_NONE, EXTENT_ONE, EXTENT_EACH } SimLogExtent;

// What the root is: nothing, who alone sends, who alone receives, or the other rank of a message.
typedef enum SimLogRoot { ROOT_NONE, ROOT_SENDS, ROOT_RECEIVES, ROOT_IS_PEER } SimLogRoot;

// Where the buffers of a call in place lie: both at one address, or one at the rank's part of the
// other.
typedef enum SimLogInPlace {
    IN_PLACE_SAME,
    IN_PLACE_SEND_IS_PART,
    IN_PLACE_RECV_IS_PART
} SimLogInPlace;

// The way that the data take, as what is sent and what it costs are counted.
typedef enum SimLogRoute {
    ROUTE_RING,       // each rank's part goes to all others, in W - 1 steps
    ROUTE_RING_TWICE, // a reduce-scatter and an all-gather
    ROUTE_CHAIN,      // from rank to rank, in W steps; it begins or ends at the root
    ROUTE_PAIR,       // from one rank to one
} SimLogRoute;

typedef struct SimLogKind {
    const char *call;  // NCCL's function
    const char *words; // gpulog_op_name
    SimLogExtent send, recv;
    SimLogRoot root;
    SimLogRoute route;
    bool reduces;
    SimLogInPlace in_place;
} SimLogKind;

// ROW(op, name, call, words, send, recv, root, route, other fields …) of each. The work is done by
// do_name of simgpu/src/nccl/collective.c. Messages are the last two.
#define SIM_LOG_KINDS(ROW)                                                                         \
    ROW(GPU_ALL_GATHER, all_gather, "ncclAllGather", "all-gather", EXTENT_ONE, EXTENT_EACH,        \
        ROOT_NONE, ROUTE_RING, .in_place = IN_PLACE_SEND_IS_PART)                                  \
    ROW(GPU_REDUCE_SCATTER, reduce_scatter, "ncclReduceScatter", "reduce-scatter", EXTENT_EACH,    \
        EXTENT_ONE, ROOT_NONE, ROUTE_RING, .reduces = true, .in_place = IN_PLACE_RECV_IS_PART)     \
    ROW(GPU_ALL_REDUCE, all_reduce, "ncclAllReduce", "all-reduce", EXTENT_ONE, EXTENT_ONE,         \
        ROOT_NONE, ROUTE_RING_TWICE, .reduces = true)                                              \
    ROW(GPU_BROADCAST, broadcast, "ncclBroadcast", "broadcast", EXTENT_ONE, EXTENT_ONE,            \
        ROOT_SENDS, ROUTE_CHAIN)                                                                   \
    ROW(GPU_REDUCE, reduce, "ncclReduce", "reduce", EXTENT_ONE, EXTENT_ONE, ROOT_RECEIVES,         \
        ROUTE_CHAIN, .reduces = true)                                                              \
    ROW(GPU_SEND, send, "ncclSend", "send", EXTENT_ONE, EXTENT_NONE, ROOT_IS_PEER, ROUTE_PAIR)     \
    ROW(GPU_RECV, recv, "ncclRecv", "receive", EXTENT_NONE, EXTENT_ONE, ROOT_IS_PEER, ROUTE_PAIR)

// The row of an operation; NULL: it is no call of NCCL.
const SimLogKind *sim_log_kind(GpuOp op);

typedef struct SimLogCollective {
    GpuOp op; // one of the table
    size_t bytes;
    int world, rank;
    int root;
} SimLogCollective;

// Bytes that this rank reads from its send buffer and writes to its receive buffer.
size_t sim_log_send_bytes(const SimLogCollective *c);
size_t sim_log_recv_bytes(const SimLogCollective *c);
// Fills in the entry's `bytes` and `sent`.
void sim_log_count_traffic(const SimLogCollective *c, GpuLogEntry *entry);
// Of an ncclDataType_t; 0: there is no such type.
size_t sim_log_element_size(int type);

#endif
