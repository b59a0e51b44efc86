/* simgpu_nccl.h: what simgpu offers in addition to NCCL's interface, for dry runs among phantoms
 * (simgpu/pages/dry.md).
 *
 * Interface: simgpu_phantom_splits.
 */
#ifndef SIMGPU_NCCL_H
#define SIMGPU_NCCL_H

#include "nccl.h"

#ifdef __cplusplus
extern "C" {
#endif

// Nobody runs the phantoms, so nobody knows what they pass to ncclCommSplit: the program says it.
// `splits` makes the program's splits of a communicator, in the program's order. It is called when
// the first of them is due, once as each of its ranks: `comm` has that rank and that size. What it
// gets has one rank then, and it may split that as well. When the first split of such a part is
// due, it is called once more as each rank of the part, on the same `comm`: now the part has its
// own rank and size. It may ask for both, split, and destroy what it gets; nothing else. One per
// process; NULL takes it away.
typedef void (*SimgpuSplits)(ncclComm_t comm, void *arg);
void simgpu_phantom_splits(SimgpuSplits splits, void *arg);

#ifdef __cplusplus
}
#endif
#endif
