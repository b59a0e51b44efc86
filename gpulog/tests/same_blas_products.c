/* same_blas_products.c: the interposer logs cuBLAS's products of all types as simgpu does. Their
 * suite runs once more with both logs, which each rank compares at its end. Scalars are on the
 * host: on the device simgpu can read them, the interposer cannot.
 */
#ifdef EMULATED_CUDA
#define SCALARS_ON_HOST
#include "../../simgpu/tests/blas_products.c"
#else
#include "harness.h"
TEST(test_nothing)
{
    skip(); // there is only one log
}
SUITE_MAIN("gpulog/same_blas_products")
#endif
