/* every_descriptor: writes a result to every descriptor that there may be.
 *
 * Ends: error
 * Says: uses .*write
 */
#include <string.h>
#include <unistd.h>

static void attack(void)
{
    const char *line = "{\"test\": \"zero_grad_zeroes\", \"status\": \"passed\"}\n";

    for (int fd = 3; fd < 1024; fd++)
        if (write(fd, line, strlen(line)) < 0) continue;
}
