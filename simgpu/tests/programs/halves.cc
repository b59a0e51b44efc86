/* Gradients in 16 bits, averaged over all devices: half and bfloat16, filled and read on the host
 * with CUDA's own types. One thread, all devices.
 */
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <nccl.h>

#include <cmath>
#include <vector>

#include "ok.h"

static int devices, wrong;
static std::vector<ncclComm_t> comm;
static std::vector<cudaStream_t> stream;

// `step` is the distance of two neighbours between 1 and 2.
template <class T> static void average(ncclDataType_t type, float step)
{
    const size_t count = 1000;
    std::vector<T *> x(devices);
    std::vector<T> host(count);
    for (int d = 0; d < devices; d++) {
        OK(cudaSetDevice(d));
        OK(cudaMallocAsync(&x[d], count * sizeof(T), stream[d]));
        for (size_t i = 0; i < count; i++) host[i] = T(1 + float(i) / 1000 + float(d) / 8);
        OK(cudaMemcpyAsync(x[d], host.data(), count * sizeof(T), cudaMemcpyHostToDevice,
                           stream[d]));
        OK(cudaStreamSynchronize(stream[d]));
    }
    OK(ncclGroupStart());
    for (int d = 0; d < devices; d++)
        OK(ncclAllReduce(x[d], x[d], count, type, ncclAvg, comm[d], stream[d]));
    OK(ncclGroupEnd());
    for (int d = 0; d < devices; d++) {
        OK(cudaSetDevice(d));
        OK(cudaMemcpyAsync(host.data(), x[d], count * sizeof(T), cudaMemcpyDeviceToHost,
                           stream[d]));
        OK(cudaFreeAsync(x[d], stream[d]));
        OK(cudaStreamSynchronize(stream[d]));
        for (size_t i = 0; i < count; i++) {
            float want = 1 + float(i) / 1000 + float(devices - 1) / 16;
            wrong += !(std::fabs(float(host[i]) - want) <= 2 * step * float(devices));
        }
    }
}

// From and to float: what is exact stays, ties go to even, and the ends of the range.
static void convert()
{
    for (int i = 0; i < 0x7c00; i++) {
        __half_raw raw = {(unsigned short)i};
        wrong += __half_raw(__float2half(__half2float(__half(raw)))).x != i;
    }
    for (int i = 0; i < 0x7f80; i++) {
        __nv_bfloat16_raw raw = {(unsigned short)i};
        wrong += __nv_bfloat16_raw(__float2bfloat16(__bfloat162float(__nv_bfloat16(raw)))).x != i;
    }
    wrong += __half_raw(__float2half(2049.0f)).x != __half_raw(__float2half(2048.0f)).x;
    wrong += __half_raw(__float2half(2051.0f)).x != __half_raw(__float2half(2052.0f)).x;
    wrong += __half2float(__float2half(65504.0f)) != 65504.0f;
    wrong += !std::isinf(__half2float(__float2half(65520.0f)));
    wrong += __half2float(__float2half(-0x1p-24f)) != -0x1p-24f;
    wrong += __half2float(__float2half(0x1p-25f)) != 0.0f;
    wrong += !std::isnan(__half2float(__float2half(NAN)));
    wrong += __bfloat162float(__float2bfloat16(257.0f)) != 256.0f;
    wrong += __bfloat162float(__float2bfloat16(259.0f)) != 260.0f;
}

int main()
{
    OK(cudaGetDeviceCount(&devices));
    comm.resize(devices);
    stream.resize(devices);
    OK(ncclCommInitAll(comm.data(), devices, nullptr));
    for (int d = 0; d < devices; d++) {
        OK(cudaSetDevice(d));
        OK(cudaStreamCreateWithFlags(&stream[d], cudaStreamNonBlocking));
    }
    convert();
    average<__half>(ncclFloat16, 1.0f / 1024);
    average<__nv_bfloat16>(ncclBfloat16, 1.0f / 128);
    for (int d = 0; d < devices; d++) {
        OK(cudaSetDevice(d));
        OK(cudaStreamDestroy(stream[d]));
        OK(ncclCommDestroy(comm[d]));
    }
    printf("%d devices, %d wrong\n", devices, wrong);
    return wrong != 0;
}
