/* reduce.c: the arithmetic of ncclAllReduce, ncclReduceScatter and ncclReduce.
 *
 * Floating-point addition is not associative, so a sum depends on its order. Here the order is a
 * fixed tree over the ranks: n inputs split at the largest power of two below n, tree(first p) +
 * tree(rest),
 *
 *   W = 4: (x0 + x1) + (x2 + x3)          W = 6: ((x0 + x1) + (x2 + x3)) + (x4 + x5)
 *
 * for every element alike. A result thus depends neither on timing nor on how a buffer is cut into
 * slices, and W equal inputs sum to exactly W times the input where W is a power of two: every
 * addition doubles. half and bfloat16 become float at the leaves and are rounded once, at the root.
 *
 * ncclAvg of floating-point types multiplies every input by 1/W before the sum, as NCCL does; of
 * integers it divides the sum by W, as NCCL does too (ncclDevPreMulSum and ncclDevSumPostDiv in its
 * sources). Integer sums and products wrap around.
 *
 * Interface: sim_reduce for the collectives, simgpu_tree_sum for tests.
 */
#include <string.h>

#include "halves.h"
#include "nccl/comm.h"
#include "report/report.h"

// Elements worked on at once: a level of the tree needs a buffer of so many, all in the first
// cache.
#define BLOCK 512

static int left_part(int n)
{
    int p = 1;
    while (2 * p < n) p *= 2;
    return p;
}

// ---- One tree for every type ----
//
// T is the type in memory, ACC the type of the arithmetic, WRAP an ACC in which overflow is
// defined. tree_NAME returns where the result of inputs [first, first + n) of the block at element
// `at` is: `room` (BLOCK elements), or the input itself where there is nothing to do to it.
#define DEFINE_TREE(NAME, T, ACC, WRAP, DIRECT, LOAD, STORE)                                       \
    static void load_##NAME(ACC *room, const T *in, size_t len, const ACC *scale)                  \
    {                                                                                              \
        if (scale) {                                                                               \
            ACC factor = *scale;                                                                   \
            _Pragma("omp simd") for (size_t i = 0; i < len; i++) room[i] =                         \
                (ACC)((WRAP)LOAD(in[i]) * (WRAP)factor);                                           \
        } else {                                                                                   \
            _Pragma("omp simd") for (size_t i = 0; i < len; i++) room[i] = LOAD(in[i]);            \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    static void combine_##NAME(ACC *out, const ACC *a, const ACC *b, size_t len, int op)           \
    {                                                                                              \
        switch (op) {                                                                              \
        case ncclProd:                                                                             \
            _Pragma("omp simd") for (size_t i = 0; i < len; i++) out[i] =                          \
                (ACC)((WRAP)a[i] * (WRAP)b[i]);                                                    \
            break;                                                                                 \
        case ncclMax:                                                                              \
            _Pragma("omp simd") for (size_t i = 0; i < len; i++) out[i] =                          \
                a[i] > b[i] ? a[i] : b[i];                                                         \
            break;                                                                                 \
        case ncclMin:                                                                              \
            _Pragma("omp simd") for (size_t i = 0; i < len; i++) out[i] =                          \
                a[i] < b[i] ? a[i] : b[i];                                                         \
            break;                                                                                 \
        default:                                                                                   \
            _Pragma("omp simd") for (size_t i = 0; i < len; i++) out[i] =                          \
                (ACC)((WRAP)a[i] + (WRAP)b[i]);                                                    \
            break;                                                                                 \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    static const ACC *tree_##NAME(ACC *room, const T *const *in, const ACC *scale, int first,      \
                                  int n, size_t at, size_t len, int op)                            \
    {                                                                                              \
        if (n == 1) {                                                                              \
            if (DIRECT && !scale) return (const void *)(in[first] + at);                           \
            load_##NAME(room, in[first] + at, len, scale ? scale + first : NULL);                  \
            return room;                                                                           \
        }                                                                                          \
        ACC spare[BLOCK];                                                                          \
        int p = left_part(n);                                                                      \
        const ACC *left = tree_##NAME(room, in, scale, first, p, at, len, op);                     \
        const ACC *right = tree_##NAME(spare, in, scale, first + p, n - p, at, len, op);           \
        combine_##NAME(room, left, right, len, op);                                                \
        return room;                                                                               \
    }                                                                                              \
                                                                                                   \
    /* The result is written when every input of its block has been read: `out` may be one. */     \
    static void reduce_##NAME(T *out, const T *const *in, const ACC *scale, int n, size_t count,   \
                              int op, unsigned char divide)                                        \
    {                                                                                              \
        ACC room[BLOCK];                                                                           \
        for (size_t at = 0; at < count; at += BLOCK) {                                             \
            size_t len = count - at < BLOCK ? count - at : BLOCK;                                  \
            const ACC *result = tree_##NAME(room, in, scale, 0, n, at, len, op);                   \
            if (divide > 1)                                                                        \
                for (size_t i = 0; i < len; i++) room[i] = (ACC)(result[i] / divide);              \
            else if (DIRECT && (const void *)result == (const void *)(out + at))                   \
                continue;                                                                          \
            if (divide > 1) result = room;                                                         \
            _Pragma("omp simd") for (size_t i = 0; i < len; i++) out[at + i] = STORE(result[i]);   \
        }                                                                                          \
    }

#define SAME(x) (x)
DEFINE_TREE(int8, int8_t, int8_t, unsigned, true, SAME, SAME)
DEFINE_TREE(uint8, uint8_t, uint8_t, unsigned, true, SAME, SAME)
DEFINE_TREE(int32, int32_t, int32_t, uint32_t, true, SAME, SAME)
DEFINE_TREE(uint32, uint32_t, uint32_t, uint32_t, true, SAME, SAME)
DEFINE_TREE(int64, int64_t, int64_t, uint64_t, true, SAME, SAME)
DEFINE_TREE(uint64, uint64_t, uint64_t, uint64_t, true, SAME, SAME)
DEFINE_TREE(float32, float, float, float, true, SAME, SAME)
DEFINE_TREE(float64, double, double, double, true, SAME, SAME)
DEFINE_TREE(float16, uint16_t, float, float, false, float_of_half, half_of_float)
DEFINE_TREE(bfloat16, uint16_t, float, float, false, float_of_bfloat, bfloat_of_float)

// Reads the scalars, each in its own type, as ACC; NULL where the operation has none.
#define CASE(TYPE, NAME, T, ACC, LOAD, FLOATING)                                                   \
    case TYPE: {                                                                                   \
        ACC factor[SIM_MAX_RANKS];                                                                 \
        bool average = op == ncclAvg;                                                              \
        for (int i = 0; i < n; i++) {                                                              \
            T own = 0;                                                                             \
            if (op == SIM_PRE_MUL_SUM) memcpy(&own, &scalars[i], sizeof own);                      \
            factor[i] = average ? (ACC)((ACC)1 / (ACC)n) : (ACC)LOAD(own);                         \
        }                                                                                          \
        bool scaled = op == SIM_PRE_MUL_SUM || (FLOATING && average);                              \
        reduce_##NAME(out, (const T *const *)(const void *)inputs, scaled ? factor : NULL, n,      \
                      count, op, !FLOATING && average ? n : 1);                                    \
        break;                                                                                     \
    }

void sim_reduce(void *out, const void *const *inputs, const uint64_t *scalars, int n, size_t count,
                ncclDataType_t type, int op)
{
    switch (type) {
        CASE(ncclInt8, int8, int8_t, int8_t, SAME, false)
        CASE(ncclUint8, uint8, uint8_t, uint8_t, SAME, false)
        CASE(ncclInt32, int32, int32_t, int32_t, SAME, false)
        CASE(ncclUint32, uint32, uint32_t, uint32_t, SAME, false)
        CASE(ncclInt64, int64, int64_t, int64_t, SAME, false)
        CASE(ncclUint64, uint64, uint64_t, uint64_t, SAME, false)
        CASE(ncclFloat32, float32, float, float, SAME, true)
        CASE(ncclFloat64, float64, double, double, SAME, true)
        CASE(ncclFloat16, float16, uint16_t, float, float_of_half, true)
        CASE(ncclBfloat16, bfloat16, uint16_t, float, float_of_bfloat, true)
    default: sim_fatal(SIMGPU_SYSTEM, "a reduction of a type that has none", "type %d", (int)type);
    }
}

void simgpu_tree_sum(float *out, const float *const *inputs, int n, size_t count)
{
    reduce_float32(out, inputs, NULL, n, count, ncclSum, 1);
}
