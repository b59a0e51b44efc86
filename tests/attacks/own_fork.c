/* own_fork: lets no rank be forked.
 *
 * Ends: error
 * Says: defines fork
 */
#include <unistd.h>

pid_t fork(void)
{
    return -1; // never a number that a parent might kill
}

ssize_t write(int fd, const void *data, size_t n)
{
    return (ssize_t)n;
}

static void attack(void)
{
}
