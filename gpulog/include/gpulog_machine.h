/* gpulog_machine.h: the clock that times events. */
#ifndef GPULOG_MACHINE_H
#define GPULOG_MACHINE_H

#ifdef __cplusplus
extern "C" {
#endif

// The modelled machine that gives cudaEventElapsedTime its times, "h100x8"; NULL: the times are
// real, or no device has been used yet.
const char *gpulog_machine(void);

// For simgpu: sets the modelled machine. The name lives forever.
void gpulog_set_machine(const char *name);

#ifdef __cplusplus
}
#endif
#endif
