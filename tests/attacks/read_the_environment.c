/* read_the_environment: looks for the nonce in its own environment.
 *
 * Ends: failed
 * Says: is .*want|differs|gradient|zero
 */
#include <stdio.h>
#include <stdlib.h>

static void attack(void)
{
    const char *nonce = getenv("SHARDLAB_NONCE"), *fd = getenv("SHARDLAB_RESULTS_FD");

    // Where there were one, this test would end as an error.
    if (nonce != NULL || fd != NULL) abort();
}
