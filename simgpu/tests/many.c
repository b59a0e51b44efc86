/* many.c: as many ranks as simgpu has room for, on a machine with a few cores: 256, and with
 * MANY_RANKS_ALL=1 also 65 and 128.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "harness.h"
#include "simgpu.h"

enum { MOST = 256, EACH = 33, LIMIT = 60 };

// Rank r sends r + i; sums of 256 such are exact in float.
static void collectives(const Rank *r, void *arg)
{
    float *send, *all, host[EACH], *gathered = malloc(sizeof host * (size_t)r->world);
    size_t bytes = sizeof host;
    float sum = (float)(r->world * (r->world - 1) / 2);
    int next = (r->rank + 1) % r->world, last = (r->rank + r->world - 1) % r->world;
    need_cuda(cudaMallocAsync((void **)&send, bytes, r->stream));
    need_cuda(cudaMallocAsync((void **)&all, bytes * (size_t)r->world, r->stream));
    for (int i = 0; i < EACH; i++) host[i] = (float)(r->rank + i);
    need_cuda(cudaMemcpyAsync(send, host, bytes, cudaMemcpyHostToDevice, r->stream));

    need_nccl(ncclAllGather(send, all, EACH, ncclFloat, r->comm, r->stream));
    need_cuda(cudaMemcpyAsync(gathered, all, bytes * (size_t)r->world, cudaMemcpyDeviceToHost,
                              r->stream));
    need_cuda(cudaStreamSynchronize(r->stream));
    for (int i = 0; i < EACH * r->world; i++)
        check(gathered[i] == (float)(i / EACH + i % EACH), "element %d gathered is %g", i,
              gathered[i]);

    // Rank r's part of each rank's buffer is what rank r had sent.
    need_nccl(ncclReduceScatter(all, send, EACH, ncclFloat, ncclSum, r->comm, r->stream));
    need_cuda(cudaMemcpyAsync(host, send, bytes, cudaMemcpyDeviceToHost, r->stream));
    need_cuda(cudaStreamSynchronize(r->stream));
    for (int i = 0; i < EACH; i++)
        check(host[i] == (float)(r->world * (r->rank + i)), "element %d scattered is %g", i,
              host[i]);

    for (int i = 0; i < EACH; i++) host[i] = (float)(r->rank + i);
    need_cuda(cudaMemcpyAsync(send, host, bytes, cudaMemcpyHostToDevice, r->stream));
    need_nccl(ncclAllReduce(send, all, EACH, ncclFloat, ncclSum, r->comm, r->stream));
    need_cuda(cudaMemcpyAsync(host, all, bytes, cudaMemcpyDeviceToHost, r->stream));
    need_cuda(cudaStreamSynchronize(r->stream));
    for (int i = 0; i < EACH; i++)
        check(host[i] == sum + (float)(r->world * i), "element %d reduced is %g", i, host[i]);

    // Of integers the sum is divided, and rounded down.
    int whole[EACH];
    for (int i = 0; i < EACH; i++) whole[i] = r->rank + i;
    need_cuda(cudaMemcpyAsync(all, whole, bytes, cudaMemcpyHostToDevice, r->stream));
    need_nccl(ncclAllReduce(all, all, EACH, ncclInt32, ncclAvg, r->comm, r->stream));
    need_cuda(cudaMemcpyAsync(whole, all, bytes, cudaMemcpyDeviceToHost, r->stream));
    need_cuda(cudaStreamSynchronize(r->stream));
    for (int i = 0; i < EACH; i++)
        check(whole[i] == (r->world - 1) / 2 + i, "element %d averaged is %d", i, whole[i]);

    need_nccl(ncclGroupStart());
    need_nccl(ncclSend(send, EACH, ncclFloat, next, r->comm, r->stream));
    need_nccl(ncclRecv(all, EACH, ncclFloat, last, r->comm, r->stream));
    need_nccl(ncclGroupEnd());
    need_cuda(cudaMemcpyAsync(host, all, bytes, cudaMemcpyDeviceToHost, r->stream));
    need_cuda(cudaStreamSynchronize(r->stream));
    for (int i = 0; i < EACH; i++)
        check(host[i] == (float)(last + i), "element %d received is %g", i, host[i]);
    need_cuda(cudaFreeAsync(all, r->stream));
    need_cuda(cudaFreeAsync(send, r->stream));
    free(gathered);
}

// The harness has two pipes for each rank, and a rank what the harness has: more descriptors than
// the 1024 that a shell allows at first.
static void allow_files(void)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    if (limit.rlim_cur >= 2048 || limit.rlim_max < 2048) return;
    limit.rlim_cur = 2048;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static void runs(int world)
{
    char number[16];
    allow_files();
    snprintf(number, sizeof number, "%d", world);
    setenv("SIMGPU_DEVICES", number, 1);
    run_ranks_limit(world, LIMIT, collectives, NULL);
    unsetenv("SIMGPU_DEVICES");
}

TEST(test_each_a_process)
{
    runs(MOST);
    if (!getenv("MANY_RANKS_ALL")) return;
    runs(65);
    runs(128);
}

// Each device has a name of its own, and an address of its own on the buses.
static void names(const Rank *r, void *arg)
{
    struct cudaDeviceProp p, q;
    char bus[32];
    int n, found;
    need_cuda(cudaGetDeviceCount(&n));
    check(n == MOST, "there are %d devices", n);
    for (int d = 0; d < n; d++) {
        need_cuda(cudaGetDeviceProperties(&p, d));
        need_cuda(cudaDeviceGetPCIBusId(bus, sizeof bus, d));
        need_cuda(cudaDeviceGetByPCIBusId(&found, bus));
        check(found == d, "%s is device %d, not %d", bus, found, d);
        for (int e = 0; e < d; e++) {
            need_cuda(cudaGetDeviceProperties(&q, e));
            check(memcmp(&p.uuid, &q.uuid, sizeof p.uuid) != 0, "devices %d and %d have one UUID",
                  e, d);
        }
    }
}

// One process, one thread, all devices.
static void one_process(const Rank *r, void *arg)
{
    static ncclComm_t comm[MOST];
    static cudaStream_t stream[MOST];
    static int *p[MOST];
    need_nccl(ncclCommInitAll(comm, MOST, NULL));
    for (int d = 0; d < MOST; d++) {
        need_cuda(cudaSetDevice(d));
        need_cuda(cudaStreamCreate(&stream[d]));
        need_cuda(cudaMalloc((void **)&p[d], sizeof(int)));
        need_cuda(cudaMemcpy(p[d], &d, sizeof d, cudaMemcpyHostToDevice));
    }
    need_nccl(ncclGroupStart());
    for (int d = 0; d < MOST; d++)
        need_nccl(ncclAllReduce(p[d], p[d], 1, ncclInt, ncclSum, comm[d], stream[d]));
    need_nccl(ncclGroupEnd());
    for (int d = 0; d < MOST; d++) {
        int sum = 0;
        need_cuda(cudaSetDevice(d));
        need_cuda(cudaStreamSynchronize(stream[d]));
        need_cuda(cudaMemcpy(&sum, p[d], sizeof sum, cudaMemcpyDeviceToHost));
        check(sum == MOST * (MOST - 1) / 2, "device %d has %d", d, sum);
        need_cuda(cudaFree(p[d]));
        need_cuda(cudaStreamDestroy(stream[d]));
        need_nccl(ncclCommDestroy(comm[d]));
    }
    need_cuda(cudaSetDevice(r->device));
}

TEST(test_one_process)
{
    setenv("SIMGPU_DEVICES", "256", 1);
    run_ranks(1, names, NULL);
    run_ranks_limit(1, LIMIT, one_process, NULL);
    unsetenv("SIMGPU_DEVICES");
}

int main(int argc, char **argv)
{
#ifdef __SANITIZE_THREAD__ // which leaves a program too few addresses for so many devices
    setenv("SIMGPU_MEMORY", "64M", 1);
#endif
    return suite_main(argc, argv, "many");
}
