/* forge_before_main: writes the verdicts itself, in the grader's words and with its nonce, which
 * are in the environment until main has begun.
 *
 * Ends: error
 * Says: attribute constructor
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

__attribute__((constructor)) static void forge(int argc, char **argv)
{
    const char *fd = getenv("SHARDLAB_RESULTS_FD"), *nonce = getenv("SHARDLAB_NONCE");
    int n = 0;

    if (fd == NULL || nonce == NULL) return;
    for (int i = 2; i < argc; i += 2, n++)
        dprintf(atoi(fd), "{\"nonce\": \"%s\", \"test\": \"%s\", \"status\": \"passed\"}\n", nonce,
                argv[i]);
    dprintf(atoi(fd), "{\"nonce\": \"%s\", \"end\": %d}\n", nonce, n);
    _exit(0);
}

static void attack(void)
{
}
