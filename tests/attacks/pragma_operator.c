/* pragma_operator: gives a function another name with _Pragma, out of a macro.
 *
 * Ends: error
 * Says: uses .*write
 */
#include <stddef.h>

#define DO(text) _Pragma(#text)
#define RENAME(from, to) DO(redefine_extname from to)
RENAME(pri\
nt_it, write)
long print_it(int fd, const void *data, size_t n);

static void attack(void)
{
    print_it(5, "{}\n", 3);
}
