/* attention.cu: causal attention of several heads in one pass, and its gradient, without a (T,T)
 * matrix in memory (Dao et al. 2022, "FlashAttention").
 *
 * A warp has one row of a head; its lanes have 32 rows of the other kind, which the block's warps
 * share. In the forward and for the queries' gradient these are a query and 32 keys; for the keys'
 * gradient, a key and 32 queries of all heads that share the key. So each sum belongs to one warp,
 * in an order that depends only on positions: no atomics. Tiles begin at multiples of 32, so a row
 * does not depend on T. Keys that a query may not see do not change it, even if they are NaN.
 */
#include "block.cuh"
#include "typed.cuh"

#define ROWS 8 // warps of a block
#define TILE WARP
#define MOST ATTENTION_MOST_COLUMNS
#define PARTS (MOST / WARP) // columns of a row that a lane has

struct Sizes {
    unsigned T, C, hs, heads, kv_heads, shared; // shared: heads that share a key
    unsigned from;                              // a forward's first row
    size_t width;                               // columns of a row of qkv
    size_t pieces; // of ROWS rows of one sequence's head each, the last one perhaps fewer
    float scale;
};

// A block's piece: rows from `first` on of a sequence and head, and this warp's own row.
struct Piece {
    size_t query, key, value, out; // the head's column 0 of its sequence in qkv (B,T,width),
                                   // and in out (B,T,C)
    size_t head;                   // the number of the sequence and head, for (B,heads,T)
    unsigned first, mine;
};

static __device__ unsigned least(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

// Head `head` of sequence b, from row `first` on.
static __device__ Piece piece_at(const Sizes &n, size_t b, unsigned head, unsigned first)
{
    size_t in = b * n.T * n.width, of_key = head / n.shared * n.hs, key = in + n.C + of_key;
    size_t column = (size_t)head * n.hs;
    return {in + column,        key,   key + (size_t)n.kv_heads * n.hs, b * n.T * n.C + column,
            b * n.heads + head, first, first + threadIdx.x / WARP};
}

// A piece, by its number among the pieces of all heads of queries.
static __device__ Piece piece_of(const Sizes &n, size_t number)
{
    size_t head = number / n.pieces;
    return piece_at(n, head / n.heads, (unsigned)(head % n.heads),
                    n.from + (unsigned)(number % n.pieces) * ROWS);
}

// Rows of two kinds, side by side, in shared memory, one float longer than needed, so that the
// lanes' rows begin in different banks.
typedef float Row[MOST + 1];

// A kernel's own rows and those of a tile, of two kinds; the forward has only one kind of its own.
struct Rows {
    Row *own, *own_2, *tile, *tile_2;
};

static __device__ Rows forward_rows()
{
    __shared__ Row own[ROWS], tile[TILE], tile_2[TILE];
    return {own, NULL, tile, tile_2};
}

static __device__ Rows backward_rows()
{
    __shared__ Row own[ROWS], own_2[ROWS], tile[TILE], tile_2[TILE];
    return {own, own_2, tile, tile_2};
}

// to[0 … count) = rows from `begin` on of x; all threads of the block take part
template <class Number>
static __device__ void load_rows(Row *to, const Number *x, size_t stride, unsigned begin,
                                 unsigned count, unsigned hs)
{
    for (unsigned i = threadIdx.x; i < count * hs; i += blockDim.x)
        to[i / hs][i % hs] = x[(begin + i / hs) * stride + i % hs];
}

static __device__ float dot(const float *a, const float *b, unsigned hs)
{
    float sum = 0.0f;
    for (unsigned i = 0; i < hs; i++) sum += a[i] * b[i];
    return sum;
}

// sums += Σ_j w[j]·rows[j] for begin <= j < end, where lane j has w[j]
static __device__ void add_rows(float *sums, float w, const Row *rows, unsigned begin, unsigned end,
                                unsigned hs)
{
    unsigned lane = threadIdx.x % WARP;
    for (unsigned j = begin; j < end; j++) {
        float of_row = __shfl_sync(ALL_LANES, w, (int)j);
#pragma unroll
        for (unsigned k = 0; k < PARTS; k++)
            if (lane + k * WARP < hs) sums[k] += of_row * rows[j][lane + k * WARP];
    }
}

template <class Number>
static __device__ void store_row(Number *row, const float *sums, float factor, unsigned hs)
{
    unsigned lane = threadIdx.x % WARP;
#pragma unroll
    for (unsigned k = 0; k < PARTS; k++)
        if (lane + k * WARP < hs) row[lane + k * WARP] = sums[k] * factor;
}

// Computes the softmax as the keys come: a larger score shrinks the sums made before it.
template <class Number>
static __global__ void __launch_bounds__(ROWS *WARP)
    forward(Number *out, float *stats, const Number *qkv, Sizes n, size_t pieces)
{
    Rows rows = forward_rows();
    Row *query = rows.own, *key = rows.tile, *value = rows.tile_2;
    unsigned lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    size_t stride = n.width;
    for (size_t number = blockIdx.x; number < pieces; number += gridDim.x) {
        Piece p = piece_of(n, number);
        const Number *q = qkv + p.query;
        unsigned keys = least(p.first + ROWS, n.T);
        float max = -INFINITY, sum = 0.0f, sums[PARTS] = {};
        __syncthreads();
        load_rows(query, q, stride, p.first, keys - p.first, n.hs);
        for (unsigned begin = 0; begin < keys; begin += TILE) {
            __syncthreads();
            load_rows(key, qkv + p.key, stride, begin, least(TILE, keys - begin), n.hs);
            load_rows(value, qkv + p.value, stride, begin, least(TILE, keys - begin), n.hs);
            __syncthreads();
            if (p.mine >= n.T || begin > p.mine) continue;
            unsigned seen = least(TILE, p.mine - begin + 1);
            float score = lane < seen ? dot(query[warp], key[lane], n.hs) : -INFINITY;
            float larger = fmaxf(max, warp_max(score)), shrink = expf(n.scale * (max - larger));
            float weight = lane < seen ? expf(n.scale * (score - larger)) : 0.0f;
            sum = sum * shrink + warp_sum(weight);
            for (unsigned k = 0; k < PARTS; k++) sums[k] *= shrink;
            add_rows(sums, weight, value, 0, seen, n.hs);
            max = larger;
        }
        if (p.mine >= n.T) continue;
        store_row(out + p.out + (size_t)(p.mine - n.from) * n.C, sums, 1.0f / sum, n.hs);
        if (stats == NULL) continue;
        float *of_row = stats + 2 * (p.head * n.T + p.mine);
        if (lane == 0) of_row[0] = max;
        if (lane == 1) of_row[1] = 1.0f / sum;
    }
}

// The gradient by a score before it is scaled. *p becomes the forward's probability; `dp` is the
// gradient by that.
static __device__ float score_gradient(float score, float dp, const float *stats, float delta,
                                       float scale, float *p)
{
    *p = expf(scale * (score - stats[0])) * stats[1];
    return scale * *p * (dp - delta);
}

// dq, and delta
template <class Number>
static __global__ void __launch_bounds__(ROWS *WARP)
    backward_queries(Number *dqkv, float *delta, const Number *dout, const Number *out,
                     const float *stats, const Number *qkv, Sizes n, size_t pieces)
{
    Rows rows = backward_rows();
    Row *query = rows.own, *gradient = rows.own_2, *key = rows.tile, *value = rows.tile_2;
    unsigned lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    size_t stride = n.width;
    for (size_t number = blockIdx.x; number < pieces; number += gridDim.x) {
        Piece p = piece_of(n, number);
        const Number *q = qkv + p.query, *own = out + p.out + (size_t)p.mine * n.C;
        unsigned keys = least(p.first + ROWS, n.T);
        size_t row = p.head * n.T + p.mine;
        float sums[PARTS] = {}, mine = 0.0f;
        __syncthreads();
        load_rows(query, q, stride, p.first, keys - p.first, n.hs);
        load_rows(gradient, dout + p.out, n.C, p.first, keys - p.first, n.hs);
        __syncthreads();
        if (p.mine < n.T)
            for (unsigned i = lane; i < n.hs; i += WARP) mine += gradient[warp][i] * own[i];
        mine = warp_sum(mine);
        for (unsigned begin = 0; begin < keys; begin += TILE) {
            __syncthreads();
            load_rows(key, qkv + p.key, stride, begin, least(TILE, keys - begin), n.hs);
            load_rows(value, qkv + p.value, stride, begin, least(TILE, keys - begin), n.hs);
            __syncthreads();
            if (p.mine >= n.T || begin > p.mine) continue;
            unsigned seen = least(TILE, p.mine - begin + 1);
            float weight = 0.0f, of_score = 0.0f;
            if (lane < seen)
                of_score = score_gradient(dot(query[warp], key[lane], n.hs),
                                          dot(gradient[warp], value[lane], n.hs), stats + 2 * row,
                                          mine, n.scale, &weight);
            add_rows(sums, of_score, key, 0, seen, n.hs);
        }
        if (p.mine >= n.T) continue;
        store_row(dqkv + p.query + (size_t)p.mine * stride, sums, 1.0f, n.hs);
        if (lane == 0) delta[row] = mine;
    }
}

// Adds what the queries of one head give to the warp's key and value: of_key, of_value (PARTS).
template <class Number>
static __device__ void add_head(float *of_key, float *of_value, const Rows &rows, const Piece &p,
                                const float *delta, const Number *dout, const float *stats,
                                const Number *qkv, const Sizes &n)
{
    Row *key = rows.own, *value = rows.own_2, *query = rows.tile, *gradient = rows.tile_2;
    unsigned lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    for (unsigned begin = p.first / TILE * TILE; begin < n.T; begin += TILE) {
        unsigned end = least(TILE, n.T - begin);
        __syncthreads();
        load_rows(query, qkv + p.query, n.width, begin, end, n.hs);
        load_rows(gradient, dout + p.out, n.C, begin, end, n.hs);
        __syncthreads();
        if (p.mine >= n.T || begin + end <= p.mine) continue;
        unsigned first = p.mine > begin ? p.mine - begin : 0;
        size_t row = p.head * n.T + begin + lane;
        float weight = 0.0f, of_score = 0.0f;
        if (lane >= first && lane < end)
            of_score = score_gradient(dot(key[warp], query[lane], n.hs),
                                      dot(value[warp], gradient[lane], n.hs), stats + 2 * row,
                                      delta[row], n.scale, &weight);
        add_rows(of_key, of_score, query, first, end, n.hs);
        add_rows(of_value, weight, gradient, first, end, n.hs);
    }
}

// dk and dv: each key meets the queries from its own position on, head by head of those that share
// it.
template <class Number>
static __global__ void __launch_bounds__(ROWS *WARP)
    backward_keys(Number *dqkv, const float *delta, const Number *dout, const float *stats,
                  const Number *qkv, Sizes n, size_t pieces)
{
    Rows rows = backward_rows();
    for (size_t number = blockIdx.x; number < pieces; number += gridDim.x) {
        size_t kv = number / n.pieces, b = kv / n.kv_heads;
        unsigned head = (unsigned)(kv % n.kv_heads) * n.shared;
        Piece p = piece_at(n, b, head, (unsigned)(number % n.pieces) * ROWS);
        unsigned count = least(ROWS, n.T - p.first);
        size_t at = (size_t)p.mine * n.width;
        float of_key[PARTS] = {}, of_value[PARTS] = {};
        __syncthreads();
        load_rows(rows.own, qkv + p.key, n.width, p.first, count, n.hs);
        load_rows(rows.own_2, qkv + p.value, n.width, p.first, count, n.hs);
        for (unsigned i = 0; i < n.shared; i++)
            add_head(of_key, of_value, rows, piece_at(n, b, head + i, p.first), delta, dout, stats,
                     qkv, n);
        if (p.mine >= n.T) continue;
        store_row(dqkv + p.key + at, of_key, 1.0f, n.hs);
        store_row(dqkv + p.value + at, of_value, 1.0f, n.hs);
    }
}

static Sizes sizes_of(int T, int C, int heads, int kv_heads, float scale)
{
    Sizes n = {};
    n.T = (unsigned)T;
    n.C = (unsigned)C;
    n.hs = (unsigned)(C / heads);
    n.heads = (unsigned)heads;
    n.kv_heads = (unsigned)kv_heads;
    n.shared = (unsigned)(heads / kv_heads);
    n.width = (size_t)n.C + 2 * (size_t)n.kv_heads * n.hs;
    n.pieces = (n.T + ROWS - 1) / ROWS;
    n.scale = scale;
    return n;
}

template <class Number>
static cudaError_t forward_of(Launch launch, Number *out, float *stats, const Number *qkv, int B,
                              const Sizes &n)
{
    size_t rows = (size_t)B * (n.T - n.from), width = n.C, pieces = (size_t)B * n.heads * n.pieces;
    launch_write(&launch, out, rows * width * sizeof *out);
    if (stats != NULL) launch_write(&launch, stats, 2 * rows * n.heads * sizeof *stats);
    launch_read(&launch, qkv, (size_t)B * n.T * n.width * sizeof *qkv);
    if (pieces > 0)
        launch_grid(&launch, forward<Number>, blocks_of(pieces, 1), ROWS * WARP, out, stats, qkv, n,
                    pieces);
    return launch_end(&launch);
}

extern "C" cudaError_t kernel_attention_forward(float *out, float *stats, const float *qkv, int B,
                                                int T, int C, int heads, int kv_heads, float scale,
                                                cudaStream_t stream)
{
    return forward_of(LAUNCH_BEGIN("kernel_attention_forward", stream), out, stats, qkv, B,
                      sizes_of(T, C, heads, kv_heads, scale));
}

extern "C" cudaError_t kernel_attention_forward_ex(DType type, void *out, float *stats,
                                                   const void *qkv, int B, int length, int C,
                                                   int heads, int kv_heads, float scale,
                                                   cudaStream_t stream)
{
    Launch launch = TYPED_BEGIN("kernel_attention_forward", type, stream);
    BY_TYPE(type, forward_of(launch, (T *)out, stats, (const T *)qkv, B,
                             sizes_of(length, C, heads, kv_heads, scale)));
}

extern "C" cudaError_t kernel_attention_rows_ex(DType type, void *out, const void *qkv, int from,
                                                int length, int C, int heads, int kv_heads,
                                                float scale, cudaStream_t stream)
{
    Launch launch = TYPED_BEGIN("kernel_attention_rows", type, stream);
    Sizes n = sizes_of(length, C, heads, kv_heads, scale);
    n.from = (unsigned)from;
    n.pieces = (n.T - n.from + ROWS - 1) / ROWS;
    BY_TYPE(type, forward_of(launch, (T *)out, NULL, (const T *)qkv, 1, n));
}

template <class Number>
static cudaError_t backward_of(Launch launch, Number *dqkv, float *delta, const Number *dout,
                               const Number *out, const float *stats, const Number *qkv, int B,
                               const Sizes &n)
{
    size_t rows = (size_t)B * n.T, width = n.C, heads = (size_t)B * n.heads;
    launch_write(&launch, dqkv, rows * n.width * sizeof *dqkv);
    launch_write(&launch, delta, rows * n.heads * sizeof *delta);
    launch_read(&launch, dout, rows * width * sizeof *dout);
    launch_read(&launch, out, rows * width * sizeof *out);
    launch_read(&launch, stats, 2 * rows * n.heads * sizeof *stats);
    launch_read(&launch, qkv, rows * n.width * sizeof *qkv);
    size_t of_queries = heads * n.pieces, of_keys = (size_t)B * n.kv_heads * n.pieces;
    if (of_queries > 0) {
        launch_grid(&launch, backward_queries<Number>, blocks_of(of_queries, 1), ROWS * WARP, dqkv,
                    delta, dout, out, stats, qkv, n, of_queries);
        launch_grid(&launch, backward_keys<Number>, blocks_of(of_keys, 1), ROWS * WARP, dqkv,
                    (const float *)delta, dout, stats, qkv, n, of_keys);
    }
    return launch_end(&launch);
}

extern "C" cudaError_t kernel_attention_backward(float *dqkv, float *delta, const float *dout,
                                                 const float *out, const float *stats,
                                                 const float *qkv, int B, int T, int C, int heads,
                                                 int kv_heads, float scale, cudaStream_t stream)
{
    return backward_of(LAUNCH_BEGIN("kernel_attention_backward", stream), dqkv, delta, dout, out,
                       stats, qkv, B, sizes_of(T, C, heads, kv_heads, scale));
}

extern "C" cudaError_t kernel_attention_backward_ex(DType type, void *dqkv, float *delta,
                                                    const void *dout, const void *out,
                                                    const float *stats, const void *qkv, int B,
                                                    int length, int C, int heads, int kv_heads,
                                                    float scale, cudaStream_t stream)
{
    Launch launch = TYPED_BEGIN("kernel_attention_backward", type, stream);
    BY_TYPE(type, backward_of(launch, (T *)dqkv, delta, (const T *)dout, (const T *)out, stats,
                              (const T *)qkv, B, sizes_of(length, C, heads, kv_heads, scale)));
}
