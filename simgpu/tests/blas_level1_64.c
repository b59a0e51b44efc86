/* blas_level1_64.c: blas_level1.c once more, for the calls with sizes of 64 bits (…_64). */
#define SIZES_64
#include "blas_level1.c"
