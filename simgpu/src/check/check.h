/* check/: what is wrong with a program that runs to its end all the same.
 *
 *   race.c     operations that did not wait for each other, and reads of what nobody wrote
 *   overlap.c  operands that overlap or are not aligned
 *
 * What an operation touches is brought here by runtime/; what is found goes to report/. What is
 * still alive when the process ends is core/leak.c's, what the host touches memory/fault.c's.
 */
#ifndef SIMGPU_CHECK_H
#define SIMGPU_CHECK_H

#include "memory/shadow.h"
#include "simgpu.h"

// ---- race.c ---- Does something with SIMGPU_CHECK=full only.

// Checks an operation's access to memory that is known to be there, on a device or pinned.
void sim_race_touch(const SimgpuOp *op, const void *ptr, const SimShape *shape, GpuAccess access);
// The free of the live allocation that begins at ptr, before it is freed: on op's stream, or (NULL)
// by cudaFree, which has waited for what it waits for.
void sim_race_free(const SimgpuOp *op, const void *ptr, const void *site);
// A copy between devices takes along which bytes nobody wrote.
void sim_race_carry(void *dst, const void *src, size_t bytes);

// ---- overlap.c ----

// Whether ptr is a multiple of `align`; else it is reported, and the operation fails.
bool sim_check_aligned(SimgpuOp *op, const void *ptr, size_t bytes, size_t align);
// Reports what the ended operation writes over its own other operands. Called by simgpu_end.
void sim_check_overlap(const SimgpuOp *op);
void sim_report_overlap(const SimgpuOp *op, const GpuRange *written, const GpuRange *other,
                        const char *rule);

#endif
