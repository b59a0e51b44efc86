/* Scatter, gather, all-to-all and a swap with the neighbours, each made of sends and receives in a
 * group, as NCCL's documentation has them. One thread serves all devices.
 */
#include <cuda_runtime.h>
#include <nccl.h>

#include "ok.h"

enum { MOST = 64, PIECE = 97 };

static int devices;
static ncclComm_t comm[MOST];
static cudaStream_t stream[MOST];
static int *from[MOST], *to[MOST]; // (devices, PIECE)
static int host[MOST * PIECE];

// Element i of device d's buffer.
static int mark(int d, int i)
{
    return d * 100000 + i;
}

static void fill(void)
{
    for (int d = 0; d < devices; d++) {
        OK(cudaSetDevice(d));
        for (int i = 0; i < devices * PIECE; i++) host[i] = mark(d, i);
        size_t bytes = (size_t)devices * PIECE * sizeof *host;
        OK(cudaMemcpyAsync(from[d], host, bytes, cudaMemcpyHostToDevice, stream[d]));
        OK(cudaMemsetAsync(to[d], 0, bytes, stream[d]));
    }
}

static const int *fetch(int d)
{
    OK(cudaSetDevice(d));
    OK(cudaMemcpyAsync(host, to[d], (size_t)devices * PIECE * sizeof *host, cudaMemcpyDeviceToHost,
                       stream[d]));
    OK(cudaStreamSynchronize(stream[d]));
    return host;
}

static int scatter(int root)
{
    int wrong = 0;
    fill();
    OK(ncclGroupStart());
    for (int d = 0; d < devices; d++)
        OK(ncclSend(from[root] + d * PIECE, PIECE, ncclInt, d, comm[root], stream[root]));
    for (int d = 0; d < devices; d++) OK(ncclRecv(to[d], PIECE, ncclInt, root, comm[d], stream[d]));
    OK(ncclGroupEnd());
    for (int d = 0; d < devices; d++)
        for (int i = 0; i < PIECE; i++) wrong += fetch(d)[i] != mark(root, d * PIECE + i);
    return wrong;
}

static int gather(int root)
{
    int wrong = 0;
    fill();
    OK(ncclGroupStart());
    for (int d = 0; d < devices; d++) {
        OK(ncclRecv(to[root] + d * PIECE, PIECE, ncclInt, d, comm[root], stream[root]));
        OK(ncclSend(from[d], PIECE, ncclInt, root, comm[d], stream[d]));
    }
    OK(ncclGroupEnd());
    fetch(root);
    for (int i = 0; i < devices * PIECE; i++) wrong += host[i] != mark(i / PIECE, i % PIECE);
    return wrong;
}

static int all_to_all(void)
{
    int wrong = 0;
    fill();
    OK(ncclGroupStart());
    for (int d = 0; d < devices; d++)
        for (int peer = 0; peer < devices; peer++) {
            OK(ncclSend(from[d] + peer * PIECE, PIECE, ncclInt, peer, comm[d], stream[d]));
            OK(ncclRecv(to[d] + peer * PIECE, PIECE, ncclInt, peer, comm[d], stream[d]));
        }
    OK(ncclGroupEnd());
    for (int d = 0; d < devices; d++) {
        fetch(d);
        for (int i = 0; i < devices * PIECE; i++)
            wrong += host[i] != mark(i / PIECE, d * PIECE + i % PIECE);
    }
    return wrong;
}

// On a line: the ends have one neighbour.
static int neighbours(void)
{
    int wrong = 0;
    fill();
    OK(ncclGroupStart());
    for (int d = 0; d < devices; d++)
        for (int side = -1; side <= 1; side += 2) {
            int peer = d + side;
            if (peer < 0 || peer >= devices) continue;
            OK(ncclSend(from[d], 1, ncclInt, peer, comm[d], stream[d]));
            OK(ncclRecv(to[d] + (side + 1) / 2, 1, ncclInt, peer, comm[d], stream[d]));
        }
    OK(ncclGroupEnd());
    for (int d = 0; d < devices; d++) {
        fetch(d);
        wrong += host[0] != (d > 0 ? mark(d - 1, 0) : 0);
        wrong += host[1] != (d < devices - 1 ? mark(d + 1, 0) : 0);
    }
    return wrong;
}

int main(void)
{
    OK(cudaGetDeviceCount(&devices));
    OK(ncclCommInitAll(comm, devices, NULL));
    size_t bytes = (size_t)devices * PIECE * sizeof **from;
    for (int d = 0; d < devices; d++) {
        OK(cudaSetDevice(d));
        OK(cudaStreamCreate(&stream[d]));
        OK(cudaMalloc((void **)&from[d], bytes));
        OK(cudaMalloc((void **)&to[d], bytes));
    }
    int wrong = all_to_all() + neighbours();
    for (int root = 0; root < devices; root++) wrong += scatter(root) + gather(root);
    for (int d = 0; d < devices; d++) {
        OK(cudaSetDevice(d));
        OK(cudaFree(from[d]));
        OK(cudaFree(to[d]));
        OK(cudaStreamDestroy(stream[d]));
        OK(ncclCommDestroy(comm[d]));
    }
    printf("%d devices, %d wrong\n", devices, wrong);
    return wrong != 0;
}
