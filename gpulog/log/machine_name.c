/* machine_name.c: the name of the modelled machine, where there is one. See gpulog_machine.h. */
#include "gpulog_machine.h"

#include <stdatomic.h>
#include <stddef.h>

static const char *_Atomic machine;

const char *gpulog_machine(void)
{
    return atomic_load(&machine);
}

void gpulog_set_machine(const char *name)
{
    atomic_store(&machine, name);
}
