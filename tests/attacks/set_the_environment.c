/* set_the_environment: tells simgpu and the tests' generator something else for the ranks to come.
 *
 * Ends: error
 * Says: uses .*(setenv|putenv)
 */
#define _GNU_SOURCE
#include <stdlib.h>

static void attack(void)
{
    setenv("SIMGPU_CHECK", "0", 1);
    setenv("SEED", "1", 1);
    putenv("SHARDLAB_LIMIT=1000000");
}
