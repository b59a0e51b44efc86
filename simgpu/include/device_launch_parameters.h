/* device_launch_parameters.h: in CUDA, a kernel's position in its grid. Kernels are C functions
 * here and have no grid; the file lets host programs that include it compile.
 */
#ifndef __DEVICE_LAUNCH_PARAMETERS_H__
#define __DEVICE_LAUNCH_PARAMETERS_H__
#include "vector_types.h"
#endif
