/* alone.h: whether other processes can know what this one does. */
#ifndef SIMGPU_NCCL_ALONE_H
#define SIMGPU_NCCL_ALONE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct SimTraces { // that others may have something of this process
    uint64_t written;      // bytes; UINT64_MAX: the system does not say
    uint64_t child_faults; // of children that have ended
} SimTraces;
SimTraces sim_traces(void);
// False: some process may have an id that this one made then.
bool sim_is_alone(const SimTraces *then);

#endif
