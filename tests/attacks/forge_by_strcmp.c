/* forge_by_strcmp: the same from inside a function of the C library that main calls: here strcmp,
 * by which it looks for --only.
 *
 * Ends: error
 * Says: defines strcmp
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int strcmp(const char *a, const char *b)
{
    const char *fd = getenv("SHARDLAB_RESULTS_FD"), *nonce = getenv("SHARDLAB_NONCE");
    int n = 0;

    if (fd != NULL && nonce != NULL && a[0] == '-' && a[1] == '-' && a[2] == 'o') {
        // The words of the command line lie back to back, and the environment behind them.
        while (a[0] == '-' && a[1] == '-' && a[2] == 'o') {
            a += strlen(a) + 1;
            dprintf(atoi(fd), "{\"nonce\": \"%s\", \"test\": \"%s\", \"status\": \"passed\"}\n",
                    nonce, a);
            a += strlen(a) + 1;
            n++;
        }
        dprintf(atoi(fd), "{\"nonce\": \"%s\", \"end\": %d}\n", nonce, n);
        _exit(0);
    }
    while (*a && *a == *b) a++, b++;
    return (unsigned char)*a - (unsigned char)*b;
}

static void attack(void)
{
}
