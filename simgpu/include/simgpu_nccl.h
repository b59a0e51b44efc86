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

// Phantoms do not run, so the program must say what they pass to ncclCommSplit. `splits` makes the
// same splits of a communicator as the program, in the same order. simgpu calls it before the
// program's first split, once as each rank: `comm` then has that rank and the real size. What
// `splits` gets from a split has one rank; it may split that as well. Before the program's first
// split of such a part, simgpu calls `splits` again as each rank of the part, on the same `comm`:
// now the part has its real rank and size. `splits` may ask for rank and size, split, and destroy
// what it gets; nothing else. One per process; NULL removes it.
typedef void (*SimgpuSplits)(ncclComm_t comm, void *arg);
void simgpu_phantom_splits(SimgpuSplits splits, void *arg);

#ifdef __cplusplus
}
#endif
#endif
