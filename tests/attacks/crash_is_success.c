/* crash_is_success: turns a crash into success by a handler.
 *
 * Ends: error
 * Says: uses .*(__sysv_)?signal
 */
#include <signal.h>
#include <stdlib.h>

static void succeed(int number)
{
    _Exit(0);
}

static void attack(void)
{
    signal(SIGSEGV, succeed);
    *(volatile int *)8 = 1;
}
