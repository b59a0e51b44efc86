/* kit_macros: makes the kit's headers mean something else for its own file.
 *
 * Ends: failed
 * Says: after fsdp_zero_grad: element
 */
#include "fsdp.h"
#include "kernels.h"
#undef fail
#define fail(status, ...) (status)
#define assert_int_equal(a, b) (void)0
#define cmocka_unit_test(f) {#f, 0, 0, 0, 0}

static void attack(void)
{
}
