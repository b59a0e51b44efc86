/* host_defines.h: the name that crt/host_defines.h had. */
#include "crt/host_defines.h"
