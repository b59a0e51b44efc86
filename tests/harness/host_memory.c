/* The memory of the host that tests count: what the main thread took from malloc, whatever the
 * threads of libraries take meanwhile.
 */
#include "host_memory.h"

#include "harness.h"

#include <pthread.h>
#include <stdlib.h>

TEST(counts_what_is_taken_and_given_back)
{
    size_t before = host_bytes();
    if (before == 0) skip();
    char *few = malloc(5000), *many = malloc((size_t)1 << 20);
    assert_non_null(few);
    assert_non_null(many);
    assert_in_range(host_bytes() - before, 5000 + (1 << 20), 5000 + (1 << 20) + 10000);
    free(many);
    free(few);
    assert_int_equal(host_bytes(), before);
    assert_int_equal(host_bytes(), before); // counting takes nothing itself
}

// What a thread does, and where it waits while the main thread counts.
typedef struct Other {
    pthread_barrier_t barrier;
    char *taken;
} Other;

static void *take(void *arg)
{
    Other *other = arg;
    pthread_barrier_wait(&other->barrier);
    other->taken = malloc(50000);
    pthread_barrier_wait(&other->barrier);
    pthread_barrier_wait(&other->barrier);
    free(other->taken);
    return NULL;
}

TEST(another_threads_memory_is_not_counted)
{
    Other other;
    pthread_t thread;
    if (host_bytes() == 0) skip();
    assert_int_equal(pthread_barrier_init(&other.barrier, NULL, 2), 0);
    assert_int_equal(pthread_create(&thread, NULL, take, &other), 0);
    size_t before = host_bytes();
    pthread_barrier_wait(&other.barrier);
    pthread_barrier_wait(&other.barrier);
    assert_non_null(other.taken);
    assert_int_equal(host_bytes(), before);
    pthread_barrier_wait(&other.barrier);
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&other.barrier);
}

// What simgpu keeps of streams and memory is its own, while they are there and after.
RANK_TEST(simgpus_records_are_not_counted, 1)
{
    enum { N = 300 };
    void *memory[N];
    cudaEvent_t event[N];
    for (int round = 0; round < 2; round++) { // the first one fills what libc keeps at hand
        size_t before = host_bytes();
        for (int i = 0; i < N; i++) {
            need_cuda(cudaMallocAsync(&memory[i], 4096, r->stream));
            need_cuda(cudaMemsetAsync(memory[i], 0, 4096, r->stream));
            need_cuda(cudaEventCreate(&event[i]));
            need_cuda(cudaEventRecord(event[i], r->stream));
        }
        size_t during = host_bytes();
        for (int i = 0; i < N; i++) {
            need_cuda(cudaFreeAsync(memory[i], r->stream));
            need_cuda(cudaEventDestroy(event[i]));
        }
        need_cuda(cudaDeviceSynchronize());
        check(during < before + N && (round == 0 || host_bytes() < before + N),
              "%d allocations and events: host_bytes was %zu before them, is %zu while they are "
              "there and %zu after",
              N, before, during, host_bytes());
    }
}

int main(int argc, char **argv)
{
    return suite_main(argc, argv, "harness/host_memory");
}
