/* machine/cost_kernel.c: the cost of a kernel: a fixed start, and then the time of its bytes or of
 * its operations, whichever is longer.
 *
 * A kernel that multiplies on tensor cores uses them for a part of the time only: it has other
 * work, such as the softmax of fused attention.
 */
#include "machine/figures.h"

static SimPs at_rate(const SimFigures *f, uint64_t bytes, double hbm, uint64_t flops, double rate)
{
    double moved = (double)bytes * 1e12 / hbm;
    double computed = (double)flops * 1e12 / rate;
    return sim_round(f->kernel + (moved > computed ? moved : computed), 1);
}

SimPs sim_cost_kernel(const SimMachine *m, uint64_t bytes, uint64_t flops, SimType type)
{
    const SimFigures *f = m->figures;
    double hbm = f->kernel_efficiency > 0 ? f->hbm * f->kernel_efficiency : f->hbm;
    return at_rate(f, bytes, hbm, flops, m->peak[type]);
}

SimPs sim_cost_fused(const SimMachine *m, uint64_t bytes, uint64_t flops, SimType type)
{
    const SimFigures *f = m->figures;
    double part = f->gemm == SIM_GEMM_PLAIN ? 1 : f->fused_efficiency;
    return at_rate(f, bytes, f->hbm, flops, m->peak[type] * part);
}
