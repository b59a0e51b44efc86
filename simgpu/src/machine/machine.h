/* machine/machine.h: the modelled machine, and the costs of operations on it.
 *
 * The contract is simgpu/pages/time.md. A machine is a small text file (simgpu/machines/), each
 * figure with its source; the ones that come with simgpu are compiled into the library. Costs are
 * pure functions of a machine and of a call's properties, without state. The clock and the planner
 * use them.
 */
#ifndef SIMGPU_MACHINE_H
#define SIMGPU_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpulog.h"

typedef uint64_t SimPs; // picoseconds

typedef enum SimLink { SIM_NVLINK, SIM_PCIE, SIM_NIC, SIM_LINKS } SimLink;
// Of elements, for peaks and efficiencies.
typedef enum SimType {
    SIM_F64,
    SIM_F32,  // without tensor cores
    SIM_TF32, // float operands, tensor cores
    SIM_BF16, // fp16 too
    SIM_FP8,
    SIM_TYPES
} SimType;

typedef struct SimRatio { // num/den >= 1
    uint64_t num, den;
} SimRatio;

// SIMGPU_SLOW, SIMGPU_JITTER: parts of the work; num 0: none.
typedef struct SimSpread {
    int slow_rank;
    SimRatio slow, jitter;
    uint64_t seed;
} SimSpread;

// The cost of a call for the host, and of its start after a wait: pages/time.md, § 1.
typedef struct SimHostCosts {
    SimPs launch, collective, enqueue, allocate, free, pin, sync, query, wake;
    SimPs graph_launch; // of a graph; 0: as launch
    SimPs graph_node;   // of each of its nodes
} SimHostCosts;

// Properties for cudaGetDeviceProperties. 0 and "": the machine's file does not give them.
typedef struct SimGpu {
    char name[64];
    int major, minor; // compute capability
    uint64_t bus;     // bits of its memory's bus
    size_t l2;        // bytes
} SimGpu;

typedef struct SimMachine {
    char name[64];
    SimGpu gpu;
    int gpus_per_node;
    size_t memory; // bytes of a GPU
    SimHostCosts host;
    SimRatio slow_compute, slow_transfer; // § 5
    SimRatio slow_compute_nic;            // where all transfers are on the network
    bool has_link[SIM_LINKS];
    // For the costs: cost_*.c.
    double peak[SIM_TYPES]; // FLOP/s, dense
    struct SimFigures *figures;
} SimMachine;

// The machine called `name`, or described by the file of that name. NULL: there is none, or the
// file is wrong; then error is one line with file, line and key. It is never freed.
const SimMachine *sim_machine(const char *name, char *error, size_t size);
// The names of those that are built in, NULL at the end.
const char *const *sim_machine_names(void);

// ---- Costs: § 6 ---- At least 1 ps.
SimPs sim_cost_kernel(const SimMachine *m, uint64_t bytes, uint64_t flops, SimType type);
// A kernel that multiplies on tensor cores (types from TF32 on), as fused attention does.
SimPs sim_cost_fused(const SimMachine *m, uint64_t bytes, uint64_t flops, SimType type);
SimPs sim_cost_gemm(const SimMachine *m, uint64_t rows, uint64_t cols, uint64_t inner,
                    uint64_t batch, SimType type);
typedef enum SimCopy { SIM_COPY_TO_DEVICE, SIM_COPY_FROM_DEVICE, SIM_COPY_PEER } SimCopy;
SimPs sim_cost_copy(const SimMachine *m, SimCopy kind, uint64_t bytes);

typedef struct SimCollectiveCost {
    SimPs latency; // at least 1 ns
    SimPs work;    // at least 1 ps
    SimLink link;
    const char *algorithm; // "ring", "nvls", "tree" …: NCCL's names in lower case
    const char *protocol;  // "simple", "ll", "ll128"; "" where the model has none
    double ideal;          // bytes/s of the link, for the trace: bus bandwidth
} SimCollectiveCost;
// ranks >= 2 of one communicator, on `nodes` nodes (consecutive ranks fill a node); bytes: the
// whole buffer (the log's `bytes`). Sends and receives: ranks = 2.
SimCollectiveCost sim_cost_collective(const SimMachine *m, GpuOp op, int ranks, int nodes,
                                      uint64_t bytes);

#endif
