/* A program with a write and a read of its own, as tools that trace or inject faults have them, and
 * the C library's pwrite and pread: what a device computes goes through a file and back.
 */
#define _GNU_SOURCE
#include <cuda_runtime.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ok.h"

enum { BYTES = 4096 };

static int writes, reads;

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

int main(void)
{
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
    MUST(writes >= devices && reads >= devices);
    fclose(file);
    printf("%d devices, %d wrong\n", devices, wrong);
    return wrong != 0;
}
