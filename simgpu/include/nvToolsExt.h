/* nvToolsExt.h: where NVTX 2 had what nvtx3/nvToolsExt.h has. */
#include "nvtx3/nvToolsExt.h"
