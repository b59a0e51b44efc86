/* kind.h: the kind of a call: an operation of the log that has a row in gpulog_collectives.h,
 * or one that sets something up: a split, a window.
 */
#ifndef SIMGPU_NCCL_KIND_H
#define SIMGPU_NCCL_KIND_H

#include "collectives.h"

enum { CALL_SPLIT = GPU_OP_KINDS, CALL_WINDOW };

static inline bool sim_is_setup(int kind)
{
    return kind >= CALL_SPLIT;
}

// The row of a kind. That of a split or a window has only its name.
static inline const GpuLogKind *sim_kind(int kind)
{
    static const GpuLogKind split = {.call = "ncclCommSplit"};
    static const GpuLogKind window = {.call = "ncclCommWindowRegister"};
    const GpuLogKind *row = gpulog_kind((GpuOp)kind);
    return row ? row : kind == CALL_WINDOW ? &window : &split;
}

// A send or a receive; all others are collectives.
static inline bool sim_is_message(int kind)
{
    return sim_kind(kind)->root == ROOT_IS_PEER;
}

#endif
