/* time/cost_kernel.c: what a kernel costs: the bytes that it moves or the operations that it
 * computes, whichever takes longer, after a fixed start.
 *
 * Interface: sim_cost_kernel (machine.h).
 */
#include "time/figures.h"

SimPs sim_cost_kernel(const SimMachine *m, uint64_t bytes, uint64_t flops, SimType type)
{
    const SimFigures *f = m->figures;
    double moved = (double)bytes * 1e12 / f->hbm;
    double computed = (double)flops * 1e12 / m->peak[type];
    return sim_round(f->kernel + (moved > computed ? moved : computed), 1);
}
