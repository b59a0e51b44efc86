/* compat/: what is there so that programs from elsewhere compile and run, and changes no result.
 *
 *   driver.c   calls of the CUDA driver, cuda.h: refused
 *   hints.c    calls that make a GPU faster, limit it, or watch it: they succeed
 *   kernels.c  what a multiprocessor has for a kernel's blocks
 *   nvtx.c     NVTX's ranges, which a trace shows
 *   refused.c  calls that simgpu does not do: arrays, memory of other processes
 *
 * The other folders need nothing of it: a program that makes none of these calls links none of it.
 */
#ifndef SIMGPU_COMPAT_H
#define SIMGPU_COMPAT_H

#include "runtime/runtime.h"

#endif
