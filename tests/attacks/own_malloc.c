/* own_malloc: gives no caller of malloc anything.
 *
 * Ends: error
 * Says: defines malloc
 */
#include <stddef.h>

void *malloc(size_t n)
{
    return NULL;
}

static void attack(void)
{
}
