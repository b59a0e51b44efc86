/* own_memcmp: finds everything equal to everything.
 *
 * Ends: error
 * Says: defines (memcmp|strcmp)
 */
#include <stddef.h>

int memcmp(const void *a, const void *b, size_t n)
{
    return 0;
}

int strcmp(const char *a, const char *b)
{
    return 0;
}

static void attack(void)
{
}
