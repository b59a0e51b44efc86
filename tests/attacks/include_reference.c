/* include_reference: includes the solution.
 *
 * Ends: error
 * Says: includes (?:include/)?\.\./reference/forward\.c
 */
#include "../reference/forward.c"

static void attack(void)
{
}
