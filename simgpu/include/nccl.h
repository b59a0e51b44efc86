/* nccl.h: the part of NCCL's interface that simgpu offers.
 *
 * Names, values and layouts are those of NCCL 2.28, so that a program written for NCCL compiles and
 * runs unchanged. What the calls do here is in simgpu/src/nccl (comm.h says which file holds what).
 * The normal way is a process per rank; several devices in one process (ncclCommInitAll and groups)
 * and a thread per device work as well. All ranks are on one host.
 *
 * Interface: communicators (ncclGetUniqueId … ncclCommAbort), collectives (ncclAllReduce …), single
 * messages (ncclSend, ncclRecv), groups, custom reductions, memory.
 */
#if defined(NCCL_H_) && !defined(SIMGPU_NCCL)
#error "NVIDIA's nccl.h comes before simgpu's: put simgpu/include first"
#endif
#ifndef NCCL_H_
#define NCCL_H_
#define SIMGPU_NCCL

#include <limits.h>
#include <stddef.h>

#include "cuda_bf16.h"
#include "cuda_fp16.h"
#ifdef __cplusplus
#include "cuda_fp8.h"
#endif
#include "cuda_runtime.h"

#define NCCL_MAJOR 2
#define NCCL_MINOR 28
#define NCCL_PATCH 9
#define NCCL_SUFFIX ""
#define NCCL_VERSION(X, Y, Z)                                                                      \
    (((X) <= 2 && (Y) <= 8) ? (X)*1000 + (Y)*100 + (Z) : (X)*10000 + (Y)*100 + (Z))
#define NCCL_VERSION_CODE 22809

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ncclComm *ncclComm_t;
typedef struct ncclWindow_vidmem *ncclWindow_t;
#define NCCL_COMM_NULL NULL

#define NCCL_UNIQUE_ID_BYTES 128
typedef struct {
    char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;

typedef enum {
    ncclSuccess = 0,
    ncclUnhandledCudaError = 1,
    ncclSystemError = 2,
    ncclInternalError = 3,
    ncclInvalidArgument = 4,
    ncclInvalidUsage = 5,
    ncclRemoteError = 6,
    ncclInProgress = 7,
    ncclNumResults = 8
} ncclResult_t;

#define NCCL_CONFIG_UNDEF_INT INT_MIN
#define NCCL_CONFIG_UNDEF_PTR NULL
#define NCCL_SPLIT_NOCOLOR (-1)
#define NCCL_UNDEF_FLOAT (-1.0f)
#define NCCL_WIN_DEFAULT 0x00
#define NCCL_WIN_COLL_SYMMETRIC 0x01
#define NCCL_WIN_REQUIRED_ALIGNMENT 4096
#define NCCL_CTA_POLICY_DEFAULT 0x00
#define NCCL_CTA_POLICY_EFFICIENCY 0x01
#define NCCL_CTA_POLICY_ZERO 0x02
#define NCCL_SHRINK_DEFAULT 0x00
#define NCCL_SHRINK_ABORT 0x01
#define NCCL_REVOKE_DEFAULT 0x00

// How a communicator works. simgpu uses only blocking, splitShare and shrinkShare; it has nothing
// to tune.
typedef struct ncclConfig_v22800 {
    size_t size;
    unsigned int magic;
    unsigned int version;
    int blocking;
    int cgaClusterSize;
    int minCTAs;
    int maxCTAs;
    const char *netName;
    int splitShare;
    int trafficClass;
    const char *commName;
    int collnetEnable;
    int CTAPolicy;
    int shrinkShare;
    int nvlsCTAs;
    int nChannelsPerNetPeer;
    int nvlinkCentricSched;
} ncclConfig_t;

#define NCCL_CONFIG_INITIALIZER                                                                    \
    {                                                                                              \
        sizeof(ncclConfig_t), 0xcafebeef, NCCL_VERSION(NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH),        \
            NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,                   \
            NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_PTR, NCCL_CONFIG_UNDEF_INT,                   \
            NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_PTR, NCCL_CONFIG_UNDEF_INT,                   \
            NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,                   \
            NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT                                           \
    }

// What ncclGroupSimulateEnd fills in.
typedef struct ncclSimInfo_v22200 {
    size_t size;
    unsigned int magic;
    unsigned int version;
    float estimatedTime; // microseconds
} ncclSimInfo_t;

#define NCCL_SIM_INFO_INITIALIZER                                                                  \
    {                                                                                              \
        sizeof(ncclSimInfo_t), 0x74685283, NCCL_VERSION(NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH),       \
            NCCL_UNDEF_FLOAT                                                                       \
    }

typedef enum { ncclNumOps_dummy = 5 } ncclRedOp_dummy_t;
typedef enum {
    ncclSum = 0,
    ncclProd = 1,
    ncclMax = 2,
    ncclMin = 3,
    ncclAvg = 4,
    ncclNumOps = 5, // handles of ncclRedOpCreatePreMulSum are this and above
    ncclMaxRedOp = 0x7fffffff >> (32 - 8 * sizeof(ncclRedOp_dummy_t))
} ncclRedOp_t;

typedef enum {
    ncclInt8 = 0,
    ncclChar = 0,
    ncclUint8 = 1,
    ncclInt32 = 2,
    ncclInt = 2,
    ncclUint32 = 3,
    ncclInt64 = 4,
    ncclUint64 = 5,
    ncclFloat16 = 6,
    ncclHalf = 6,
    ncclFloat32 = 7,
    ncclFloat = 7,
    ncclFloat64 = 8,
    ncclDouble = 8,
    ncclBfloat16 = 9,
    ncclFloat8e4m3 = 10, // GPUs reduce 8-bit floats from compute capability 9.0 on
    ncclFloat8e5m2 = 11,
    ncclNumTypes = 12
} ncclDataType_t;

typedef enum { ncclScalarDevice = 0, ncclScalarHostImmediate = 1 } ncclScalarResidence_t;

// ---- Library ----
ncclResult_t ncclGetVersion(int *version);
const char *ncclGetErrorString(ncclResult_t result);
const char *ncclGetLastError(ncclComm_t comm);
void ncclResetDebugInit(void); // it has nothing to do: simgpu does not read NCCL_DEBUG

// ---- Communicators ----
// Rank 0 makes an id and hands it to all; every rank then calls ncclCommInitRank with its device
// current.
ncclResult_t ncclGetUniqueId(ncclUniqueId *uniqueId);
ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank);
ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank,
                                    ncclConfig_t *config);
ncclResult_t ncclCommInitRankScalable(ncclComm_t *newcomm, int nranks, int myrank, int nId,
                                      ncclUniqueId *commIds, ncclConfig_t *config);
ncclResult_t ncclCommInitAll(ncclComm_t *comm, int ndev, const int *devlist);
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *newcomm,
                           ncclConfig_t *config);
// The ranks that stay call it, with the list of those that do not.
ncclResult_t ncclCommShrink(ncclComm_t comm, int *excludeRanksList, int excludeRanksCount,
                            ncclComm_t *newcomm, ncclConfig_t *config, int shrinkFlags);
ncclResult_t ncclCommRevoke(ncclComm_t comm, int revokeFlags);
ncclResult_t ncclCommFinalize(ncclComm_t comm);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *asyncError);
ncclResult_t ncclCommCount(const ncclComm_t comm, int *count);
ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device);
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank);

// ---- Memory ----
ncclResult_t ncclMemAlloc(void **ptr, size_t size);
ncclResult_t ncclMemFree(void *ptr);
ncclResult_t ncclCommRegister(const ncclComm_t comm, void *buff, size_t size, void **handle);
ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle);
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *buff, size_t size, ncclWindow_t *win,
                                    int winFlags);
ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win);

// ---- Custom reductions: every input times a scalar of its rank, then the sum ----
ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t datatype,
                                      ncclScalarResidence_t residence, ncclComm_t comm);
ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm);

// ---- Collectives: counts are in elements, W is the number of ranks ----
// recvbuff (W·sendcount); in place where sendbuff == recvbuff + rank·sendcount.
ncclResult_t ncclAllGather(const void *sendbuff, void *recvbuff, size_t sendcount,
                           ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream);
// sendbuff (W·recvcount); in place where recvbuff == sendbuff + rank·recvcount.
ncclResult_t ncclReduceScatter(const void *sendbuff, void *recvbuff, size_t recvcount,
                               ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t stream);
// In place where sendbuff == recvbuff, like the next three.
ncclResult_t ncclAllReduce(const void *sendbuff, void *recvbuff, size_t count,
                           ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream);
ncclResult_t ncclReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclBroadcast(const void *sendbuff, void *recvbuff, size_t count,
                           ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclBcast(void *buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                       cudaStream_t stream);
// Messages from every rank to every other, from all to root, from root to all.
ncclResult_t ncclAlltoAll(const void *sendbuff, void *recvbuff, size_t count,
                          ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclGather(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                        int root, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclScatter(const void *sendbuff, void *recvbuff, size_t count,
                         ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream);
// The k-th send of a to b goes into the k-th receive of b from a.
ncclResult_t ncclSend(const void *sendbuff, size_t count, ncclDataType_t datatype, int peer,
                      ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclRecv(void *recvbuff, size_t count, ncclDataType_t datatype, int peer,
                      ncclComm_t comm, cudaStream_t stream);

// ---- Groups: nothing between start and end begins before the outermost end ----
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);
// Ends the group without its calls, and says what they would have taken.
ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t *simInfo);

// ---- Names for tools ----
// Each call has a second name, pncclGetVersion …, for programs that define the first one themselves
// and call the second in it.
// clang-format off
#define SIMGPU_NCCL_CALLS(CALL) \
    CALL(ncclAllGather) CALL(ncclAllReduce) CALL(ncclAlltoAll) CALL(ncclBcast) \
    CALL(ncclBroadcast) CALL(ncclCommAbort) CALL(ncclCommCount) CALL(ncclCommCuDevice) \
    CALL(ncclCommDeregister) CALL(ncclCommDestroy) CALL(ncclCommFinalize) \
    CALL(ncclCommGetAsyncError) CALL(ncclCommInitAll) CALL(ncclCommInitRank) \
    CALL(ncclCommInitRankConfig) CALL(ncclCommInitRankScalable) CALL(ncclCommRegister) \
    CALL(ncclCommRevoke) CALL(ncclCommShrink) CALL(ncclCommSplit) CALL(ncclCommUserRank) \
    CALL(ncclCommWindowDeregister) CALL(ncclCommWindowRegister) CALL(ncclGather) \
    CALL(ncclGetErrorString) CALL(ncclGetLastError) CALL(ncclGetUniqueId) CALL(ncclGetVersion) \
    CALL(ncclGroupEnd) CALL(ncclGroupSimulateEnd) CALL(ncclGroupStart) CALL(ncclMemAlloc) \
    CALL(ncclMemFree) CALL(ncclRecv) CALL(ncclRedOpCreatePreMulSum) CALL(ncclRedOpDestroy) \
    CALL(ncclReduce) CALL(ncclReduceScatter) CALL(ncclResetDebugInit) CALL(ncclScatter) \
    CALL(ncclSend)
// clang-format on
#define SIMGPU_SECOND_NAME(call) extern __typeof__(call) p##call;
SIMGPU_NCCL_CALLS(SIMGPU_SECOND_NAME)

#ifdef __cplusplus
}
#endif
#endif
