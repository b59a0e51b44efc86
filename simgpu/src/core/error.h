/* core/error.h: how a call of the CUDA interface begins and ends.
 *
 * Every call that can fail begins with SIM_ENTER and returns sim_leave(error).
 */
#ifndef SIMGPU_ERROR_H
#define SIMGPU_ERROR_H

#include <cuda_runtime_api.h>
#include <stdbool.h>

#include "log_writer.h"

// Refuses where an earlier error is sticky, or where this process was forked from one that used
// simgpu already.
cudaError_t sim_enter(void);
cudaError_t sim_leave(cudaError_t error); // remembers it for cudaGetLastError
void sim_stick(cudaError_t error);        // from here on every call returns it
bool sim_is_forked(void);                 // from a process that had used simgpu
#define SIM_SITE GPULOG_SITE()
#define SIM_ENTER()                                                                                \
    do {                                                                                           \
        cudaError_t refused_ = sim_enter();                                                        \
        if (refused_ != cudaSuccess) return refused_;                                              \
    } while (0)

#endif
