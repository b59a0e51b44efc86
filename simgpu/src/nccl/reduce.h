/* reduce.h: the arithmetic of reductions, in a fixed tree order. */
#ifndef SIMGPU_NCCL_REDUCE_H
#define SIMGPU_NCCL_REDUCE_H

#include <nccl.h>
#include <stdint.h>

#define SIM_PRE_MUL_SUM ncclNumOps // every handle of ncclRedOpCreatePreMulSum, in signatures

// out (count) = the reduction of n inputs (count) in tree order; op is an ncclRedOp_t's value or
// SIM_PRE_MUL_SUM with scalars (n). `out` may be one of the inputs.
void sim_reduce(void *out, const void *const *inputs, const uint64_t *scalars, int n, size_t count,
                ncclDataType_t type, int op);

#endif
