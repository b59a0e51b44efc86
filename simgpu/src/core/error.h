/* core/error.h: the beginning and the end of a call of the CUDA interface.
 *
 * Every call that can fail begins with SIM_ENTER and returns sim_leave(error). A function that
 * several calls share begins with SIM_ENTER_AS.
 */
#ifndef SIMGPU_ERROR_H
#define SIMGPU_ERROR_H

#include <cuda_runtime_api.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "log_writer.h"

// Refuses the call if an earlier error is sticky, or if this process was forked from one that had
// used simgpu. If this thread runs a host function of a stream, refuses it with
// cudaErrorNotPermitted, which the caller reports by sim_tell_not_permitted. Launches that are held
// back (nccl/launches.c) are made first, if the call, on `device`, may come after them; -1: the
// call is no operation.
cudaError_t sim_enter(const char *call, int device);
typedef struct SimHeldLaunches {
    atomic_int n;
    void (*make)(const char *call, int device);
} SimHeldLaunches;
extern SimHeldLaunches sim_held;
// Reports a call that is unsafe while a stream is captured, and returns the error. NULL until a
// stream is captured.
extern cudaError_t (*sim_unsafe_hook)(const char *call, const void *site);
void sim_tell_not_permitted(const char *call, const void *site);
// This thread now runs a host function for `launch`, which was called at `site`; NULL: no longer.
void sim_in_host_function(const char *launch, const void *site);
cudaError_t sim_leave(cudaError_t error); // remembers it for cudaGetLastError
void sim_stick(cudaError_t error);        // from here on every call returns it
bool sim_is_forked(void);                 // from a process that had used simgpu
// Reports a call that simgpu does not implement: "There is no WHAT here: INSTEAD."
// cudaErrorNotSupported.
cudaError_t sim_refuse_call(const char *name, const char *what, const char *instead,
                            const void *site);
#define NO_ARRAYS                                                                                  \
    "array, whose layout is for textures", "use memory of cudaMalloc3D, or of cudaMallocPitch"
#define SIM_SITE GPULOG_SITE()
#define SIM_ENTER() SIM_ENTER_AS(__func__, SIM_SITE)
#define SIM_ENTER_AS(call, site)                                                                   \
    do {                                                                                           \
        cudaError_t refused_ = sim_enter(call, -1);                                                \
        if (refused_ == cudaErrorNotPermitted) sim_tell_not_permitted(call, site);                 \
        if (refused_ != cudaSuccess) return refused_;                                              \
    } while (0)

// The same for a call that may wait, or use the default stream, inside CUDA.
#define SIM_ENTER_UNSAFE() SIM_ENTER_UNSAFE_AS(__func__, SIM_SITE)
#define SIM_ENTER_UNSAFE_AS(call, site)                                                            \
    do {                                                                                           \
        SIM_ENTER_AS(call, site);                                                                  \
        cudaError_t unsafe_ = sim_unsafe_hook ? sim_unsafe_hook(call, site) : cudaSuccess;         \
        if (unsafe_ != cudaSuccess) return unsafe_;                                                \
    } while (0)

#endif
