/* pinned.c: pinned host memory. It is not logged, but making and freeing it may wait for the
 * device, and gpulog_activity then says so.
 *
 * Interface: the wrapped cudaMallocHost, cudaHostAlloc, cudaFreeHost, cudaHostRegister,
 * cudaHostUnregister.
 */
#include "interpose.h"

WRAPPED(cudaMallocHost);
WRAPPED(cudaHostAlloc);
WRAPPED(cudaFreeHost);
WRAPPED(cudaHostRegister);
WRAPPED(cudaHostUnregister);

cudaError_t __wrap_cudaMallocHost(void **ptr, size_t size)
{
    return WAITING("cudaMallocHost", SITE, __real_cudaMallocHost(ptr, size));
}

cudaError_t __wrap_cudaHostAlloc(void **pHost, size_t size, unsigned int flags)
{
    return WAITING("cudaHostAlloc", SITE, __real_cudaHostAlloc(pHost, size, flags));
}

cudaError_t __wrap_cudaFreeHost(void *ptr)
{
    return WAITING("cudaFreeHost", SITE, __real_cudaFreeHost(ptr));
}

cudaError_t __wrap_cudaHostRegister(void *ptr, size_t size, unsigned int flags)
{
    return WAITING("cudaHostRegister", SITE, __real_cudaHostRegister(ptr, size, flags));
}

cudaError_t __wrap_cudaHostUnregister(void *ptr)
{
    return WAITING("cudaHostUnregister", SITE, __real_cudaHostUnregister(ptr));
}
