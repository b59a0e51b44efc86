/* ignore_the_end: ignores the signal that ends it.
 *
 * Ends: error
 * Says: uses .*(__sysv_)?signal
 */
#include <signal.h>
#include <unistd.h>

static void attack(void)
{
    signal(SIGTERM, SIG_IGN);
    for (;;) sleep(1000);
}
