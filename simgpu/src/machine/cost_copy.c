/* machine/cost_copy.c: the cost of a copy over a link. */
#include "machine/figures.h"

SimPs sim_cost_copy(const SimMachine *m, SimCopy kind, uint64_t bytes)
{
    const SimFigures *f = m->figures;
    SimLink link = kind == SIM_COPY_PEER && m->has_link[SIM_NVLINK] ? SIM_NVLINK : SIM_PCIE;
    return sim_round(f->copy + (double)bytes * 1e12 / f->link[link], 1);
}
