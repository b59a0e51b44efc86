/* cublas.h: cuBLAS as it was before there were handles: cublasInit makes one that is hidden,
 * scalars are passed and results handed back by value, a letter says what an enum says elsewhere
 * ('N', 'T', 'C'; 'U', 'L'; 'L', 'R'), and what went wrong is asked of cublasGetError. New programs
 * include cublas_v2.h, which has the same names for other functions; a file includes one of the
 * two.
 *
 * Source: cuBLAS 13 documentation and headers (names and types).
 */
#if defined(CUBLAS_H_) && !defined(SIMGPU_CUBLAS)
#error "NVIDIA's cublas.h comes before simgpu's: put simgpu/include first"
#endif
#ifndef CUBLAS_H_
#define CUBLAS_H_
#define SIMGPU_CUBLAS
#ifdef CUBLAS_V2_H_
#error "cublas.h and cublas_v2.h declare the same names: include one of them in a file"
#endif

#include <cuda_runtime.h>

#include "cublas_api.h"

#ifdef __cplusplus
extern "C" {
#endif

#define cublasStatus cublasStatus_t

#include "simgpu_cublas/legacy.h"

#ifdef __cplusplus
}
#endif
#endif
