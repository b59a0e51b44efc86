/* same_blas_2.c: the interposer logs cuBLAS's calls of level 2 with sizes of 64 bits as simgpu
 * does: its suite once more, where both keep a log, which the end of every rank compares. Scalars
 * are on the host: on the device the interposer cannot look at them, and simgpu can.
 */
#ifdef EMULATED_CUDA
#define SIZES_64
#define SCALARS_ON_HOST
#include "../../simgpu/tests/blas_level2.c"
#else
#include "harness.h"
static void test_nothing(void **state)
{
    skip(); // one log alone
}
static const struct CMUnitTest tests[] = {cmocka_unit_test(test_nothing)};
SUITE_MAIN("gpulog/same_blas_2", tests)
#endif
