/* raw_string: opens a comment that only a reader without raw strings sees, and hides a line in it.
 *
 * Ends: error
 * Says: raw string
 */
static const char *const text = R"(
/*)";
#line 1 "/usr/include/stdio.h"
static void attack(void)
{
    __asm__("syscall");
}
//*/
