/* driver.c: the calls of cuda.h, each of which is refused.
 *
 * Interface: cuda.h.
 */
#include <cuda.h>

#include "compat/compat.h"

#define REFUSE(name, parameters, instead)                                                          \
    CUresult name parameters                                                                       \
    {                                                                                              \
        sim_refuse_call(#name, "driver interface", instead, SIM_SITE);                             \
        return CUDA_ERROR_NOT_SUPPORTED;                                                           \
    }
SIMGPU_DRIVER_CALLS(REFUSE)
