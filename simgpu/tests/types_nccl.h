/* types_nccl.h: the type of every NCCL call, and the values of constants, that simgpu declares.
 *
 * headers.c includes it for the functions (CHECK), the constants (VALUE) and the fields (FIELD):
 * the same list must hold with simgpu's headers and with NVIDIA's, of NCCL 2.28.
 */
#ifdef CHECK
CHECK(ncclGetVersion, ncclResult_t (*)(int *))
CHECK(ncclGetErrorString, const char *(*)(ncclResult_t))
CHECK(ncclGetLastError, const char *(*)(ncclComm_t))
CHECK(ncclGetUniqueId, ncclResult_t (*)(ncclUniqueId *))
CHECK(ncclCommInitRank, ncclResult_t (*)(ncclComm_t *, int, ncclUniqueId, int))
CHECK(ncclCommInitRankConfig,
      ncclResult_t (*)(ncclComm_t *, int, ncclUniqueId, int, ncclConfig_t *))
CHECK(ncclCommInitRankScalable,
      ncclResult_t (*)(ncclComm_t *, int, int, int, ncclUniqueId *, ncclConfig_t *))
CHECK(ncclCommInitAll, ncclResult_t (*)(ncclComm_t *, int, const int *))
CHECK(ncclCommSplit, ncclResult_t (*)(ncclComm_t, int, int, ncclComm_t *, ncclConfig_t *))
CHECK(ncclCommFinalize, ncclResult_t (*)(ncclComm_t))
CHECK(ncclCommDestroy, ncclResult_t (*)(ncclComm_t))
CHECK(ncclCommAbort, ncclResult_t (*)(ncclComm_t))
CHECK(ncclCommGetAsyncError, ncclResult_t (*)(ncclComm_t, ncclResult_t *))
CHECK(ncclCommCount, ncclResult_t (*)(const ncclComm_t, int *))
CHECK(ncclCommCuDevice, ncclResult_t (*)(const ncclComm_t, int *))
CHECK(ncclCommUserRank, ncclResult_t (*)(const ncclComm_t, int *))
CHECK(ncclMemAlloc, ncclResult_t (*)(void **, size_t))
CHECK(ncclMemFree, ncclResult_t (*)(void *))
CHECK(ncclCommRegister, ncclResult_t (*)(const ncclComm_t, void *, size_t, void **))
CHECK(ncclCommDeregister, ncclResult_t (*)(const ncclComm_t, void *))
CHECK(ncclCommWindowRegister, ncclResult_t (*)(ncclComm_t, void *, size_t, ncclWindow_t *, int))
CHECK(ncclCommWindowDeregister, ncclResult_t (*)(ncclComm_t, ncclWindow_t))
CHECK(ncclRedOpCreatePreMulSum,
      ncclResult_t (*)(ncclRedOp_t *, void *, ncclDataType_t, ncclScalarResidence_t, ncclComm_t))
CHECK(ncclRedOpDestroy, ncclResult_t (*)(ncclRedOp_t, ncclComm_t))
CHECK(ncclAllGather,
      ncclResult_t (*)(const void *, void *, size_t, ncclDataType_t, ncclComm_t, cudaStream_t))
CHECK(ncclReduceScatter, ncclResult_t (*)(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t,
                                          ncclComm_t, cudaStream_t))
CHECK(ncclAllReduce, ncclResult_t (*)(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t,
                                      ncclComm_t, cudaStream_t))
CHECK(ncclReduce, ncclResult_t (*)(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, int,
                                   ncclComm_t, cudaStream_t))
CHECK(ncclBroadcast,
      ncclResult_t (*)(const void *, void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t))
CHECK(ncclBcast, ncclResult_t (*)(void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t))
CHECK(ncclAlltoAll,
      ncclResult_t (*)(const void *, void *, size_t, ncclDataType_t, ncclComm_t, cudaStream_t))
CHECK(ncclGather,
      ncclResult_t (*)(const void *, void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t))
CHECK(ncclScatter,
      ncclResult_t (*)(const void *, void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t))
CHECK(ncclSend,
      ncclResult_t (*)(const void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t))
CHECK(ncclRecv, ncclResult_t (*)(void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t))
CHECK(ncclGroupStart, ncclResult_t (*)(void))
CHECK(ncclGroupEnd, ncclResult_t (*)(void))
#endif
#ifdef VALUE
VALUE(ncclSuccess, 0)
VALUE(ncclUnhandledCudaError, 1)
VALUE(ncclSystemError, 2)
VALUE(ncclInternalError, 3)
VALUE(ncclInvalidArgument, 4)
VALUE(ncclInvalidUsage, 5)
VALUE(ncclRemoteError, 6)
VALUE(ncclInProgress, 7)
#if NCCL_MAJOR == 2 && NCCL_MINOR == 28 // a later release has more of them
VALUE(ncclNumResults, 8)
#endif
VALUE(ncclSum, 0)
VALUE(ncclProd, 1)
VALUE(ncclMax, 2)
VALUE(ncclMin, 3)
VALUE(ncclAvg, 4)
VALUE(ncclNumOps, 5)
VALUE(ncclInt8, 0)
VALUE(ncclChar, 0)
VALUE(ncclUint8, 1)
VALUE(ncclInt32, 2)
VALUE(ncclInt, 2)
VALUE(ncclUint32, 3)
VALUE(ncclInt64, 4)
VALUE(ncclUint64, 5)
VALUE(ncclFloat16, 6)
VALUE(ncclHalf, 6)
VALUE(ncclFloat32, 7)
VALUE(ncclFloat, 7)
VALUE(ncclFloat64, 8)
VALUE(ncclDouble, 8)
VALUE(ncclBfloat16, 9)
VALUE(ncclFloat8e4m3, 10)
VALUE(ncclFloat8e5m2, 11)
VALUE(ncclNumTypes, 12)
VALUE(ncclMaxRedOp, 0x7fffffff)
VALUE(NCCL_VERSION(2, 28, 9), 22809)
VALUE(NCCL_VERSION(2, 8, 3), 2803)
VALUE(NCCL_UNIQUE_ID_BYTES, 128)
VALUE(NCCL_SPLIT_NOCOLOR, -1)
VALUE(NCCL_WIN_DEFAULT, 0)
VALUE(NCCL_WIN_COLL_SYMMETRIC, 1)
VALUE(NCCL_WIN_REQUIRED_ALIGNMENT, 4096)
VALUE(NCCL_CONFIG_UNDEF_INT, INT_MIN)
VALUE(sizeof(ncclUniqueId), 128)
VALUE(sizeof(ncclRedOp_t), 4)
VALUE(sizeof(ncclDataType_t), 4)
#if NCCL_MAJOR == 2 && NCCL_MINOR == 28 // and more fields at the end
VALUE(sizeof(ncclConfig_t), 80)
#endif
#endif
#ifdef FIELD
FIELD(ncclConfig_t, size, size_t)
FIELD(ncclConfig_t, magic, unsigned int)
FIELD(ncclConfig_t, version, unsigned int)
FIELD(ncclConfig_t, blocking, int)
FIELD(ncclConfig_t, cgaClusterSize, int)
FIELD(ncclConfig_t, minCTAs, int)
FIELD(ncclConfig_t, maxCTAs, int)
FIELD(ncclConfig_t, netName, const char *)
FIELD(ncclConfig_t, splitShare, int)
FIELD(ncclConfig_t, trafficClass, int)
FIELD(ncclConfig_t, commName, const char *)
FIELD(ncclConfig_t, collnetEnable, int)
FIELD(ncclConfig_t, CTAPolicy, int)
FIELD(ncclConfig_t, shrinkShare, int)
FIELD(ncclConfig_t, nvlsCTAs, int)
FIELD(ncclConfig_t, nChannelsPerNetPeer, int)
FIELD(ncclConfig_t, nvlinkCentricSched, int)
#endif
