/* rows.h: sums over a row in an order that is fixed.
 *
 * A sum runs over 16 lanes that are added up in a fixed order at the end, so that the result
 * depends neither on the address of the data nor on how wide this machine's vectors are.
 *
 * Interface: row_sum, row_dot, row_max; RowLanes, row_load_tail, row_add_lanes for a sum of
 * one's own; row_add, ROW_BLOCK for sums of whole rows.
 */
#ifndef SHARDLAB_ROWS_H
#define SHARDLAB_ROWS_H

#include <stddef.h>
#include <string.h>

#define ROW_LANES 16
typedef float RowLanes __attribute__((vector_size(ROW_LANES * sizeof(float))));

// Adds the lanes up in pairs: 0 and 8, 1 and 9 …, then 0 and 4 …
static inline float row_add_lanes(const RowLanes *lanes)
{
    float x[ROW_LANES];
    memcpy(x, lanes, sizeof x);
    for (int half = ROW_LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++) x[i] += x[i + half];
    return x[0];
}

// The last n < ROW_LANES numbers at x, with zeros behind.
static inline void row_load_tail(RowLanes *all, const float *x, size_t n)
{
    float lanes[ROW_LANES] = {0};
    for (size_t i = 0; i < n; i++) lanes[i] = x[i];
    memcpy(all, lanes, sizeof *all);
}

// Σ x[i]
static inline float row_sum(const float *x, size_t n)
{
    RowLanes sum = {0};
    size_t i = 0;
    for (; i + ROW_LANES <= n; i += ROW_LANES) {
        RowLanes part;
        memcpy(&part, x + i, sizeof part);
        sum += part;
    }
    if (i < n) {
        RowLanes part;
        row_load_tail(&part, x + i, n - i);
        sum += part;
    }
    return row_add_lanes(&sum);
}

// Σ a[i]·b[i]
static inline float row_dot(const float *a, const float *b, size_t n)
{
    RowLanes sum = {0};
    size_t i = 0;
    for (; i + ROW_LANES <= n; i += ROW_LANES) {
        RowLanes x, y;
        memcpy(&x, a + i, sizeof x);
        memcpy(&y, b + i, sizeof y);
        sum += x * y;
    }
    if (i < n) {
        RowLanes x, y;
        row_load_tail(&x, a + i, n - i);
        row_load_tail(&y, b + i, n - i);
        sum += x * y;
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

// Columns in which the rows of a matrix are summed at a time: few enough that their sums stay in
// the nearest cache.
#define ROW_BLOCK 256

#endif
