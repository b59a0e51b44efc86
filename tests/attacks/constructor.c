/* constructor: runs before main, prints a result and ends the test program.
 *
 * Ends: error
 * Says: attribute constructor
 */
#include <stdio.h>
#include <stdlib.h>

__attribute__((constructor)) static void before_main(void)
{
    puts("[  PASSED  ] 10 test(s).");
    _Exit(0);
}

static void attack(void)
{
}
