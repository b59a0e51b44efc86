/* gpulog_machine.h: on whose clock events are timed. */
#ifndef GPULOG_MACHINE_H
#define GPULOG_MACHINE_H

#ifdef __cplusplus
extern "C" {
#endif

// The modelled machine whose times cudaEventElapsedTime gives, "h100x8"; NULL: they are real, or
// no device has been used yet.
const char *gpulog_machine(void);

// For simgpu: there is such a machine. The name lives forever.
void sim_log_machine(const char *name);

#ifdef __cplusplus
}
#endif
#endif
