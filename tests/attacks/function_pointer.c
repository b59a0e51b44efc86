/* function_pointer: calls nothing that is forbidden; a table that is there before main does.
 *
 * Ends: error
 * Says: uses .*fork
 */
#include <unistd.h>

static int (*const volatile table[])(void) = {fork};

static void attack(void)
{
    table[0]();
}
