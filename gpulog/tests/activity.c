/* activity.c: what a process reports of itself while it waits, and after an operation. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <nccl.h>

#include "harness.h"
#include "kernels.h"

RANK_TEST(test_tells_what_it_did, 1)
{
    char text[512];
    float *p;
    need_cuda(cudaMalloc((void **)&p, 8));
    need_cuda(kernel_fill(p, 0, 2, r->stream));
    gpulog_activity(text, sizeof text);
    check(strstr(text, "last did kernel_fill at tests/activity.c:") == text, "it says %s", text);
    check(strstr(text, "(test_tells_what_it_did_body)") != NULL, "it says %s", text);
    need_cuda(cudaFree(p));
}
// Looks until this process waits, and only then lets the awaited event happen. A process that never
// says so runs into the test's limit.
typedef struct Look {
    atomic_bool seen;
    char text[512];
} Look;

static void *looks_on(void *arg)
{
    Look *look = arg;
    do {
        usleep(1000);
        gpulog_activity(look->text, sizeof look->text);
    } while (strncmp(look->text, "waiting in ", 11) != 0);
    atomic_store(&look->seen, true);
    return NULL;
}

static void sleep_until_seen(Look *look)
{
    while (!atomic_load(&look->seen)) usleep(1000);
}

static void check_look(const Look *look, const char *function)
{
    check(strstr(look->text, " at tests/activity.c:") && strstr(look->text, function),
          "while it waited it said: %s", look->text);
}

// Rank 1 comes only when rank 0 has been seen waiting for it.
static void waits_for_rank_1(const Rank *r, void *arg)
{
    Look *look = arg;
    pthread_t thread;
    float *p;
    need_cuda(cudaMalloc((void **)&p, 8));
    need_cuda(cudaMemset(p, 0, 8));
    need_cuda(cudaDeviceSynchronize());
    if (r->rank == 1) sleep_until_seen(look);
    if (r->rank == 0) check(!pthread_create(&thread, NULL, looks_on, look), "no thread");
    need_nccl(ncclAllReduce(p, p, 2, ncclFloat, ncclSum, r->comm, r->stream));
    need_cuda(cudaStreamSynchronize(r->stream));
    if (r->rank == 0) {
        pthread_join(thread, NULL);
        check_look(look, "(waits_for_rank_1)");
        gpulog_activity(look->text, sizeof look->text);
        check(strstr(look->text, "last did cudaStreamSynchronize at ") == look->text,
              "after the wait it says: %s", look->text);
    }
    need_cuda(cudaFree(p));
}
TEST(test_tells_what_it_waits_for)
{
    Look *look = shared_alloc(sizeof *look);
    run_ranks(2, waits_for_rank_1, look);
}

#if defined(BACKEND_CUDA) && !defined(EMULATED_CUDA)
static void hold_the_stream(void *arg)
{
    sleep_until_seen(arg);
}

static void waits_for_its_stream(const Rank *r, void *arg)
{
    Look *look = arg;
    pthread_t thread;
    need_cuda(cudaLaunchHostFunc(r->stream, hold_the_stream, look));
    check(!pthread_create(&thread, NULL, looks_on, look), "no thread");
    need_cuda(cudaStreamSynchronize(r->stream));
    pthread_join(thread, NULL);
    check(strncmp(look->text, "waiting in cudaStreamSynchronize at ", 36) == 0, "it said: %s",
          look->text);
    check_look(look, "(waits_for_its_stream)");
}
// On a simulated GPU nothing waits for a stream.
TEST(test_tells_that_it_waits_for_a_stream)
{
    Look *look = shared_alloc(sizeof *look);
    run_ranks(1, waits_for_its_stream, look);
}
#endif

SUITE_MAIN("gpulog/activity")
