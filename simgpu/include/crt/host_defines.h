/* host_defines.h: CUDA C's words for where a function runs. They mean nothing here: a compiler of
 * plain C or C++ compiles only host functions. __align__ and __forceinline__ mean what they say.
 */
#if defined(__HOST_DEFINES_H__) && !defined(SIMGPU_HOST_DEFINES)
#error "NVIDIA's crt/host_defines.h comes before simgpu's: put simgpu/include first"
#endif
#ifndef __HOST_DEFINES_H__
#define __HOST_DEFINES_H__
#define SIMGPU_HOST_DEFINES

#define CUDARTAPI
#define __host__
#define __device__
#define __global__
#define __shared__
#define __constant__
#define __managed__
#define __align__(n) __attribute__((aligned(n)))
#undef __forceinline__
#define __forceinline__ __inline__ __attribute__((always_inline))
#define __builtin_align__(n) __align__(n)
#define __device_builtin__
#define __launch_bounds__(...)

#endif
