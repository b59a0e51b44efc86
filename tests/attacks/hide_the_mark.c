/* hide_the_mark: wipes out the mark by which the grader knows its processes, and never ends.
 *
 * Ends: timeout
 * Says: limit of .* s is over
 */
#include <stdlib.h>
#include <string.h>

static void attack(void)
{
    char *mark = getenv("SHARDLAB_RUN");

    if (mark) memset(mark, 'x', strlen(mark));
    for (volatile int forever = 1; forever;) continue;
}
