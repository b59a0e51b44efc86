/* Managed memory: one pointer for the host, cuBLAS and NCCL. Each device multiplies a matrix that
 * the host wrote, and the host reads the sum of all products where it lies.
 */
#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <nccl.h>

#include <vector>

#include "ok.h"

static constexpr int n = 31;

struct Device {
    int index;
    float *a = nullptr, *b = nullptr, *c = nullptr;
    cudaStream_t stream;
    cublasHandle_t blas;

    explicit Device(int i) : index(i)
    {
        OK(cudaSetDevice(index));
        OK(cudaStreamCreate(&stream));
        OK(cublasCreate(&blas));
        OK(cublasSetStream(blas, stream));
        OK(cudaMallocManaged(&a, n * n * sizeof(float)));
        OK(cudaMallocManaged(&b, n * n * sizeof(float), cudaMemAttachGlobal));
        OK(cudaMallocManaged(&c, n * n * sizeof(float)));
    }
    void release()
    {
        OK(cudaSetDevice(index));
        OK(cudaFree(a));
        OK(cudaFree(b));
        OK(cudaFree(c));
        OK(cublasDestroy(blas));
        OK(cudaStreamDestroy(stream));
    }
    // The host fills in place: a is (index + 1) times the identity, b counts.
    void fill()
    {
        for (int i = 0; i < n * n; i++) {
            a[i] = i % (n + 1) == 0 ? float(index + 1) : 0.0f;
            b[i] = float(i % 13);
        }
        OK(cudaSetDevice(index)); // a memset runs on the default stream of the current device
        OK(cudaMemset(c, 0, n * n * sizeof(float)));
    }
    void multiply()
    {
        const float one = 1, zero = 0;
        cudaMemLocation here = {cudaMemLocationTypeDevice, index};
        OK(cudaSetDevice(index));
        OK(cudaMemAdvise(a, n * n * sizeof(float), cudaMemAdviseSetReadMostly, here));
        OK(cudaMemPrefetchAsync(a, n * n * sizeof(float), here, 0, stream));
        OK(cudaMemPrefetchAsync(b, n * n * sizeof(float), here, 0, stream));
        OK(cublasSgemm(blas, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &one, a, n, b, n, &zero, c, n));
    }
};

int main()
{
    int count, wrong = 0, managed = 0;
    OK(cudaGetDeviceCount(&count));
    std::vector<Device> devices;
    std::vector<ncclComm_t> comm(count);
    for (int d = 0; d < count; d++) devices.emplace_back(d);
    OK(cudaDeviceGetAttribute(&managed, cudaDevAttrManagedMemory, 0));
    MUST(managed);
    cudaPointerAttributes attributes;
    OK(cudaPointerGetAttributes(&attributes, devices[0].a + 5));
    MUST(attributes.type == cudaMemoryTypeManaged && attributes.hostPointer == devices[0].a + 5);
    OK(ncclCommInitAll(comm.data(), count, nullptr));
    for (Device &d : devices) d.fill();
    for (Device &d : devices) d.multiply();
    OK(ncclGroupStart());
    for (Device &d : devices)
        OK(ncclAllReduce(d.c, d.c, n * n, ncclFloat, ncclSum, comm[d.index], d.stream));
    OK(ncclGroupEnd());
    std::vector<float> copy(n * n);
    for (Device &d : devices) {
        OK(cudaStreamSynchronize(d.stream));
        OK(cudaMemcpy(copy.data(), d.c, n * n * sizeof(float), cudaMemcpyDefault));
        for (int i = 0; i < n * n; i++) {
            float want = float(i % 13) * float(count * (count + 1) / 2);
            wrong += d.c[i] != want || copy[i] != want;
        }
    }
    for (Device &d : devices) d.release();
    for (ncclComm_t c : comm) OK(ncclCommDestroy(c));
    printf("%d devices, %d wrong\n", count, wrong);
    return wrong != 0;
}
