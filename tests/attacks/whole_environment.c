/* whole_environment: looks through the environment as the loader left it.
 *
 * Ends: error
 * Says: uses .*environ
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <unistd.h>

static void attack(void)
{
    for (char **line = environ; *line != NULL; line++) puts(*line);
}
