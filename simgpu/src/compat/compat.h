/* compat/: functions with which others' programs compile and run, and which change no result.
 *
 *   driver.c   calls of the CUDA driver, cuda.h: refused
 *   hints.c    calls that make a GPU faster, limit it, or watch it: they succeed
 *   kernels.c  the resources of a multiprocessor for a kernel's blocks
 *   nvtx.c     NVTX's ranges, which a trace shows
 *   refused.c  calls that simgpu does not support: arrays, memory of other processes
 *
 * The other folders need nothing of it: a program that makes none of these calls links none of it.
 */
#ifndef SIMGPU_COMPAT_H
#define SIMGPU_COMPAT_H

#include "runtime/runtime.h"

#endif
