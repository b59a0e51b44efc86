/* constructor_by_section: runs before main by an entry in the table of what runs before main.
 *
 * Ends: error
 * Says: attribute section
 */
#include <stdlib.h>

static void before_main(void)
{
    _Exit(0);
}

#define TABLE sec##tion
__attribute__((__used__, TABLE(".init_array"))) static void (*const entry)(void) = before_main;

static void attack(void)
{
}
