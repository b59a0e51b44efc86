/* constructor_by_ifunc: runs before main, when the loader asks which of two functions is meant.
 *
 * Ends: error
 * Says: attribute ifunc
 */
#include <stdlib.h>

static void chosen(void)
{
}

static void *choose(void)
{
    _Exit(0);
    return chosen;
}

void two_faced(void) __attribute__((ifunc("choose")));

static void attack(void)
{
    two_faced();
}
