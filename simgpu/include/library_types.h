/* library_types.h: names of number formats, which cuBLAS takes where a matrix may be of several.
 *
 * Source: CUDA 13 headers (names and values); only those that simgpu's cuBLAS knows how to refuse
 * or do.
 */
#ifndef __LIBRARY_TYPES_H__
#define __LIBRARY_TYPES_H__

typedef enum cudaDataType_t {
    CUDA_R_32F = 0,
    CUDA_R_64F = 1,
    CUDA_R_16F = 2,
    CUDA_R_8I = 3,
    CUDA_R_8U = 8,
    CUDA_R_32I = 10,
    CUDA_R_32U = 12,
    CUDA_R_16BF = 14,
    CUDA_R_16I = 20,
    CUDA_R_16U = 22,
    CUDA_R_64I = 24,
    CUDA_R_64U = 26,
    CUDA_R_8F_E4M3 = 28,
    CUDA_R_8F_E5M2 = 29
} cudaDataType;

#endif
