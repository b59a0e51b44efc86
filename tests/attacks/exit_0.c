/* exit_0: leaves with the status of success before anything is checked.
 *
 * Ends: failed
 * Says: called exit\(0\)
 */
#include <stdlib.h>

static void attack(void)
{
    exit(0);
}
