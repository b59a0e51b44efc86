/* read_the_reference: looks for the reference's functions in the running program.
 *
 * Ends: error
 * Says: uses .*dl(sym|open)
 */
#define _GNU_SOURCE
#include <dlfcn.h>

static void attack(void)
{
    void *program = dlopen(0, RTLD_NOW);
    void (*solution)(void) = (void (*)(void))dlsym(program, "fsdp_zero_grad_default");

    if (solution) solution();
}
