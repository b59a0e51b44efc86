/* blas_batched_64.c: blas_batched.c once more, for the calls with sizes of 64 bits (…_64). */
#define SIZES_64
#include "blas_batched.c"
