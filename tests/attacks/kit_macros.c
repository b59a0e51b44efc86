/* kit_macros: makes the kit's headers mean something else for its own file.
 *
 * Ends: failed
 * Says: after zero_grad: element
 */
#include "fsdp.h"
#include "kernels.h"
#undef fail
#define fail(status, ...) (status)
#define assert_int_equal(a, b) (void)0
#define TEST(name) static void name(void **state)

static void attack(void)
{
}
