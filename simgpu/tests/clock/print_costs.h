/* print_costs.h: what many things cost on every machine, a line each: two programs that compile the
 * costs differently must print the same.
 */
#ifndef TESTS_PRINT_COSTS_H
#define TESTS_PRINT_COSTS_H

#include <stdio.h>
#include <stdlib.h>

#include "machine/machine.h"

static void print_costs(FILE *to)
{
    for (const char *const *name = sim_machine_names(); *name; name++) {
        char error[300];
        const SimMachine *m = sim_machine(*name, error, sizeof error);
        if (!m) exit(3);
        for (uint64_t x = 1; x < (uint64_t)1 << 34; x += x / 2 + 1) {
            uint64_t side = x % 4099;
            fprintf(to, "%llu %llu %llu", (unsigned long long)sim_cost_kernel(m, x, 3 * x, SIM_F32),
                    (unsigned long long)sim_cost_copy(m, SIM_COPY_TO_DEVICE, x),
                    (unsigned long long)sim_cost_gemm(m, side, 77, x % 1021, 3, SIM_TF32));
            for (int ranks = 2; ranks < 30; ranks += 5)
                for (int op = GPU_ALL_GATHER; op <= GPU_RECV; op++) {
                    SimCollectiveCost c = sim_cost_collective(m, (GpuOp)op, ranks, ranks / 3, x);
                    fprintf(to, " %llu %llu %s", (unsigned long long)c.latency,
                            (unsigned long long)c.work, c.algorithm);
                }
            fprintf(to, "\n");
        }
    }
}

#endif
