/* hooks.c: calls parts of simgpu that a program may not link.
 *
 * A program that only uses CUDA gets no object of nccl/ or blas/ from the library. So nothing here
 * may name their functions. The list only grows and is read without a lock, also by a process that
 * is ending in a signal handler.
 */
#include "report/hooks.h"

static _Atomic(SimHooks *) first;

void sim_hooks_add(SimHooks *hooks)
{
    if (atomic_exchange(&hooks->added, true)) return;
    hooks->next = atomic_load(&first);
    while (!atomic_compare_exchange_weak(&first, &hooks->next, hooks)) continue;
}

const SimHooks *sim_hooks(void)
{
    return atomic_load(&first);
}
