/* places.c: what a report names: the program's own line where given code made the call, streams and
 * elements by their names, memory that an address just misses, and the call where ranks parted.
 *
 * The given code is the kit's own library: cross_entropy of lib/nn, which calls kernels.
 */
#include "heard.h"
#include "nn.h"

static Heard *heard;

// `first` stands in the text, and `second` behind it.
static void has_both(const char *text, const char *first, const char *second)
{
    const char *at = strstr(text, first);
    if (!at || !strstr(at + strlen(first), second))
        fail_msg("no \"%s\" and then \"%s\" in:\n%s", first, second, text);
}
// ---- The program's own line ----

// The logits lie in no allocation, which cross_entropy's first kernel finds.
__attribute__((noinline)) static void asks_given_code(void)
{
    NnRun run;
    float loss, *x;
    int32_t *targets;
    if (cudaMalloc((void **)&x, 64) || cudaMalloc((void **)&targets, 64)) _exit(1);
    if (cudaMemset(targets, 0, 64) || nn_run_create(&run, NULL) != OK) _exit(1);
    IGNORE_STATUS(cross_entropy(&run, x + 100, targets, 2, 3, &loss, NULL));
}
static void library_alone(void)
{
    asks_given_code();
}
static void for_a_program(void)
{
    gpulog_own_code((const void *)asks_given_code);
    asks_given_code();
}
static void recorded(void)
{
    setenv("SIMGPU_REPORT", "/dev/stderr", 1);
    for_a_program();
}
TEST(test_names_the_programs_own_line)
{
    char *text = stderr_of(library_alone, NULL);
    expect_words(text, "kernel_cross_entropy, called at nn/cross_entropy.c:");
    text = stderr_of(for_a_program, NULL);
    expect_words(text, "kernel_cross_entropy, called at tests/places.c:");
    has_both(text, "(asks_given_code),\n", "cross_entropy(&run, x + 100, targets, 2, 3, ");
    has_both(text, "cross_entropy(&run", "|            in ");
    has_both(text, "|            in ", "(nn/cross_entropy.c:");
    expect_words(text, "; called by for_a_program (tests/places.c:");
    text = stderr_of(recorded, NULL);
    expect_words(text, "\"file\": \"tests/places.c\", \"line\": ");
    expect_words(text, "\"function\": \"asks_given_code\", \"path\": \"in ");
}

// Code without frame pointers: the place is the same, and nothing is read that is not there.
// (clang omits them by file alone.)
#ifndef __clang__
__attribute__((optimize("omit-frame-pointer", "O2")))
#endif
__attribute__((noinline)) static int
without_frames(int n)
{
    char host[64];
    int sum = n;
    for (int i = 0; i < n; i++) host[i % 64] = (char)(i * n);
    if (n > 0) sum += without_frames(n - 1);
    cudaFree(host);
    return sum + host[n % 64];
}
static void frees_the_stack(void)
{
    without_frames(40);
}
TEST(test_needs_no_frame_pointers)
{
    int status;
    char *text = stderr_of(frees_the_stack, &status);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    expect_words(text, "cudaFree, called at tests/places.c:");
    expect_words(text, "(without_frames)");
}

// A log keeps a call site for every way that leads to a call, and an address is one too.
__attribute__((noinline)) static void allocate(void **p)
{
    cudaMalloc(p, 8);
}
RANK_TEST(test_log_names_places, 1)
{
    void *p, *q;
    char first[256], second[256], address[256];
    GpuLogEntry entry;
    allocate(&p);
    check(gpulog_get(gpulog_length() - 1, &entry), "nothing was logged");
    gpulog_where(entry.site, first, sizeof first);
    allocate(&q);
    check(gpulog_get(gpulog_length() - 1, &entry), "nothing was logged");
    gpulog_where(entry.site, second, sizeof second);
    check(strstr(first, "(allocate)") && strcmp(first, second) == 0, "%s and %s", first, second);
    gpulog_where((const char *)(uintptr_t)allocate + 1, address, sizeof address);
    check(strstr(address, "(allocate)") != NULL, "an address is %s", address);
    gpulog_where(NULL, address, sizeof address);
    check(strcmp(address, "an unknown place") == 0, "nothing is %s", address);
    need_cuda(cudaFree(p));
    need_cuda(cudaFree(q));
}

// ---- Streams ----

// Two kernels write x, and nothing orders them.
static void race_of(cudaStream_t one, cudaStream_t two)
{
    char *x;
    need_cuda(cudaMalloc((void **)&x, 40));
    need_cuda(kernel_touch(x, 40, 0, one));
    need_cuda(kernel_touch(x, 40, 1, two));
    need_cuda(cudaDeviceSynchronize());
    need_cuda(cudaFree(x));
}
RANK_TEST(test_names_streams, 1)
{
    cudaStream_t one, two, three, old;
    Heard *h = hear(heard);
    need_cuda(cudaStreamCreate(&one));
    need_cuda(cudaStreamCreate(&two));
    gpulog_name_stream(one, "ctx->%s", "one");
    gpulog_name_stream(two, "side[%d]", 2);
    gpulog_name_stream(NULL, "nothing");
    race_of(one, two);
    check(strstr(h->text, "on side[2] (made at tests/places.c:"), "%s", h->text);
    check(strstr(h->text, "on ctx->one (made at tests/places.c:"), "%s", h->text);
    check(strstr(h->text, "recorded on ctx->one after kernel_touch"), "%s", h->text);

    // The next stream gets the handle, and not the name.
    old = two;
    need_cuda(cudaStreamSynchronize(two));
    need_cuda(cudaStreamDestroy(two));
    gpulog_name_stream(old, "side[2], too late");
    need_cuda(cudaStreamCreate(&three));
    check(three == old, "the handle was not used again: this test tests nothing");
    race_of(one, three);
    check(!strstr(h->text, "side[2]") && strstr(h->text, "on stream "), "%s", h->text);
    gpulog_name_stream(three, "new");
    gpulog_name_stream(three, "newer");
    race_of(one, three);
    check(strstr(h->text, "on newer (made at "), "%s", h->text);
    need_cuda(cudaStreamDestroy(three));
    need_cuda(cudaStreamDestroy(one));
}

// The report keeps the name of a stream that is gone.
RANK_TEST(test_names_a_stream_that_is_gone, 1)
{
    cudaStream_t one, two;
    char *x;
    Heard *h = hear(heard);
    need_cuda(cudaStreamCreate(&one));
    need_cuda(cudaStreamCreate(&two));
    gpulog_name_stream(one, "ctx->old");
    need_cuda(cudaMalloc((void **)&x, 40));
    need_cuda(kernel_touch(x, 40, 0, one));
    need_cuda(cudaStreamDestroy(one));
    need_cuda(kernel_touch(x, 40, 1, two));
    check(strstr(h->text, "on ctx->old (made at "), "%s", h->text);
    need_cuda(cudaDeviceSynchronize());
    need_cuda(cudaStreamDestroy(two));
    need_cuda(cudaFree(x));
}

// ---- A race of the program with somebody else: the program's operation comes first ----

// Here lib/nn/gelu.c plays the program, and this file somebody else.
static void gelu_and_a_write(bool own)
{
    NnRun run;
    cudaStream_t side;
    Module *gelu = gelu_create("gelu", 4);
    float *x, *y;
    if (own) gpulog_own_code((const void *)gelu_create);
    if (!gelu || cudaMalloc((void **)&x, 64) || nn_run_create(&run, NULL) != OK) _exit(1);
    if (cudaMemset(x, 0, 64) || cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking)) _exit(1);
    if (cudaDeviceSynchronize()) _exit(1);
    run.B = 1;
    run.T = 4;
    if (module_forward(gelu, &run, x, &y) != OK) _exit(1);
    kernel_touch(x, 64, 0, side);
}
static void later_operation_first(void)
{
    gelu_and_a_write(false);
}
static void own_operation_first(void)
{
    gelu_and_a_write(true);
}
TEST(test_the_programs_operation_comes_first)
{
    char *text = stderr_of(later_operation_first, NULL);
    has_both(text, "kernel_touch, called at tests/places.c:", "It does not wait for\n");
    has_both(text, "It does not wait for\n", "kernel_gelu_forward, called at nn/gelu.c:");
    text = stderr_of(own_operation_first, NULL);
    has_both(text, "kernel_gelu_forward, called at nn/gelu.c:", "After it, and without waiting");
    has_both(text, "After it, and without waiting", "kernel_touch, called at tests/places.c:");
    has_both(text, "kernel_touch, called at", "which writes the same bytes.\n");
}

// Uninitialised memory that the program allocated comes first, too, where somebody else reads
// it. Here lib/nn/run.c plays the program.
Status run_alloc(NnRun *run, float **x, size_t n);
static void reads_unwritten(bool own)
{
    NnRun run;
    float *x;
    unsigned *sum;
    if (own) gpulog_own_code((const void *)run_alloc);
    if (nn_run_create(&run, NULL) != OK || run_alloc(&run, &x, 16) != OK) _exit(1);
    if (cudaMalloc((void **)&sum, sizeof *sum)) _exit(1);
    kernel_sum_bytes(sum, x + 4, 32, NULL);
}
static void reader_first(void)
{
    reads_unwritten(false);
}
static void own_memory_first(void)
{
    reads_unwritten(true);
}
TEST(test_the_programs_memory_comes_first)
{
    char *text = stderr_of(reader_first, NULL);
    has_both(text, "kernel_sum_bytes, called at tests/places.c:",
             "reads 32 uninitialised bytes, the first of them\n");
    text = stderr_of(own_memory_first, NULL);
    has_both(text, "  32 uninitialised bytes, the first of them\n",
             "byte 16 of memory, the 64 bytes allocated at nn/run.c:");
    has_both(text, "are read by\n", "kernel_sum_bytes, called at tests/places.c:");
}

// ---- Elements ----

static const void *named_buffer;

// A flat parameter of 10 elements and 2 of padding.
static bool say_elements(const void *ptr, size_t bytes, size_t begin, size_t end, char *text,
                         size_t size, void *arg)
{
    if (ptr != named_buffer || bytes != 48) return false;
    snprintf(text, size, "elements %zu to %zu of %s, %s", begin / 4, (end - 1) / 4,
             (const char *)arg, begin / 4 < 10 ? "weight" : "padding");
    return true;
}
RANK_TEST(test_names_elements, 1)
{
    cudaStream_t side;
    char *x, *y, name[] = "h.0";
    Heard *h = hear(heard);
    need_cuda(cudaMalloc((void **)&x, 48));
    need_cuda(cudaMalloc((void **)&y, 48));
    need_cuda(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
    named_buffer = x;
    gpulog_name_elements(say_elements, name);
    need_cuda(kernel_touch(x, 48, 0, r->stream));
    need_cuda(kernel_touch(x + 40, 8, 0, side));
    check(strstr(h->text, "writes bytes 40 to 47 (elements 10 to 11 of h.0, padding) of x, the 48 "
                          "bytes allocated at tests/places.c:"),
          "%s", h->text);
    need_cuda(cudaDeviceSynchronize());
    need_cuda(kernel_touch(y, 48, 0, r->stream)); // nothing is known of it
    need_cuda(kernel_touch(y + 40, 8, 0, side));
    check(strstr(h->text, "writes bytes 40 to 47 of y, the 48 bytes"), "%s", h->text);
    need_cuda(cudaDeviceSynchronize());
    gpulog_name_elements(NULL, NULL);
    need_cuda(kernel_touch(x, 48, 0, r->stream));
    need_cuda(kernel_touch(x + 40, 8, 0, side));
    check(strstr(h->text, "writes bytes 40 to 47 of x, the 48 bytes"), "%s", h->text);
    need_cuda(cudaDeviceSynchronize());
    need_cuda(cudaStreamDestroy(side));
    need_cuda(cudaFree(x));
    need_cuda(cudaFree(y));
}

// ---- Addresses that just miss an allocation ----

// The first allocation of all: what lies before it is the device's all the same.
static void before_the_first(void)
{
    float *x;
    cudaSetDevice(1);
    cudaMalloc((void **)&x, 400);
    kernel_touch(x - 2, 8, 0, NULL);
}
static void far_before_the_first(void)
{
    float *x;
    cudaMalloc((void **)&x, 400);
    kernel_touch(x - 1000, 8, 0, NULL);
}
static void before_the_second(void)
{
    char *x, *y;
    cudaMalloc((void **)&x, 100); // the 156 bytes behind it belong to nobody
    cudaMalloc((void **)&y, 100);
    if (y != x + 256) _exit(1);
    kernel_touch(y - 40, 4, 0, NULL);
}
static void past_the_first_of_two(void)
{
    char *x, *y;
    cudaMalloc((void **)&x, 100);
    cudaMalloc((void **)&y, 100);
    kernel_touch(x + 120, 4, 0, NULL);
}
static void at_the_end(void)
{
    char *x;
    cudaMalloc((void **)&x, 400);
    kernel_touch(x + 400, 4, 0, NULL);
}
static void send_from_before(void)
{
    ncclComm_t comm;
    float *x;
    cudaMalloc((void **)&x, 400);
    if (ncclCommInitAll(&comm, 1, NULL)) _exit(1);
    ncclAllReduce(x - 2, x, 4, ncclFloat, ncclSum, comm, NULL);
}
static void free_one_before(void)
{
    char *x;
    cudaMalloc((void **)&x, 400);
    cudaFree(x - 1);
}
TEST(test_just_beside_an_allocation)
{
    char *text = stderr_of(before_the_first, NULL);
    expect_words(text,
                 "8 bytes before the beginning of x, the 400 bytes allocated at tests/places.c:");
    expect_words(text, "index or an offset negative");
    expect_no_words(text, "host");
    text = stderr_of(far_before_the_first, NULL);
    expect_words(text, "4000 bytes before the beginning of x, the 400 bytes");
    text = stderr_of(before_the_second, NULL);
    expect_words(text, "40 bytes before the beginning of y, the 100 bytes");
    text = stderr_of(past_the_first_of_two, NULL);
    expect_words(text, "20 bytes past the end of x, the 100 bytes");
    expect_words(text, "the pointer or the offset added to it right?");
    text = stderr_of(at_the_end, NULL);
    expect_words(text, "0 bytes past the end of x, the 400 bytes");
    expect_words(text, "Should the count be 0 there?");
    text = stderr_of(send_from_before, NULL);
    expect_words(text, "8 bytes before the beginning of x, the 400 bytes");
    expect_no_words(text, "host memory");
    text = stderr_of(free_one_before, NULL);
    expect_words(text, "1 byte before the beginning of x, the 400 bytes");
}

// ---- Where ranks part ----

// All layers have the same count, so that what follows a skipped call fits.
typedef struct Layers {
    int skipped_by; // the rank that leaves one layer out; -1: none
    int sum_by;     // the rank that makes another call at the end
} Layers;

__attribute__((noinline)) static void gather(const Rank *r, float *x)
{
    need_nccl(ncclAllGather(x + r->rank, x, 1, ncclFloat, r->comm, r->stream));
}
static void run_layers(const Rank *r, void *arg)
{
    const Layers *layers = arg;
    float *x;
    need_cuda(cudaMalloc((void **)&x, 40));
    need_cuda(cudaMemset(x, 0, 40));
    need_cuda(cudaDeviceSynchronize());
    for (int i = 0; i < 3; i++) gather(r, x);
    if (r->rank != layers->skipped_by) gather(r, x); // the call that one rank skips
    for (int i = 0; i < 4; i++) gather(r, x);
    if (r->rank == layers->sum_by)
        need_nccl(ncclAllReduce(x, x, 1, ncclFloat, ncclSum, r->comm, r->stream));
    need_cuda(cudaStreamSynchronize(r->stream));
    need_cuda(cudaFree(x));
}
TEST(test_says_where_ranks_part)
{
    char *message;
    message = run_ranks_message(2, 20, run_layers, (&(Layers){.skipped_by = 0, .sum_by = -1}));
    assert_non_null(message);
    expect_words(message, "rank 0 will never arrive");
    has_both(message, "The ranks diverge at call 4", "rank 0: ncclAllGather at tests/places.c:");
    has_both(message, "rank 1: ncclAllGather at tests/places.c:", "rank 0 (process ");
    free(message);
    message = run_ranks_message(3, 20, run_layers, (&(Layers){.skipped_by = -1, .sum_by = 1}));
    assert_non_null(message);
    expect_words(message, " will never arrive [missing rank or deadlock]"); // 0 or 2
    expect_no_words(message, "parted");
    free(message);
}

// Of many ranks one makes another call than all others: it did not come to theirs.
static void odd_one(const Rank *r, void *arg)
{
    float *x;
    need_cuda(cudaMalloc((void **)&x, 40));
    need_cuda(cudaMemset(x, 0, 40));
    need_cuda(cudaDeviceSynchronize());
    if (r->rank == 2)
        need_nccl(ncclAllReduce(x, x, 1, ncclFloat, ncclSum, r->comm, r->stream));
    else
        need_nccl(ncclAllGather(x + r->rank, x, 1, ncclFloat, r->comm, r->stream));
}
TEST(test_says_which_rank_did_not_come)
{
    char *message = run_ranks_message(4, 20, odd_one, NULL);
    assert_non_null(message);
    expect_words(message, "Rank 2 did not come to the ncclAllGather that all others make at "
                          "tests/places.c:");
    free(message);
    message = run_ranks_message(2, 20, odd_one, NULL); // nobody is odd
    assert_null(message);
}

int main(int argc, char **argv)
{
    heard = shared_alloc(8 * sizeof *heard);
    return suite_main(argc, argv, "simgpu/places");
}
