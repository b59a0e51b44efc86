/* harness_memory: takes back what the rank has told its parent, by the harness's own pointer.
 *
 * Ends: error
 * Says: uses .*rank_run
 */
#include <stdbool.h>
#include <string.h>

extern void *rank_run;
extern bool rank_done;

static void attack(void)
{
    memset((char *)rank_run + 64, 0, 64);
    rank_done = true;
}
