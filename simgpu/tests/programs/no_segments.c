/* A program on a system without System V memory (shmget is its own, and fails): without arguments
 * it makes a communicator's id before it uses a device, as rank 0 of many programs does; with one
 * it uses a device.
 */
#include <cuda_runtime.h>
#include <errno.h>
#include <stdio.h>
#include <sys/shm.h>

#include "nccl.h"
#include "ok.h"

int shmget(key_t key, size_t size, int flags)
{
    (void)key, (void)size, (void)flags;
    errno = ENOSYS;
    return -1;
}

int main(int argc, char **argv)
{
    (void)argv;
    ncclUniqueId id;
    void *memory;
    if (argc > 1)
        OK(cudaMalloc(&memory, 1));
    else
        OK(ncclGetUniqueId(&id));
    printf("made\n");
    return 0;
}
