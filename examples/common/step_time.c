/* step_time.c: a step between two events, and by the host's clock. See step_time.h. */
#include "step_time.h"

#include <stdio.h>
#include <time.h>

#include "gpulog_machine.h"

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

Status step_time_begin(StepTime *t, cudaStream_t stream)
{
    CUDA_TRY(cudaEventCreate(&t->begin));
    CUDA_TRY(cudaEventCreate(&t->end));
    CUDA_TRY(cudaStreamSynchronize(stream)); // what was queued before does not count
    t->started = seconds_now();
    CUDA_TRY(cudaEventRecord(t->begin, stream));
    return OK;
}

Status step_time_end(StepTime *t, cudaStream_t stream)
{
    CUDA_TRY(cudaEventRecord(t->end, stream));
    CUDA_TRY(cudaEventSynchronize(t->end));
    t->real_ms = 1e3 * (seconds_now() - t->started);
    CUDA_TRY(cudaEventElapsedTime(&t->clock_ms, t->begin, t->end));
    CUDA_TRY(cudaEventDestroy(t->begin));
    CUDA_TRY(cudaEventDestroy(t->end));
    return OK;
}

void step_time_print(const StepTime *t)
{
    const char *machine = gpulog_machine();
    if (machine == NULL || t->real_ms == 0.0) return;
    printf("\nThe last step took %.3f ms simulated (%s), %.1f ms on this computer.\n",
           (double)t->clock_ms, machine, t->real_ms);
}
