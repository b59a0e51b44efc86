/* A program with a write and a read of its own, as tools that trace or inject faults have them, and
 * the C library's pwrite and pread: what a device computes goes through a file and back. And with
 * an ncclAllReduce of its own, which calls NCCL's by its second name.
 */
#define _GNU_SOURCE
#include <cuda_runtime.h>
#include <nccl.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ok.h"

enum { BYTES = 4096 };

static int writes, reads, sums;

ssize_t write(int fd, const void *buf, size_t n)
{
    writes++;
    return syscall(SYS_write, fd, buf, n);
}

ssize_t read(int fd, void *buf, size_t n)
{
    reads++;
    return syscall(SYS_read, fd, buf, n);
}

ncclResult_t ncclAllReduce(const void *sendbuff, void *recvbuff, size_t count,
                           ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream)
{
    sums++;
    return pncclAllReduce(sendbuff, recvbuff, count, datatype, op, comm, stream);
}

int main(void)
{
    ncclComm_t comm;
    int devices, wrong = 0, fd;
    FILE *file = tmpfile();
    unsigned char *host, *device;
    MUST(file);
    fd = fileno(file);
    OK(cudaGetDeviceCount(&devices));
    OK(cudaMallocHost((void **)&host, BYTES));
    for (int d = 0; d < devices; d++) {
        OK(cudaSetDevice(d));
        OK(cudaMalloc((void **)&device, BYTES));
        OK(cudaMemset(device, d + 1, BYTES));
        OK(ncclCommInitAll(&comm, 1, &d));
        OK(ncclAllReduce(device, device, BYTES, ncclUint8, ncclSum, comm, NULL));
        OK(cudaStreamSynchronize(NULL));
        OK(ncclCommDestroy(comm));
        OK(cudaMemcpyAsync(host, device, BYTES, cudaMemcpyDeviceToHost, NULL));
        OK(cudaStreamSynchronize(NULL));
        MUST(write(fd, host, BYTES) == BYTES && pwrite(fd, host, BYTES, BYTES) == BYTES);
        memset(host, 0, BYTES);
        MUST(lseek(fd, 0, SEEK_SET) == 0 && read(fd, host, BYTES) == BYTES);
        for (int i = 0; i < BYTES; i++) wrong += host[i] != d + 1;
        memset(host, 0, BYTES);
        MUST(pread(fd, host, BYTES, BYTES) == BYTES && lseek(fd, 0, SEEK_SET) == 0);
        for (int i = 0; i < BYTES; i++) wrong += host[i] != d + 1;
        OK(cudaFree(device));
    }
    OK(cudaFreeHost(host));
    MUST(writes >= devices && reads >= devices && sums == devices);
    fclose(file);
    printf("%d devices, %d wrong\n", devices, wrong);
    return wrong != 0;
}
