/* C++: the typed allocation calls of cuda_runtime.h, default arguments, and classes that own what
 * they hold.
 *
 * One thread and two devices: a matrix product on each (its own matrix times a column of ones) and
 * the sum of both.
 */
#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <nccl.h>

#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

static void check_line(bool ok, int line)
{
    if (!ok) throw std::runtime_error("line " + std::to_string(line));
}
#define CUDA(call) check_line((call) == cudaSuccess, __LINE__)
#define NCCL(call) check_line((call) == ncclSuccess, __LINE__)
#define CUBLAS(call) check_line((call) == CUBLAS_STATUS_SUCCESS, __LINE__)

template <class T> class Array
{
  public:
    explicit Array(std::size_t n) : n_(n)
    {
        CUDA(cudaMalloc(&data_, n * sizeof(T)));
    }
    Array(const Array &) = delete;
    Array &operator=(const Array &) = delete;
    ~Array()
    {
        cudaFree(data_);
    }
    void set(const std::vector<T> &from)
    {
        CUDA(cudaMemcpyAsync(data_, from.data(), n_ * sizeof(T), cudaMemcpyHostToDevice));
        CUDA(cudaDeviceSynchronize());
    }
    std::vector<T> get() const
    {
        std::vector<T> to(n_);
        CUDA(cudaMemcpy(to.data(), data_, n_ * sizeof(T), cudaMemcpyDeviceToHost));
        return to;
    }
    T *data() const
    {
        return data_;
    }

  private:
    T *data_ = nullptr;
    std::size_t n_;
};

static constexpr int rows = 13, columns = 7, devices = 2;

// Device d's matrix (rows, columns; columns first, as BLAS has it) holds d + 1 + row everywhere.
static void multiply(int d, Array<float> &matrix, Array<float> &ones, Array<float> &sums)
{
    std::vector<float> host(rows * columns);
    const float one = 1, zero = 0;
    cublasHandle_t handle;
    for (int i = 0; i < rows * columns; i++) host[i] = float(d + 1 + i % rows);
    matrix.set(host);
    ones.set(std::vector<float>(columns, 1));
    CUBLAS(cublasCreate(&handle));
    CUBLAS(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, rows, 1, columns, &one, matrix.data(),
                       rows, ones.data(), columns, &zero, sums.data(), rows));
    CUBLAS(cublasDestroy(handle));
}

static int run()
{
    ncclComm_t comm[devices];
    std::vector<Array<float> *> sums;
    int wrong = 0;
    NCCL(ncclCommInitAll(comm, devices, nullptr));
    for (int d = 0; d < devices; d++) {
        CUDA(cudaSetDevice(d));
        Array<float> matrix(rows * columns), ones(columns);
        sums.push_back(new Array<float>(rows));
        multiply(d, matrix, ones, *sums[d]);
        CUDA(cudaDeviceSynchronize());
    }
    NCCL(ncclGroupStart());
    for (int d = 0; d < devices; d++) {
        float *x = sums[d]->data();
        NCCL(ncclAllReduce(x, x, rows, ncclFloat, ncclSum, comm[d], nullptr));
    }
    NCCL(ncclGroupEnd());
    for (int d = 0; d < devices; d++) {
        CUDA(cudaSetDevice(d));
        CUDA(cudaDeviceSynchronize());
        std::vector<float> got = sums[d]->get();
        for (int row = 0; row < rows; row++)
            wrong += got[row] != float(columns * (1 + row) + columns * (2 + row));
        delete sums[d];
        NCCL(ncclCommDestroy(comm[d]));
    }
    return wrong;
}

int main()
{
    try {
        int wrong = run();
        std::printf("%d devices, %d wrong\n", devices, wrong);
        return wrong != 0;
    } catch (const std::exception &problem) {
        std::fprintf(stderr, "%s\n", problem.what());
        return 1;
    }
}
