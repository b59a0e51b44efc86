/* same_blas_vectors.c: the interposer logs cuBLAS's calls on vectors as simgpu does: their
 * suite once more, where both keep a log, which the end of every rank compares. Scalars are on the
 * host: on the device the interposer cannot look at them, and simgpu can.
 */
#ifdef EMULATED_CUDA
#define SCALARS_ON_HOST
#include "../simgpu/blas_vectors.c"
#else
#include "harness.h"
static void test_nothing(void **state)
{
    skip(); // one log alone
}
static const struct CMUnitTest tests[] = {cmocka_unit_test(test_nothing)};
SUITE_MAIN("gpulog/same_blas_vectors", tests)
#endif
