/* device_launch_parameters.h: a kernel's place in its grid. Kernels are C functions here, which
 * have none: so it only lets a host program that includes it compile.
 */
#ifndef __DEVICE_LAUNCH_PARAMETERS_H__
#define __DEVICE_LAUNCH_PARAMETERS_H__
#include "vector_types.h"
#endif
