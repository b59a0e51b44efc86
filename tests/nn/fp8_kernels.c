/* fp8_kernels.c: numbers of 8 bits: each of the 256 codes, ties and what is too large, by the
 * definition of the type (fp8_numbers.h); the scale; and the kernels that quantise and dequantise.
 */
#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "e4m3.h"
#include "fp8_numbers.h"
#include "halves.h"
#include "kernels.h"

// ---- The type ----

static bool same(float a, double b)
{
    return isnan(b) ? isnan(a) : a == (float)b && !signbit(a) == !signbit(b);
}

static void check_rounding(float x)
{
    float got = e4m3_to_float(e4m3_from_float(x));
    check(same(got, fp8_round(x)), "%.9g became the e4m3 %02x, %.9g, want %.9g", (double)x,
          e4m3_from_float(x), (double)got, fp8_round(x));
}

RANK_TEST(test_codes, 1)
{
    for (int code = 0; code < 256; code++) {
        double value = fp8_value((uint8_t)code);
        float got = e4m3_to_float((uint8_t)code);
        check(same(got, value), "the e4m3 %02x is %.9g, want %.9g", code, (double)got, value);
        int back = e4m3_from_float(got);
        check(back == (isnan(value) ? 0x7f : code), "the e4m3 %02x, %.9g, became %02x", code, value,
              back);
        if ((code & 0x7f) >= 0x7e) continue;
        float middle = (float)((value + fp8_value((uint8_t)(code + 1))) / 2);
        check(!(e4m3_from_float(middle) & 1), "%.9g, as near to %02x as to the next, became %02x",
              (double)middle, code, e4m3_from_float(middle));
        check_rounding(middle);
        check_rounding(nextafterf(middle, INFINITY));
        check_rounding(nextafterf(middle, -INFINITY));
    }
    static const float others[] = {448.0f,   449.0f,  463.9f, 464.0f,  465.0f,    480.0f,
                                   1e30f,    FLT_MAX, 1e-45f, 1e-38f,  0x1p-10f,  0x1.8p-9f,
                                   INFINITY, NAN,     0.0f,   0x1p-6f, 0x1.fp-7f, 0x1.ep-7f};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        check_rounding(others[i]);
        if (!isnan(others[i])) check_rounding(-others[i]);
    }
}

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

RANK_TEST(test_scales, 1)
{
    static const float most[] = {448.0f, 0x1.cp0f, 1.0f,      0.02f,    0x1p-126f,
                                 1e-45f, 1e-40f,   0x1p126f,  FLT_MAX,  0x1.8p9f,
                                 0.0f,   INFINITY, 0x1p-118f, 0x1p-117f};
    for (size_t i = 0; i < sizeof most / sizeof *most; i++)
        for (int next = 0; next < 2; next++) {
            float x = next ? nextafterf(most[i], INFINITY) : most[i];
            float got = e4m3_scale(bits_of(x));
            check(
                same(got, fp8_scale(&x, 1)),
                "the scale of an amax of %.9g is %.9g, want %.9g: a power of two with which it is "
                "at most 448",
                (double)x, (double)got, fp8_scale(&x, 1));
        }
    check(isnan(e4m3_scale(bits_of(NAN))), "the scale of an amax that is NaN is a number");
}

// ---- The kernels ----

enum { MOST = 1100, GUARD = 5 };

// n numbers around 0, of which some are as large as `most`.
static void draw_numbers(float *x, size_t n, float most)
{
    unsigned state = (unsigned)n + 17;
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525 + 1013904223;
        x[i] = ((float)(state >> 8) * 0x1p-23f - 1.0f) * most * (i % 7 == 0 ? 1.0f : 0.01f);
    }
}

static uint32_t amax_of(const float *device, size_t n, uint32_t begin, cudaStream_t stream)
{
    uint32_t *amax, got;
    need_cuda(cudaMalloc((void **)&amax, sizeof *amax));
    need_cuda(cudaMemcpy(amax, &begin, sizeof begin, cudaMemcpyHostToDevice));
    need_cuda(cudaDeviceSynchronize());
    need_cuda(kernel_amax(amax, device, n, stream));
    need_cuda(cudaStreamSynchronize(stream));
    need_cuda(cudaMemcpy(&got, amax, sizeof got, cudaMemcpyDeviceToHost));
    need_cuda(cudaFree(amax));
    return got;
}

RANK_TEST(test_amax, 1)
{
    static const size_t sizes[] = {0, 1, 3, 1025};
    float x[MOST], *device;
    need_cuda(cudaMalloc((void **)&device, sizeof x));
    for (size_t i = 0; i < 4; i++)
        for (int kind = 0; kind < 5; kind++) {
            size_t n = sizes[i];
            float most = 0.0f;
            draw_numbers(x, MOST, 3.0f);
            if (n > 0 && kind == 1) x[n - 1] = -100.0f;
            if (n > 0 && kind == 2) x[0] = NAN;
            if (n > 0 && kind == 3) x[n / 2] = -INFINITY;
            for (size_t k = 0; k < n; k++) most = fmaxf(most, fabsf(x[k]));
            send_to(device, x, MOST);
            uint32_t begin = kind == 4 ? bits_of(7.5f) : 0, want = bits_of(most);
            if (want < begin) want = begin;
            uint32_t got = amax_of(device, n, begin, r->stream);
            if (n > 0 && kind == 2) // any NaN is above all numbers
                check(got > 0x7f800000, "the amax of %zu numbers and a NaN is %08x", n, got);
            else
                check(got == want, "the amax of %zu numbers is %08x, want %08x", n, got, want);
        }
    need_cuda(cudaFree(device));
}

// n numbers on the device as floats; free() them.
static float *fetch_numbers(DType type, const void *device, size_t n)
{
    if (type == DTYPE_F32) return fetch(device, n);
    uint16_t *bits = malloc(n * sizeof *bits);
    float *x = malloc(n * sizeof *x);
    check(bits != NULL && x != NULL, "no host memory for %zu halves", n);
    need_cuda(cudaMemcpy(bits, device, n * sizeof *bits, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < n; i++) x[i] = (float)half_value(type, bits[i]);
    free(bits);
    return x;
}

// Quantises `rows` parts of n numbers, `stride` codes apart, and dequantises them back to back.
static void check_there_and_back(const Rank *r, DType type, size_t rows, size_t n, size_t stride,
                                 float most)
{
    float x[MOST], *src;
    uint8_t *codes, host[MOST + 2 * GUARD];
    uint32_t *amax;
    size_t numbers = rows * n, one = (size_t)dtype_bytes(type), bytes = rows * stride + 2 * GUARD;
    draw_numbers(x, MOST, most);
    x[0] = most;
    if (numbers > 4) x[4] = 0.0f;
    double scale = fp8_scale(x, numbers);
    uint32_t bits = bits_of(most);
    char *dst;
    need_cuda(cudaMalloc((void **)&dst, (numbers + 2 * GUARD) * one));
    need_cuda(cudaMemset(dst, 0, (numbers + 2 * GUARD) * one));
    need_cuda(cudaMalloc((void **)&src, (numbers + 1) * sizeof *src));
    need_cuda(cudaMalloc((void **)&codes, bytes));
    need_cuda(cudaMalloc((void **)&amax, sizeof *amax));
    need_cuda(cudaMemcpy(amax, &bits, sizeof bits, cudaMemcpyHostToDevice));
    need_cuda(cudaMemset(codes, 0xee, bytes));
    send_to(src, x, numbers);
    need_cuda(cudaDeviceSynchronize());
    for (size_t row = 0; row < rows; row++)
        need_cuda(
            kernel_quantize_e4m3(codes + GUARD + row * stride, src + row * n, amax, n, r->stream));
    need_cuda(kernel_dequantize_e4m3(type, dst + GUARD * one, codes + GUARD, stride, amax, rows, n,
                                     r->stream));
    need_cuda(cudaStreamSynchronize(r->stream));
    need_cuda(cudaMemcpy(host, codes, bytes, cudaMemcpyDeviceToHost));
    float *got = fetch_numbers(type, dst, numbers + 2 * GUARD);
    for (size_t i = 0; i < bytes; i++) {
        size_t at = i - GUARD, row = at / stride, col = at % stride;
        bool inside = i >= GUARD && row < rows && col < n;
        double want = inside ? fp8_round(x[row * n + col] * scale) : 0.0;
        check(inside ? same((float)fp8_value(host[i]), want) : host[i] == 0xee,
              "kernel_quantize_e4m3: byte %zu of %zu rows of %zu is %02x, want %.9g", i, rows, n,
              host[i], want);
    }
    for (size_t i = 0; i < numbers + 2 * GUARD; i++) {
        bool inside = i >= GUARD && i < GUARD + numbers;
        double rounded = inside ? fp8_round(x[i - GUARD] * scale) / scale : 0.0;
        check(got[i] == half_float(type, (float)rounded),
              "kernel_dequantize_e4m3: %s %zu of %zu rows of %zu is %.9g, want %.9g",
              type_name(type), i - GUARD, rows, n, (double)got[i],
              (double)half_float(type, (float)rounded));
    }
    free(got);
    need_cuda(cudaFree(dst));
    need_cuda(cudaFree(src));
    need_cuda(cudaFree(codes));
    need_cuda(cudaFree(amax));
}

RANK_TEST(test_kernels, 1)
{
    static const DType types[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    static const size_t shapes[][3] = {{1, 1, 1},     {3, 5, 5},       {2, 7, 11},
                                       {5, 200, 203}, {1, 1030, 1030}, {4, 0, 3}};
    for (int t = 0; t < 3; t++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            check_there_and_back(r, types[t], shapes[s][0], shapes[s][1], shapes[s][2], 0.02f);
            check_there_and_back(r, types[t], shapes[s][0], shapes[s][1], shapes[s][2], 1.75f);
            check_there_and_back(r, types[t], shapes[s][0], shapes[s][1], shapes[s][2], 30000.0f);
        }
}

// ---- What is no number ----

RANK_TEST(test_no_numbers, 1)
{
    float x[3] = {1.0f, 0.0f, -2.0f}, *src, *dst;
    static const uint32_t most[] = {0x7f800000, 0x7fc00000, 0x7f800001};
    uint8_t *codes;
    uint32_t *amax;
    need_cuda(cudaMalloc((void **)&src, sizeof x));
    need_cuda(cudaMalloc((void **)&dst, sizeof x));
    need_cuda(cudaMalloc((void **)&codes, sizeof x));
    need_cuda(cudaMalloc((void **)&amax, sizeof *amax));
    send_to(src, x, 3);
    for (int i = 0; i < 3; i++) {
        need_cuda(cudaMemcpy(amax, &most[i], sizeof *amax, cudaMemcpyHostToDevice));
        need_cuda(cudaDeviceSynchronize());
        need_cuda(kernel_quantize_e4m3(codes, src, amax, 3, r->stream));
        need_cuda(kernel_dequantize_e4m3(DTYPE_F32, dst, codes, 3, amax, 1, 3, r->stream));
        need_cuda(cudaStreamSynchronize(r->stream));
        float *got = fetch(dst, 3);
        for (int k = 0; k < 3; k++)
            check(isnan(got[k]), "with an amax of %08x %.9g became %.9g, want NaN", most[i],
                  (double)x[k], (double)got[k]);
        free(got);
    }
    need_cuda(cudaFree(src));
    need_cuda(cudaFree(dst));
    need_cuda(cudaFree(codes));
    need_cuda(cudaFree(amax));
}

SUITE_MAIN("fp8_kernels")
