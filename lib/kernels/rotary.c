/* rotary.c: rotary positions (Su et al. 2021): turns pairs of columns of the queries and keys by an
 * angle that grows with the position.
 *
 * Column i of a head and column i + hs/2 are a pair, as in Hugging Face's "rotate_half". (Meta's
 * own files pair columns 2i and 2i + 1.) The sine of a large angle needs more digits than a float
 * has, so sine and cosine are computed in double; they are few, as all heads of a position share
 * them.
 */
#include <math.h>

#include "kernels.h"
#include "pieces.h"
#include "typed.h"

enum { MOST_PAIRS = ATTENTION_MOST_COLUMNS / 2 };

typedef struct Angles {
    float cosine[MOST_PAIRS], sine[MOST_PAIRS];
} Angles;

static void set_angles(Angles *a, const RotaryFrequencies *f, size_t pairs, size_t t, int direction)
{
    for (size_t i = 0; i < pairs; i++) {
        float angle = (float)t * f->of_pair[i];
        a->cosine[i] = (float)cos(angle);
        a->sine[i] = (float)(direction * sin(angle));
    }
}

// x (2·pairs): one head of one position
static void turn_head(float *restrict x, const Angles *a, size_t pairs)
{
#pragma omp simd
    for (size_t i = 0; i < pairs; i++) {
        float first = x[i], second = x[pairs + i];
        x[i] = first * a->cosine[i] - second * a->sine[i];
        x[pairs + i] = second * a->cosine[i] + first * a->sine[i];
    }
}

// Turns `heads` of each row of x (B,T,width).
typedef struct RotaryRows {
    void *x;
    size_t B, T, width, heads, pairs;
} RotaryRows;

typedef struct Rotary {
    DType type;
    RotaryRows n;
    const RotaryFrequencies *f;
    int direction;
    atomic_bool failed; // for want of memory
} Rotary;

static void turn_positions(void *arg, size_t begin, size_t end)
{
    Rotary *o = arg;
    const RotaryRows *n = &o->n;
    size_t turned = n->heads * 2 * n->pairs;
    float *copy = NULL;
    if (!typed_room(o->type, &copy, turned, &o->failed)) return;
    for (size_t t = begin; t < end; t++) {
        Angles a;
        set_angles(&a, o->f, n->pairs, t, o->direction);
        for (size_t b = 0; b < n->B; b++) {
            size_t at = (b * n->T + t) * n->width;
            float *row = typed_open(o->type, copy, n->x, at, turned);
            for (size_t h = 0; h < n->heads; h++) turn_head(row + 2 * n->pairs * h, &a, n->pairs);
            typed_store(o->type, n->x, at, row, turned);
        }
    }
    free(copy);
}

static cudaError_t rotary_of(SimgpuOp *op, DType type, RotaryRows n, const RotaryFrequencies *f,
                             int direction)
{
    n.x = typed_update(op, type, n.x, n.B * n.T * n.width);
    // A pair: four products and two sums; an angle, its sine and its cosine.
    simgpu_cost(op, n.B * n.T * n.pairs * (6 * n.heads + 3), GPU_F32);
    Rotary o = {.type = type, .n = n, .f = f, .direction = direction};
    if (simgpu_ready(op)) {
        simgpu_parallel(n.T, piece_rows(n.B * n.heads * 2 * n.pairs), turn_positions, &o);
        typed_check_room(op, &o.failed);
    }
    return simgpu_end(op);
}

static RotaryRows rotary_rows(void *x, int B, int T, int width, int heads, int hs)
{
    return (RotaryRows){x, (size_t)B, (size_t)T, (size_t)width, (size_t)heads, (size_t)hs / 2};
}

cudaError_t kernel_rotary(float *x, int B, int T, int width, int heads, int hs,
                          RotaryFrequencies frequencies, int direction, cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_rotary", stream, kernel_rotary, x, B, T, width, heads, hs,
                               SIMGPU_STRUCT(frequencies), direction);
    return rotary_of(&op, DTYPE_F32, rotary_rows(x, B, T, width, heads, hs), &frequencies,
                     direction);
}

cudaError_t kernel_rotary_ex(DType type, void *x, int B, int T, int width, int heads, int hs,
                             RotaryFrequencies frequencies, int direction, cudaStream_t stream)
{
    SimgpuOp op = TYPED_BEGIN("kernel_rotary", type, stream, kernel_rotary_ex, type, x, B, T, width,
                              heads, hs, SIMGPU_STRUCT(frequencies), direction);
    return rotary_of(&op, type, rotary_rows(x, B, T, width, heads, hs), &frequencies, direction);
}
