/* read_the_nonce: looks for the nonce in the environment of every process.
 *
 * Ends: error
 * Says: uses .*(fopen|fread|getppid)
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void attack(void)
{
    static char text[1 << 16];
    char name[64];

    for (int pid = getppid(); pid > 1; pid--) {
        snprintf(name, sizeof name, "/proc/%d/environ", pid);
        FILE *file = fopen(name, "rb");
        if (file == NULL) continue;
        if (fread(text, 1, sizeof text - 1, file) > 0) puts(strstr(text, "SHARDLAB_NONCE") ?: "");
        fclose(file);
    }
}
