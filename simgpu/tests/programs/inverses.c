/* Many small systems at once, as programs for physics have them: in factors, solved and inverted;
 * with a product as the check, on every device.
 */
#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <math.h>

#include "ok.h"

enum { N = 4, BATCH = 3 };

static double host[BATCH][N * N];

// The matrices in device memory, and the addresses of them there.
typedef struct Batch {
    double *at[BATCH], **list;
} Batch;

static Batch upload(int rows, int cols)
{
    Batch b;
    for (int i = 0; i < BATCH; i++) {
        OK(cudaMalloc((void **)&b.at[i], (size_t)(rows * cols) * sizeof **b.at));
        OK(cublasSetMatrix(rows, cols, sizeof **b.at, host[i], rows, b.at[i], rows));
    }
    OK(cudaMalloc((void **)&b.list, sizeof b.at));
    OK(cudaMemcpy(b.list, b.at, sizeof b.at, cudaMemcpyHostToDevice));
    return b;
}

static void release(Batch *b)
{
    for (int i = 0; i < BATCH; i++) OK(cudaFree(b->at[i]));
    OK(cudaFree(b->list));
}

// What is not as near to A·B = 1 as it must be.
static int no_inverse(cublasHandle_t blas, const Batch *A, const Batch *B, const Batch *C)
{
    const double one = 1, zero = 0;
    double c[N * N];
    int wrong = 0;
    OK(cublasDgemmBatched(blas, CUBLAS_OP_N, CUBLAS_OP_N, N, N, N, &one,
                          (const double *const *)A->list, N, (const double *const *)B->list, N,
                          &zero, C->list, N, BATCH));
    for (int i = 0; i < BATCH; i++) {
        OK(cublasGetMatrix(N, N, sizeof *c, C->at[i], N, c, N));
        for (int j = 0; j < N * N; j++) wrong += !(fabs(c[j] - (j % (N + 1) == 0)) < 1e-12);
    }
    return wrong;
}

static int inverses(cublasHandle_t blas)
{
    Batch A = upload(N, N), B = upload(N, N), C = upload(N, N), LU = upload(N, N);
    int *pivots, *info, state[BATCH], host_info = 1, wrong = 0;
    OK(cudaMalloc((void **)&pivots, BATCH * N * sizeof *pivots));
    OK(cudaMalloc((void **)&info, BATCH * sizeof *info));
    OK(cublasDmatinvBatched(blas, N, (const double *const *)A.list, N, B.list, N, info, BATCH));
    wrong += no_inverse(blas, &A, &B, &C);
    OK(cublasDgetrfBatched(blas, N, LU.list, N, pivots, info, BATCH));
    OK(cublasDgetriBatched(blas, N, (const double *const *)LU.list, N, pivots, B.list, N, info,
                           BATCH));
    wrong += no_inverse(blas, &A, &B, &C);
    OK(cudaMemcpy(state, info, sizeof state, cudaMemcpyDeviceToHost));
    for (int i = 0; i < BATCH; i++) wrong += state[i] != 0;
    // A·X = A has the solution 1, and so has A·(A·X) = A with the inverse before.
    for (int i = 0; i < BATCH; i++)
        OK(cublasSetMatrix(N, N, sizeof(double), host[i], N, B.at[i], N));
    OK(cublasDgetrsBatched(blas, CUBLAS_OP_N, N, N, (const double *const *)LU.list, N, pivots,
                           B.list, N, &host_info, BATCH));
    OK(cublasDmatinvBatched(blas, N, (const double *const *)B.list, N, A.list, N, info, BATCH));
    wrong += no_inverse(blas, &A, &B, &C) + host_info;
    OK(cudaFree(pivots));
    OK(cudaFree(info));
    release(&A);
    release(&B);
    release(&C);
    release(&LU);
    return wrong;
}

int main(void)
{
    int devices, wrong = 0;
    for (int i = 0; i < BATCH; i++)
        for (int j = 0; j < N * N; j++)
            host[i][j] = ((j * 7 + i) % 11 - 5) / 4.0 + (j % 5 == 0 ? 4 : 0);
    OK(cudaGetDeviceCount(&devices));
    for (int d = 0; d < devices; d++) {
        cublasHandle_t blas;
        OK(cudaSetDevice(d));
        OK(cublasCreate(&blas));
        wrong += inverses(blas);
        OK(cublasDestroy(blas));
    }
    printf("%d devices, %d wrong\n", devices, wrong);
    return wrong != 0;
}
