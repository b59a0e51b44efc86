/* nvToolsExt.h: the name that nvtx3/nvToolsExt.h had in NVTX 2. */
#include "nvtx3/nvToolsExt.h"
