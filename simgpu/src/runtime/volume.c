/* volume.c: copies and memsets of three-dimensional blocks, in memory with a pitch. A block whose
 * rows are evenly spaced is one operation; else each of its slices is one. Arrays, whose layout is
 * for textures, are not supported.
 *
 * Interface: cudaMemcpy3D, cudaMemcpy3DAsync, cudaMemset3D, cudaMemset3DAsync.
 */
#include "core/error.h"
#include "runtime/operation.h"

// How many slices are one operation: all, if the rows of both sides continue from slice to slice.
static size_t at_once(const struct cudaExtent *extent, size_t ysize, size_t other_ysize)
{
    bool even = ysize == extent->height && other_ysize == extent->height;
    return even || extent->depth == 0 ? extent->depth : 1;
}

static char *place(struct cudaPitchedPtr of, struct cudaPos pos, size_t slice)
{
    return (char *)of.ptr + ((pos.z + slice) * of.ysize + pos.y) * of.pitch + pos.x;
}

// Positions and width are in bytes: there are no arrays.
static cudaError_t copy(const char *name, const struct cudaMemcpy3DParms *p, bool async,
                        cudaStream_t stream, const void *site)
{
    SIM_ENTER_AS(name, site);
    if (!p) return sim_leave(cudaErrorInvalidValue);
    if (p->srcArray || p->dstArray) return sim_refuse_call(name, NO_ARRAYS, site);
    const struct cudaExtent *e = &p->extent;
    size_t step = at_once(e, p->srcPtr.ysize, p->dstPtr.ysize);
    bool thick = e->depth > 1; // then slices are ysize rows apart
    if (thick && (p->srcPtr.ysize < e->height || p->dstPtr.ysize < e->height))
        return sim_leave(cudaErrorInvalidValue);
    for (size_t slice = 0; slice < e->depth && e->width && e->height; slice += step) {
        SimRows rows = {place(p->dstPtr, p->dstPos, slice),
                        place(p->srcPtr, p->srcPos, slice),
                        p->dstPtr.pitch,
                        p->srcPtr.pitch,
                        e->width,
                        e->height * step,
                        p->kind};
        cudaError_t error = sim_copy_rows(name, site, rows, async, stream);
        if (error != cudaSuccess) return error;
    }
    return cudaSuccess;
}

cudaError_t cudaMemcpy3D(const struct cudaMemcpy3DParms *p)
{
    return copy("cudaMemcpy3D", p, false, NULL, SIM_SITE);
}

cudaError_t cudaMemcpy3DAsync(const struct cudaMemcpy3DParms *p, cudaStream_t stream)
{
    return copy("cudaMemcpy3DAsync", p, true, stream, SIM_SITE);
}

static cudaError_t fill(const char *name, struct cudaPitchedPtr to, int value, struct cudaExtent e,
                        cudaStream_t stream, const void *site)
{
    SIM_ENTER_AS(name, site);
    size_t step = at_once(&e, to.ysize, to.ysize);
    if (e.depth > 1 && to.ysize < e.height) return sim_leave(cudaErrorInvalidValue);
    for (size_t slice = 0; slice < e.depth && e.width && e.height; slice += step) {
        char *at = place(to, (struct cudaPos){0, 0, 0}, slice);
        cudaError_t error =
            sim_fill_rows(name, at, to.pitch, value, e.width, e.height * step, stream, site);
        if (error != cudaSuccess) return error;
    }
    return cudaSuccess;
}

cudaError_t cudaMemset3D(struct cudaPitchedPtr pitchedDevPtr, int value, struct cudaExtent extent)
{
    return fill("cudaMemset3D", pitchedDevPtr, value, extent, NULL, SIM_SITE);
}

cudaError_t cudaMemset3DAsync(struct cudaPitchedPtr pitchedDevPtr, int value,
                              struct cudaExtent extent, cudaStream_t stream)
{
    return fill("cudaMemset3DAsync", pitchedDevPtr, value, extent, stream, SIM_SITE);
}
