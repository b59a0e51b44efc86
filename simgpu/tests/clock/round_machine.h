/* round_machine.h: the machine of round figures, machines/round.machine, and a kernel for tests
 * that count on it: 2 us, and 1 us per MB that it touches.
 */
#ifndef TESTS_ROUND_MACHINE_H
#define TESTS_ROUND_MACHINE_H

#include "../heard.h"
#include "machine/machine.h"

#define ROUND "simgpu/tests/clock/machines/round.machine"
#define MB ((size_t)1000000)

// Leaves the test out where the kit's folder is not here.
static inline const SimMachine *round_machine(void)
{
    char error[300];
    needs_kit(ROUND);
    const SimMachine *m = sim_machine(ROUND, error, sizeof error);
    if (!m) fail_msg("%s", error);
    return m;
}

// For a main: its programs run on that machine, wherever they go.
static inline void use_round_machine(void)
{
    char path[4096];
    if (realpath(ROUND, path)) setenv("SIMGPU_MACHINE", path, 1);
}

static inline void kernel_fill(unsigned char *p, size_t bytes, cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_fill", stream);
    simgpu_write(&op, p, bytes);
    need_cuda(simgpu_end(&op));
}

#endif
