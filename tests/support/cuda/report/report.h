/* report.h: in the place of simgpu's, what its engine of time (simgpu/src/time) asks of reports
 * where it plays logs of real GPUs again.
 */
#ifndef TESTS_CUDA_REPORT_H
#define TESTS_CUDA_REPORT_H

typedef enum SimgpuClass { SIMGPU_SYSTEM } SimgpuClass;

_Noreturn void sim_fatal(SimgpuClass kind, const char *title, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
