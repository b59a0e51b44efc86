/* same_blas_matrices.c: the interposer logs cuBLAS's calls on matrices as simgpu does: their
 * suite once more, where both keep a log, which the end of every rank compares. Scalars are on the
 * host: on the device the interposer cannot look at them, and simgpu can.
 */
#ifdef EMULATED_CUDA
#define SCALARS_ON_HOST
#include "../../simgpu/tests/blas_matrices.c"
#else
#include "harness.h"
TEST(test_nothing)
{
    skip(); // one log alone
}
SUITE_MAIN("gpulog/same_blas_matrices")
#endif
