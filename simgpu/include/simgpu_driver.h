/* simgpu_driver.h: the calls of the CUDA driver that cuda.h declares and simgpu refuses. */
#ifndef SIMGPU_DRIVER_H
#define SIMGPU_DRIVER_H

// One row a call: name, parameters, and what the runtime has in its place.
// clang-format off
#define SIMGPU_DRIVER_CALLS(CALL)                                                                  \
    CALL(cuInit, (unsigned int Flags), "every call of the runtime does it")                        \
    CALL(cuDriverGetVersion, (int *driverVersion), "use cudaDriverGetVersion")                     \
    CALL(cuGetErrorName, (CUresult error, const char **pStr), "use cudaGetErrorName")              \
    CALL(cuGetErrorString, (CUresult error, const char **pStr), "use cudaGetErrorString")          \
    CALL(cuDeviceGet, (CUdevice *device, int ordinal), "use cudaSetDevice")                        \
    CALL(cuDeviceGetCount, (int *count), "use cudaGetDeviceCount")                                 \
    CALL(cuDeviceGetName, (char *name, int len, CUdevice dev), "use cudaGetDeviceProperties")      \
    CALL(cuDeviceGetAttribute, (int *pi, CUdevice_attribute attrib, CUdevice dev),                 \
         "use cudaDeviceGetAttribute")                                                             \
    CALL(cuDeviceTotalMem_v2, (size_t *bytes, CUdevice dev), "use cudaGetDeviceProperties")        \
    CALL(cuDevicePrimaryCtxRetain, (CUcontext *pctx, CUdevice dev), "use cudaSetDevice")           \
    CALL(cuDevicePrimaryCtxRelease_v2, (CUdevice dev), "use cudaDeviceReset")                      \
    CALL(cuCtxCreate_v4,                                                                           \
         (CUcontext *pctx, CUctxCreateParams *params, unsigned int flags, CUdevice dev),           \
         "use cudaSetDevice")                                                                      \
    CALL(cuCtxDestroy_v2, (CUcontext ctx), "use cudaDeviceReset")                                  \
    CALL(cuCtxGetCurrent, (CUcontext *pctx), "use cudaGetDevice")                                  \
    CALL(cuCtxSetCurrent, (CUcontext ctx), "use cudaSetDevice")                                    \
    CALL(cuCtxGetDevice, (CUdevice *device), "use cudaGetDevice")                                  \
    CALL(cuCtxSynchronize, (void), "use cudaDeviceSynchronize")                                    \
    CALL(cuModuleLoad, (CUmodule *module, const char *fname), "kernels are C functions here")      \
    CALL(cuModuleLoadData, (CUmodule *module, const void *image), "kernels are C functions here")  \
    CALL(cuModuleUnload, (CUmodule hmod), "kernels are C functions here")                          \
    CALL(cuModuleGetFunction, (CUfunction *hfunc, CUmodule hmod, const char *name),                \
         "kernels are C functions here")                                                           \
    CALL(cuLaunchKernel,                                                                           \
         (CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,       \
          unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,                  \
          unsigned int sharedMemBytes, CUstream hStream, void **kernelParams, void **extra),       \
         "kernels are C functions here")                                                           \
    CALL(cuMemGetInfo_v2, (size_t *free, size_t *total), "use cudaMemGetInfo")                     \
    CALL(cuMemAlloc_v2, (CUdeviceptr *dptr, size_t bytesize), "use cudaMalloc")                    \
    CALL(cuMemFree_v2, (CUdeviceptr dptr), "use cudaFree")                                         \
    CALL(cuMemcpyHtoD_v2, (CUdeviceptr dst, const void *src, size_t bytes), "use cudaMemcpy")      \
    CALL(cuMemcpyDtoH_v2, (void *dst, CUdeviceptr src, size_t bytes), "use cudaMemcpy")            \
    CALL(cuMemcpyDtoD_v2, (CUdeviceptr dst, CUdeviceptr src, size_t bytes), "use cudaMemcpy")      \
    CALL(cuMemsetD8_v2, (CUdeviceptr dst, unsigned char uc, size_t n), "use cudaMemset")           \
    CALL(cuStreamCreate, (CUstream *phStream, unsigned int Flags), "use cudaStreamCreateWithFlags")\
    CALL(cuStreamSynchronize, (CUstream hStream), "use cudaStreamSynchronize")                     \
    CALL(cuStreamDestroy_v2, (CUstream hStream), "use cudaStreamDestroy")                          \
    CALL(cuEventCreate, (CUevent *phEvent, unsigned int Flags), "use cudaEventCreateWithFlags")    \
    CALL(cuEventRecord, (CUevent hEvent, CUstream hStream), "use cudaEventRecord")                 \
    CALL(cuEventSynchronize, (CUevent hEvent), "use cudaEventSynchronize")                         \
    CALL(cuEventDestroy_v2, (CUevent hEvent), "use cudaEventDestroy")
// clang-format on

#endif
