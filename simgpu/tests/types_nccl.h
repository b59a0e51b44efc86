/* types_nccl.h: the same of NCCL 2.28. */
#ifdef VALUE
VALUE(NCCL_VERSION(2, 28, 9), 22809)
VALUE(NCCL_VERSION(2, 8, 3), 2803)
VALUE(sizeof(ncclSimInfo_t), 24)
VALUE(sizeof(ncclUniqueId), 128)
VALUE(sizeof(ncclRedOp_t), 4)
VALUE(sizeof(ncclDataType_t), 4)
#if NCCL_MAJOR == 2 && NCCL_MINOR == 28 // and more fields at the end
VALUE(sizeof(ncclConfig_t), 80)
#endif
#endif
#ifdef FIELD
FIELD(ncclSimInfo_t, size, size_t)
FIELD(ncclSimInfo_t, magic, unsigned int)
FIELD(ncclSimInfo_t, version, unsigned int)
FIELD(ncclSimInfo_t, estimatedTime, float)
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
