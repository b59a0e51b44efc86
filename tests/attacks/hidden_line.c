/* hidden_line: says that its assembly comes from a system header.
 *
 * Ends: error
 * Says: #line
 */
static void attack(void)
{
    long number = 39;

%:\
 /* it is shown as */ line 1 "/usr/include/stdio.h"
    __asm__("syscall" : "+a"(number) : : "rcx", "r11", "memory");
}
