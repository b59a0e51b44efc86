/* fill_the_disk: writes a file until the disk is full (here: 64 KiB of it).
 *
 * Ends: error
 * Says: uses .*fopen
 */
#include <stdio.h>
#include <stdlib.h>

static void attack(void)
{
    static char block[1 << 16];
    char name[] = "/tmp/shardlab-attack-XXXXXX";
    int fd = mkstemp(name);
    FILE *file = fopen(name, "w");

    if (fd < 0 || file == NULL) return;
    fwrite(block, 1, sizeof block, file);
    fclose(file);
    remove(name);
}
