/* leave_silently: leaves with the status of success, past every exit handler.
 *
 * Ends: failed
 * Says: ended with status 0, by _exit\(\)
 */
#include <unistd.h>

static void attack(void)
{
    _exit(0);
}
