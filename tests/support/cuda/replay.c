/* replay.c: what simgpu's engine of time (simgpu/src/time), which plays logs of real GPUs again,
 * asks of the rest of simgpu.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "report/report.h"

_Noreturn void sim_fatal(SimgpuClass kind, const char *title, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "%s\n", title);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    abort();
}
