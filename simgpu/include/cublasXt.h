/* cublasXt.h: simgpu has no cuBLASXt, which spreads products over several devices by itself. */
#error "simgpu has no cuBLASXt: call cuBLAS (cublas_v2.h) on each device"
