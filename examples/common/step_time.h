/* step_time.h: how long a step takes: on this computer and, where simgpu keeps a virtual clock, on
 * the modelled machine.
 */
#ifndef EXAMPLES_STEP_TIME_H
#define EXAMPLES_STEP_TIME_H

#include <cuda_runtime_api.h>

#include "check.h"

typedef struct StepTime {
    cudaEvent_t begin, end;
    double started; // seconds, of the host's clock
    double real_ms;
    float clock_ms; // by the events
} StepTime;

Status step_time_begin(StepTime *t, cudaStream_t stream);
Status step_time_end(StepTime *t, cudaStream_t stream); // waits for the step
// Both times, where there are two.
void step_time_print(const StepTime *t);

#endif
