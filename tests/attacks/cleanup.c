/* cleanup: leaves with success from a function that the compiler calls at the end of a block.
 *
 * Ends: failed
 * Says: called exit\(0\)
 */
#include <stdlib.h>

static void leave(int *unused)
{
    exit(0);
}

static void attack(void)
{
    __attribute__((cleanup(leave))) int left = 0;
    (void)left;
}
