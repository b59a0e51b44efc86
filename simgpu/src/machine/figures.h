/* machine/figures.h: the figures from which the costs of a machine are computed; machine.c reads
 * them, cost_*.c use them.
 *
 * Times are in picoseconds, bandwidths in bytes/s. A cost is one expression of IEEE doubles in + -
 * x / and square root, which sim_round rounds up: so every compiler and host gives the same.
 */
#ifndef SIMGPU_FIGURES_H
#define SIMGPU_FIGURES_H

#include "machine/machine.h"

typedef enum SimModel { SIM_MODEL_NCCL, SIM_MODEL_PLAIN } SimModel;
typedef enum SimGemmModel { SIM_GEMM_TILES, SIM_GEMM_PLAIN } SimGemmModel;
typedef enum SimGeneration { SIM_VOLTA, SIM_AMPERE, SIM_HOPPER, SIM_BLACKWELL } SimGeneration;
typedef enum SimCpu { SIM_INTEL, SIM_AMD } SimCpu;

// A graph that NCCL searches for: channels, and the bandwidth of one within and between nodes.
typedef struct SimGraph {
    uint64_t channels; // 0: there is none
    double intra, inter;
} SimGraph;

// Fitted to published training steps, for plans; the clock does not use it. 0: not given.
typedef struct SimFitted {
    double eager, compiled; // of hbm, what a framework's kernels reach, each alone or fused
    double flash1;          // fused_efficiency of the first FlashAttention
    double doubling;        // of a step, how much longer it is for each doubling of the nodes
    double least; // of 10 runs one takes less than this times its plan, one more than `most`
    SimRatio most;
} SimFitted;

typedef struct SimFigures {
    double hbm, link[SIM_LINKS]; // 0: the machine has no such link
    double kernel, copy;         // the start, before the first byte
    double kernel_efficiency;    // of hbm, of kernels without products; 0: all of it
    SimFitted fitted;
    // gemm tiles
    SimGemmModel gemm;
    uint64_t sms;
    double gemm_efficiency;  // of the best product, over the peak
    double fused_efficiency; // of a kernel that multiplies on tensor cores, over the peak
    // model plain
    SimModel model;
    double latency;
    // model nccl
    SimGeneration generation;
    SimCpu cpu;
    SimGraph ring, nvls;
    double net_latency;              // of the topology, between nodes
    double nccl_constant, nccl_root; // what NCCL's model leaves out: and times sqrt(bytes)
} SimFigures;

// Picoseconds, rounded up; at least `least`.
SimPs sim_round(double ps, SimPs least);

#endif
