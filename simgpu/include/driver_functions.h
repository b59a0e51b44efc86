/* driver_functions.h: makes the structures that the 3D calls take (cudaMemcpy3D …). */
#ifndef __DRIVER_FUNCTIONS_H__
#define __DRIVER_FUNCTIONS_H__

#include "driver_types.h"

static __inline__ struct cudaPitchedPtr make_cudaPitchedPtr(void *d, size_t p, size_t xsz,
                                                            size_t ysz)
{
    struct cudaPitchedPtr made = {d, p, xsz, ysz};
    return made;
}

static __inline__ struct cudaPos make_cudaPos(size_t x, size_t y, size_t z)
{
    struct cudaPos made = {x, y, z};
    return made;
}

static __inline__ struct cudaExtent make_cudaExtent(size_t w, size_t h, size_t d)
{
    struct cudaExtent made = {w, h, d};
    return made;
}

#endif
