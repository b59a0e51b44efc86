/* weak_name: asks for write without needing it, so that nobody misses it.
 *
 * Ends: error
 * Says: uses .*write
 */
#include <stddef.h>

long write(int fd, const void *data, size_t n);
#pragma weak write

static void attack(void)
{
    if (&write) write(5, "{}\n", 3);
}
