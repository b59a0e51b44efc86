/* at_the_end: turns the end of the process into success by a handler at exit.
 *
 * Ends: error
 * Says: uses .*atexit
 */
#include <stdlib.h>

static void succeed(void)
{
    _Exit(0);
}

static void attack(void)
{
    atexit(succeed);
}
