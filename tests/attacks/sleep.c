/* sleep: sleeps past the test's end.
 *
 * Ends: timeout
 * Says: limit of .* s is over
 */
#include <unistd.h>

static void attack(void)
{
    for (;;) sleep(1000);
}
