/* A program whose launcher's library has started a thread, as MPI does. It makes one device's call
 * and waits for the other device's: "library" hangs, as that thread only waits for messages; in
 * "callback" that thread makes the call, and in "own" a thread of the program does. "itself" has no
 * other thread, and makes an id's ranks one by one. "world" is rank 0 of a world whose other rank
 * has ended well.
 *
 * With -DLIBRARY this is the library.
 */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

void start_progress(void (*call)(void));

#ifdef LIBRARY
static void *progress(void *call)
{
    poll(NULL, 0, 400);
    if (call) ((void (*)(void))call)();
    poll(NULL, 0, -1);
    return NULL;
}

void start_progress(void (*call)(void))
{
    pthread_t thread;
    pthread_create(&thread, NULL, progress, (void *)call);
}
#else
#include <cuda_runtime.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "ok.h"

static ncclComm_t comm[2];
static float *x[2];

static void sum_on(int device)
{
    OK(cudaSetDevice(device));
    OK(ncclAllReduce(x[device], x[device], 1, ncclFloat, ncclSum, comm[device], NULL));
}

// As the launcher would, by SIMGPU_WORLD.
static void join_alone(void)
{
    ncclUniqueId id;
    char path[64];
    FILE *file = tmpfile();
    OK(!file || fprintf(file, "simgpu-world 1 2\n0 %d\n1 exited 0\n", (int)getpid()) < 0);
    OK(fflush(file));
    snprintf(path, sizeof path, "/proc/self/fd/%d", fileno(file));
    OK(setenv("SIMGPU_WORLD", path, 1));
    start_progress(NULL);
    OK(ncclGetUniqueId(&id));
    OK(ncclCommInitRank(&comm[0], 2, id, 0));
}

static atomic_bool second_done;

static void sum_on_second(void)
{
    sum_on(1);
    second_done = true;
}

static void *own_thread(void *arg)
{
    poll(NULL, 0, 400);
    sum_on_second();
    return arg;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    const char *how = argc > 1 ? argv[1] : "";
    if (strcmp(how, "itself") == 0) { // no thread at all, and no group
        ncclUniqueId id;
        OK(ncclGetUniqueId(&id));
        puts("two ranks");
        for (int rank = 0; rank < 2; rank++) OK(ncclCommInitRank(&comm[rank], 2, id, rank));
    }
    if (strcmp(how, "world") == 0) join_alone();
    OK(ncclCommInitAll(comm, 2, NULL));
    for (int d = 0; d < 2; d++) {
        OK(cudaSetDevice(d));
        OK(cudaMalloc((void **)&x[d], sizeof(float)));
        OK(cudaMemset(x[d], 0, sizeof(float)));
        OK(cudaDeviceSynchronize());
    }
    start_progress(strcmp(how, "callback") == 0 ? sum_on_second : NULL);
    if (strcmp(how, "own") == 0) OK(pthread_create(&thread, NULL, own_thread, NULL));
    sum_on(0);
    while (!second_done) poll(NULL, 0, 1);
    for (int d = 0; d < 2; d++) {
        OK(cudaSetDevice(d));
        OK(cudaDeviceSynchronize());
        OK(cudaFree(x[d]));
        OK(ncclCommDestroy(comm[d]));
    }
    puts("0 wrong");
    return 0;
}
#endif
