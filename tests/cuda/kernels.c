/* kernels.c: every CUDA kernel against the CPU's kernel of the same name: the same bits where the
 * arithmetic allows it, near ones elsewhere; nothing written outside of the outputs; the same
 * ranges in the log; and the same bits each time, in whatever order the threads of a block run.
 *
 * What runs here is what is linked: the kernels on a real GPU, or the emulator's (tests/emulator).
 * table.h says what each kernel works on. Every array has a guard on both sides, which must stay as
 * it is, and an output begins as NaN, so that what was not written is found.
 */
#include <stdio.h>

#include "../nn/numbers.h"
#include "host/cpu_kernels.h"
#include "table.h"

// ---- One array, on the host and on the device ----

#define GUARD 40 // words on both sides

// NaN and -0 interleaved: who reads the one has a NaN, who adds 0 to the other leaves +0.
static uint32_t guard_bits(size_t i)
{
    return i % 2 == 0 ? 0x7fc5a5a5u : 0x80000000u;
}

typedef struct Array {
    const Operand *operand;
    size_t words, place; // place: how many words in front of the first guard shift the alignment
    uint32_t *before;    // guard, data, guard
    uint32_t *host;      // the same after the CPU's kernel
    uint32_t *first;     // after the device's first run; NULL before
    uint32_t *device;
} Array;

static size_t all_words(const Array *a)
{
    return a->words + 2 * GUARD;
}

static uint32_t word_of(Begin begin, size_t i, const Sizes *s, uint64_t *seed)
{
    uint32_t bits = UINT32_MAX;
    int32_t whole = 0;
    double v = draw(seed);
    if (begin == POSITIVE) v = fabs(v);
    if (begin == EIGHTHS) v = floor(v * 16.0) / 8.0;
    if (begin == FINE) v = floor(v * 0x1p21) * 0x1p-20;
    if (begin == FAR && i < (size_t)s->cols) v += 100.0;
    if (begin == LARGE) v *= 30.0;
    if (begin == TOKEN) whole = (int32_t)floor((v + 1.0) / 2.0 * s->vocab);
    float number = (float)v;
    if (begin == TOKEN)
        memcpy(&bits, &whole, sizeof bits);
    else if (begin != NANS)
        memcpy(&bits, &number, sizeof bits);
    return bits;
}

static uint32_t *copy_words(const uint32_t *from, size_t n)
{
    uint32_t *copy = malloc(n * sizeof *copy);
    check(copy != NULL, "no host memory for %zu words", n);
    if (from != NULL) memcpy(copy, from, n * sizeof *copy);
    return copy;
}

static void make_array(Array *a, const Operand *operand, const Sizes *s, size_t place,
                       uint64_t *seed)
{
    void *device = NULL;
    a->operand = operand;
    a->words = words_of(operand->shape, s);
    a->place = operand->shape == DOUBLE ? 0 : place; // a double lies at a multiple of 8
    a->first = NULL;
    a->before = copy_words(NULL, all_words(a));
    for (size_t i = 0; i < all_words(a); i++) a->before[i] = guard_bits(i);
    for (size_t i = 0; i < a->words; i++)
        a->before[GUARD + i] = word_of(operand->begin, i, s, seed);
    double one_and_a_half = 1.5;
    if (operand->begin == ONE_AND_A_HALF) memcpy(a->before + GUARD, &one_and_a_half, 8);
    a->host = copy_words(a->before, all_words(a));
    need_cuda(cudaMalloc(&device, (all_words(a) + a->place) * sizeof(float)));
    a->device = device;
}

static void free_array(Array *a)
{
    need_cuda(cudaFree(a->device));
    free(a->before);
    free(a->host);
    free(a->first);
}

// The device's result, guards and all.
static uint32_t *fetch_array(const Array *a)
{
    uint32_t *got = copy_words(NULL, all_words(a));
    need_cuda(
        cudaMemcpy(got, a->device + a->place, all_words(a) * sizeof *got, cudaMemcpyDeviceToHost));
    return got;
}

static void send_array(const Array *a)
{
    need_cuda(cudaMemcpy(a->device + a->place, a->before, all_words(a) * sizeof *a->before,
                         cudaMemcpyHostToDevice));
    need_cuda(cudaDeviceSynchronize()); // the rank's stream does not wait for the default stream
}

// ---- Comparisons ----

typedef struct Case {
    const Kernel *kernel;
    const Sizes *sizes;
    Array x[OPERANDS];
    int n;
    char what[160];
} Case;

static void check_guards(const Case *c, const Array *a, const uint32_t *got)
{
    for (size_t i = 0; i < all_words(a); i++) {
        if (i >= GUARD && i < GUARD + a->words) continue;
        check(got[i] == guard_bits(i), "%s: %s: wrote %zu words %s the array", c->what,
              a->operand->name, i < GUARD ? GUARD - i : i - GUARD - a->words + 1,
              i < GUARD ? "before" : "behind");
    }
}

static double units_allowed(const Operand *operand, const Sizes *s)
{
    if (operand->units != COLUMN_SUM) return operand->units;
    double terms = operand->shape == SQUARES ? s->cols : s->rows;
    return 32 + terms * 8 * sqrt(terms);
}

static void check_result(const Case *c, const Array *a, const uint32_t *got)
{
    double units = units_allowed(a->operand, c->sizes);
    bool floats = a->operand->begin != TOKEN && a->operand->begin != ONE_AND_A_HALF;
    for (size_t i = GUARD; i < GUARD + a->words; i++) {
        float have, want;
        memcpy(&have, &got[i], sizeof have);
        memcpy(&want, &a->host[i], sizeof want);
        if (got[i] == a->host[i] || (floats && isnan(have) && isnan(want))) continue;
        double off = fabs((double)have - want) / fmax(1.0, fabs(want)) * 0x1p24;
        check(floats && off <= units,
              "%s: %s: word %zu of %zu is %.9g (%08x), not %.9g (%08x); "
              "off by %.3g units of 2^-24, %.3g are allowed",
              c->what, a->operand->name, i - GUARD, a->words, have, got[i], want, a->host[i], off,
              units);
    }
}

// A pointer in one of the arrays as "dst+12"; the host's and the device's must read the same.
static void name_pointer(const Case *c, const void *ptr, bool host, char *text, size_t size)
{
    for (int i = 0; i < c->n; i++) {
        const Array *a = &c->x[i];
        const uint32_t *begin = host ? a->host + GUARD : a->device + a->place + GUARD;
        if ((const uint32_t *)ptr < begin || (const uint32_t *)ptr > begin + a->words) continue;
        snprintf(text, size, "%s+%td", a->operand->name, (const char *)ptr - (const char *)begin);
        return;
    }
    snprintf(text, size, "elsewhere");
}

// The device's entry is the last of the log, and says what the CPU's kernel said.
static void check_log(const Case *c, uint64_t length, cudaStream_t stream)
{
    GpuLogEntry e, want = host_entry;
    check(gpulog_length() == length + 1, "%s: the log grew by %llu entries", c->what,
          (unsigned long long)(gpulog_length() - length));
    check(gpulog_get(length, &e), "%s: the log's last entry is not there", c->what);
    check(e.op == GPU_KERNEL && strcmp(e.name, want.name) == 0, "%s: the log says %s, not %s",
          c->what, e.name, want.name);
    check(e.stream == stream, "%s: the log has another stream", c->what);
    check(e.n_ranges == want.n_ranges, "%s: %d ranges, not %d", c->what, e.n_ranges, want.n_ranges);
    for (int i = 0; i < e.n_ranges; i++) {
        char got[64], due[64];
        name_pointer(c, e.range[i].ptr, false, got, sizeof got);
        name_pointer(c, want.range[i].ptr, true, due, sizeof due);
        check(strcmp(got, due) == 0 && e.range[i].bytes == want.range[i].bytes &&
                  e.range[i].access == want.range[i].access,
              "%s: range %d is %s, %zu bytes, access %d; not %s, %zu bytes, access %d", c->what, i,
              got, e.range[i].bytes, e.range[i].access, due, want.range[i].bytes,
              want.range[i].access);
    }
    char where[256];
    gpulog_where(e.site, where, sizeof where);
    check(strstr(where, "table.h") != NULL, "%s: was called at %s", c->what, where);
}

// One run on the device, compared with the CPU's and with the runs before.
static void run_on_device(const Rank *r, Case *c)
{
    float *x[OPERANDS];
    for (int i = 0; i < c->n; i++) {
        send_array(&c->x[i]);
        x[i] = (float *)(void *)(c->x[i].device + c->x[i].place + GUARD);
    }
    uint64_t length = gpulog_length();
    cudaError_t error = c->kernel->run(false, x, c->sizes, r->stream);
    check(error == cudaSuccess, "%s: %s", c->what, cudaGetErrorString(error));
    check_log(c, length, r->stream);
    need_cuda(cudaStreamSynchronize(r->stream));
    for (int i = 0; i < c->n; i++) {
        Array *a = &c->x[i];
        uint32_t *got = fetch_array(a);
        check_guards(c, a, got);
        check_result(c, a, got);
        if (a->first == NULL) {
            a->first = got;
            continue;
        }
        check(memcmp(a->first, got, all_words(a) * sizeof *got) == 0,
              "%s: %s has other bits than the first time", c->what, a->operand->name);
        free(got);
    }
}

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define RUNS 3

// `places`: how arrays are shifted: 0 all at a multiple of 16 bytes, 1 all 4 bytes behind one,
// 2 each in another way.
static void check_kernel(const Rank *r, const Kernel *kernel, Sizes s, int places, int runs)
{
    Case c = {.kernel = kernel, .sizes = &s};
    float *x[OPERANDS];
    uint64_t seed = 11 + s.n + (uint64_t)s.rows * 31 + (uint64_t)s.cols * 7 + (uint64_t)places;
    snprintf(c.what, sizeof c.what, "%s (n %zu, rows %d, cols %d, width %d, places %d)",
             kernel->name, s.n, s.rows, s.cols, s.width, places);
    while (c.n < OPERANDS && kernel->operand[c.n].name != NULL) {
        size_t place = places == 2 ? (size_t)(c.n * 3 + 1) % 4 : (size_t)places;
        make_array(&c.x[c.n], &kernel->operand[c.n], &s, place, &seed);
        x[c.n] = (float *)(void *)(c.x[c.n].host + GUARD);
        c.n++;
    }
    check(kernel->run(true, x, &s, r->stream) == cudaSuccess, "%s: the CPU's kernel failed",
          c.what);
    for (int i = 0; i < c.n; i++) check_guards(&c, &c.x[i], c.x[i].host);
    for (int run = 0; run < runs; run++) {
        char seed_text[8];
        snprintf(seed_text, sizeof seed_text, "%d", (run + 1) % RUNS);
        setenv("EMULATOR_SEED", seed_text, 1); // a real GPU has an order of its own each time
        run_on_device(r, &c);
    }
    for (int i = 0; i < c.n; i++) free_array(&c.x[i]);
}

static void check_kernels(const Rank *r, const Kernel *kernels, size_t n, const Sizes *sizes,
                          size_t n_sizes)
{
    for (size_t k = 0; k < n; k++)
        for (size_t s = 0; s < n_sizes; s++)
            for (int places = 0; places < 3; places++)
                check_kernel(r, &kernels[k], sizes[s], places, RUNS);
}

// ---- The tests ----

RANK_TEST(test_elementwise, 1)
{
    static const Sizes sizes[] = {{.n = 0},   {.n = 1},    {.n = 2},    {.n = 3},
                                  {.n = 5},   {.n = 31},   {.n = 33},   {.n = 255},
                                  {.n = 257}, {.n = 1023}, {.n = 1025}, {.n = 4101}};
    check_kernels(r, elementwise, COUNT(elementwise), sizes, COUNT(sizes));
}

RANK_TEST(test_halves, 1)
{
    static const Sizes sizes[] = {{.n = 0, .vocab = 3},    {.n = 1, .vocab = 3},
                                  {.n = 7, .vocab = 3},    {.n = 255, .vocab = 3},
                                  {.n = 1024, .vocab = 3}, {.n = 5001, .vocab = 3}};
    check_kernels(r, halves, COUNT(halves), sizes, COUNT(sizes));
}

// More elements than the threads of the largest grid take in one go, four each.
RANK_TEST(test_many, 1)
{
    check_kernel(r, &elementwise[1], (Sizes){.n = (size_t)8192 * 256 * 4 + 1027}, 0, 1);
    check_kernel(r, &elementwise[1], (Sizes){.n = (size_t)8192 * 256 + 1027}, 1, 1);
    check_kernel(r, &elementwise[2], (Sizes){.n = (size_t)8192 * 256 + 1027}, 2, 1);
}

RANK_TEST(test_sums, 1)
{
    static const Sizes sizes[] = {{.n = 0},    {.n = 1},    {.n = 31},   {.n = 257},
                                  {.n = 1023}, {.n = 4096}, {.n = 4097}, {.n = 40001}};
    check_kernels(r, sums, COUNT(sums), sizes, COUNT(sizes));
    check_kernel(r, &sums[0], (Sizes){.n = (size_t)4096 * 512 + 77}, 1, 1); // more than all parts
}

// Far more streams than sum_squares has places for partial sums. Whichever way a sum is made, its
// bits are the same; in most other orders what was drawn here gives other bits.
RANK_TEST(test_streams, 1)
{
    enum { STREAMS = 150, COUNTS = 5, STEP = 7001, MOST = COUNTS * STEP };
    uint64_t seed = 3;
    float *data = draw_floats(MOST, 1.0, &seed), *x = on_device(data, MOST);
    cudaStream_t stream[STREAMS];
    void *sums_at = NULL;
    double got[STREAMS] = {0};
    need_cuda(cudaMalloc(&sums_at, sizeof got));
    need_cuda(cudaMemcpy(sums_at, got, sizeof got, cudaMemcpyHostToDevice));
    need_cuda(cudaDeviceSynchronize());
    for (int i = 0; i < STREAMS; i++) {
        char seed_text[8];
        snprintf(seed_text, sizeof seed_text, "%d", i);
        setenv("EMULATOR_SEED", seed_text, 1);
        need_cuda(cudaStreamCreate(&stream[i]));
        need_cuda(kernel_sum_squares((double *)sums_at + i, x, (size_t)(i % COUNTS + 1) * STEP,
                                     stream[i]));
    }
    need_cuda(cudaDeviceSynchronize());
    need_cuda(cudaMemcpy(got, sums_at, sizeof got, cudaMemcpyDeviceToHost));
    double want = 0.0;
    for (int i = 0; i < MOST; i++) want += (double)data[i] * data[i];
    check(fabs(got[COUNTS - 1] - want) < 1e-12 * want, "Σ x² is %.17g, not %.17g", got[COUNTS - 1],
          want);
    for (int i = COUNTS; i < STREAMS; i++)
        check(got[i] == got[i % COUNTS], "on stream %d Σ x² is %.17g, on stream %d %.17g", i,
              got[i], i % COUNTS, got[i % COUNTS]);
    for (int i = 0; i < STREAMS; i++) need_cuda(cudaStreamDestroy(stream[i]));
    need_cuda(cudaFree(sums_at));
    need_cuda(cudaFree(x));
    free(data);
}

// Narrow and wide rows: kept by one warp, by 256 threads, by 1024, and not to be kept at all.
RANK_TEST(test_matrices, 1)
{
    static const Sizes sizes[] = {{.rows = 0, .cols = 5},   {.rows = 1, .cols = 1},
                                  {.rows = 3, .cols = 31},  {.rows = 31, .cols = 3},
                                  {.rows = 33, .cols = 33}, {.rows = 5, .cols = 255},
                                  {.rows = 4, .cols = 64},  {.rows = 2, .cols = 257},
                                  {.rows = 257, .cols = 8}, {.rows = 3, .cols = 260}};
    check_kernels(r, matrices, COUNT(matrices), sizes, COUNT(sizes));
}

RANK_TEST_WITHIN(test_large_matrices, 30, 1)
{
    for (size_t k = 0; k < COUNT(matrices); k++) {
        check_kernel(r, &matrices[k], (Sizes){.rows = 3, .cols = 2048}, 0, RUNS);
        check_kernel(r, &matrices[k], (Sizes){.rows = 2, .cols = 2051}, 1, RUNS);
        check_kernel(r, &matrices[k], (Sizes){.rows = 2, .cols = 8192 + 1030}, 2, RUNS);
        check_kernel(r, &matrices[k], (Sizes){.rows = 1100, .cols = 11}, 0, RUNS);
        check_kernel(r, &matrices[k], (Sizes){.rows = 8192 + 9, .cols = 3}, 1, 1);
    }
}

RANK_TEST_WITHIN(test_attention, 30, 1)
{
    static const Sizes sizes[] = {{.rows = 0, .cols = 3},  {.rows = 1, .cols = 1},
                                  {.rows = 2, .cols = 3},  {.rows = 3, .cols = 31},
                                  {.rows = 2, .cols = 33}, {.rows = 700, .cols = 12}};
    check_kernels(r, attention, COUNT(attention), sizes, COUNT(sizes));
    for (size_t k = 0; k < COUNT(attention); k++)
        check_kernel(r, &attention[k], (Sizes){.rows = 1, .cols = 257}, 1, RUNS);
}

RANK_TEST_WITHIN(test_fused_attention, 60, 1)
{
    static const Sizes sizes[] = {
        {.rows = 0, .cols = 3, .width = 4},     {.rows = 1, .cols = 1, .width = 1},
        {.rows = 15, .cols = 5, .width = 48},   {.rows = 66, .cols = 33, .width = 31},
        {.rows = 97, .cols = 97, .width = 128}, {.rows = 70, .cols = 70, .width = 99}};
    check_kernels(r, fused_attention, COUNT(fused_attention), sizes, COUNT(sizes));
}

RANK_TEST_WITHIN(test_rotary, 30, 1)
{
    static const Sizes sizes[] = {
        {.rows = 0, .cols = 3, .width = 4},   {.rows = 1, .cols = 1, .width = 1},
        {.rows = 15, .cols = 5, .width = 48}, {.rows = 66, .cols = 33, .width = 31},
        {.rows = 9, .cols = 9, .width = 128}, {.rows = 8200, .cols = 4100, .width = 384}};
    check_kernels(r, rotary, COUNT(rotary), sizes, COUNT(sizes) - 1);
    check_kernel(r, &rotary[0], sizes[COUNT(sizes) - 1], 1, 1);
}

RANK_TEST_WITHIN(test_embedding, 30, 1)
{
    static const Sizes sizes[] = {{.rows = 0, .cols = 4, .width = 8, .vocab = 5},
                                  {.rows = 1, .cols = 1, .width = 1, .vocab = 1},
                                  {.rows = 15, .cols = 5, .width = 3, .vocab = 4},
                                  {.rows = 66, .cols = 33, .width = 31, .vocab = 50},
                                  {.rows = 140, .cols = 70, .width = 33, .vocab = 7},
                                  {.rows = 257, .cols = 257, .width = 257, .vocab = 300},
                                  {.rows = 8200, .cols = 4100, .width = 2, .vocab = 2}};
    check_kernels(r, embedding, COUNT(embedding), sizes, COUNT(sizes) - 1);
    for (size_t k = 0; k < COUNT(embedding); k++)
        check_kernel(r, &embedding[k], sizes[COUNT(sizes) - 1], 0, 1);
}

RANK_TEST_WITHIN(test_loss, 30, 1)
{
    static const Sizes sizes[] = {{.rows = 0, .cols = 3},    {.rows = 1, .cols = 1},
                                  {.rows = 3, .cols = 31},   {.rows = 33, .cols = 33},
                                  {.rows = 5, .cols = 257},  {.rows = 3, .cols = 1023},
                                  {.rows = 2, .cols = 4101}, {.rows = 8192 + 9, .cols = 2}};
    for (size_t k = 0; k < COUNT(loss); k++)
        for (size_t s = 0; s < COUNT(sizes); s++)
            for (int places = 0; places < 3; places++) {
                Sizes size = sizes[s];
                size.vocab = size.cols;
                check_kernel(r, &loss[k], size, places, size.rows > 8192 ? 1 : RUNS);
            }
    // A block takes a second row, while some of its warps may still be at the first.
    check_kernel(r, &loss[2], (Sizes){.rows = 8192 + 9, .cols = 257, .vocab = 257}, 0, 1);
}

// Masked logits are -∞, and a thread may meet nothing else; the rest must come out as without them.
RANK_TEST(test_masked, 1)
{
    enum { VOCAB = 300 };
    uint64_t seed = 21;
    float *x = draw_floats(VOCAB, 5.0, &seed), want[VOCAB], want_loss;
    int32_t target = 7;
    for (int i = 0; i < VOCAB; i++)
        if (i % 256 < 4 || i % 32 == 9) x[i] = -INFINITY;
    cpu_kernel_cross_entropy(&want_loss, want, x, &target, 1, VOCAB, 1.0f, NULL);
    float *logits = on_device(x, VOCAB), *losses = nans_on_device(1), *got;
    int32_t *targets = tokens_on_device(&target, 1);
    need_cuda(kernel_cross_entropy(losses, logits, logits, targets, 1, VOCAB, 1.0f, r->stream));
    check_near("the loss", got = fetch(losses, 1), &want_loss, 1, 1e-5);
    free(got);
    check_near("the gradient", got = fetch(logits, VOCAB), want, VOCAB, 1e-6);
    free(got);
    need_cuda(cudaFree(logits));
    need_cuda(cudaFree(losses));
    need_cuda(cudaFree(targets));
    free(x);
}

#ifndef EMULATED_CUDA // the emulator takes a quarter of a minute for it
// A row longer than the registers of a block hold.
RANK_TEST_WITHIN(test_long_attention, 60, 1)
{
    for (size_t k = 0; k < COUNT(attention); k++)
        check_kernel(r, &attention[k], (Sizes){.rows = 1, .cols = 8192 + 3}, 0, 1);
}
#endif

SUITE_MAIN("cuda kernels")
