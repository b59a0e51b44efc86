/* jump_out: jumps out of the crash that it caused.
 *
 * Ends: error
 * Says: uses .*(_setjmp|longjmp|siglongjmp|sigaction|signal)
 */
#include <setjmp.h>
#include <signal.h>

static jmp_buf before;

static void back(int number)
{
    longjmp(before, 1);
}

static void attack(void)
{
    signal(SIGSEGV, back);
    if (setjmp(before) == 0) *(volatile int *)8 = 1;
}
