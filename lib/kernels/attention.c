/* attention.c: causal attention of several heads in one pass, and its gradient. Heads of queries
 * may share their keys and values.
 *
 * The (T,T) matrix of a head's scores is never in memory. Sixteen queries are worked on at a time,
 * one in each lane of a vector, and the scores that they need, against all keys that they see, are
 * T vectors of scratch. Of the softmax two numbers per row are saved, the largest score and one
 * over the sum of the exponentials; the backward computes the same scores again and from these two
 * the same probabilities (Dao et al. 2022, "FlashAttention").
 *
 * A query's results are sums over its keys in their order, and a key's gradients sums over its
 * queries in theirs, whatever lane a query is in: a row depends neither on T nor on the machine's
 * vectors. A key that a query may not see does not influence it, not even a NaN.
 */
#include <stdatomic.h>
#include <stdlib.h>

#include "kernels.h"
#include "pieces.h"
#include "rows.h"
#include "typed.h"
#include "vector_math.h"

enum { TILE = ROW_LANES }; // queries

typedef struct Sizes {
    size_t T, C, hs;      // hs: columns of a head
    size_t from;          // a forward's first query
    size_t heads, shared; // of queries, and how many of them share keys and values
    size_t keys, width;   // columns of all keys (and of all values); of a row of qkv
    float scale;
} Sizes;

// What the queries of a tile need; lane l is that of query `first` + l.
typedef struct Tile {
    float (*query)[TILE], (*dout)[TILE], (*sums)[TILE]; // (hs,TILE)
    float (*weight)[TILE], (*dweight)[TILE];            // (T,TILE) by key
    size_t first, queries, keys; // keys: as many as the last of the queries sees
    float max[TILE], factor[TILE], delta[TILE];
} Tile;

// All of a tile's memory; false without.
static bool tile_create(Tile *tile, const Sizes *n)
{
    float(*all)[TILE] = aligned_alloc(sizeof *all, (3 * n->hs + 2 * n->T) * sizeof *all);
    tile->query = all;
    if (all == NULL) return false;
    tile->dout = all + n->hs;
    tile->sums = all + 2 * n->hs;
    tile->weight = all + 3 * n->hs;
    tile->dweight = tile->weight + n->T;
    return true;
}

static void tile_begin(Tile *tile, const Sizes *n, size_t first)
{
    tile->first = first;
    tile->keys = first + TILE < n->T ? first + TILE : n->T;
    tile->queries = tile->keys - first;
}

// The first lane whose query sees the key.
static size_t first_lane(const Tile *tile, size_t key)
{
    return key > tile->first ? key - tile->first : 0;
}

// Row l of `rows` becomes lane l of x (hs,TILE). A lane without a query has the last one's.
static void transpose(float (*x)[TILE], const float *rows, size_t stride, size_t queries, size_t hs)
{
    for (size_t i = 0; i < hs; i++)
        for (size_t l = 0; l < TILE; l++)
            x[i][l] = rows[(l < queries ? l : queries - 1) * stride + i];
}

// dots[j] = Σ_i x[i]·rows[j][i] for j < n; i ascends. Four rows at a time hide what an addition
// waits for.
static void dot_rows(float (*dots)[TILE], const float (*x)[TILE], const float *rows, size_t stride,
                     size_t n, size_t hs)
{
    size_t j = 0;
    for (; j + 4 <= n; j += 4) {
        const float *r = rows + j * stride;
        RowLanes a = {0}, b = {0}, c = {0}, d = {0};
        for (size_t i = 0; i < hs; i++) EACH_PART(p)
            {
                RowPart of_x = row_part(x[i], p);
                a.part[p] += of_x * r[i];
                b.part[p] += of_x * r[stride + i];
                c.part[p] += of_x * r[2 * stride + i];
                d.part[p] += of_x * r[3 * stride + i];
            }
        row_store_lanes(dots[j], &a);
        row_store_lanes(dots[j + 1], &b);
        row_store_lanes(dots[j + 2], &c);
        row_store_lanes(dots[j + 3], &d);
    }
    for (; j < n; j++) {
        RowLanes a = {0};
        for (size_t i = 0; i < hs; i++)
            EACH_PART(p) a.part[p] += row_part(x[i], p) * rows[j * stride + i];
        row_store_lanes(dots[j], &a);
    }
}

// sums[i] = Σ_j w[j]·rows[j][i] over the keys that each lane sees; j ascends. First the keys that
// all lanes see, then the others.
static void sum_seen_rows(const Tile *tile, float (*sums)[TILE], const float (*w)[TILE],
                          const float *rows, size_t stride, size_t hs)
{
    size_t i = 0, shared = tile->first + 1;
    for (; i + 4 <= hs; i += 4) {
        RowLanes a = {0}, b = {0}, c = {0}, d = {0};
        for (size_t j = 0; j < shared; j++) {
            const float *r = rows + j * stride + i;
            EACH_PART(p)
            {
                RowPart of_w = row_part(w[j], p);
                a.part[p] += of_w * r[0];
                b.part[p] += of_w * r[1];
                c.part[p] += of_w * r[2];
                d.part[p] += of_w * r[3];
            }
        }
        row_store_lanes(sums[i], &a);
        row_store_lanes(sums[i + 1], &b);
        row_store_lanes(sums[i + 2], &c);
        row_store_lanes(sums[i + 3], &d);
    }
    for (; i < hs; i++) {
        RowLanes a = {0};
        for (size_t j = 0; j < shared; j++)
            EACH_PART(p) a.part[p] += row_part(w[j], p) * rows[j * stride + i];
        row_store_lanes(sums[i], &a);
    }
    for (size_t j = shared; j < tile->keys; j++)
        for (i = 0; i < hs; i++)
            for (size_t l = first_lane(tile, j); l < TILE; l++)
                sums[i][l] += w[j][l] * rows[j * stride + i];
}

// row (hs) += Σ_l w[l]·rows[l] over the queries from lane `from` on; l ascends.
static void add_queries(float *row, const float w[TILE], const float *rows, size_t stride,
                        size_t from, size_t queries, size_t hs)
{
    size_t i = 0;
    for (; i + TILE <= hs; i += TILE) {
        RowLanes sum;
        EACH_PART(p) sum.part[p] = row_part(row + i, p);
        for (size_t l = from; l < queries; l++)
            EACH_PART(p) sum.part[p] += w[l] * row_part(rows + l * stride + i, p);
        row_store_lanes(row + i, &sum);
    }
    for (; i < hs; i++)
        for (size_t l = from; l < queries; l++) row[i] += w[l] * rows[l * stride + i];
}

// The tile's scores become exponentials; max and factor are the rows' own.
static void tile_softmax(Tile *tile, const Sizes *n)
{
    float(*s)[TILE] = tile->weight, sum[TILE] = {0};
    memcpy(tile->max, s[0], sizeof tile->max);
    for (size_t j = 1; j < tile->keys; j++)
        for (size_t l = first_lane(tile, j); l < TILE; l++)
            tile->max[l] = s[j][l] > tile->max[l] ? s[j][l] : tile->max[l];
    for (size_t j = 0; j < tile->keys; j++) {
#pragma omp simd
        for (size_t l = 0; l < TILE; l++) s[j][l] = vm_exp(n->scale * (s[j][l] - tile->max[l]));
        for (size_t l = first_lane(tile, j); l < TILE; l++) sum[l] += s[j][l];
    }
    for (size_t l = 0; l < TILE; l++) tile->factor[l] = 1.0f / sum[l];
}

// Head h: out (T,C) and qkv (T,width) are all heads'; stats (T,2) is its own.
static void head_forward(Tile *tile, const Sizes *n, size_t h, float *out, float *stats,
                         const float *qkv)
{
    size_t stride = n->width;
    const float *q = qkv + h * n->hs, *k = qkv + n->C + h / n->shared * n->hs, *v = k + n->keys;
    for (size_t first = n->from; first < n->T; first += TILE) {
        tile_begin(tile, n, first);
        transpose(tile->query, q + first * stride, stride, tile->queries, n->hs);
        dot_rows(tile->weight, tile->query, k, stride, tile->keys, n->hs);
        tile_softmax(tile, n);
        sum_seen_rows(tile, tile->sums, tile->weight, v, stride, n->hs);
        for (size_t l = 0; l < tile->queries; l++) {
            float *row = out + (first + l - n->from) * n->C + h * n->hs;
            for (size_t i = 0; i < n->hs; i++) row[i] = tile->sums[i][l] * tile->factor[l];
            if (stats == NULL) continue;
            stats[2 * (first + l)] = tile->max[l];
            stats[2 * (first + l) + 1] = tile->factor[l];
        }
    }
}

// weight becomes the probabilities of the forward, from scores; dweight, the gradient by them, that
// by the scores before they are scaled.
static void tile_gradients(Tile *tile, const Sizes *n)
{
    float(*p)[TILE] = tile->weight, (*d)[TILE] = tile->dweight;
    for (size_t j = 0; j < tile->keys; j++) {
#pragma omp simd
        for (size_t l = 0; l < TILE; l++) {
            p[j][l] = vm_exp(n->scale * (p[j][l] - tile->max[l])) * tile->factor[l];
            d[j][l] = n->scale * p[j][l] * (d[j][l] - tile->delta[l]);
        }
    }
}

// What the backward of one head reads and writes: every pointer at the head's first column.
typedef struct Head {
    const float *q, *k, *v, *dout, *out, *stats;
    float *dq, *dk, *dv, *delta;
} Head;

static void tile_backward(Tile *tile, const Sizes *n, const Head *h)
{
    size_t stride = n->width, first = tile->first;
    const float *q = h->q + first * stride, *dout = h->dout + first * n->C;
    transpose(tile->query, q, stride, tile->queries, n->hs);
    transpose(tile->dout, dout, n->C, tile->queries, n->hs);
    for (size_t l = 0; l < TILE; l++) {
        size_t t = first + (l < tile->queries ? l : tile->queries - 1);
        tile->max[l] = h->stats[2 * t];
        tile->factor[l] = h->stats[2 * t + 1];
        tile->delta[l] = row_dot(h->dout + t * n->C, h->out + t * n->C, n->hs);
    }
    memcpy(h->delta + first, tile->delta, tile->queries * sizeof(float));

    dot_rows(tile->weight, tile->query, h->k, stride, tile->keys, n->hs);
    dot_rows(tile->dweight, tile->dout, h->v, stride, tile->keys, n->hs);
    tile_gradients(tile, n);
    sum_seen_rows(tile, tile->sums, tile->dweight, h->k, stride, n->hs);
    for (size_t l = 0; l < tile->queries; l++)
        for (size_t i = 0; i < n->hs; i++) h->dq[(first + l) * stride + i] = tile->sums[i][l];
    for (size_t j = 0; j < tile->keys; j++) {
        float *dk = h->dk + j * stride, *dv = h->dv + j * stride;
        size_t from = first_lane(tile, j);
        add_queries(dk, tile->dweight[j], q, stride, from, tile->queries, n->hs);
        add_queries(dv, tile->weight[j], dout, n->C, from, tile->queries, n->hs);
    }
}

static Sizes sizes_of(int T, int C, int heads, int kv_heads, float scale)
{
    size_t hs = (size_t)C / (size_t)heads, keys = (size_t)kv_heads * hs;
    return (Sizes){.T = (size_t)T,
                   .C = (size_t)C,
                   .hs = hs,
                   .heads = (size_t)heads,
                   .shared = (size_t)(heads / kv_heads),
                   .keys = keys,
                   .width = (size_t)C + 2 * keys,
                   .scale = scale};
}

// ---- One sequence at a time, or one group of heads that share keys and values ----

// What threads share: floats by sequence and group, other types, of which a sequence is widened as
// one, by sequence.
typedef struct Share {
    DType type;
    int B;
    const Sizes *n;
    size_t groups;      // of a piece of work: 1, or all
    atomic_bool failed; // for want of memory
} Share;

static Share share_of(DType type, int B, const Sizes *n)
{
    size_t groups = n->heads / n->shared;
    return (Share){.type = type, .B = B, .n = n, .groups = type == DTYPE_F32 ? 1 : groups};
}

// Pieces of work in all, and how many are worth a thread: a pair of rows is a few products per
// column.
static size_t shares(const Share *s)
{
    return (size_t)s->B * (s->n->heads / s->n->shared / s->groups);
}
static size_t shares_at_once(const Share *s)
{
    const Sizes *n = s->n;
    return piece_rows(n->T * n->T * n->hs * n->shared * s->groups / 4);
}

// The arithmetic: a GPU multiplies numbers of two bytes on tensor cores.
static GpuType arithmetic(DType type)
{
    return type == DTYPE_F32 ? GPU_F32 : GPU_BF16;
}

// Room for copies of n numbers, and a tile: free both. False, and the operation fails, without.
static bool share_room(Share *s, size_t n, float **copies, Tile *tile)
{
    if (!typed_room(s->type, copies, n, &s->failed)) return false;
    if (tile_create(tile, s->n)) return true;
    atomic_store(&s->failed, true);
    free(*copies);
    return false;
}

typedef struct AttentionForward {
    Share share;
    void *y;
    float *stats;
    const void *x;
} AttentionForward;

static void attend(void *arg, size_t begin, size_t end)
{
    AttentionForward *f = arg;
    Share *s = &f->share;
    const Sizes *n = s->n;
    DType type = s->type;
    size_t H = n->heads, one = (n->T - n->from) * n->C, in = n->T * n->width;
    size_t at_once = s->groups * n->shared, per_sequence = H / at_once; // heads of a piece; pieces
    float *copies = NULL;
    Tile tile;
    if (!share_room(s, in + one, &copies, &tile)) return;
    for (size_t i = begin; i < end; i++) {
        size_t b = i / per_sequence, first = i % per_sequence * at_once;
        const float *from = typed_load(type, copies, f->x, b * in, in);
        float *to = typed_place(type, typed_part(copies, in), f->y, b * one);
        for (size_t h = first; h < first + at_once; h++)
            head_forward(&tile, n, h, to,
                         f->stats != NULL ? f->stats + 2 * n->T * (b * H + h) : NULL, from);
        typed_store(type, f->y, b * one, to, one);
    }
    free(copies);
    free(tile.query);
}

static cudaError_t attention_forward_of(SimgpuOp *op, DType type, void *out, float *stats,
                                        const void *qkv, int B, const Sizes *n)
{
    size_t rows = (size_t)B * (n->T - n->from), H = n->heads;
    AttentionForward f = {.share = share_of(type, B, n)};
    f.y = typed_write(op, type, out, rows * n->C);
    if (stats != NULL) f.stats = simgpu_write(op, stats, 2 * rows * H * sizeof *stats);
    f.x = typed_read(op, type, qkv, (size_t)B * n->T * n->width);
    // Of each pair of rows that see each other: q·k and p·v, and the softmax.
    simgpu_cost(op, rows * (n->T + n->from + 1) / 2 * (4 * n->C + 5 * H), arithmetic(type));
    if (!simgpu_ready(op) || rows == 0) return simgpu_end(op);
    simgpu_parallel(shares(&f.share), shares_at_once(&f.share), attend, &f);
    typed_check_room(op, &f.share.failed);
    return simgpu_end(op);
}

cudaError_t kernel_attention_forward(float *out, float *stats, const float *qkv, int B, int T,
                                     int C, int heads, int kv_heads, float scale,
                                     cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_attention_forward", stream, kernel_attention_forward, out,
                               stats, qkv, B, T, C, heads, kv_heads, scale);
    Sizes n = sizes_of(T, C, heads, kv_heads, scale);
    return attention_forward_of(&op, DTYPE_F32, out, stats, qkv, B, &n);
}

cudaError_t kernel_attention_forward_ex(DType type, void *out, float *stats, const void *qkv, int B,
                                        int T, int C, int heads, int kv_heads, float scale,
                                        cudaStream_t stream)
{
    SimgpuOp op = TYPED_BEGIN("kernel_attention_forward", type, stream, kernel_attention_forward_ex,
                              type, out, stats, qkv, B, T, C, heads, kv_heads, scale);
    Sizes n = sizes_of(T, C, heads, kv_heads, scale);
    return attention_forward_of(&op, type, out, stats, qkv, B, &n);
}

cudaError_t kernel_attention_rows_ex(DType type, void *out, const void *qkv, int from, int T, int C,
                                     int heads, int kv_heads, float scale, cudaStream_t stream)
{
    SimgpuOp op = TYPED_BEGIN("kernel_attention_rows", type, stream, kernel_attention_rows_ex, type,
                              out, qkv, from, T, C, heads, kv_heads, scale);
    Sizes n = sizes_of(T, C, heads, kv_heads, scale);
    n.from = (size_t)from;
    return attention_forward_of(&op, type, out, NULL, qkv, 1, &n);
}

// The backward of `groups` groups of heads of a sequence from `first_group` on. all: what those
// that begin at column 0 share, q and dq being qkv (T,width) and its gradient. Not inlined:
// within its caller GCC 12 makes loops of it that take 1.6 times as long.
__attribute__((noinline)) static void groups_backward(Tile *tile, const Sizes *n, const Head *all,
                                                      size_t first_group, size_t groups)
{
    size_t keys = groups * n->hs * sizeof *all->dq, at = n->C + first_group * n->hs;
    for (size_t t = 0; t < n->T; t++) { // queries' gradients are stored, not added
        memset(all->dq + t * n->width + at, 0, keys);
        memset(all->dq + t * n->width + at + n->keys, 0, keys);
    }
    for (size_t i = first_group * n->shared; i < (first_group + groups) * n->shared; i++) {
        size_t own = i * n->hs, key = n->C + i / n->shared * n->hs, value = key + n->keys;
        Head h = {.q = all->q + own,
                  .k = all->q + key,
                  .v = all->q + value,
                  .dout = all->dout + own,
                  .out = all->out + own,
                  .stats = all->stats + 2 * n->T * i,
                  .dq = all->dq + own,
                  .dk = all->dq + key,
                  .dv = all->dq + value,
                  .delta = all->delta + n->T * i};
        for (size_t first = 0; first < n->T; first += TILE) {
            tile_begin(tile, n, first);
            tile_backward(tile, n, &h);
        }
    }
}

// What a backward reads and writes, of all sequences.
typedef struct AttentionBackward {
    void *dqkv;
    float *delta;
    const void *dout, *out;
    const float *stats;
    const void *qkv;
    Share share;
} AttentionBackward;

static void attend_back(void *arg, size_t begin, size_t end)
{
    AttentionBackward *x = arg;
    Share *s = &x->share;
    const Sizes *n = s->n;
    DType type = s->type;
    size_t H = n->heads, one = n->T * n->C, in = n->T * n->width;
    size_t per_sequence = H / n->shared / s->groups;
    float *c = NULL;
    Tile tile;
    if (!share_room(s, 2 * (in + one), &c, &tile)) return;
    for (size_t i = begin; i < end; i++) {
        size_t b = i / per_sequence;
        Head all = {.dq = typed_place(type, c, x->dqkv, b * in),
                    .q = typed_load(type, typed_part(c, in), x->qkv, b * in, in),
                    .dout = typed_load(type, typed_part(c, 2 * in), x->dout, b * one, one),
                    .out = typed_load(type, typed_part(c, 2 * in + one), x->out, b * one, one),
                    .stats = x->stats + 2 * n->T * b * H,
                    .delta = x->delta + n->T * b * H};
        groups_backward(&tile, n, &all, i % per_sequence * s->groups, s->groups);
        typed_store(type, x->dqkv, b * in, all.dq, in);
    }
    free(c);
    free(tile.query);
}

static cudaError_t attention_backward_of(SimgpuOp *op, DType type, AttentionBackward x, int B,
                                         const Sizes *n)
{
    size_t rows = (size_t)B * n->T, H = n->heads;
    x.share = share_of(type, B, n);
    x.dqkv = typed_write(op, type, x.dqkv, rows * n->width);
    x.delta = simgpu_write(op, x.delta, rows * H * sizeof *x.delta);
    x.dout = typed_read(op, type, x.dout, rows * n->C);
    x.out = typed_read(op, type, x.out, rows * n->C);
    x.stats = simgpu_read(op, x.stats, 2 * rows * H * sizeof *x.stats);
    x.qkv = typed_read(op, type, x.qkv, rows * n->width);
    // Five products, of which one is the forward's once more.
    simgpu_cost(op, rows * (n->T + 1) / 2 * (10 * n->C + 8 * H), arithmetic(type));
    if (!simgpu_ready(op) || rows == 0) return simgpu_end(op);
    simgpu_parallel(shares(&x.share), shares_at_once(&x.share), attend_back, &x);
    typed_check_room(op, &x.share.failed);
    return simgpu_end(op);
}

cudaError_t kernel_attention_backward(float *dqkv, float *delta, const float *dout,
                                      const float *out, const float *stats, const float *qkv, int B,
                                      int T, int C, int heads, int kv_heads, float scale,
                                      cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_attention_backward", stream, kernel_attention_backward, dqkv,
                               delta, dout, out, stats, qkv, B, T, C, heads, kv_heads, scale);
    AttentionBackward x = {dqkv, delta, dout, out, stats, qkv, .share = {0}};
    Sizes n = sizes_of(T, C, heads, kv_heads, scale);
    return attention_backward_of(&op, DTYPE_F32, x, B, &n);
}

cudaError_t kernel_attention_backward_ex(DType type, void *dqkv, float *delta, const void *dout,
                                         const void *out, const float *stats, const void *qkv,
                                         int B, int T, int C, int heads, int kv_heads, float scale,
                                         cudaStream_t stream)
{
    SimgpuOp op =
        TYPED_BEGIN("kernel_attention_backward", type, stream, kernel_attention_backward_ex, type,
                    dqkv, delta, dout, out, stats, qkv, B, T, C, heads, kv_heads, scale);
    AttentionBackward x = {dqkv, delta, dout, out, stats, qkv, .share = {0}};
    Sizes n = sizes_of(T, C, heads, kv_heads, scale);
    return attention_backward_of(&op, type, x, B, &n);
}
