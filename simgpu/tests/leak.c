/* leak.c: what a program that ends well has left alive, and what is no leak. Each case runs in a
 * process of its own that ends by exit(0).
 */
#include <cublas_v2.h>

#include "heard.h"

static void (*inner)(void);
static int last_status;

static void run_and_exit(void)
{
    inner();
    exit(last_status);
}

// Runs fn in a process that then calls exit(status); returns what it wrote to stderr.
static char *end_of(void (*fn)(void), int status)
{
    int how;
    inner = fn;
    last_status = status;
    char *text = stderr_of(run_and_exit, &how);
    assert_true(WIFEXITED(how));
    assert_int_equal(WEXITSTATUS(how), status);
    return text;
}

static void silent(const char *text)
{
    if (text[0]) fail_msg("want no report, not:\n%s", text);
}

// ---- What is left ----

static void leave_memory(void)
{
    char *small, *parts[3], *given_back;
    cudaMalloc((void **)&small, 100);
    for (int i = 0; i < 3; i++) cudaMallocAsync((void **)&parts[i], 1000, NULL);
    cudaMalloc((void **)&given_back, 1 << 20);
    cudaFree(given_back);
}
TEST(test_memory)
{
    char *text = end_of(leave_memory, 0);
    expect_words(text, "4 resources were never freed [leak]");
    expect_words(text,
                 "3 allocations of device memory (3000 bytes): parts[i], made at tests/leak.c:");
    expect_words(text, "1 allocation of device memory (100 bytes): small, made at tests/leak.c:");
    expect_words(text, "(leave_memory)");
    expect_words(text, "Is there a cudaFree missing");
    expect_words(text, "Read: simgpu/pages/mistakes.md, \"Leak\"");
    if (strstr(text, "given_back")) fail_msg("what was freed is accused:\n%s", text);
    if (strstr(text, "3000 bytes") > strstr(text, "100 bytes")) fail_msg("the order:\n%s", text);
}

static void leave_others(void)
{
    void *pinned;
    cudaStream_t stream, gone;
    cudaEvent_t event[2];
    cublasHandle_t handle;
    ncclComm_t comm;
    cudaMallocHost(&pinned, 64);
    cudaStreamCreate(&stream);
    cudaStreamCreate(&gone);
    for (int i = 0; i < 2; i++) cudaEventCreate(&event[i]);
    cublasCreate(&handle);
    ncclCommInitAll(&comm, 1, NULL);
    cudaStreamDestroy(gone);
}
TEST(test_others)
{
    char *text = end_of(leave_others, 0);
    expect_words(text, "6 resources were never freed");
    expect_words(text, "1 allocation of pinned memory (64 bytes): pinned, made at tests/leak.c:");
    expect_words(text, "  1 stream, made at ");
    expect_words(text, "  2 events, made at ");
    expect_words(text, "  1 cuBLAS handle, made at ");
    expect_words(text, "  1 communicator, made at ");
}

static void leave_many_places(void)
{
    void *p;
    // clang-format off
    cudaMalloc(&p, 8);
    cudaMalloc(&p, 8);
    cudaMalloc(&p, 8);
    cudaMalloc(&p, 8);
    cudaMalloc(&p, 8);
    cudaMalloc(&p, 8);
    cudaMalloc(&p, 8);
    cudaMalloc(&p, 8);
    cudaMalloc(&p, 8);
    cudaMalloc(&p, 8);
    cudaMalloc(&p, 8);
    cudaMalloc(&p, 8);
    cudaMalloc(&p, 8);
    cudaMalloc(&p, 8);
    for (int i = 0; i < 500; i++) cudaMalloc(&p, 8);
    // clang-format on
}
TEST(test_many_places)
{
    char *text = end_of(leave_many_places, 0);
    expect_words(text, "514 resources were never freed");
    expect_words(text, "500 allocations of device memory (4000 bytes)");
    expect_words(text, "  and more, of 3 other places");
    if (strlen(text) > 6000) fail_msg("%zu bytes of report", strlen(text));
}

static void use_a_name(void)
{
    void *p;
    cudaMalloc(&p, 24);
    gpulog_name(p, "gradient of h.%d", 3);
}
TEST(test_the_given_name_is_used)
{
    expect_words(end_of(use_a_name, 0), "(24 bytes): gradient of h.3, made at ");
}

static void group_left_open(void)
{
    ncclComm_t comm;
    float *x;
    ncclCommInitAll(&comm, 1, NULL);
    cudaMalloc((void **)&x, 32);
    cudaMemset(x, 0, 32);
    ncclGroupStart();
    ncclAllReduce(x, x, 8, ncclFloat, ncclSum, comm, NULL);
}
TEST(test_an_open_group)
{
    char *text = end_of(group_left_open, 0);
    expect_words(text, "a group that was never ended [group misuse]");
    expect_words(text, "ncclGroupStart, called at tests/leak.c:");
    expect_words(text, "1 call of it never ran");
    if (strstr(text, "[leak]")) fail_msg("leaks behind another report:\n%s", text);
}

// ---- What is no leak ----

static void clean(void)
{
    void *p, *pinned;
    cudaStream_t stream;
    cudaEvent_t event;
    cublasHandle_t handle;
    ncclComm_t comm;
    char byte = 1;
    cudaMalloc(&p, 100);
    cudaMallocHost(&pinned, 100);
    cudaStreamCreate(&stream);
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    cublasCreate(&handle);
    ncclCommInitAll(&comm, 1, NULL);
    cudaMemcpyAsync(p, &byte, 1, cudaMemcpyHostToDevice, NULL); // the default streams stay
    cudaMemcpyAsync(p, &byte, 1, cudaMemcpyHostToDevice, cudaStreamPerThread);
    cudaDeviceSynchronize();
    ncclCommDestroy(comm);
    cublasDestroy(handle);
    cudaEventDestroy(event);
    cudaStreamDestroy(stream);
    cudaFreeHost(pinned);
    cudaFreeAsync(p, NULL);
}

static void reset(void)
{
    leave_memory();
    leave_others();
    for (int i = 0; i < 8; i++) {
        cudaSetDevice(i);
        cudaDeviceReset();
    }
}

static void *kept;
static void free_kept(void)
{
    cudaFree(kept);
}
static void free_at_exit(void)
{
    atexit(free_kept);
    cudaMalloc(&kept, 8);
}

static void ask_only(void)
{
    int count;
    cudaGetDeviceCount(&count);
}

static void leave_by_the_back_door(void)
{
    leave_memory();
    _exit(0);
}

static void fast(void)
{
    setenv("SIMGPU_CHECK", "fast", 1);
    leave_memory();
}

static void off(void)
{
    setenv("SIMGPU_CHECK", "off", 1);
    leave_memory();
    group_left_open();
}

static void parent_of_ranks(void)
{
    leave_memory();
    pid_t pid = fork();
    if (pid == 0) exit(0); // has copies of what its parent has, and answers for none of it
    waitpid(pid, NULL, 0);
    _exit(0);
}

TEST(test_no_leak)
{
    silent(end_of(clean, 0));
    silent(end_of(reset, 0));
    silent(end_of(free_at_exit, 0));
    silent(end_of(ask_only, 0));
    silent(end_of(leave_by_the_back_door, 0));
    silent(end_of(leave_memory, 3)); // it failed, and says why elsewhere
    silent(end_of(off, 0));
    silent(end_of(parent_of_ranks, 0));
    expect_words(end_of(fast, 0), "[leak]");
}

// Another report is the cause; what is left because of it is no news.
static void another_report(void)
{
    char host;
    leave_memory();
    cudaFree(&host);
}
TEST(test_another_report_comes_first)
{
    char *text = end_of(another_report, 0);
    expect_words(text, "a pointer that is not device memory is freed [wrong pointer]");
    if (strstr(text, "[leak]")) fail_msg("%s", text);
}

SUITE_MAIN("simgpu/leak")
