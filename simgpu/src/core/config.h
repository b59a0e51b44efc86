/* core/: what all rooms above it need. Nothing here knows the simulated machine.
 *
 *   config.c        the SIMGPU_* variables, read once
 *   visible.c       CUDA_VISIBLE_DEVICES: which devices the program sees
 *   error.c         error names and strings, the last error (error.h)
 *   groups.c        limits of control groups (groups.h)
 *   processors.c    how many processors there are, and how many a rank may use (threads.h)
 *   threads.c       threads of this process that the program has not started
 *   parallel.c      the threads that share the work of a kernel (simgpu.h)
 *   vector_clock.c  which operations of each stream are known to be done (vector_clock.h)
 *   leak.c          what the program has not freed when it ends (leak.h)
 *   tree.c          a balanced tree (tree.h)
 */
#ifndef SIMGPU_CONFIG_H
#define SIMGPU_CONFIG_H

#include <stdbool.h>
#include <stddef.h>

#include "log_writer.h"
#include "machine/machine.h"

#define SIM_CACHE_LINE 64 // bytes
#define SIM_MAX_DEVICES GPULOG_DEVICES

typedef enum SimCheck { CHECK_OFF, CHECK_FAST, CHECK_FULL } SimCheck;
typedef struct SimConfig {
    SimCheck check;
    int devices;                   // that the program sees; 0: none
    int physical[SIM_MAX_DEVICES]; // of each, its number among the machine's
    char hidden[256]; // what is wrong with CUDA_VISIBLE_DEVICES, so that it hides some; "": nothing
    size_t memory;
    bool poison;
    bool dry;      // SIMGPU_DRY; then check is at most CHECK_FAST, and nothing is poison
    bool phantoms; // SIMGPU_PHANTOMS: a dry run whose other ranks nobody runs
    int threads;
    bool crowded;              // there are fewer processors than threads of all ranks
    int cores;                 // SIMGPU_CORES: products are cut for so many (blas/multiply.c)
    double notice_seconds;     // SIMGPU_NOTICE_SECONDS
    const SimMachine *machine; // SIMGPU_MACHINE; NULL: no clock
    SimSpread spread;          // SIMGPU_SLOW, SIMGPU_JITTER
} SimConfig;
const SimConfig *sim_config(void);
bool sim_config_ready(void); // it has been read
bool sim_dry(void);          // nothing is executed, and no device memory touched

// ---- visible.c ----

// Fills in which of the machine's devices the program sees.
void sim_read_visible(SimConfig *config, int devices);
void sim_device_uuid(int physical, char bytes[16]); // of a device of the machine

#endif
