/* libraries.cc: cuBLAS as samples use it: matrices of doubles, complex numbers, halves and
 * bfloat16, batches by pointers, Set and Get, the words of CUDA C, and the vector types. Headers
 * are included as in samples: nccl.h alone for NCCL, cublas_v2.h without math.h.
 */
#include <cublas_v2.h>
#include <nccl.h>

#include <cstdio>
#include <vector>

#include "ok.h"

#ifndef __DRIVER_TYPES_H__
#error "driver_types.h has no guard macro"
#endif
#ifndef CUBLAS_API_H_
#error "cublas_api.h has no guard macro"
#endif
#ifndef __CUDA_RUNTIME_H__
#error "nccl.h does not include cuda_runtime.h"
#endif

static inline __host__ __device__ float2 twice(float2 v)
{
    return make_float2(2 * v.x, 2 * v.y);
}

template <class T> static T *send(const std::vector<T> &host)
{
    T *x = nullptr;
    OK(cudaMalloc(&x, host.size() * sizeof(T)));
    OK(cublasSetVector((int)host.size(), sizeof(T), host.data(), 1, x, 1));
    return x;
}

template <class T> static std::vector<T> receive(T *x, size_t n)
{
    std::vector<T> host(n);
    OK(cudaDeviceSynchronize());
    OK(cublasGetVector((int)n, sizeof(T), x, 1, host.data(), 1));
    OK(cudaFree(x));
    return host;
}

// (1 3; 2 4) · (5 7; 6 8), column by column.
template <class T> static std::vector<T> left()
{
    return {T(1.0f), T(2.0f), T(3.0f), T(4.0f)};
}
template <class T> static std::vector<T> right()
{
    return {T(5.0f), T(6.0f), T(7.0f), T(8.0f)};
}
static const float product[4] = {23, 34, 31, 46};

static void doubles(cublasHandle_t handle)
{
    double one = 1, zero = 0;
    double *A = send(left<double>()), *B = send(right<double>()), *C = send(left<double>());
    const std::vector<double *> lists = {A, B, C};
    double **list = send(lists);
    OK(cublasDgemmBatched(handle, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, &one, list, 2, list + 1, 2,
                          &zero, list + 2, 2, 1));
    std::vector<double> got = receive(C, 4);
    for (int i = 0; i < 4; i++) MUST(got[i] == product[i]);
    int largest = 0;
    OK(cublasIdamax(handle, 4, B, 1, &largest));
    MUST(largest == 4);
    OK(cudaFree(A));
    OK(cudaFree(B));
    OK(cudaFree(list));
}

static void complexes(cublasHandle_t handle)
{
    std::vector<cuComplex> x = {make_cuComplex(1, 2), make_cuComplex(3, -1)};
    cuComplex *d = send(x), result;
    OK(cublasCdotc(handle, 2, d, 1, d, 1, &result));
    MUST(cuCrealf(result) == 15.0f);
    MUST(cuCimagf(result) == 0.0f);
    float2 v = twice(x[0]);
    MUST(v.y == 4.0f);
    OK(cudaFree(d));
}

// The compute type named by a number format: the overload of cuBLAS 10.
template <class T> static void narrow(cublasHandle_t handle, cudaDataType type)
{
    float one = 1, zero = 0;
    T *A = send(left<T>()), *B = send(right<T>()), *C = send(left<T>());
    OK(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, &one, A, type, 2, B, type, 2, &zero,
                    C, type, 2, CUDA_R_32F, CUBLAS_GEMM_DEFAULT));
    std::vector<T> got = receive(C, 4);
    for (int i = 0; i < 4; i++) MUST((float)got[i] == product[i]);
    OK(cudaFree(A));
    OK(cudaFree(B));
}

int main()
{
    int devices = 0;
    dim3 grid(2);
    OK(cudaGetDeviceCount(&devices));
    MUST(grid.x * grid.y * grid.z == 2u);
    for (int i = 0; i < devices; i++) {
        cublasHandle_t handle;
        OK(cudaSetDevice(i));
        OK(cublasCreate(&handle));
        doubles(handle);
        complexes(handle);
        narrow<__half>(handle, CUDA_R_16F);
        narrow<__nv_bfloat16>(handle, CUDA_R_16BF);
        OK(cublasDestroy(handle));
    }
    std::printf("%d devices, 0 wrong\n", devices);
    return 0;
}
