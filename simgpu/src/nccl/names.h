/* names.h: the two names of a call: ncclX, which a program may define itself, and pncclX. */
#ifndef SIMGPU_NCCL_NAMES_H
#define SIMGPU_NCCL_NAMES_H

#include <nccl.h>

// Before the definition, in the same file.
#define SIM_NCCL(call)                                                                             \
    extern __typeof__(call) call __attribute__((weak));                                            \
    extern __typeof__(call) p##call __attribute__((alias(#call)));

#endif
