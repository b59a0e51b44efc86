/* product.h: products of matrices, for the layers that multiply. It is separate from internal.h
 * because cuBLAS's header compiles slowly.
 */
#ifndef SHARDLAB_NN_PRODUCT_H
#define SHARDLAB_NN_PRODUCT_H

#include <cublas_v2.h>

#include "internal.h"

#define Status CHECKED_STATUS // as check.h says

// C = A·B + beta·C, as cublasSgemm and cublasSgemmStridedBatched compute it, for matrices of `type`
// with sums in float; strides are in elements.
typedef struct Factor {
    cublasOperation_t turn;
    const void *at;
    int ld;
    long long stride; // of a batch
} Factor;
Status multiply_typed(NnRun *run, DType type, int m, int n, int k, Factor A, Factor B, float beta,
                      void *C, int ldc);
Status multiply_batch(NnRun *run, DType type, int m, int n, int k, Factor A, Factor B, void *C,
                      int ldc, long long stride, int count);
// Element number `at` of an array.
void *element_at(const void *array, DType type, size_t at);

#undef Status

#endif
