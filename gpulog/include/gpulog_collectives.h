/* gpulog_collectives.h: the NCCL calls that move data, one row each. gpulog.h takes its operations
 * from it, simgpu defines the calls, the interposer wraps them, a test compares NVIDIA's header
 * with it, and the grader reads its words. gpulog/log/collectives.h explains the fields.
 *
 * Only the work itself is elsewhere: do_NAME in simgpu/src/nccl/collective.c.
 */
#ifndef GPULOG_COLLECTIVES_TABLE_H
#define GPULOG_COLLECTIVES_TABLE_H

// The form of a call: its parameters, its arguments, the arguments in one order for all calls (send
// buffer, receive buffer, count, type, reduction, root or peer), and whether it reduces.
#define GPULOG_COPIES                                                                              \
    (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclComm_t comm, \
     cudaStream_t stream),                                                                         \
        (sendbuff, recvbuff, count, datatype, comm, stream),                                       \
        (sendbuff, recvbuff, count, datatype, ncclSum, 0), false
#define GPULOG_REDUCES                                                                             \
    (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,  \
     ncclComm_t comm, cudaStream_t stream),                                                        \
        (sendbuff, recvbuff, count, datatype, op, comm, stream),                                   \
        (sendbuff, recvbuff, count, datatype, op, 0), true
#define GPULOG_COPIES_BY_ROOT                                                                      \
    (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,        \
     ncclComm_t comm, cudaStream_t stream),                                                        \
        (sendbuff, recvbuff, count, datatype, root, comm, stream),                                 \
        (sendbuff, recvbuff, count, datatype, ncclSum, root), false
#define GPULOG_REDUCES_BY_ROOT                                                                     \
    (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,  \
     int root, ncclComm_t comm, cudaStream_t stream),                                              \
        (sendbuff, recvbuff, count, datatype, op, root, comm, stream),                             \
        (sendbuff, recvbuff, count, datatype, op, root), true
#define GPULOG_SENDS                                                                               \
    (const void *sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,       \
     cudaStream_t stream),                                                                         \
        (sendbuff, count, datatype, peer, comm, stream),                                           \
        (sendbuff, NULL, count, datatype, ncclSum, peer), false
#define GPULOG_RECEIVES                                                                            \
    (void *recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,             \
     cudaStream_t stream),                                                                         \
        (recvbuff, count, datatype, peer, comm, stream),                                           \
        (NULL, recvbuff, count, datatype, ncclSum, peer), false

// ROW(op, name, call, words, takes, send, recv, root, route, in_place) of each call. Messages are
// the last two. `takes` expands to four arguments of the macro that ROW passes it to.
#define GPULOG_COLLECTIVES(ROW)                                                                    \
    ROW(GPU_ALL_GATHER, all_gather, ncclAllGather, "all-gather", GPULOG_COPIES, EXTENT_ONE,        \
        EXTENT_EACH, ROOT_NONE, ROUTE_RING, IN_PLACE_SEND_IS_PART)                                 \
    ROW(GPU_REDUCE_SCATTER, reduce_scatter, ncclReduceScatter, "reduce-scatter", GPULOG_REDUCES,   \
        EXTENT_EACH, EXTENT_ONE, ROOT_NONE, ROUTE_RING, IN_PLACE_RECV_IS_PART)                     \
    ROW(GPU_ALL_REDUCE, all_reduce, ncclAllReduce, "all-reduce", GPULOG_REDUCES, EXTENT_ONE,       \
        EXTENT_ONE, ROOT_NONE, ROUTE_RING_TWICE, IN_PLACE_SAME)                                    \
    ROW(GPU_BROADCAST, broadcast, ncclBroadcast, "broadcast", GPULOG_COPIES_BY_ROOT, EXTENT_ONE,   \
        EXTENT_ONE, ROOT_SENDS, ROUTE_CHAIN, IN_PLACE_SAME)                                        \
    ROW(GPU_REDUCE, reduce, ncclReduce, "reduce", GPULOG_REDUCES_BY_ROOT, EXTENT_ONE, EXTENT_ONE,  \
        ROOT_RECEIVES, ROUTE_CHAIN, IN_PLACE_SAME)                                                 \
    ROW(GPU_SEND, send, ncclSend, "send", GPULOG_SENDS, EXTENT_ONE, EXTENT_NONE, ROOT_IS_PEER,     \
        ROUTE_PAIR, IN_PLACE_NEVER)                                                                \
    ROW(GPU_RECV, recv, ncclRecv, "receive", GPULOG_RECEIVES, EXTENT_NONE, EXTENT_ONE,             \
        ROOT_IS_PEER, ROUTE_PAIR, IN_PLACE_NEVER)

#ifdef GPULOG_NAMES // only the names, for the interposer's linker flags (make/flags.mk)
#define GPULOG_NAME(op, name, call, ...) @call
GPULOG_COLLECTIVES(GPULOG_NAME)
#endif

#endif
