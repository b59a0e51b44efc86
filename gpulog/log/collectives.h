/* collectives.h: the fields of a row of gpulog_collectives.h, and what follows from them.
 *
 * `bytes` is the call's count times the size of an element.
 */
#ifndef GPULOG_COLLECTIVES_H
#define GPULOG_COLLECTIVES_H

#include "gpulog.h"

// The size of a rank's buffer: 0, `bytes`, or `bytes` for each rank.
typedef enum GpuLogExtent { EXTENT_NONE, EXTENT_ONE, EXTENT_EACH } GpuLogExtent;

// The root's role: none, the only sender, the only receiver, or the other rank of a message.
typedef enum GpuLogRoot { ROOT_NONE, ROOT_SENDS, ROOT_RECEIVES, ROOT_IS_PEER } GpuLogRoot;

// Where the buffers of an in-place call are: the call has no such form; both at one address; or one
// at the rank's part of the other.
typedef enum GpuLogInPlace {
    IN_PLACE_NEVER,
    IN_PLACE_SAME,
    IN_PLACE_SEND_IS_PART,
    IN_PLACE_RECV_IS_PART
} GpuLogInPlace;

// The route of the data, by which bytes sent and cost are counted.
typedef enum GpuLogRoute {
    ROUTE_RING,       // each rank's part goes to all others, in W - 1 steps
    ROUTE_RING_TWICE, // a reduce-scatter and an all-gather
    ROUTE_CHAIN,      // from rank to rank, in W steps; it begins or ends at the root
    ROUTE_PAIR,       // from one rank to one
} GpuLogRoute;

typedef struct GpuLogKind {
    const char *call;  // NCCL's function
    const char *words; // gpulog_op_name
    GpuLogExtent send, recv;
    GpuLogRoot root;
    GpuLogRoute route;
    bool reduces;
    GpuLogInPlace in_place;
} GpuLogKind;

// The row of an operation; NULL: it is not in the table.
const GpuLogKind *gpulog_kind(GpuOp op);

typedef struct GpuLogCollective {
    GpuOp op; // in the table
    size_t bytes;
    int world, rank;
    int root;
} GpuLogCollective;

// Bytes that this rank reads from its send buffer, and bytes that it writes to its receive buffer.
size_t gpulog_send_bytes(const GpuLogCollective *c);
size_t gpulog_recv_bytes(const GpuLogCollective *c);
// Fills in the entry's `bytes` and `sent`.
void gpulog_count_traffic(const GpuLogCollective *c, GpuLogEntry *entry);
// Of an ncclDataType_t; 0: there is no such type.
size_t gpulog_element_size(int type);

#endif
