/* The levels of cuBLAS, as its samples call them: vectors, matrix times vector, products, plain and
 * in batches, on every device; each result against loops on the host.
 */
#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <math.h>

#include "ok.h"

enum { M = 9, N = 7, K = 5, BATCH = 3 };

static float A[BATCH][M * K], B[BATCH][K * N], C[BATCH][M * N];

static int differs(float got, double want)
{
    return !(fabs(got - want) <= 1e-5 * (1 + fabs(want)));
}

static void fill(float *x, int n, int seed)
{
    for (int i = 0; i < n; i++) x[i] = (float)((i * 37 + seed * 11) % 19 - 9) / 8;
}

static float *upload(const float *host, int rows, int cols)
{
    float *x;
    OK(cudaMalloc((void **)&x, (size_t)(rows * cols) * sizeof *x));
    OK(cublasSetMatrix(rows, cols, sizeof *x, host, rows, x, rows));
    return x;
}

static int check_product(const float *c, const float *a, const float *b)
{
    int wrong = 0;
    for (int j = 0; j < N; j++)
        for (int i = 0; i < M; i++) {
            double sum = 0;
            for (int k = 0; k < K; k++) sum += (double)a[k * M + i] * b[j * K + k];
            wrong += differs(c[j * M + i], 2 * sum);
        }
    return wrong;
}

static int products(cublasHandle_t blas)
{
    const float two = 2, zero = 0;
    int wrong = 0;
    float *a = upload(A[0], M, K * BATCH), *b = upload(B[0], K, N * BATCH), *c;
    OK(cudaMalloc((void **)&c, sizeof C));
    OK(cublasSgemm(blas, CUBLAS_OP_N, CUBLAS_OP_N, M, N, K, &two, a, M, b, K, &zero, c, M));
    OK(cublasGetMatrix(M, N, sizeof *c, c, M, C[0], M));
    wrong += check_product(C[0], A[0], B[0]);
    OK(cublasGemmEx(blas, CUBLAS_OP_N, CUBLAS_OP_N, M, N, K, &two, a, CUDA_R_32F, M, b, CUDA_R_32F,
                    K, &zero, c, CUDA_R_32F, M, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
    OK(cublasGetMatrix(M, N, sizeof *c, c, M, C[0], M));
    wrong += check_product(C[0], A[0], B[0]);
    OK(cublasSgemmStridedBatched(blas, CUBLAS_OP_N, CUBLAS_OP_N, M, N, K, &two, a, M, M * K, b, K,
                                 K * N, &zero, c, M, M * N, BATCH));
    OK(cublasGetMatrix(M, N * BATCH, sizeof *c, c, M, C[0], M));
    for (int i = 0; i < BATCH; i++) wrong += check_product(C[i], A[i], B[i]);
    OK(cudaFree(a));
    OK(cudaFree(b));
    OK(cudaFree(c));
    return wrong;
}

static int vectors(cublasHandle_t blas)
{
    const float three = 3, one = 1, zero = 0;
    float x[M * K], y[M * K], out[M], dot, norm, sum, *result;
    double want_dot = 0, squares = 0, sizes = 0;
    int wrong = 0;
    fill(x, M * K, 1);
    fill(y, M * K, 2);
    float *dx = upload(x, M, K), *dy = upload(y, M, K);
    OK(cublasSdot(blas, M * K, dx, 1, dy, 1, &dot));
    OK(cublasSnrm2(blas, M * K, dx, 1, &norm));
    OK(cublasSasum(blas, M * K, dx, 1, &sum));
    for (int i = 0; i < M * K; i++) {
        want_dot += (double)x[i] * y[i];
        squares += (double)x[i] * x[i];
        sizes += fabs(x[i]);
    }
    wrong += differs(dot, want_dot) + differs(norm, sqrt(squares)) + differs(sum, sizes);

    OK(cublasSaxpy(blas, M * K, &three, dx, 1, dy, 1));
    OK(cublasSscal(blas, M * K, &three, dx, 1));
    OK(cublasGetVector(M * K, sizeof *dy, dy, 1, y, 1));
    OK(cublasScopy(blas, K, dy, 1, dx, 1)); // x: K values of y
    OK(cublasSgemv(blas, CUBLAS_OP_N, M, K, &one, dy, M, dx, 1, &zero, dx + 2 * K, 1));
    OK(cublasGetVector(M, sizeof *dx, dx + 2 * K, 1, out, 1));
    for (int i = 0; i < M; i++) {
        double want = 0;
        for (int k = 0; k < K; k++) want += (double)y[k * M + i] * y[k];
        wrong += differs(out[i], want);
    }

    // A result that stays on the device.
    OK(cudaMalloc((void **)&result, sizeof *result));
    OK(cublasSetPointerMode(blas, CUBLAS_POINTER_MODE_DEVICE));
    OK(cublasSnrm2(blas, M, dx + 2 * K, 1, result));
    OK(cublasSetPointerMode(blas, CUBLAS_POINTER_MODE_HOST));
    OK(cudaMemcpy(&norm, result, sizeof norm, cudaMemcpyDeviceToHost));
    squares = 0;
    for (int i = 0; i < M; i++) squares += (double)out[i] * out[i];
    wrong += differs(norm, sqrt(squares));
    OK(cudaFree(result));
    OK(cudaFree(dx));
    OK(cudaFree(dy));
    return wrong;
}

int main(void)
{
    int devices, wrong = 0, version;
    OK(cudaGetDeviceCount(&devices));
    for (int i = 0; i < BATCH; i++) {
        fill(A[i], M * K, 3 + i);
        fill(B[i], K * N, 9 + i);
    }
    for (int d = 0; d < devices; d++) {
        cublasHandle_t blas;
        OK(cudaSetDevice(d));
        OK(cublasCreate(&blas));
        OK(cublasGetVersion(blas, &version));
        OK(cublasSetMathMode(blas, CUBLAS_PEDANTIC_MATH));
        wrong += products(blas) + vectors(blas);
        OK(cublasDestroy(blas));
    }
    printf("%d devices, %d wrong\n", devices, wrong);
    return wrong != 0;
}
