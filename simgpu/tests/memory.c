/* memory.c: device memory: counting, running out, reuse, and every wrong pointer. */
#include <stdlib.h>
#include <unistd.h>

#include "heard.h"

static Heard *heard; // shared with the ranks

// ---- Counting ----

RANK_TEST(test_counts_bytes, 3)
{
    static const size_t sizes[] = {1, 255, 256, 257, 4097, 1000003};
    enum { N = sizeof sizes / sizeof sizes[0] };
    void *p[N];
    size_t base = gpulog_live_bytes(r->device), sum = 0, free_before, free_after, total;
    need_cuda(cudaMemGetInfo(&free_before, &total));
    gpulog_reset_peak(r->device);
    for (int i = 0; i < N; i++) {
        need_cuda(cudaMalloc(&p[i], sizes[i]));
        sum += sizes[i];
        check(gpulog_live_bytes(r->device) == base + sum, "after %zu bytes the live count is %zu",
              sizes[i], gpulog_live_bytes(r->device) - base);
        check((size_t)p[i] % 256 == 0, "%p is not a multiple of 256", p[i]);
    }
    need_cuda(cudaMemGetInfo(&free_after, &total));
    check(free_before - free_after == sum, "cudaMemGetInfo lost %zu bytes",
          free_before - free_after);
    for (int i = 0; i < N; i++) need_cuda(cudaFree(p[i]));
    check(gpulog_live_bytes(r->device) == base, "%zu bytes stayed",
          gpulog_live_bytes(r->device) - base);
    check(gpulog_peak_bytes(r->device) == base + sum, "the peak is %zu",
          gpulog_peak_bytes(r->device));
    gpulog_reset_peak(r->device);
    check(gpulog_peak_bytes(r->device) == base, "the peak was not reset");
    for (int other = 0; other < 8; other++)
        check(other == r->device || gpulog_peak_bytes(other) == 0, "device %d was used", other);
}

static uint64_t pool_says(cudaMemPool_t pool, enum cudaMemPoolAttr attr)
{
    uint64_t value = 12345;
    need_cuda(cudaMemPoolGetAttribute(pool, attr, &value));
    return value;
}

static size_t free_now(void)
{
    size_t left, total;
    need_cuda(cudaMemGetInfo(&left, &total));
    return left;
}

enum { MB = 1 << 20 };

// What is freed stays reserved until the host waits, and then up to the threshold.
RANK_TEST(test_pools_keep_up_to_their_threshold, 1)
{
    cudaMemPool_t pool;
    char *a, *b;
    uint64_t keeps = 24 * MB;
    size_t before = free_now();
    need_cuda(cudaDeviceGetDefaultMemPool(&pool, r->device));
    need_cuda(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &(uint64_t){0}));
    need_cuda(cudaMallocAsync((void **)&a, 16 * MB, r->stream));
    need_cuda(cudaMallocAsync((void **)&b, 16 * MB, r->stream));
    check(before - free_now() == 32 * MB, "%zu bytes are gone", before - free_now());
    need_cuda(cudaFreeAsync(a, r->stream));
    need_cuda(cudaFreeAsync(b, r->stream));
    check(before - free_now() == 32 * MB, "%zu bytes are gone before a wait", before - free_now());
    check(pool_says(pool, cudaMemPoolAttrUsedMemCurrent) == 0, "what was freed is in use");
    need_cuda(cudaStreamSynchronize(r->stream));
    check(free_now() == before && pool_says(pool, cudaMemPoolAttrReservedMemCurrent) == 0,
          "a threshold of 0 keeps memory");
    need_cuda(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keeps));
    need_cuda(cudaMallocAsync((void **)&a, 16 * MB, r->stream));
    need_cuda(cudaMallocAsync((void **)&b, 16 * MB, r->stream));
    need_cuda(cudaFreeAsync(a, r->stream));
    need_cuda(cudaFreeAsync(b, r->stream));
    need_cuda(cudaDeviceSynchronize());
    check(before - free_now() == keeps, "%zu bytes are kept", before - free_now());
    check(pool_says(pool, cudaMemPoolAttrReservedMemHigh) == 32 * MB, "the most was %zu",
          (size_t)pool_says(pool, cudaMemPoolAttrReservedMemHigh));
    // What is kept serves the next allocation, and whoever else needs it.
    need_cuda(cudaMallocAsync((void **)&a, 16 * MB, r->stream));
    check(before - free_now() == keeps, "an allocation reserves again");
    need_cuda(cudaMalloc((void **)&b, free_now() + 4 * MB));
    check(free_now() == 0, "%zu bytes are free beside a full device", free_now());
    need_cuda(cudaFree(b));
    need_cuda(cudaFreeAsync(a, r->stream));
    need_cuda(cudaStreamSynchronize(r->stream));
    need_cuda(cudaMemPoolTrimTo(pool, 5 * MB));
    check(before - free_now() == 5 * MB, "%zu bytes are left by the trim", before - free_now());
    need_cuda(cudaMemPoolTrimTo(pool, 0));
    check(free_now() == before, "the trim leaves something");
}

static struct cudaMemPoolProps props_of(int device)
{
    return (struct cudaMemPoolProps){.allocType = cudaMemAllocationTypePinned,
                                     .location = {cudaMemLocationTypeDevice, device}};
}

RANK_TEST(test_pools_of_a_program, 1)
{
    cudaMemPool_t first, pool, current;
    struct cudaMemPoolProps props = props_of(r->device);
    void *p, *q;
    props.maxSize = 1000;
    need_cuda(cudaDeviceGetDefaultMemPool(&first, r->device));
    need_cuda(cudaMemPoolCreate(&pool, &props));
    need_cuda(cudaMallocFromPoolAsync(&p, 700, pool, r->stream));
    check(pool_says(pool, cudaMemPoolAttrUsedMemCurrent) == 700 &&
              pool_says(first, cudaMemPoolAttrUsedMemCurrent) == 0,
          "the allocation is not the pool's alone");
    check(cudaMallocFromPoolAsync(&q, 301, pool, r->stream) == cudaErrorMemoryAllocation,
          "a pool of 1000 bytes has 1001");
    need_cuda(cudaDeviceSetMemPool(r->device, pool));
    need_cuda(cudaDeviceGetMemPool(&current, r->device));
    check(current == pool, "another pool was set");
    need_cuda(cudaMallocAsync(&q, 300, r->stream));
    check(pool_says(pool, cudaMemPoolAttrUsedMemCurrent) == 1000, "it is not taken from");
    need_cuda(cudaMemPoolDestroy(pool));
    need_cuda(cudaDeviceGetMemPool(&current, r->device));
    check(current == first, "the default pool is not the device's again");
    need_cuda(cudaFreeAsync(p, r->stream)); // what it gave outlives it
    need_cuda(cudaFreeAsync(q, r->stream));
    check(cudaMemPoolDestroy(first) == cudaErrorInvalidValue, "the default pool was destroyed");
    props.location.id = 1 << 20;
    check(cudaMemPoolCreate(&pool, &props) == cudaErrorInvalidValue, "no device has that number");
    props = props_of(r->device);
    props.handleTypes = cudaMemHandleTypePosixFileDescriptor;
    check(cudaMemPoolCreate(&pool, &props) == cudaErrorNotSupported, "memory for other processes");
    cudaGetLastError();
}

RANK_TEST(test_counts_pools, 1)
{
    void *p, *q;
    cudaMemPool_t pool;
    uint64_t used, high, zero = 0;
    size_t base = gpulog_live_bytes(r->device);
    need_cuda(cudaDeviceGetDefaultMemPool(&pool, r->device));
    need_cuda(cudaMallocAsync(&p, 1001, r->stream));
    need_cuda(cudaMallocFromPoolAsync(&q, 77, pool, r->stream));
    check(gpulog_live_bytes(r->device) == base + 1078, "the pool's memory is not counted");
    need_cuda(cudaFreeAsync(p, r->stream));
    check(gpulog_live_bytes(r->device) == base + 77, "the free is not counted");
    need_cuda(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
    need_cuda(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &high));
    check(used == 77 && high == 1078, "the pool says %zu used, %zu at most", (size_t)used,
          (size_t)high);
    need_cuda(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &zero));
    need_cuda(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &high));
    check(high == 77, "the high mark after a reset is %zu", (size_t)high);
    need_cuda(cudaStreamSynchronize(r->stream));
    need_cuda(cudaFree(q)); // either kind of free takes either kind of memory
    need_cuda(cudaMalloc(&q, 10));
    need_cuda(cudaFreeAsync(q, r->stream));
    check(gpulog_live_bytes(r->device) == base, "something stayed");
}

RANK_TEST(test_nothing_for_zero_bytes, 1)
{
    void *p = &p;
    uint64_t before = gpulog_length();
    need_cuda(cudaMalloc(&p, 0));
    check(p == NULL, "no bytes have the address %p", p);
    p = &p;
    need_cuda(cudaMallocAsync(&p, 0, r->stream));
    check(p == NULL, "no bytes have the address %p", p);
    need_cuda(cudaFree(NULL));
    need_cuda(cudaFreeAsync(NULL, r->stream));
    check(gpulog_length() == before, "nothing was logged as something");
}

// ---- Running out ----

static void runs_out(const Rank *r, void *arg)
{
    void *p[256], *q;
    size_t room, total;
    hear(heard);
    need_cuda(cudaMemGetInfo(&room, &total));
    check(total == 1 << 20, "the device has %zu bytes", total);
    need_cuda(cudaMalloc(&q, room));
    check(cudaMalloc(&p[0], 1) == cudaErrorMemoryAllocation, "one byte more fitted");
    heard_is(heard, "out of device memory", "tests/memory.c:");
    heard_is(heard, "out of device memory", "1024.0 KiB (1048576 bytes)");
    check(cudaMallocAsync(&p[0], 1, r->stream) == cudaErrorMemoryAllocation,
          "one byte more fitted");
    check(heard->count == 1, "it was reported %d times", heard->count);
    check(cudaGetLastError() == cudaErrorMemoryAllocation, "the last error is another");
    check(cudaGetLastError() == cudaSuccess, "the error stayed");
    need_cuda(cudaFree(q));
    check(cudaMalloc(&q, SIZE_MAX) == cudaErrorMemoryAllocation, "SIZE_MAX bytes fitted");

    // Memory in pieces does not hinder: what is free counts, not where it lies.
    for (int i = 0; i < 256; i++) need_cuda(cudaMalloc(&p[i], 4096));
    for (int i = 0; i < 256; i += 2) need_cuda(cudaFree(p[i]));
    need_cuda(cudaMalloc(&q, 128 * 4096));
    check(cudaMalloc(&p[0], 1) == cudaErrorMemoryAllocation, "one byte more fitted");
}
TEST(test_runs_out)
{
    setenv("SIMGPU_MEMORY", "1M", 1);
    run_ranks(1, runs_out, NULL);
    unsetenv("SIMGPU_MEMORY");
}

// ---- The allocator ----

RANK_TEST(test_keeps_allocations_apart, 2)
{
    enum { N = 300, STEPS = 4000 };
    struct {
        unsigned char *p;
        size_t bytes;
        int value;
    } piece[N] = {{0}};
    unsigned random = 12345, *sum, got;
    need_cuda(cudaMalloc((void **)&sum, sizeof *sum));
    for (int step = 0; step < STEPS; step++) {
        random = random * 1664525 + 1013904223;
        int i = (int)(random >> 8) % N;
        if (!piece[i].p) {
            piece[i].bytes = 1 + (random >> 12) % 5000;
            piece[i].value = step % 251;
            need_cuda(cudaMalloc((void **)&piece[i].p, piece[i].bytes));
            need_cuda(cudaMemset(piece[i].p, piece[i].value, piece[i].bytes));
        } else {
            need_cuda(kernel_sum_bytes(sum, piece[i].p, piece[i].bytes, NULL));
            need_cuda(cudaMemcpy(&got, sum, sizeof got, cudaMemcpyDeviceToHost));
            check(got == piece[i].value * piece[i].bytes, "step %d: another allocation wrote here",
                  step);
            need_cuda(step % 2 ? cudaFree(piece[i].p) : cudaFreeAsync(piece[i].p, r->stream));
            piece[i].p = NULL;
        }
    }
}

// A long run that allocates and frees the same sizes stays where it is.
static void does_not_grow(const Rank *r, void *arg)
{
    static const size_t sizes[] = {3000001, 300, 70001, 9000};
    char *low = NULL, *high = NULL, *p[4];
    for (int step = 0; step < 5000; step++) {
        for (int i = 0; i < 4; i++) {
            need_cuda(cudaMallocAsync((void **)&p[i], sizes[(i + step) % 4], r->stream));
            if (!low || p[i] < low) low = p[i];
            if (p[i] > high) high = p[i];
        }
        for (int i = 0; i < 4; i++) need_cuda(cudaFreeAsync(p[(i * 3) % 4], r->stream));
    }
    check(high - low < 64 << 20, "4 allocations of 3 MB in all spread over %zu bytes",
          (size_t)(high - low));
}

// Pieces freed in any order become one again.
static void joins_pieces(const Rank *r, void *arg)
{
    enum { N = 256, PIECE = 64 << 10 };
    char *p[N], *low = NULL, *high = NULL, *large;
    for (int i = 0; i < N; i++) {
        need_cuda(cudaMalloc((void **)&p[i], PIECE));
        if (!low || p[i] < low) low = p[i];
        if (p[i] > high) high = p[i];
    }
    for (int i = 0; i < N; i++) need_cuda(cudaFreeAsync(p[i * 37 % N], r->stream));
    for (int i = 0; i < 100; i++) { // what waits after its free comes free
        need_cuda(cudaMalloc((void **)&large, 1));
        need_cuda(cudaFree(large));
    }
    need_cuda(cudaMalloc((void **)&large, (size_t)N / 2 * PIECE));
    check(large >= low && large + N / 2 * PIECE <= high + PIECE,
          "%d free pieces of %d bytes did not serve", N, PIECE);
}
// The large ones of a program's steps have the same addresses from some step on, although small
// ones come and go between them, of sizes that were never there before.
static void keeps_addresses(const Rank *r, void *arg)
{
    enum { STEPS = 60, SETTLED = 20, UNITS = 6 };
    static const size_t gathered[UNITS] = {900000, 3159040, 3159040, 3159040, 3159040, 700000};
    char *p, *small[UNITS], *large[2], *seen[200];
    size_t n = 0, settled = 0;
    for (size_t step = 0; step < STEPS; step++) {
        for (size_t i = 0; i < UNITS; i++) {
            need_cuda(cudaMallocAsync((void **)&small[i], 1 + step * 977 + i * 300, r->stream));
            need_cuda(cudaMallocAsync((void **)&large[i % 2], gathered[i], r->stream));
            p = large[i % 2];
            size_t at = 0;
            while (at < n && seen[at] != p) at++;
            if (at == n && n < 200) seen[n++] = p;
            if (i > 0) need_cuda(cudaFreeAsync(large[(i + 1) % 2], r->stream));
            if (i > 2) need_cuda(cudaFreeAsync(small[i - 2], r->stream));
        }
        need_cuda(cudaFreeAsync(large[(UNITS + 1) % 2], r->stream));
        need_cuda(cudaFreeAsync(small[0], r->stream));
        need_cuda(cudaFreeAsync(small[UNITS - 2], r->stream));
        need_cuda(cudaFreeAsync(small[UNITS - 1], r->stream));
        if (step < SETTLED) settled = n;
    }
    check(n == settled, "%zu addresses in %d steps, %zu in the first %d", n, STEPS, settled,
          SETTLED);
}

// One allocation at a time, no two of one size: what lies free stays in proportion to what is live.
static void sizes_never_return(const Rank *r, void *arg)
{
    enum { TIMES = 400, LEAST = 256 << 10, MORE = 256 };
    char *host = calloc(1, LEAST + TIMES * MORE), *p;
    check(host != NULL, "no memory");
    for (size_t i = 0; i < TIMES; i++) {
        need_cuda(cudaMalloc((void **)&p, LEAST + i * MORE));
        need_cuda(cudaMemcpy(p, host, LEAST + i * MORE, cudaMemcpyHostToDevice));
        need_cuda(cudaFree(p));
    }
    check(shared_kilobytes() < 32 << 10, "%ld KiB of the device are touched", shared_kilobytes());
    free(host);
}

TEST(test_does_not_grow)
{
    setenv("SIMGPU_POISON", "0", 1);
    run_ranks(1, does_not_grow, NULL);
    run_ranks(1, keeps_addresses, NULL);
    run_ranks(1, joins_pieces, NULL);
    run_ranks(1, sizes_never_return, NULL);
    unsetenv("SIMGPU_POISON");
}

RANK_TEST_BETWEEN(test_gives_pages_back, unheard, heard_again, 1)
{
    void *p, *q;
    need_cuda(cudaMalloc(&p, 64 << 20));
    need_cuda(cudaMalloc(&q, 64 << 20));
    check(shared_kilobytes() < 8 << 10, "what nobody has read or written has %ld KiB",
          shared_kilobytes());
    need_cuda(cudaMemcpy(q, p, 64 << 20, cudaMemcpyDeviceToDevice));
    need_cuda(cudaFree(q));
    long full = shared_kilobytes();
    check(full >= 64 << 10, "a read of poison touched %ld KiB only", full);
    need_cuda(cudaFree(p));
    check(shared_kilobytes() <= full - (60 << 10), "cudaFree kept the pages: %ld KiB",
          shared_kilobytes());
    need_cuda(cudaMallocAsync(&p, 64 << 20, r->stream));
    need_cuda(
        cudaMemcpyAsync((char *)p + (32 << 20), p, 32 << 20, cudaMemcpyDeviceToDevice, r->stream));
    need_cuda(cudaFreeAsync(p, r->stream));
    check(shared_kilobytes() >= full - 1024, "cudaFreeAsync gave the pages back");
    cudaMemPool_t pool;
    need_cuda(cudaDeviceGetMemPool(&pool, r->device));
    need_cuda(cudaMemPoolTrimTo(pool, 0));
    check(shared_kilobytes() <= full - (60 << 10), "the trim kept the pages");
}
static void poisons(const Rank *r, void *arg)
{
    bool poisoned = *(bool *)arg;
    unsigned char *p, host[1001];
    need_cuda(cudaMalloc((void **)&p, sizeof host));
    need_cuda(cudaMemset(p, 7, sizeof host));
    need_cuda(cudaFree(p));
    for (int round = 0; round < 200; round++) {
        need_cuda(cudaMallocAsync((void **)&p, sizeof host, r->stream));
        need_cuda(cudaMemcpy(host, p, sizeof host, cudaMemcpyDeviceToHost));
        for (size_t i = 0; i < sizeof host && poisoned; i++)
            check(host[i] == 0xff, "round %d: byte %zu of fresh memory is %d", round, i, host[i]);
        for (size_t i = 0; i < sizeof host && !poisoned; i++)
            check(host[i] != 0xff, "round %d: byte %zu was poisoned", round, i);
        need_cuda(cudaMemset(p, 7, sizeof host));
        need_cuda(cudaFreeAsync(p, r->stream));
    }
}
TEST(test_poisons)
{
    bool poisoned = true;
    setenv("SIMGPU_CHECK", "fast", 1); // which says nothing of what is read here
    run_ranks(1, poisons, &poisoned);
    poisoned = false;
    setenv("SIMGPU_POISON", "0", 1);
    run_ranks(1, poisons, &poisoned);
    unsetenv("SIMGPU_POISON");
    unsetenv("SIMGPU_CHECK");
}

// ---- Wrong pointers ----

RANK_TEST(test_refuses_bad_frees, 1)
{
    char *p, *pinned, host[4];
    hear(heard);
    need_cuda(cudaMalloc((void **)&p, 1000));
    check(cudaFree(p + 256) == cudaErrorInvalidValue, "an interior pointer was freed");
    heard_is(heard, "a pointer that is not the start of an allocation is freed",
             "byte 256 of p, the 1000 bytes allocated at");
    check(cudaFree(host) == cudaErrorInvalidValue, "the stack was freed");
    heard_is(heard, "a pointer that is not device memory is freed", "tests/memory.c:");
    need_cuda(cudaMallocHost((void **)&pinned, 10));
    check(cudaFree(pinned) == cudaErrorInvalidValue, "pinned memory was freed");
    heard_is(heard, "cudaFree of pinned host memory", "cudaFreeHost");
    need_cuda(cudaFree(p));
    check(cudaFree(p) == cudaErrorInvalidValue, "memory was freed twice");
    heard_is(heard, "device memory was freed twice", "and freed at tests/memory.c:");
    check(cudaFreeAsync(p, r->stream) == cudaErrorInvalidValue, "memory was freed three times");
    check(heard->count == 5, "%d reports", heard->count);
    need_cuda((cudaGetLastError(), cudaDeviceSynchronize())); // none of this is sticky
}

RANK_TEST(test_counts_pinned_bytes, 1)
{
    static char mine[100];
    char *first, *second;
    size_t before = simgpu_pinned_bytes();
    need_cuda(cudaMallocHost((void **)&first, 10));
    need_cuda(cudaHostAlloc((void **)&second, 5001, cudaHostAllocDefault));
    need_cuda(cudaHostRegister(mine, sizeof mine, cudaHostRegisterDefault));
    check(simgpu_pinned_bytes() - before == 5111, "%zu bytes are pinned, want 5111: as asked for",
          simgpu_pinned_bytes() - before);
    need_cuda(cudaHostUnregister(mine));
    need_cuda(cudaFreeHost(first));
    check(simgpu_pinned_bytes() - before == 5001, "%zu bytes are pinned, want 5001",
          simgpu_pinned_bytes() - before);
    need_cuda(cudaFreeHost(second));
    check(simgpu_pinned_bytes() == before, "pinned bytes are left");
}

// Each of these ends all use of the device: one rank a case.
enum Misuse {
    PAST_END,
    BEFORE_NEXT,
    AFTER_FREE,
    AFTER_FREE_LARGE,
    HOST_POINTER,
    NULL_POINTER,
    FAR_AWAY
};

static void finds_misuse(const Rank *r, void *arg)
{
    char *p, *q, host[64] = {0};
    hear(heard);
    need_cuda(cudaMalloc((void **)&p, 1000));
    cudaError_t error = cudaSuccess;
    switch (*(enum Misuse *)arg) {
    case PAST_END:
        error = kernel_touch(p + 500, 501, 0, r->stream);
        heard_is(heard, "an operation runs past the end of an allocation",
                 "that is 1 bytes too many");
        break;
    case BEFORE_NEXT: // 1000 is no multiple of 256: the gap belongs to nobody
        error = kernel_touch(p + 1004, 4, 0, r->stream);
        heard_is(heard, "an operation outside any allocation",
                 "4 bytes past the end of p, the 1000");
        break;
    case AFTER_FREE:
        need_cuda(cudaFreeAsync(p, r->stream));
        need_cuda(cudaMalloc((void **)&q, 1000));
        error = kernel_touch(p + 8, 4, 0, r->stream);
        heard_is(heard, "use of freed device memory", "byte 8 of p, the 1000 bytes allocated at");
        break;
    case AFTER_FREE_LARGE:
        need_cuda(cudaMalloc((void **)&q, 20 << 20));
        need_cuda(cudaFree(q));
        error = kernel_touch(q + (1 << 20), 4, 0, r->stream);
        heard_is(heard, "use of freed device memory", "byte 1048576 of q, the 20971520 bytes");
        break;
    case HOST_POINTER:
        error = kernel_touch(host, 4, 0, r->stream);
        heard_is(heard, "a host pointer where device memory is needed", "kernel_touch, called at");
        break;
    case NULL_POINTER:
        error = kernel_touch(NULL, 4, 0, r->stream);
        heard_is(heard, "a null pointer where device memory is needed", "kernel_touch, called at");
        break;
    case FAR_AWAY:
        error = kernel_touch(p + ((size_t)1 << 33), 4, 0, r->stream);
        heard_is(heard, "an operation outside any allocation", "no known allocation");
        break;
    }
    check(error == cudaErrorIllegalAddress, "the error is %s", cudaGetErrorName(error));
    check(cudaDeviceSynchronize() == cudaErrorIllegalAddress, "the error did not stay");
    check(cudaMalloc((void **)&q, 4) == cudaErrorIllegalAddress, "the error did not stay");
    check(cudaGetLastError() == cudaErrorIllegalAddress, "the last error is another");
    check(cudaPeekAtLastError() == cudaErrorIllegalAddress, "the error did not stay");
    check(heard->count == 1, "%d reports", heard->count);
}
TEST(test_finds_misuse)
{
    for (enum Misuse m = PAST_END; m <= FAR_AWAY; m++) run_to_illegal_access(finds_misuse, &m);
}

enum Touch { TOUCH_READ, TOUCH_WRITE, TOUCH_MEMCPY, TOUCH_FREED };

static void touches_from_the_host(const Rank *r, void *arg)
{
    volatile int *p;
    int host[1024];
    hear(heard);
    need_cuda(cudaMalloc((void **)&p, sizeof host));
    switch (*(enum Touch *)arg) {
    case TOUCH_READ: host[0] = p[4]; break;
    case TOUCH_WRITE: p[4] = 1; break;
    case TOUCH_MEMCPY: memcpy(heard->text, (const int *)p, sizeof host); break;
    case TOUCH_FREED:
        need_cuda(cudaFree((void *)p));
        p[4] = host[0] = 1;
        break;
    }
    check(false, "the host touched device memory and lived");
}
TEST(test_touches_from_the_host)
{
    static const char *const words[] = {"reads", "writes", "reads", "writes"};
    for (enum Touch t = TOUCH_READ; t <= TOUCH_FREED; t++) {
        heard->count = 0;
        char *message = run_ranks_message(1, 20, touches_from_the_host, &t);
        assert_non_null(message);
        free(message);
        assert_int_equal(heard->count, 1);
        assert_string_equal(heard->title, "host code touches device memory");
        assert_non_null(strstr(heard->text, words[t]));
        assert_non_null(strstr(heard->text, "(touches_from_the_host)"));
        if (t != TOUCH_MEMCPY) // how memcpy goes about it is its own affair
            assert_non_null(strstr(heard->text, ", the 4096 bytes allocated at tests/memory.c:"));
    }
}

RANK_TEST(test_resets, 1)
{
    void *p;
    for (int i = 0; i < 100; i++) need_cuda(cudaMalloc(&p, 1000));
    need_cuda(cudaDeviceReset());
    check(gpulog_live_bytes(r->device) == 0, "%zu bytes stayed", gpulog_live_bytes(r->device));
    need_cuda(cudaMalloc(&p, 1000));
    need_cuda(cudaMemset(p, 0, 1000));
    need_cuda(cudaFree(p));
}

int main(int argc, char **argv)
{
    heard = shared_alloc(sizeof *heard);
    return suite_main(argc, argv, "simgpu/memory");
}
