/* check/: finds mistakes that do not stop a program.
 *
 *   race.c     operations that did not wait for each other, and reads of unwritten bytes
 *   overlap.c  operands that overlap or are not aligned
 *
 * runtime/ passes each operation's accesses to this room, which reports its findings (report/). Two
 * other rooms find mistakes: core/leak.c reports what is still alive when the process ends,
 * memory/fault.c reports what the host touches.
 */
#ifndef SIMGPU_CHECK_H
#define SIMGPU_CHECK_H

#include "memory/shadow.h"
#include "simgpu.h"

// ---- race.c ---- Only with SIMGPU_CHECK=full.

// Checks an operation's access to device or pinned memory. Other memory is ignored.
void sim_race_touch(const SimgpuOp *op, const void *ptr, const SimShape *shape, GpuAccess access);
// Checks the free of the live allocation that begins at ptr, before it happens. It is on op's
// stream or, if op is NULL, by cudaFree after its wait.
void sim_race_free(const SimgpuOp *op, const void *ptr, const void *site);
// For a copy within device memory: bytes that are unwritten in src become unwritten in dst.
void sim_race_carry(void *dst, const void *src, size_t bytes);

// ---- overlap.c ----

// Whether ptr is a multiple of `align`; else reports it, and the operation fails.
bool sim_check_aligned(SimgpuOp *op, const void *ptr, size_t bytes, size_t align);
// Reports an operation that has ended and has written into another of its own ranges. Called by
// simgpu_end.
void sim_check_overlap(const SimgpuOp *op);
void sim_report_overlap(const SimgpuOp *op, const GpuRange *written, const GpuRange *other,
                        const char *rule);

#endif
