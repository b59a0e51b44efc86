/* memory_bomb: fills the machine's memory.
 *
 * Ends: error
 * Says: used more than .* GiB of memory
 */
#include <stdlib.h>
#include <string.h>

static void attack(void)
{
    for (int i = 0; i < 400; i++) {
        char *volatile block = malloc(8 << 20);
        if (block != NULL) memset(block, 1, 8 << 20);
    }
    for (volatile int forever = 1; forever;) continue;
}
