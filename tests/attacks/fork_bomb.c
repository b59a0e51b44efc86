/* fork_bomb: forks without end (here: as long as fewer than 300 sleep).
 *
 * Ends: error
 * Says: uses .*fork
 */
#include <unistd.h>

static void attack(void)
{
    for (int i = 0; i < 300; i++)
        if (fork() == 0) {
            sleep(20);
            _exit(0);
        }
}
