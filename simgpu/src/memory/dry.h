/* memory/dry.h: dry runs (SIMGPU_DRY=1): zeros in place of results. */
#ifndef SIMGPU_DRY_H
#define SIMGPU_DRY_H

#include <stddef.h>

#include "simgpu.h"

// A copy to the host in a dry run gives zeros. The first one of a call site is noted on stderr.
void sim_dry_deliver(const SimgpuOp *op, void *to, size_t pitch, size_t width, size_t height);
// Notes a copy from the host; forgets what is written or freed; returns the addresses that a copy
// has brought to an array in device memory, or NULL: not known.
void sim_dry_note(const void *ptr, const void *words, size_t bytes);
void sim_dry_forget(const void *ptr, size_t bytes);
const void *const *sim_dry_addresses(const void *ptr, size_t bytes);

#endif
