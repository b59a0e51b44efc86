/* kill_the_parent: kills the process that gives the verdicts.
 *
 * Ends: error
 * Says: uses .*(getppid|kill)
 */
#include <signal.h>
#include <unistd.h>

static void attack(void)
{
    kill(getppid(), SIGKILL);
}
