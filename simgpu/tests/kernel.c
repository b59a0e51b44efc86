/* kernel.c: an operation from begin to end: ranges, devices, peers, threads. */
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "heard.h"

static Heard *heard;

RANK_TEST(test_gives_usable_addresses, 2)
{
    unsigned char *p, out[5];
    need_cuda(cudaMalloc((void **)&p, 5));
    need_cuda(kernel_touch(p, 5, 1, r->stream));
    need_cuda(kernel_touch(p + 2, 2, 9, r->stream));
    need_cuda(kernel_touch(p + 5, 0, 7, r->stream)); // no bytes are right anywhere
    need_cuda(kernel_touch(NULL, 0, 7, r->stream));
    need_cuda(cudaStreamSynchronize(r->stream));
    need_cuda(cudaMemcpy(out, p, 5, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 5; i++)
        check(out[i] == (i == 2 || i == 3 ? 9 : 1), "byte %d: %d", i, out[i]);

    SimgpuOp op = SIMGPU_BEGIN("update", r->stream);
    unsigned char *data = simgpu_update(&op, p, 5);
    check(simgpu_ready(&op), "a good range was refused");
    check(data != p, "the address to use is the one the program sees");
    data[0]++;
    check(simgpu_read(&op, p + 1, 4) == data + 1, "two ranges of one allocation disagree");
    need_cuda(simgpu_end(&op));
    need_cuda(cudaStreamSynchronize(r->stream));
    need_cuda(cudaMemcpy(out, p, 1, cudaMemcpyDeviceToHost));
    check(out[0] == 2, "the update gave %d", out[0]);
}

// What follows a wrong range in the same operation is not reported again, and nothing runs.
static void stops_at_the_first_error(const Rank *r, void *arg)
{
    unsigned char *p;
    hear(heard);
    need_cuda(cudaMalloc((void **)&p, 5));
    uint64_t before = gpulog_length();
    SimgpuOp op = SIMGPU_BEGIN("kernel_wrong", r->stream);
    check(simgpu_read(&op, p, 6) == NULL, "a range too long was given an address");
    check(simgpu_read(&op, p, 7) == NULL && simgpu_write(&op, p, 5) == NULL,
          "the error was forgotten");
    check(!simgpu_ready(&op), "the operation is ready");
    check(simgpu_end(&op) == cudaErrorIllegalAddress, "the end forgot the error");
    check(heard->count == 1, "%d reports", heard->count);
    check(gpulog_length() == before, "what did not run was logged");
}
TEST(test_stops_at_the_first_error)
{
    run_to_illegal_access(stops_at_the_first_error, NULL);
}

static void minds_the_device(const Rank *r, void *arg)
{
    unsigned char *here, *there;
    cudaStream_t stream;
    hear(heard);
    need_cuda(cudaMalloc((void **)&here, 10));
    need_cuda(cudaSetDevice(1));
    need_cuda(cudaMalloc((void **)&there, 10));
    need_cuda(cudaStreamCreate(&stream));
    need_cuda(kernel_touch(there, 10, 1, stream));
    need_cuda(cudaSetDevice(0));
    check(kernel_touch(there, 10, 1, stream) == cudaErrorInvalidResourceHandle, "it ran");
    heard_is(heard, "a kernel on another device's stream",
             "on a stream of device 1 while device 0");
    check(cudaSetDevice(8) == cudaErrorInvalidDevice, "device 8 was taken");
    heard_is(heard, "cudaSetDevice: there is no such device", "there are 8: 0 to 7");
    check(cudaSetDevice(-1) == cudaErrorInvalidDevice, "device -1 was taken");
    cudaGetLastError();

    int can;
    need_cuda(cudaDeviceCanAccessPeer(&can, 0, 1));
    check(can == 1, "the devices are no peers");
    need_cuda(cudaDeviceEnablePeerAccess(1, 0));
    check(cudaDeviceEnablePeerAccess(1, 0) == cudaErrorPeerAccessAlreadyEnabled, "twice");
    need_cuda(kernel_touch(there, 10, 3, NULL));
    need_cuda(cudaDeviceDisablePeerAccess(1));
    check(cudaDeviceDisablePeerAccess(1) == cudaErrorPeerAccessNotEnabled, "twice");
    check(kernel_touch(there, 10, 1, NULL) == cudaErrorIllegalAddress, "it ran");
    heard_is(heard, "a kernel uses another device's memory", "given memory of device 1");
}
TEST(test_minds_the_device)
{
    run_to_illegal_access(minds_the_device, NULL);
}

enum { THREADS = 4, ROUNDS = 2000 };

static void *work(void *arg)
{
    int device = *(int *)arg, now = -1;
    unsigned *sum, total = 0, got;
    unsigned char *p;
    need_cuda(cudaSetDevice(device));
    need_cuda(cudaMalloc((void **)&sum, sizeof *sum));
    for (int i = 0; i < ROUNDS; i++) {
        size_t bytes = 1 + (size_t)(i * 37 % 1000);
        need_cuda(cudaMallocAsync((void **)&p, bytes, cudaStreamPerThread));
        need_cuda(kernel_touch(p, bytes, device + 1, cudaStreamPerThread));
        need_cuda(kernel_sum_bytes(sum, p, bytes, cudaStreamPerThread));
        need_cuda(
            cudaMemcpyAsync(&got, sum, sizeof got, cudaMemcpyDeviceToHost, cudaStreamPerThread));
        check(got == bytes * (unsigned)(device + 1), "device %d, round %d: %u", device, i, got);
        total += got;
        need_cuda(cudaFreeAsync(p, cudaStreamPerThread));
    }
    need_cuda(cudaFree(sum));
    need_cuda(cudaGetDevice(&now));
    check(now == device, "the thread's device became %d", now);
    return (void *)(uintptr_t)total;
}

RANK_TEST(test_serves_threads, 1)
{
    pthread_t thread[THREADS];
    int device[THREADS];
    uint64_t before = gpulog_length();
    for (int i = 0; i < THREADS; i++) {
        device[i] = i;
        check(pthread_create(&thread[i], NULL, work, &device[i]) == 0, "no thread");
    }
    for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
    uint64_t want = THREADS * (2 + 5 * (uint64_t)ROUNDS);
    check(gpulog_length() - before == want, "%lu operations were logged, %lu were made",
          (unsigned long)(gpulog_length() - before), (unsigned long)want);
    for (int i = 0; i < THREADS; i++)
        check(i == r->device || gpulog_live_bytes(i) == 0, "device %d keeps memory", i);
}

// As on a GPU, CUDA's state does not survive a fork. Forking first is fine: that is how ranks
// start.
RANK_TEST(test_refuses_forked_use, 1)
{
    void *p;
    hear(heard);
    pid_t pid = fork();
    if (pid == 0) {
        cudaError_t first = cudaMalloc(&p, 10), second = cudaDeviceSynchronize();
        _exit(first == cudaErrorInitializationError && second == first ? 0 : 1);
    }
    int status = -1;
    check(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0, "the child ended with %d",
          status);
    check(heard->count == 1, "%d reports", heard->count);
    heard_is(heard, "CUDA was used before fork() and again in the child", "be forked first");
    need_cuda(cudaMalloc(&p, 10));
}

int main(int argc, char **argv)
{
    heard = shared_alloc(sizeof *heard);
    return suite_main(argc, argv, "simgpu/kernel");
}
