/* kind.h: the kind of a call: an operation of the log that has a row in gpulog_collectives.h,
 * or a split.
 */
#ifndef SIMGPU_NCCL_KIND_H
#define SIMGPU_NCCL_KIND_H

#include "collectives.h"

#define CALL_SPLIT GPU_OP_KINDS

// The row of a kind. That of a split has only its name.
static inline const GpuLogKind *sim_kind(int kind)
{
    static const GpuLogKind split = {.call = "ncclCommSplit"};
    const GpuLogKind *row = gpulog_kind((GpuOp)kind);
    return row ? row : &split;
}

// A send or a receive; all others are collectives.
static inline bool sim_is_message(int kind)
{
    return sim_kind(kind)->root == ROOT_IS_PEER;
}

#endif
