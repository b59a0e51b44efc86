/* categories.c: the category of memory, on every backend: any address within an allocation sets it,
 * the last call counts, the free is logged with it, and the next allocation begins without one.
 */
#include <nccl.h>

#include "harness.h"

#define is(ptr, category)                                                                          \
    check(gpulog_category_of(ptr) == (category), "%s is for %s", #ptr,                             \
          gpulog_category_name(gpulog_category_of(ptr)))

static GpuCategory last_free(void)
{
    GpuLogEntry e;
    uint64_t i = gpulog_length();
    while (i-- > 0)
        if (gpulog_get(i, &e) && e.op == GPU_FREE) return e.category;
    rank_fails(__FILE__, __LINE__, "nothing was freed");
}

RANK_TEST(test_says_what_for, 2)
{
    char *a, *b, *c;
    need_cuda(cudaMalloc((void **)&a, 100));
    need_cuda(cudaMallocAsync((void **)&b, 1000, r->stream));
    need_cuda(cudaMalloc((void **)&c, 10));
    is(a, GPU_TEMPORARY);
    gpulog_category(a, GPU_SHARDED_PARAM);
    gpulog_category(b + 999, GPU_UNSHARDED_PARAM);
    gpulog_category(b, GPU_UNSHARDED_GRAD);
    gpulog_category(b + 500, GPU_CATEGORIES); // no such category
    gpulog_category(NULL, GPU_ACTIVATION);
    is(a + 99, GPU_SHARDED_PARAM);
    is(a + 100, GPU_TEMPORARY);
    is(b, GPU_UNSHARDED_GRAD);
    is(c, GPU_TEMPORARY);
    need_cuda(cudaFreeAsync(b, r->stream));
    check(last_free() == GPU_UNSHARDED_GRAD, "the free has another category");
    gpulog_category(b, GPU_ACTIVATION); // b is freed
    is(b, GPU_TEMPORARY);
    need_cuda(cudaFree(c));
    check(last_free() == GPU_TEMPORARY, "memory without a category is not temporary");
    need_cuda(cudaFree(a));
    check(last_free() == GPU_SHARDED_PARAM, "the free has another category");
    for (int i = 0; i < 3000; i++) {
        need_cuda(cudaMalloc((void **)&a, 100 + (size_t)i % 7));
        is(a, GPU_TEMPORARY);
        gpulog_category(a, GPU_ACTIVATION);
        need_cuda(cudaFree(a));
    }
}

// ---- Asked with the operands of a collective ----

static GpuCategory knows(const void *ptr, void *arg)
{
    return ptr == *(void **)arg ? GPU_UNSHARDED_PARAM : GPU_TEMPORARY;
}

RANK_TEST(test_asks_with_operands, 2)
{
    float *shard, *whole;
    size_t bytes = 64 * sizeof *shard;
    need_cuda(cudaMalloc((void **)&shard, bytes));
    need_cuda(cudaMalloc((void **)&whole, bytes * (size_t)r->world));
    need_cuda(cudaMemset(shard, 0, bytes));
    need_cuda(cudaDeviceSynchronize());
    gpulog_categories(knows, &whole);
    need_nccl(ncclAllGather(shard, whole, 64, ncclFloat, r->comm, r->stream));
    is(whole, GPU_UNSHARDED_PARAM);
    is(shard, GPU_TEMPORARY);
    gpulog_category(whole, GPU_TEMPORARY);
    gpulog_categories(NULL, NULL);
    need_nccl(ncclAllGather(shard, whole, 64, ncclFloat, r->comm, r->stream));
    is(whole, GPU_TEMPORARY);
    need_cuda(cudaStreamSynchronize(r->stream));
    need_cuda(cudaFree(shard));
    need_cuda(cudaFree(whole));
}

SUITE_MAIN("gpulog/categories")
