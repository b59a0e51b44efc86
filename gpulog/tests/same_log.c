/* same_log.c: on emulated CUDA, simgpu and the interposer in front of it keep the same log of a
 * long random program. Other backends have only one log.
 *
 * A program is a list of steps drawn from a seed: steps of all ranks from a generator that is the
 * same on all of them, steps of one rank from a generator of its own. Many calls get sizes of 0,
 * and some are meant to fail: those must leave no trace.
 */
#include <pthread.h>

#include "harness.h"

#ifdef EMULATED_CUDA
#include "same_log_steps.h"

// ---- The laboratory ----

static void open_lab(Lab *lab)
{
    float two = 2.0f;
    for (int d = 1; d >= 0; d--) {
        need_cuda(cudaSetDevice(lab->device[d]));
        need_cuda(cudaStreamCreate(&lab->stream[3 + 2 * d]));
        need_cuda(cudaStreamCreateWithFlags(&lab->stream[4 + 2 * d], cudaStreamNonBlocking));
        for (int i = 0; i < EVENTS / 2; i++)
            need_cuda(cudaEventCreate(&lab->event[d * EVENTS / 2 + i]));
    }
    lab->stream[1] = cudaStreamLegacy;
    lab->stream[2] = cudaStreamPerThread;
    need_cuda(cudaMallocHost((void **)&lab->pinned, HOST_BYTES));
    lab->host = malloc(HOST_BYTES);
    need_cuda(cudaMalloc((void **)&lab->matrix, NET_FLOATS * sizeof(float)));
    need_cuda(cudaMalloc((void **)&lab->net, NET_FLOATS * sizeof(float)));
    need_cuda(cudaMalloc((void **)&lab->two, sizeof two));
    need_cuda(cudaMemcpy(lab->two, &two, sizeof two, cudaMemcpyHostToDevice));
    check(cublasCreate(&lab->blas) == CUBLAS_STATUS_SUCCESS, "no handle");
    need_nccl(
        ncclRedOpCreatePreMulSum(&lab->doubled, lab->two, ncclFloat, ncclScalarDevice, lab->comm));
}

static void close_lab(Lab *lab)
{
    need_nccl(ncclRedOpDestroy(lab->doubled, lab->comm));
    check(cublasDestroy(lab->blas) == CUBLAS_STATUS_SUCCESS, "no handle");
    for (int i = 0; i < BUFFERS; i++) need_cuda(cudaFree(lab->buffer[i].ptr));
    for (int i = 0; i < BUFFERS; i++) need_nccl(ncclMemFree(lab->messages[i].ptr));
    need_cuda(cudaFree(lab->matrix));
    need_cuda(cudaFreeAsync(lab->net, NULL));
    need_cuda(cudaFree(lab->two));
    for (int i = 3; i < STREAMS; i++) need_cuda(cudaStreamDestroy(lab->stream[i]));
    for (int i = 0; i < EVENTS; i++) need_cuda(cudaEventDestroy(lab->event[i]));
    need_cuda(cudaFreeHost(lab->pinned));
    free(lab->host);
    need_cuda(cudaSetDevice(lab->device[0]));
}

static void must_agree(void)
{
    char text[2000];
    check(logs_agree(text, sizeof text), "%s", text);
}

static void lives_at_random(const Rank *r, void *arg)
{
    uint64_t seed = *(const uint64_t *)arg;
    Lab *lab = calloc(1, sizeof *lab);
    simgpu_on_report(NULL, NULL); // mistakes are a part of the program
    lab->rank = r;
    lab->comm = r->comm;
    lab->common = seed;
    lab->own = seed * 1000 + (uint64_t)r->rank;
    lab->device[0] = r->device;
    lab->device[1] = 7 - r->device;
    open_lab(lab);
    for (int i = 0; i < STEPS; i++) {
        step(lab);
        if (i % 500 == 0) must_agree();
    }
    close_lab(lab);
    must_agree();
    check(gpulog_length() > STEPS / 2, "only %lu entries", (unsigned long)gpulog_length());
    check(gpulog_live_bytes(lab->device[1]) == 0, "device %d holds memory", lab->device[1]);
    free(lab);
}

// Random programs race and read uninitialised memory. Only their log matters here.
static void without_races(void)
{
    setenv("SIMGPU_CHECK", "fast", 1);
}

TEST(test_log_of_random_programs)
{
    without_races();
    for (uint64_t seed = 1; seed <= 8; seed++)
        run_ranks(1 + (int)(seed % 4), lives_at_random, &seed);
}

// ---- Several devices in one process ----

#define MANY 3

static void serves_many_devices(const Rank *r, void *arg)
{
    ncclComm_t comm[MANY], part[MANY];
    cudaStream_t stream[MANY];
    float *x[MANY];
    int devices[MANY] = {5, 2, 6};
    WORKS(ncclCommInitAll(comm, MANY, devices));
    for (int i = 0; i < MANY; i++) {
        WORKS(cudaSetDevice(devices[i]));
        WORKS(cudaMalloc((void **)&x[i], 4000));
        WORKS(cudaStreamCreate(&stream[i]));
    }
    for (int round = 0; round < 20; round++) {
        WORKS(ncclGroupStart());
        for (int i = 0; i < MANY; i++)
            WORKS(ncclAllReduce(x[i], x[i], 100, ncclFloat, ncclSum, comm[i],
                                round % 2 ? stream[i] : NULL));
        for (int i = 0; i < MANY; i++)
            WORKS(ncclAllGather(x[i] + 300 + 10 * i, x[i] + 300, 10, ncclFloat, comm[i],
                                round % 3 ? stream[i] : cudaStreamPerThread));
        WORKS(ncclGroupEnd());
    }
    WORKS(ncclGroupStart());
    for (int i = 0; i < MANY; i++) WORKS(ncclCommSplit(comm[i], i > 0, 0, &part[i], NULL));
    WORKS(ncclGroupEnd());
    WORKS(ncclGroupStart());
    for (int i = 1; i < MANY; i++)
        WORKS(ncclReduce(x[i], x[i], 50, ncclFloat, ncclSum, 1, part[i], stream[i]));
    WORKS(ncclGroupEnd());
    check(gpulog_live_bytes(5) == 4000 && gpulog_live_bytes(6) == 4000, "memory on a wrong device");
    WORKS(cudaDeviceReset());
    check(gpulog_live_bytes(6) == 0, "a device holds memory after its reset");
    must_agree();
    for (int i = 0; i < MANY; i++) WORKS(ncclCommDestroy(part[i]));
    for (int i = 0; i < MANY; i++) WORKS(ncclCommDestroy(comm[i]));
    WORKS(cudaSetDevice(r->device));
}

// Children of a non-blocking communicator exist when it says so, after their call or group.
static void is_asked_for_children(const Rank *r, void *arg)
{
    ncclComm_t parent, part[2] = {NULL, NULL};
    ncclResult_t state = ncclInProgress;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    float *x;
    config.blocking = 0;
    WORKS(ncclCommSplit(r->comm, 0, r->rank, &parent, &config));
    WORKS(cudaMalloc((void **)&x, 4000));
    for (int i = 0; i < 2; i++) {
        if (i == 1) WORKS(ncclGroupStart());
        MAKE(i == 1 ? ncclSuccess : ncclInProgress,
             ncclCommSplit(parent, i, -r->rank, &part[i], NULL));
        if (i == 1) MAKE(ncclInProgress, ncclGroupEnd());
        while (state == ncclInProgress) WORKS(ncclCommGetAsyncError(parent, &state));
        WORKS(state);
        state = ncclInProgress;
    }
    for (int i = 0; i < 2; i++) {
        MAKE(ncclInProgress, ncclAllReduce(x, x, 10, ncclFloat, ncclSum, part[i], NULL));
        while (state == ncclInProgress) WORKS(ncclCommGetAsyncError(part[i], &state));
        WORKS(state);
        state = ncclInProgress;
    }
    must_agree();
    for (uint64_t i = 1; i <= 2; i++) {
        GpuLogEntry e;
        check(gpulog_get(gpulog_length() - i, &e) && e.collective.comm, "a child has no number");
    }
    for (int i = 0; i < 2; i++) WORKS(ncclCommDestroy(part[i]));
    WORKS(ncclCommDestroy(parent));
    WORKS(cudaFree(x));
}

TEST(test_log_of_children_that_are_asked_for)
{
    without_races();
    run_ranks(2, is_asked_for_children, NULL);
}

TEST(test_log_of_many_devices)
{
    without_races();
    run_ranks(1, serves_many_devices, NULL);
}

// ---- Threads ----

static void *allocates_and_frees(void *arg)
{
    uint64_t state = (uint64_t)(uintptr_t)arg;
    void *held[8] = {0};
    cudaStream_t s;
    int device = (int)below(&state, 2);
    if (cudaSetDevice(device) || cudaStreamCreate(&s)) return "no device";
    for (int i = 0; i < 400; i++) {
        void **ptr = &held[below(&state, 8)];
        if (*ptr && (below(&state, 2) ? cudaFree(*ptr) : cudaFreeAsync(*ptr, s))) return "free";
        *ptr = NULL;
        if (below(&state, 2) && cudaMalloc(ptr, 1 + below(&state, 5000))) return "malloc";
        if (*ptr && cudaMemsetAsync(*ptr, 0, 1, s)) return "memset";
    }
    for (int i = 0; i < 8; i++)
        if (cudaFree(held[i])) return "free";
    return cudaStreamDestroy(s) ? "stream" : NULL;
}

static void lets_threads_run(const Rank *r, void *arg)
{
    pthread_t thread[4];
    void *wrong;
    logs_in_any_order();
    for (uintptr_t i = 0; i < 4; i++)
        check(pthread_create(&thread[i], NULL, allocates_and_frees, (void *)(i + 1)) == 0,
              "no thread");
    for (int i = 0; i < 4; i++) {
        check(pthread_join(thread[i], &wrong) == 0, "no thread to join");
        check(!wrong, "thread %d: %s", i, (char *)wrong);
    }
    for (int d = 0; d < 2; d++) check(gpulog_live_bytes(d) == 0, "device %d holds memory", d);
    must_agree();
}

TEST(test_log_of_threads)
{
    without_races();
    run_ranks(1, lets_threads_run, NULL);
}
#else
TEST(test_log_of_random_programs)
{
    skip();
}
#endif

SUITE_MAIN("tests/same_log")
