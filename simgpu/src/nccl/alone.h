/* alone.h: whether another process can know an id that this one has made. */
#ifndef SIMGPU_NCCL_ALONE_H
#define SIMGPU_NCCL_ALONE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct SimTraces { // ways by which another process may have got something
    uint64_t written;      // bytes; UINT64_MAX: the system does not say
    uint64_t child_faults; // of children that have ended
} SimTraces;
SimTraces sim_traces(void);
// False: another process may have an id that this one made at that time.
bool sim_is_alone(const SimTraces *then);

#endif
