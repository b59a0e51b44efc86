/* dry.c: dry runs (SIMGPU_DRY=1): calls are checked, logged and counted, and no device memory is
 * touched. That they are timed alike is fsdp/dry.c's to say.
 */
#include <cublas_v2.h>
#include <dirent.h>
#include <nccl.h>
#include <sys/stat.h>

#include "heard.h"

#define MB ((size_t)1000000)

static int dry(void **state)
{
    return setenv("SIMGPU_DRY", "1", 1);
}

static int not_dry(void **state)
{
    return unsetenv("SIMGPU_DRY");
}

// Blocks of 512 bytes that the files hold which are simgpu's devices.
static long blocks_of_devices(void)
{
    long blocks = 0;
    DIR *all = opendir("/proc/self/fd");
    check(all != NULL, "the process's files cannot be listed");
    for (struct dirent *entry = readdir(all); entry; entry = readdir(all)) {
        char path[300], name[300];
        struct stat file;
        snprintf(path, sizeof path, "/proc/self/fd/%s", entry->d_name);
        ssize_t n = readlink(path, name, sizeof name - 1);
        name[n < 0 ? 0 : n] = 0;
        if (strstr(name, "simgpu-device") && stat(path, &file) == 0) blocks += file.st_blocks;
    }
    closedir(all);
    return blocks;
}

// ---- What a program sees ----

static void multiply(float *x, cudaStream_t stream)
{
    const float one = 1.0f, none = 0.0f;
    float sum = 7.0f;
    cublasHandle_t handle;
    check(cublasCreate_v2(&handle) == CUBLAS_STATUS_SUCCESS, "no handle");
    check(cublasSetStream_v2(handle, stream) == CUBLAS_STATUS_SUCCESS, "no stream");
    check(cublasSgemm_v2(handle, CUBLAS_OP_N, CUBLAS_OP_N, 64, 64, 64, &one, x, 64, x + 4096, 64,
                         &none, x + 8192, 64) == CUBLAS_STATUS_SUCCESS,
          "the product failed");
    check(cublasSdot_v2(handle, 64, x, 1, x, 1, &sum) == CUBLAS_STATUS_SUCCESS, "the dot failed");
    check(sum == 0.0f, "a dot product in a dry run is %g", (double)sum);
    check(cublasDestroy_v2(handle) == CUBLAS_STATUS_SUCCESS, "the handle stays");
}

// Every kind of operation, and what the log has of each.
RANK_TEST_BETWEEN(test_nothing_is_touched, dry, not_dry, 1, 3)
{
    static const GpuOp WANT[] = {GPU_MEMSET,     GPU_KERNEL, GPU_COPY,           GPU_BLAS,
                                 GPU_ALL_GATHER, GPU_COPY,   GPU_REDUCE_SCATTER, GPU_ALL_REDUCE};
    float *x, back[4] = {1, 2, 3, 4}, *pinned;
    need_cuda(cudaMalloc((void **)&x, 8 * MB));
    need_cuda(cudaMallocHost((void **)&pinned, 16));
    uint64_t log = gpulog_length();
    need_cuda(cudaMemsetAsync(x, 1, 8 * MB, r->stream));
    need_cuda(kernel_touch(x, MB, 1, r->stream));
    need_cuda(cudaMemcpyAsync(x, back, sizeof back, cudaMemcpyHostToDevice, r->stream));
    multiply(x, r->stream);
    need_nccl(ncclAllGather(x, x + MB, 1024, ncclFloat, r->comm, r->stream));
    need_cuda(cudaMemcpyAsync(x + MB, x, MB, cudaMemcpyDeviceToDevice, r->stream));
    need_nccl(ncclReduceScatter(x, x + MB, 1024, ncclFloat, ncclSum, r->comm, r->stream));
    need_nccl(ncclAllReduce(x, x, 1024, ncclFloat, ncclSum, r->comm, r->stream));
    need_nccl(ncclGroupStart());
    need_nccl(ncclSend(x, MB / 2, ncclFloat, (r->rank + 1) % r->world, r->comm, r->stream));
    need_nccl(ncclRecv(x + MB, MB / 2, ncclFloat, (r->rank + r->world - 1) % r->world, r->comm,
                       r->stream));
    need_nccl(ncclGroupEnd());
    for (size_t i = 0; i < sizeof WANT / sizeof WANT[0]; i++) {
        int64_t found = gpulog_find(WANT[i], NULL, log);
        check(found >= 0, "the log of a dry run has no %s", gpulog_op_name(WANT[i]));
        if (WANT[i] != GPU_COPY) log = (uint64_t)found;
    }
    need_cuda(cudaMemcpy(back, x, sizeof back, cudaMemcpyDeviceToHost));
    pinned[0] = 5.0f;
    need_cuda(cudaMemcpyAsync(pinned, x, 16, cudaMemcpyDeviceToHost, r->stream));
    need_cuda(cudaStreamSynchronize(r->stream));
    for (int i = 0; i < 4; i++)
        check(back[i] == 0.0f && pinned[i] == 0.0f, "a copy to the host delivers %g and %g",
              (double)back[i], (double)pinned[i]);
    check(gpulog_live_bytes(r->device) >= 8 * MB, "the log counts %zu bytes",
          gpulog_live_bytes(r->device));
    check(blocks_of_devices() == 0, "%ld blocks of device memory were touched",
          blocks_of_devices());
    need_cuda(cudaFree(x));
    need_cuda(cudaFreeHost(pinned));
}

RANK_TEST_BETWEEN(test_host_copies_are_made, dry, not_dry, 1)
{
    char from[8] = "as ever", to[8] = "";
    need_cuda(cudaMemcpy(to, from, sizeof to, cudaMemcpyHostToHost));
    check(strcmp(to, from) == 0, "a copy within the host delivers \"%s\"", to);
}

// ---- Arrays of addresses ----

#define PRODUCTS 3

typedef struct Batch {
    cublasHandle_t handle;
    float *x;
    const float **array; // in device memory: PRODUCTS addresses of A, of B, of C
} Batch;

// The newest batch of products in the log has its matrices, or its arrays alone.
static void batch(const Batch *b, bool known, const char *when)
{
    const float one = 1.0f, none = 0.0f;
    GpuLogEntry entry;
    check(cublasSgemmBatched(b->handle, CUBLAS_OP_N, CUBLAS_OP_N, 8, 8, 8, &one, b->array, 8,
                             b->array + PRODUCTS, 8, &none, (float *const *)b->array + 6, 8,
                             PRODUCTS) == CUBLAS_STATUS_SUCCESS,
          "the batch failed %s", when);
    check(gpulog_get(gpulog_length() - 1, &entry) && entry.op == GPU_BLAS, "no batch in the log");
    int want = known ? 3 + 3 * PRODUCTS : 3;
    check(entry.n_ranges == want, "%s the log has %d ranges of a batch in place of %d", when,
          entry.n_ranges, want);
    for (int i = 3; i < want; i++) {
        const float *matrix = b->x + 64 * (i - 3);
        bool found = false;
        for (int k = 3; k < want; k++)
            found |= entry.range[k].ptr == matrix && entry.range[k].bytes == 256 &&
                     entry.range[k].access == (i < 9 ? GPU_READ : GPU_WRITE);
        check(found, "%s the log has not got matrix %d", when, i - 3);
    }
    check(entry.product.batch == PRODUCTS, "%s the products have no cost", when);
}

RANK_TEST_BETWEEN(test_batches_have_their_matrices, dry, not_dry, 1)
{
    Batch b;
    const float *address[3 * PRODUCTS];
    need_cuda(cudaMalloc((void **)&b.x, 64 * sizeof address));
    need_cuda(cudaMalloc((void **)&b.array, sizeof address));
    check(cublasCreate_v2(&b.handle) == CUBLAS_STATUS_SUCCESS, "no handle");
    for (int i = 0; i < 3 * PRODUCTS; i++) address[i] = b.x + 64 * i;
    batch(&b, false, "before the copy");
    need_cuda(cudaMemcpy(b.array, address, sizeof address, cudaMemcpyHostToDevice));
    batch(&b, true, "after the copy");
    need_cuda(cudaMemset(b.array + 1, 0, 8));
    batch(&b, false, "after a memset");
    for (int i = 0; i < 3; i++)
        need_cuda(cudaMemcpyAsync(b.array + 3 * i, address + 3 * i, 24, cudaMemcpyHostToDevice, 0));
    batch(&b, true, "after three copies");
    need_cuda(cudaFree(b.array));
    need_cuda(cudaMalloc((void **)&b.array, sizeof address));
    batch(&b, false, "in other memory");
    check(blocks_of_devices() == 0, "%ld blocks of device memory were touched",
          blocks_of_devices());
    check(cublasDestroy_v2(b.handle) == CUBLAS_STATUS_SUCCESS, "the handle stays");
    need_cuda(cudaFree(b.array));
    need_cuda(cudaFree(b.x));
}

// ---- Notices ----

static void read_twice(void)
{
    float *x, y[2];
    cudaMalloc((void **)&x, 8);
    for (int i = 0; i < 2; i++) cudaMemcpy(y, x, 8, cudaMemcpyDeviceToHost); // the first
    cudaMemcpy(y, x, 4, cudaMemcpyDeviceToHost);                             // the second
    cudaMemcpy(x, y, 4, cudaMemcpyHostToDevice);
    cudaFree(x);
}

TEST_BETWEEN(test_each_site_is_named_once, dry, not_dry)
{
    int status, found = 0;
    char *text = stderr_of(read_twice, &status);
    const char *line = text, *what = "simgpu: dry run: cudaMemcpy, called at tests/dry.c:";
    assert_int_equal(status, 0);
    for (; (line = strstr(line, what)); line += strlen(what)) found++;
    if (found != 2) fail_msg("%d notices in place of 2: %s", found, text);
}

// ---- Checks, memory ----

static void misuse_body(const Rank *r, void *arg)
{
    Heard *heard = arg;
    float *x;
    hear(heard);
    need_cuda(cudaMalloc((void **)&x, 64));
    check(cudaMemset(x, 0, 65) == cudaErrorInvalidValue, "a memset past the end went through");
    heard_is(heard, "an operation runs past the end of an allocation", "cudaMemset");
    need_cuda(cudaFree(x));
}

static void mismatch_body(const Rank *r, void *arg)
{
    Heard *heard = (Heard *)arg + r->rank;
    float *x;
    hear(heard);
    need_cuda(cudaMalloc((void **)&x, 4096));
    ncclAllReduce(x, x, r->rank ? 8 : 9, ncclFloat, ncclSum, r->comm, r->stream);
    check(heard->count > 0 && heard->kind == SIMGPU_MISMATCH,
          "nobody said that counts differ in a dry run");
}

TEST_BETWEEN(test_calls_are_checked, dry, not_dry)
{
    Heard *heard = shared_alloc(2 * sizeof *heard);
    run_ranks(1, misuse_body, heard);
    char *message = run_ranks_message(2, 10, mismatch_body, heard);
    assert_true(heard[0].count + heard[1].count > 0);
    assert_true(heard[0].kind == SIMGPU_MISMATCH || heard[1].kind == SIMGPU_MISMATCH);
    free(message);
}

// A device has what SIMGPU_MEMORY says, and so has one that no host could back.
static void memory_body(const Rank *r, void *arg)
{
    const bool *large = arg;
    void *x = NULL;
    cudaError_t error = cudaMalloc(&x, (size_t)700 << 30);
    check(error == (*large ? cudaSuccess : cudaErrorMemoryAllocation), "700 GiB: %s",
          cudaGetErrorString(error));
    cudaGetLastError();
    if (!*large) return;
    need_cuda(cudaMemset(x, 0, (size_t)700 << 30));
    check(gpulog_peak_bytes(r->device) >= (size_t)700 << 30, "they do not count");
    need_cuda(cudaFree(x));
}

TEST_BETWEEN(test_memory_has_the_limit_that_is_set, dry, not_dry)
{
    bool large = false;
    run_ranks(1, memory_body, &large);
#ifdef __SANITIZE_THREAD__ // which leaves a program too few addresses
    return;
#endif
    large = true;
    setenv("SIMGPU_MEMORY", "1T", 1);
    run_ranks(1, memory_body, &large);
    unsetenv("SIMGPU_MEMORY");
}

SUITE_MAIN("dry")
