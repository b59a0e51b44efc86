/* cuBLAS as older programs call it (cublas.h): cublasInit instead of handles, letters instead of
 * enums, results by value, and cublasGetError at the end; on every device, each result against
 * loops on the host.
 */
#include <cublas.h>
#include <math.h>

#include "ok.h"

enum { M = 6, N = 4, K = 5 };

static int differs(double got, double want)
{
    return !(fabs(got - want) <= 1e-12 * (1 + fabs(want)));
}

static double *upload(const double *host, int rows, int cols)
{
    void *x;
    OK(cublasAlloc(rows * cols, sizeof *host, &x));
    OK(cublasSetMatrix(rows, cols, sizeof *host, host, rows, x, rows));
    return x;
}

// C = Aᵀ·B, then the triangle of the first columns of A is solved for, and multiplied again.
static int matrices(const double *a, const double *b)
{
    double c[M * N], back[M * N];
    int wrong = 0;
    double *A = upload(a, K, M), *B = upload(b, K, N), *C = upload(a, M, N);
    cublasDgemm('T', 'n', M, N, K, 1.0, A, K, B, K, 0.0, C, M);
    OK(cublasGetMatrix(M, N, sizeof *c, C, M, c, M));
    for (int j = 0; j < N; j++)
        for (int i = 0; i < M; i++) {
            double sum = 0;
            for (int k = 0; k < K; k++) sum += a[i * K + k] * b[j * K + k];
            wrong += differs(c[j * M + i], sum);
        }
    cublasDtrsm('L', 'U', 'N', 'N', K, N, 2.0, A, K, C, M);
    cublasDtrmm('L', 'U', 'N', 'N', K, N, 0.5, A, K, C, M);
    OK(cublasGetMatrix(M, N, sizeof *c, C, M, back, M));
    for (int i = 0; i < M * N; i++) wrong += !(fabs(back[i] - c[i]) <= 1e-9 * (1 + fabs(c[i])));
    OK(cublasFree(A));
    OK(cublasFree(B));
    OK(cublasFree(C));
    return wrong;
}

static int vectors(const double *a)
{
    double sum = 0, squares = 0, y[K];
    int largest = 0, wrong = 0;
    double *A = upload(a, K, M), *x = upload(a, M, 1), *to = upload(a, K, 1);
    for (int i = 0; i < M; i++) {
        sum += fabs(a[i]);
        squares += a[i] * a[i];
        if (fabs(a[i]) > fabs(a[largest])) largest = i;
    }
    wrong += differs(cublasDasum(M, x, 1), sum) + differs(cublasDnrm2(M, x, 1), sqrt(squares));
    wrong += differs(cublasDdot(M, x, 1, x, 1), squares) + (cublasIdamax(M, x, 1) != largest + 1);
    cublasDscal(M, 3.0, x, 1);
    cublasDgemv('N', K, M, 2.0, A, K, x, 1, 1.0, to, 1);
    OK(cublasGetVector(K, sizeof *y, to, 1, y, 1));
    for (int i = 0; i < K; i++) {
        double want = a[i];
        for (int j = 0; j < M; j++) want += 2.0 * a[j * K + i] * 3.0 * a[j];
        wrong += differs(y[i], want);
    }
    OK(cublasFree(A));
    OK(cublasFree(x));
    OK(cublasFree(to));
    return wrong;
}

int main(void)
{
    double a[M * K], b[M * K];
    int devices, wrong = 0;
    for (int i = 0; i < M * K; i++) {
        a[i] = (i * 7 % 11 - 5) / 4.0 + (i % (K + 1) == 0 ? 8 : 0);
        b[i] = (i * 5 % 13 - 6) / 8.0;
    }
    OK(cudaGetDeviceCount(&devices));
    for (int d = 0; d < devices; d++) {
        cudaStream_t stream;
        OK(cudaSetDevice(d));
        OK(cublasInit());
        OK(cudaStreamCreate(&stream));
        wrong += matrices(a, b) + vectors(a);
        OK(cublasSetKernelStream(stream));
        wrong += vectors(a);
        OK(cublasSetKernelStream(NULL));
        OK(cudaStreamDestroy(stream));
    }
    OK(cublasGetError());
    OK(cublasShutdown());
    printf("%d devices, %d wrong\n", devices, wrong);
    return wrong != 0;
}
