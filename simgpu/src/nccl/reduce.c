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
 * addition doubles. half, bfloat16 and the 8-bit floats become float at the leaves and are rounded
 * once, at the root (8-bit ones to the largest finite number where they overflow, as NCCL's do);
 * integers become 64 bits wide, whose last bits are those of any narrower sum or product.
 *
 * ncclAvg of floating-point types multiplies every input by 1/W before the sum, as NCCL does; of
 * integers it divides the sum by W, as NCCL does too (ncclDevPreMulSum and ncclDevSumPostDiv in its
 * sources). Integer sums and products wrap around.
 */
#include <string.h>

#include "collectives.h"
#include "halves.h"
#include "nccl/reduce.h"
#include "nccl/shared.h"
#include "report/report.h"

// Elements of a block: each level of the tree needs a buffer of that size, and all must fit into
// the first cache.
#define BLOCK 512

// A block of a reduction: elements [at, at + len) of n inputs.
typedef struct Job {
    const void *const *in;
    ncclDataType_t type;
    int op;                // SIM_PRE_MUL_SUM and ncclAvg sum, too
    const void *scale;     // of each input, in the type of the arithmetic; NULL: none
    size_t at, len, count; // elements of a whole input
    size_t width;          // bytes of one
} Job;

static int left_part(int n)
{
    int p = 1;
    while (2 * p < n) p *= 2;
    return p;
}

#define EACH _Pragma("omp simd") for (size_t i = 0; i < len; i++)

// Prefetches the next block of an input into the second cache during the work on this one. The n
// inputs are read in turns, in pieces too short for the processor's own prefetching.
static void fetch_next(const Job *job, int which)
{
    enum { LINE = 64, SECOND_CACHE = 2 };
    const char *x = job->in[which];
    size_t begin = job->at + BLOCK, end = begin + BLOCK;
    if (end > job->count) end = job->count;
    for (size_t i = begin * job->width; i < end * job->width; i += LINE)
        __builtin_prefetch(x + i, 0, SECOND_CACHE);
}

// ---- Leaves: elements of any type become those of the arithmetic ----

#define WIDEN(TYPE, T, LOAD)                                                                       \
    case TYPE: {                                                                                   \
        const T *x = (const T *)input + job->at;                                                   \
        EACH room[i] = LOAD(x[i]);                                                                 \
        break;                                                                                     \
    }
#define SAME(x) (x)

// load_NAME: a block of an input of any of the types given.
#define DEFINE_LOAD(NAME, ACC, ...)                                                                \
    static void load_##NAME(ACC *room, const Job *job, const void *input)                          \
    {                                                                                              \
        size_t len = job->len;                                                                     \
        switch (job->type) {                                                                       \
            __VA_ARGS__ default : break; /* of another arithmetic */                               \
        }                                                                                          \
    }

// clang-format off
DEFINE_LOAD(float, float,
            WIDEN(ncclFloat16, uint16_t, float_of_half)
            WIDEN(ncclBfloat16, uint16_t, float_of_bfloat)
            WIDEN(ncclFloat8e4m3, uint8_t, float_of_e4m3)
            WIDEN(ncclFloat8e5m2, uint8_t, float_of_e5m2)
            WIDEN(ncclFloat32, float, SAME))
DEFINE_LOAD(double, double, WIDEN(ncclFloat64, double, SAME))
DEFINE_LOAD(signed, int64_t,
            WIDEN(ncclInt8, int8_t, SAME)
            WIDEN(ncclInt32, int32_t, SAME)
            WIDEN(ncclInt64, int64_t, SAME))
DEFINE_LOAD(unsigned, uint64_t,
            WIDEN(ncclUint8, uint8_t, SAME)
            WIDEN(ncclUint32, uint32_t, SAME)
            WIDEN(ncclUint64, uint64_t, SAME))
// clang-format on

// ---- A tree for each arithmetic ----
//
// ACC is the type of the arithmetic, WRAP an ACC in which overflow is defined, PLAIN the type in
// memory that is the same as ACC. tree_NAME returns where the result of inputs [first, first + n)
// of the block is: `room` (BLOCK elements), or the input itself if nothing changes it.
#define DEFINE_TREE(NAME, ACC, WRAP, PLAIN)                                                        \
    static const ACC *leaf_##NAME(ACC *room, const Job *job, int which)                            \
    {                                                                                              \
        size_t len = job->len;                                                                     \
        fetch_next(job, which);                                                                    \
        if (job->type == PLAIN && !job->scale) return (const ACC *)job->in[which] + job->at;       \
        load_##NAME(room, job, job->in[which]);                                                    \
        if (job->scale) {                                                                          \
            ACC factor = ((const ACC *)job->scale)[which];                                         \
            EACH room[i] = (ACC)((WRAP)room[i] * (WRAP)factor);                                    \
        }                                                                                          \
        return room;                                                                               \
    }                                                                                              \
                                                                                                   \
    static void combine_##NAME(ACC *out, const ACC *a, const ACC *b, size_t len, int op)           \
    {                                                                                              \
        switch (op) {                                                                              \
        case ncclProd: EACH out[i] = (ACC)((WRAP)a[i] * (WRAP)b[i]); break;                        \
        case ncclMax: EACH out[i] = a[i] > b[i] ? a[i] : b[i]; break;                              \
        case ncclMin: EACH out[i] = a[i] < b[i] ? a[i] : b[i]; break;                              \
        default: EACH out[i] = (ACC)((WRAP)a[i] + (WRAP)b[i]); break;                              \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    static const ACC *tree_##NAME(ACC *room, const Job *job, int first, int n)                     \
    {                                                                                              \
        if (n == 1) return leaf_##NAME(room, job, first);                                          \
        ACC spare[BLOCK];                                                                          \
        int p = left_part(n);                                                                      \
        const ACC *left = tree_##NAME(room, job, first, p);                                        \
        const ACC *right = tree_##NAME(spare, job, first + p, n - p);                              \
        combine_##NAME(room, left, right, job->len, job->op);                                      \
        return room;                                                                               \
    }

DEFINE_TREE(float, float, float, ncclFloat32)
DEFINE_TREE(double, double, double, ncclFloat64)
DEFINE_TREE(signed, int64_t, uint64_t, ncclInt64)
DEFINE_TREE(unsigned, uint64_t, uint64_t, ncclUint64)

// ---- Every type ----

// The result of n inputs, `count` elements, at `out` (T). It is written when every input of its
// block has been read: `out` may be one. NARROW makes a T of the arithmetic's ACC; scale: n ACC, or
// NULL; an integer result is divided by `divide`, once it is a T.
#define REDUCE(TYPE, NAME, T, ACC, NARROW, LOAD, FLOATING)                                         \
    case TYPE: {                                                                                   \
        ACC factor[SIM_MAX_RANKS], room[BLOCK];                                                    \
        for (int i = 0; i < n; i++) {                                                              \
            T own = 0;                                                                             \
            if (op == SIM_PRE_MUL_SUM) memcpy(&own, &scalars[i], sizeof own);                      \
            factor[i] = average ? (ACC)((ACC)1 / (ACC)n) : (ACC)LOAD(own);                         \
        }                                                                                          \
        if (op == SIM_PRE_MUL_SUM || (FLOATING && average)) job.scale = factor;                    \
        for (; job.at < count; job.at += BLOCK) {                                                  \
            size_t len = job.len = count - job.at < BLOCK ? count - job.at : BLOCK;                \
            T *to = (T *)out + job.at;                                                             \
            const ACC *result = tree_##NAME(room, &job, 0, n);                                     \
            if ((const void *)result != (const void *)to) {                                        \
                EACH to[i] = (T)NARROW(result[i]);                                                 \
            }                                                                                      \
            for (size_t i = 0; !FLOATING && average && i < len; i++)                               \
                to[i] = (T)((ACC)to[i] / (ACC)n);                                                  \
        }                                                                                          \
        break;                                                                                     \
    }

void sim_reduce(void *out, const void *const *inputs, const uint64_t *scalars, int n, size_t count,
                ncclDataType_t type, int op)
{
    Job job = {
        .in = inputs, .type = type, .op = op, .count = count, .width = gpulog_element_size(type)};
    bool average = op == ncclAvg;
    switch (type) {
        REDUCE(ncclInt8, signed, int8_t, int64_t, SAME, SAME, false)
        REDUCE(ncclUint8, unsigned, uint8_t, uint64_t, SAME, SAME, false)
        REDUCE(ncclInt32, signed, int32_t, int64_t, SAME, SAME, false)
        REDUCE(ncclUint32, unsigned, uint32_t, uint64_t, SAME, SAME, false)
        REDUCE(ncclInt64, signed, int64_t, int64_t, SAME, SAME, false)
        REDUCE(ncclUint64, unsigned, uint64_t, uint64_t, SAME, SAME, false)
        REDUCE(ncclFloat32, float, float, float, SAME, SAME, true)
        REDUCE(ncclFloat64, double, double, double, SAME, SAME, true)
        REDUCE(ncclFloat16, float, uint16_t, float, half_of_float, float_of_half, true)
        REDUCE(ncclBfloat16, float, uint16_t, float, bfloat_of_float, float_of_bfloat, true)
        REDUCE(ncclFloat8e4m3, float, uint8_t, float, e4m3_of_float, float_of_e4m3, true)
        REDUCE(ncclFloat8e5m2, float, uint8_t, float, e5m2_of_float, float_of_e5m2, true)
    default: sim_fatal(SIMGPU_SYSTEM, "this type cannot be reduced", "type %d", (int)type);
    }
}

void simgpu_tree_sum(float *out, const float *const *inputs, int n, size_t count)
{
    sim_reduce(out, (const void *const *)inputs, NULL, n, count, ncclFloat32, ncclSum);
}
