/* check/: finds mistakes of programs that would still run to their end.
 *
 *   race.c     operations that did not wait for each other, and reads of unwritten bytes
 *   overlap.c  operands that overlap or are not aligned
 *
 * runtime/ passes the accesses of an operation to it, and its findings go to report/. core/leak.c
 * reports what is still alive when the process ends, memory/fault.c the touches of the host.
 */
#ifndef SIMGPU_CHECK_H
#define SIMGPU_CHECK_H

#include "memory/shadow.h"
#include "simgpu.h"

// ---- race.c ---- Only with SIMGPU_CHECK=full.

// Checks an operation's access to memory that exists, on a device or pinned.
void sim_race_touch(const SimgpuOp *op, const void *ptr, const SimShape *shape, GpuAccess access);
// Checks a free of the live allocation that begins at ptr, before it is freed: on op's stream, or
// (NULL) by cudaFree after its wait.
void sim_race_free(const SimgpuOp *op, const void *ptr, const void *site);
// A copy between devices also copies which bytes are unwritten.
void sim_race_carry(void *dst, const void *src, size_t bytes);

// ---- overlap.c ----

// Whether ptr is a multiple of `align`; else reports it, and the operation fails.
bool sim_check_aligned(SimgpuOp *op, const void *ptr, size_t bytes, size_t align);
// Reports if the ended operation has written over its own other operands. Called by simgpu_end.
void sim_check_overlap(const SimgpuOp *op);
void sim_report_overlap(const SimgpuOp *op, const GpuRange *written, const GpuRange *other,
                        const char *rule);

#endif
