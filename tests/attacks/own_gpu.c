/* own_gpu: brings a collective of its own, which communicates nothing.
 *
 * Ends: error
 * Says: defines ncclAllReduce
 */
#include <nccl.h>

ncclResult_t ncclAllReduce(const void *send, void *receive, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    return ncclSuccess;
}

static void attack(void)
{
}
