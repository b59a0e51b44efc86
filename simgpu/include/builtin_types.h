/* builtin_types.h: all types that the runtime has: driver_types.h and vector_types.h. */
#include "driver_types.h"
#include "vector_types.h"
