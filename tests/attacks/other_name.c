/* other_name: calls write under another name.
 *
 * Ends: error
 * Says: uses .*write
 */
#include <stddef.h>

#pragma redefine_extname print_it write
long print_it(int fd, const void *data, size_t n);

static void attack(void)
{
    print_it(5, "{}\n", 3);
}
