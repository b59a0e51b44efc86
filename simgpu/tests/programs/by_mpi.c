/* A process for each device under MPI, as NCCL's documentation begins: MPI gives the rank and
 * carries the id; the device is the rank's place on its host.
 */
#include <cuda_runtime.h>
#include <mpi.h>
#include <nccl.h>
#include <unistd.h>

#include "ok.h"

enum { COUNT = 1 << 12 };

static int local_rank(void)
{
    MPI_Comm host;
    int place;
    OK(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host));
    OK(MPI_Comm_rank(host, &place));
    OK(MPI_Comm_free(&host));
    return place;
}

int main(int argc, char **argv)
{
    int rank, ranks, wrong = 0, all_wrong;
    static float host[COUNT];
    float *from, *to;
    ncclUniqueId id;
    ncclComm_t comm;
    cudaStream_t stream;
    OK(MPI_Init(&argc, &argv));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &ranks));
    if (rank == 0) OK(ncclGetUniqueId(&id));
    OK(MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD));
    OK(cudaSetDevice(local_rank()));
    OK(cudaMalloc((void **)&from, sizeof host));
    OK(cudaMalloc((void **)&to, sizeof host));
    OK(cudaStreamCreate(&stream));
    OK(ncclCommInitRank(&comm, ranks, id, rank));
    for (int i = 0; i < COUNT; i++) host[i] = (float)(rank + i % 3);
    OK(cudaMemcpy(from, host, sizeof host, cudaMemcpyHostToDevice));
    OK(ncclAllReduce(from, to, COUNT, ncclFloat, ncclSum, comm, stream));
    OK(cudaStreamSynchronize(stream));
    OK(cudaMemcpy(host, to, sizeof host, cudaMemcpyDeviceToHost));
    for (int i = 0; i < COUNT; i++)
        wrong += host[i] != (float)(ranks * (ranks - 1) / 2 + ranks * (i % 3));
    OK(cudaFree(from));
    OK(cudaFree(to));
    OK(cudaStreamDestroy(stream));
    OK(ncclCommDestroy(comm));
    OK(MPI_Reduce(&wrong, &all_wrong, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD));
    if (rank == 0) printf("%d ranks, %d wrong\n", ranks, all_wrong);
    OK(MPI_Finalize());
    return wrong != 0;
}
