/* rows.h: sums over a row in a fixed order.
 *
 * A sum runs over 16 lanes that are added up in a fixed order at the end, so that the result
 * depends neither on the data's address nor on the width of this machine's vectors. The lanes take
 * several vectors: with one wider than the machine's, GCC computes in memory, many times slower.
 *
 *   RowLanes sum = {0};
 *   for (size_t i = 0; i + ROW_LANES <= n; i += ROW_LANES)
 *       EACH_PART(p) sum.part[p] += row_part(x + i, p) * row_part(y + i, p);
 */
#ifndef SHARDLAB_ROWS_H
#define SHARDLAB_ROWS_H

#include <stddef.h>
#include <string.h>

#include "typed.h"

#define ROW_LANES 16
#if defined __AVX512F__
#define ROW_PARTS 1
#elif defined __AVX__
#define ROW_PARTS 2
#else // SSE, NEON
#define ROW_PARTS 4
#endif
#define ROW_PART_LANES (ROW_LANES / ROW_PARTS)

typedef float RowPart __attribute__((vector_size(ROW_PART_LANES * sizeof(float))));
typedef RowPart RowPartAnywhere __attribute__((aligned(sizeof(float)), may_alias));
typedef struct RowLanes {
    RowPart part[ROW_PARTS];
} RowLanes;

// The statement after it, once for each part p of the lanes.
#define EACH_PART(p) _Pragma("GCC unroll 4") for (int p = 0; p < ROW_PARTS; p++)

// Part p of the 16 numbers at x.
static inline RowPart row_part(const float *x, int p)
{
    return *(const RowPartAnywhere *)(x + p * ROW_PART_LANES);
}

static inline void row_store_lanes(float *x, const RowLanes *lanes)
{
    EACH_PART(p) * (RowPartAnywhere *)(x + p * ROW_PART_LANES) = lanes->part[p];
}

// Adds the lanes up in pairs: 0 and 8, 1 and 9 …, then 0 and 4 …
static inline float row_add_lanes(const RowLanes *lanes)
{
    float x[ROW_LANES];
    row_store_lanes(x, lanes);
    for (int half = ROW_LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++) x[i] += x[i + half];
    return x[0];
}

// Copies the last n < ROW_LANES numbers at x to `lanes`, with zeros after them, and returns
// `lanes`.
static inline const float *row_tail(float lanes[ROW_LANES], const float *x, size_t n)
{
    memset(lanes, 0, ROW_LANES * sizeof *lanes);
    for (size_t i = 0; i < n; i++) lanes[i] = x[i];
    return lanes;
}

// Σ x[i]
static inline float row_sum(const float *x, size_t n)
{
    RowLanes sum = {0};
    size_t i = 0;
    for (; i + ROW_LANES <= n; i += ROW_LANES) EACH_PART(p) sum.part[p] += row_part(x + i, p);
    if (i < n) {
        float lanes[ROW_LANES];
        x = row_tail(lanes, x + i, n - i);
        EACH_PART(p) sum.part[p] += row_part(x, p);
    }
    return row_add_lanes(&sum);
}

// Σ a[i]·b[i]
static inline float row_dot(const float *a, const float *b, size_t n)
{
    RowLanes sum = {0};
    size_t i = 0;
    for (; i + ROW_LANES <= n; i += ROW_LANES)
        EACH_PART(p) sum.part[p] += row_part(a + i, p) * row_part(b + i, p);
    if (i < n) {
        float lanes_a[ROW_LANES], lanes_b[ROW_LANES];
        a = row_tail(lanes_a, a + i, n - i);
        b = row_tail(lanes_b, b + i, n - i);
        EACH_PART(p) sum.part[p] += row_part(a, p) * row_part(b, p);
    }
    return row_add_lanes(&sum);
}

// The largest of x[0..n), n >= 1.
static inline float row_max(const float *x, size_t n)
{
    float max = x[0];
#pragma omp simd reduction(max : max)
    for (size_t i = 1; i < n; i++) max = x[i] > max ? x[i] : max;
    return max;
}

// to[i] += x[i]
static inline void row_add(float *restrict to, const float *restrict x, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++) to[i] += x[i];
}

// The columns of a matrix that are summed at a time: few enough that their sums stay in the nearest
// cache.
#define ROW_BLOCK 256

// Adds columns [begin, end) of all rows of x (rows,width) to those of `to` (width), in the order of
// the rows.
static inline void row_add_all(DType type, void *to, const void *x, size_t rows, size_t width,
                               size_t begin, size_t end)
{
    for (size_t first = begin; first < end; first += ROW_BLOCK) {
        size_t n = end - first < ROW_BLOCK ? end - first : ROW_BLOCK;
        float sum[ROW_BLOCK] = {0}, copy[ROW_BLOCK];
        for (size_t at = first; at < rows * width; at += width)
            row_add(sum, typed_load(type, copy, x, at, n), n);
        float *total = typed_open(type, copy, to, first, n);
        row_add(total, sum, n);
        typed_store(type, to, first, total, n);
    }
}

#endif
