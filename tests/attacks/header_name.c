/* header_name: the same by a header's name, in which a comment does not begin.
 *
 * Ends: error
 * Says: names a header with
 */
#if __has_include/**/(</*>)
#endif
#line 1 "/usr/include/stdio.h"
static void attack(void)
{
    __asm__("syscall");
}
//*/
