/* report.c: what a report looks like, and faults that are not simgpu's. */
#include <cublas_v2.h>

#include "heard.h"

static Heard *heard;

static void free_twice(void)
{
    void *p;
    cudaSetDevice(3);
    if (cudaMalloc(&p, 5) || cudaFree(p)) _exit(1);
    _exit(cudaFree(p) == cudaErrorInvalidValue ? 0 : 1);
}
TEST(test_every_line_has_its_head)
{
    int status;
    char *text = stderr_of(free_twice, &status);
    assert_int_equal(status, 0);
    assert_ptr_equal(strstr(text, "simgpu: device 3: device memory was freed twice [lifetime]\n"),
                     text);
    int lines = 0;
    for (char *line = text; *line; lines++) {
        assert_int_equal(strncmp(line, "simgpu: ", 8), 0);
        line = strchr(line, '\n');
        assert_non_null(line);
        line++;
    }
    assert_true(lines >= 4);
}

// The rank is in front once there is a communicator.
RANK_TEST(test_says_the_rank, 3)
{
    char head[64], line[64];
    hear(heard + r->rank);
    check(cudaFree(&head) == cudaErrorInvalidValue, "the stack was freed");
    snprintf(head, sizeof head, "simgpu: rank %d, device %d: ", r->rank, r->device);
    snprintf(line, sizeof line, "\nsimgpu: rank %d |   ", r->rank);
    check(strncmp(heard[r->rank].text, head, strlen(head)) == 0, "it says %s", heard[r->rank].text);
    check(strstr(heard[r->rank].text, line) != NULL, "it says %s", heard[r->rank].text);
}

static void touch_device_memory(void)
{
    volatile int *p;
    if (cudaMalloc((void **)&p, 40)) _exit(1);
    p[3] = 1;
}
TEST(test_a_fatal_report_ends_the_process)
{
    int status;
    char *text = stderr_of(touch_device_memory, &status);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), SIMGPU_FATAL_EXIT);
    assert_non_null(strstr(text, "host code touches device memory"));
    assert_non_null(strstr(text, "byte 12 of p, the 40 bytes allocated at tests/report.c:"));
    assert_non_null(strstr(text, "(touch_device_memory)"));
}

// Faults elsewhere stay the program's: its own handler runs, or the system's default.
static void crash(void)
{
    void *p;
    int *volatile nowhere = (int *)8;
    if (cudaMalloc(&p, 40)) _exit(1);
    *nowhere = 1;
}
static void on_fault(int number)
{
    _exit(number == SIGSEGV ? 33 : 1);
}
static void crash_with_a_handler(void)
{
    signal(SIGSEGV, on_fault);
    crash();
}
TEST(test_other_faults_are_passed_on)
{
    int status;
    char *text = stderr_of(crash, &status);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGSEGV);
    assert_string_equal(text, "");
    stderr_of(crash_with_a_handler, &status);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 33);
}

// A setting that makes no sense is told, and the default is used.
static void bad_settings(void)
{
    int count;
    setenv("SIMGPU_DEVICES", "many", 1);
    cudaGetDeviceCount(&count);
    _exit(0);
}
TEST(test_bad_settings_are_told)
{
    int status;
    char *text = stderr_of(bad_settings, &status);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), SIMGPU_FATAL_EXIT);
    assert_non_null(strstr(text, "SIMGPU_DEVICES is \"many\": must be a number from 1 to 256\n"));
}

// ---- Layout: the lines of source, names ----

static struct {
    char *shard;
} * flat;

static void use_past_the_end(void)
{
    static char place[sizeof *flat];
    flat = (void *)place;
    cudaMalloc((void **)&flat->shard, 1000);
    kernel_touch(flat->shard + 990, 16, 0, NULL);
}
static void use_a_named_one(void)
{
    void *p;
    cudaMalloc(&p, 1000);
    gpulog_name(p, "shard of h.%d", 7);
    kernel_touch(p, 1001, 0, NULL);
    cudaFree(p);
}
static void use_the_next_owner(void)
{
    void *p, *first;
    setenv("SIMGPU_MEMORY", "64M", 1);
    cudaMalloc(&first, 600);
    gpulog_name(first, "an old name");
    cudaFree(first);
    for (int i = 0; i < 400000; i++) { // until the address comes round again
        cudaMalloc(&p, 600);
        if (p == first) break;
        cudaFree(p);
    }
    if (p == first) kernel_touch(p, 601, 0, NULL);
}
TEST(test_shows_the_source)
{
    char *text = stderr_of(use_past_the_end, NULL);
    expect_words(
        text,
        "simgpu: device 0: an operation runs past the end of an allocation [wrong pointer]\n");
    expect_words(text, "simgpu: |   kernel_touch, called at tests/report.c:");
    expect_words(text, " | kernel_touch(flat->shard + 990, 16, 0, NULL);\n");
    expect_words(text, "writes 16 bytes from byte 990 of flat->shard, the 1000 bytes allocated at "
                       "tests/report.c:");
    expect_words(text, "6 bytes too many");
    expect_words(text, "simgpu: |   On a GPU this is an illegal memory access");
    expect_words(text,
                 "offset right?\nsimgpu: |   Read: simgpu/pages/mistakes.md, \"Wrong pointer\"\n");
    text = stderr_of(use_a_named_one, NULL);
    expect_words(text, "byte 0 of shard of h.7, the 1000 bytes allocated at");
    expect_no_words(stderr_of(use_the_next_owner, NULL), "an old name");
}

// ---- First causes ----

static void three_mistakes(void)
{
    char host;
    void *p;
    cudaMalloc(&p, 8);
    cudaFree(p);
    cudaFree(p);
    cudaFree(&host);
    cudaFree(&host);
    exit(0);
}
static void three_mistakes_all(void)
{
    setenv("SIMGPU_REPORTS", "all", 1);
    three_mistakes();
}
static void two_mistakes(void)
{
    char host;
    cudaFree(&host);
    cudaFree(&host);
    exit(7); // the end is told whatever the status
}
static void memory_runs_out_between(void)
{
    char host;
    void *p;
    cudaFree(&host);
    cudaMalloc(&p, (size_t)1 << 40);
    exit(0);
}
static void memory_runs_out_first(void)
{
    char host;
    void *p;
    cudaMalloc(&p, (size_t)1 << 40);
    cudaFree(&host);
    exit(0);
}
static void a_mistake_and_a_fatal_one(void)
{
    char host;
    cudaFree(&host);
    touch_device_memory();
}
static void every_process_has_a_first_one(void)
{
    char host;
    cudaFree(&host);
    cudaFree(&host);
    if (fork() == 0) {
        cudaFree(&host); // CUDA was used before the fork: this process's first report
        exit(0);
    }
    int status;
    wait(&status);
    _exit(0);
}
static int times(const char *text, const char *words)
{
    int n = 0;
    for (; (text = strstr(text, words)); text += strlen(words)) n++;
    return n;
}
TEST(test_the_first_cause_is_printed)
{
    static const char more[] = "simgpu: 2 more reports followed from this one or came after it; "
                               "SIMGPU_REPORTS=all prints them\n";
    int status;
    char *text = stderr_of(three_mistakes, &status);
    expect_words(text, "device memory was freed twice");
    expect_no_words(text, "a pointer that is not device memory is freed");
    assert_string_equal(text + strlen(text) - strlen(more), more);

    text = stderr_of(three_mistakes_all, &status);
    expect_words(text, "device memory was freed twice");
    assert_int_equal(times(text, "a pointer that is not device memory is freed"), 2);
    expect_no_words(text, "more report");

    text = stderr_of(two_mistakes, &status);
    expect_words(text, "\nsimgpu: 1 more report followed");

    text = stderr_of(memory_runs_out_between, &status);
    expect_words(text, "[wrong pointer]");
    expect_words(text, "[out of memory]");
    expect_no_words(text, "more report");
    text = stderr_of(memory_runs_out_first, &status);
    expect_words(text, "[wrong pointer]");
    expect_words(text, "[out of memory]");

    text = stderr_of(a_mistake_and_a_fatal_one, &status);
    assert_int_equal(WEXITSTATUS(status), SIMGPU_FATAL_EXIT);
    expect_words(text, "and then this ended the process: host code touches device memory "
                       "[host dereference]\n");
    expect_words(text, "1 more report followed");
    expect_no_words(text, "segmentation fault");

    text = stderr_of(every_process_has_a_first_one, &status);
    expect_words(text, "a pointer that is not device memory is freed");
    expect_words(text, "CUDA was used before fork()");
}

RANK_TEST(test_the_hook_hears_all, 1)
{
    char host;
    Heard *h = hear(heard);
    for (int i = 0; i < 5; i++) cudaFree(&host);
    check(h->count == 5, "%d reports were heard", h->count);
}

// ---- Records ----

static char record_path[64];

static void make_records(void)
{
    char host, *p;
    setenv("SIMGPU_REPORT", record_path, 1);
    cudaSetDevice(2);
    cudaMalloc((void **)&p, 100);
    cudaMemset(p + 40, 0, 100);
    cudaFree(&host);
    exit(0);
}
static char *records(void)
{
    static char text[65536];
    FILE *file = fopen(record_path, "r");
    size_t n = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file) fclose(file);
    text[n] = 0;
    unlink(record_path);
    return text;
}
TEST(test_records)
{
    snprintf(record_path, sizeof record_path, "/tmp/simgpu-report-%d.jsonl", (int)getpid());
    unlink(record_path);
    stderr_of(make_records, NULL);
    char *text = records(), *second = strchr(text, '\n');
    assert_non_null(second);
    *second++ = 0;
    expect_words(text,
                 "{\"class\": \"wrong-pointer\", \"title\": \"an operation runs past the end of an "
                 "allocation\", \"rank\": null, \"device\": 2, \"pid\": ");
    expect_words(text, "\"follows\": false, \"calls\": [{\"call\": \"cudaMemset\", "
                       "\"file\": \"tests/report.c\", \"line\": ");
    expect_words(text, "\"function\": \"make_records\"");
    expect_words(text, "\"ranges\": [{\"allocation\": \"p\", \"where\": \"tests/report.c:");
    expect_words(text, "\"begin\": 40, \"end\": 140}]");
    expect_words(
        text,
        "\"hardware\": \"On a GPU this is an illegal memory access, or wrong data without an "
        "error.\", "
        "\"question\": \"Are the count (elements, not bytes?) and the offset right?\", "
        "\"read\": \"simgpu/pages/mistakes.md, \\\"Wrong pointer\\\"\", \"text\": \"simgpu: ");
    expect_words(second, "{\"class\": \"wrong-pointer\", \"title\": \"a pointer that is not device "
                         "memory is freed\"");
    expect_words(second, "\"follows\": true");
    assert_int_equal(times(second, "\n"), 1);
}

static void unwritable(void)
{
    char host;
    setenv("SIMGPU_REPORT", "/nowhere/to/be/found", 1);
    cudaFree(&host);
    cudaFree(&host);
    if (cudaMalloc((void **)&flat, 8) || cudaFree(flat)) _exit(1); // and the program goes on
}
TEST(test_an_unwritable_file_is_one_line)
{
    int status;
    char *text = stderr_of(unwritable, &status);
    assert_int_equal(status, 0);
    assert_int_equal(times(text, "SIMGPU_REPORT: /nowhere/to/be/found cannot be written: "), 1);
    expect_words(text, "a pointer that is not device memory is freed");
}

// ---- Alignment and overlap ----

KERNEL kernel_floats(float *out, const float *in, size_t n, cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_floats", stream);
    float *to = simgpu_write(&op, out, n * sizeof *out);
    const float *from = simgpu_read(&op, in, n * sizeof *in);
    if (simgpu_ready(&op)) memmove(to, from, n * sizeof *to);
    return simgpu_end(&op);
}

static void misaligned_kernel(const Rank *r, void *arg)
{
    char *p;
    hear(heard);
    need_cuda(cudaMalloc((void **)&p, 100));
    need_cuda(cudaMemsetAsync(p, 0, 100, r->stream));
    need_cuda(kernel_floats((float *)(p + 2), (float *)p, 0, r->stream)); // no bytes: always right
    need_cuda(kernel_touch(p + 1, 3, 0, r->stream));                      // bytes lie anywhere
    need_cuda(kernel_floats((float *)p, (float *)(p + 32), 8, r->stream));
    check(heard->count == 0, "%s", heard->text);
    check(kernel_floats((float *)p, (float *)(p + 34), 4, r->stream) == cudaErrorMisalignedAddress,
          "an odd address");
    heard_is(heard, "a misaligned pointer", "byte 34 of p, the 100 bytes");
    // The device is lost: the error stays.
    check(cudaGetLastError() == cudaErrorMisalignedAddress, "it is gone");
    check(cudaGetLastError() == cudaErrorMisalignedAddress, "it is gone");
    check(cudaMemset(p, 0, 1) == cudaErrorMisalignedAddress, "it is gone");
    check(ncclAllReduce(p, p, 4, ncclFloat, ncclSum, r->comm, r->stream) == ncclUnhandledCudaError,
          "NCCL does not notice");
    *(int *)arg = 1;
    _exit(0);
}
static void misaligned_nccl(const Rank *r, void *arg)
{
    char *p;
    hear(heard);
    need_cuda(cudaMalloc((void **)&p, 100));
    need_cuda(cudaMemsetAsync(p, 0, 100, r->stream));
    need_nccl(ncclAllReduce(p + 1, p + 1, 4, ncclInt8, ncclSum, r->comm, r->stream));
    need_nccl(ncclAllReduce(p + 2, p + 2, 4, ncclHalf, ncclSum, r->comm, r->stream));
    check(heard->count == 0, "%s", heard->text);
    check(ncclAllReduce(p + 2, p + 2, 4, ncclFloat, ncclSum, r->comm, r->stream) != ncclSuccess,
          "an odd address");
    heard_is(heard, "a misaligned pointer", "not a multiple of 4, the size of an ncclFloat32");
    check(cudaDeviceSynchronize() == cudaErrorMisalignedAddress, "it is gone");
    *(int *)arg = 2;
    _exit(0);
}
static void misaligned_product(const Rank *r, void *arg)
{
    char *p;
    float one = 1;
    cublasHandle_t handle;
    hear(heard);
    need_cuda(cudaMalloc((void **)&p, 100));
    need_cuda(cudaMemsetAsync(p, 0, 100, r->stream));
    check(cublasCreate(&handle) == 0 && cublasSetStream(handle, r->stream) == 0, "no handle");
    check(cublasSscal(handle, 3, &one, (float *)(p + 3), 1) == CUBLAS_STATUS_EXECUTION_FAILED,
          "an odd address");
    heard_is(heard, "a misaligned pointer", "cublasSscal, called at");
    *(int *)arg = 3;
    _exit(0);
}
TEST(test_misaligned)
{
    static const RankBody bodies[] = {misaligned_kernel, misaligned_nccl, misaligned_product};
    int *reached = shared_alloc(sizeof *reached);
    for (int i = 0; i < 3; i++) {
        char *message = run_ranks_message(1, 20, bodies[i], reached); // it ends by _exit
        if (*reached != i + 1) fail_msg("%s", message ? message : "not all was tried");
        free(message);
    }
}

RANK_TEST(test_overlap, 1)
{
    float *x, one = 1;
    cublasHandle_t handle;
    hear(heard);
    need_cuda(cudaMalloc((void **)&x, 400));
    need_cuda(cudaMemsetAsync(x, 0, 400, r->stream));
    check(cublasCreate(&handle) == 0 && cublasSetStream(handle, r->stream) == 0, "no handle");
#define PRODUCT(C, ldc)                                                                            \
    cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, &one, x, 2, x + 8, 2, &one, C, ldc)

    // In place, side by side, and in each other's gaps: fine.
    need_cuda(kernel_floats(x, x, 10, r->stream));
    need_cuda(kernel_floats(x, x + 10, 10, r->stream));
    need_cuda(cudaMemcpyAsync(x, x + 4, 16, cudaMemcpyDeviceToDevice, r->stream));
    need_cuda(cudaMemcpyAsync(x, x, 16, cudaMemcpyDeviceToDevice, r->stream));
    need_cuda(cudaMemcpy2DAsync(x, 16, x + 2, 16, 8, 3, cudaMemcpyDeviceToDevice, r->stream));
    check(PRODUCT(x + 12, 2) == 0, "a product");
    check(PRODUCT(x + 6, 10) == 0, "a product whose columns lie around B");
    check(heard->count == 0, "%s", heard->text);

    need_cuda(kernel_floats(x + 1, x, 10, r->stream));
    heard_is(heard, "what an operation writes overlaps its other operand",
             "writes 40 bytes from byte 4 of x, the 400 bytes");
    need_cuda(kernel_floats(x, x + 9, 10, r->stream));
    check(heard->count == 2, "%d reports", heard->count);
    need_cuda(cudaMemcpyAsync(x + 3, x, 16, cudaMemcpyDeviceToDevice, r->stream));
    heard_is(heard, "source and destination of a copy overlap", "memory areas may not overlap");
    check(PRODUCT(x, 2) == 0, "CUDA's own word is success");
    heard_is(heard, "what an operation writes overlaps its other operand",
             "cuBLAS: C may not overlap A or B");
    check(PRODUCT(x + 11, 2) == 0, "CUDA's own word is success");
    check(heard->count == 5, "%d reports", heard->count);
    need_cuda(cudaFreeAsync(x, r->stream));
    cublasDestroy(handle);
}

// Messages of one group move at the same time.
static void exchanging(const Rank *r, void *arg)
{
    int other = 1 - r->rank;
    float *x;
    hear(heard + r->rank);
    need_cuda(cudaMallocAsync((void **)&x, 400, r->stream));
    need_cuda(cudaMemsetAsync(x, 0, 400, r->stream));
    need_nccl(ncclGroupStart());
    need_nccl(ncclSend(x, 10, ncclFloat, other, r->comm, r->stream));
    need_nccl(ncclRecv(x + 10, 10, ncclFloat, other, r->comm, r->stream));
    need_nccl(ncclSend(x + 20, 4, ncclFloat, r->rank, r->comm, r->stream)); // to itself, in place
    need_nccl(ncclRecv(x + 20, 4, ncclFloat, r->rank, r->comm, r->stream));
    need_nccl(ncclGroupEnd());
    check(heard[r->rank].count == 0, "%s", heard[r->rank].text);
    need_cuda(cudaFreeAsync(x, r->stream));
}
static void swapping(const Rank *r, void *arg)
{
    int other = 1 - r->rank;
    float *x;
    Heard *h = hear(heard + r->rank);
    need_cuda(cudaMallocAsync((void **)&x, 400, r->stream));
    need_cuda(cudaMemsetAsync(x, 0, 400, r->stream));
    need_nccl(ncclGroupStart());
    need_nccl(ncclSend(x, 10, ncclFloat, other, r->comm, r->stream));
    need_nccl(ncclRecv(x + 9, 10, ncclFloat, other, r->comm, r->stream));
    need_nccl(ncclGroupEnd());
    check(h->count == 1, "%d reports", h->count);
    heard_is(h, "two messages of a group overlap", "reads 40 bytes from byte 0 of x, the 400");
    need_cuda(cudaFreeAsync(x, r->stream));
}
static void waiting_in_a_group(const Rank *r, void *arg)
{
    float *x;
    Heard *h = hear(heard + r->rank);
    need_cuda(cudaMallocAsync((void **)&x, 400, r->stream));
    need_cuda(cudaMemsetAsync(x, 0, 400, r->stream));
    need_nccl(ncclGroupStart());
    need_nccl(ncclAllReduce(x, x, 10, ncclFloat, ncclSum, r->comm, r->stream));
    need_cuda(cudaStreamSynchronize(r->stream)); // for what was there before the group
    need_nccl(ncclGroupEnd());
    need_cuda(cudaStreamSynchronize(r->stream));
    check(h->count == 0, "%s", h->text);
    need_nccl(ncclGroupStart());
    need_cuda(cudaStreamSynchronize(r->stream)); // nothing is held back yet
    need_nccl(ncclAllReduce(x, x, 10, ncclFloat, ncclSum, r->comm, r->stream));
    check(h->count == 0, "%s", h->text);
    need_cuda(cudaStreamSynchronize(r->stream));
    heard_is(h, "a wait for calls of a group that is still open",
             "ncclAllReduce, called at tests/report.c:");
    need_nccl(ncclGroupEnd());
    need_cuda(cudaFreeAsync(x, r->stream));
}
TEST(test_groups)
{
    run_ranks(2, exchanging, NULL);
    run_ranks(2, swapping, NULL);
    run_ranks(2, waiting_in_a_group, NULL);
}

RANK_TEST(test_takes_the_hook_away, 1)
{
    char host;
    hear(heard);
    simgpu_on_report(NULL, NULL);
    check(cudaFree(&host) == cudaErrorInvalidValue, "the stack was freed");
    check(heard->count == 0, "the hook ran");
}

int main(int argc, char **argv)
{
    heard = shared_alloc(8 * sizeof *heard);
    return suite_main(argc, argv, "simgpu/report");
}
