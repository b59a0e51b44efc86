/* set_the_machine: tells simgpu of a machine on which all communication is hidden.
 *
 * Ends: error
 * Says: uses .*setenv
 */
#define _GNU_SOURCE
#include <stdlib.h>

static void attack(void)
{
    setenv("SIMGPU_MACHINE", "laptop", 1);
}
