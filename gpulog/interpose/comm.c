/* comm.c: communicators. Making and ending one is not in the log, but it waits for other ranks, and
 * then gpulog_activity says so.
 *
 * Interface: the wrapped ncclCommInitRank … ncclCommAbort.
 */
#include <nccl.h>

#include "interpose.h"

WRAPPED(ncclCommInitRank);
WRAPPED(ncclCommInitRankConfig);
WRAPPED(ncclCommInitAll);
WRAPPED(ncclCommSplit);
WRAPPED(ncclCommFinalize);
WRAPPED(ncclCommDestroy);
WRAPPED(ncclCommAbort);

ncclResult_t __wrap_ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank)
{
    return WAITING("ncclCommInitRank", SITE, __real_ncclCommInitRank(comm, nranks, commId, rank));
}

ncclResult_t __wrap_ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId commId,
                                           int rank, ncclConfig_t *config)
{
    return WAITING("ncclCommInitRankConfig", SITE,
                   __real_ncclCommInitRankConfig(comm, nranks, commId, rank, config));
}

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 23, 0)
WRAPPED(ncclCommInitRankScalable);
ncclResult_t __wrap_ncclCommInitRankScalable(ncclComm_t *newcomm, int nranks, int myrank, int nId,
                                             ncclUniqueId *commIds, ncclConfig_t *config)
{
    return WAITING("ncclCommInitRankScalable", SITE,
                   __real_ncclCommInitRankScalable(newcomm, nranks, myrank, nId, commIds, config));
}
#endif

ncclResult_t __wrap_ncclCommInitAll(ncclComm_t *comm, int ndev, const int *devlist)
{
    return WAITING("ncclCommInitAll", SITE, __real_ncclCommInitAll(comm, ndev, devlist));
}

ncclResult_t __wrap_ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *newcomm,
                                  ncclConfig_t *config)
{
    return WAITING("ncclCommSplit", SITE, __real_ncclCommSplit(comm, color, key, newcomm, config));
}

ncclResult_t __wrap_ncclCommFinalize(ncclComm_t comm)
{
    return WAITING("ncclCommFinalize", SITE, __real_ncclCommFinalize(comm));
}

ncclResult_t __wrap_ncclCommDestroy(ncclComm_t comm)
{
    return WAITING("ncclCommDestroy", SITE, __real_ncclCommDestroy(comm));
}

ncclResult_t __wrap_ncclCommAbort(ncclComm_t comm)
{
    return WAITING("ncclCommAbort", SITE, __real_ncclCommAbort(comm));
}
