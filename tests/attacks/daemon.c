/* daemon: leaves a process behind that belongs to nobody and forgets its environment.
 *
 * Ends: error
 * Says: uses .*(fork|setsid|execve|clearenv)
 */
#include <stdlib.h>
#include <unistd.h>

static void attack(void)
{
    if (fork() != 0) return;
    setsid();
    if (fork() != 0) _exit(0);
    char *const words[] = {"sleep", "20", NULL}, *const nothing[] = {NULL};
    execve("/bin/sleep", words, nothing);
    _exit(0);
}
