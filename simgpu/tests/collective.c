/* The collectives of simgpu's NCCL: every one, every type and reduction, odd counts, 1 to 8 ranks,
 * in place and not, on small whole numbers whose results are exact; and the order of floating-point
 * sums.
 */
#include <stdlib.h>

#include "heard.h"
#include "numbers.h"
#include "simgpu.h"

typedef enum Kind { ALL_GATHER, REDUCE_SCATTER, ALL_REDUCE, BROADCAST, REDUCE } Kind;
enum { KINDS = REDUCE + 1 };
_Static_assert(KINDS == GPU_SEND - GPU_ALL_GATHER,
               "a collective has no Kind here: nobody tries it");

typedef struct Case {
    Kind kind;
    ncclDataType_t type;
    int op; // ncclNumOps: premultiplied by rank + 1
    size_t count;
    int root;
    bool in_place;
} Case;

// Small enough that no sum of 8 overflows a type, or leaves what bfloat16 holds exactly; never 0,
// and no product of 8 exceeds 2^4.
static double input(const Case *c, int rank, size_t i)
{
    if (c->op == ncclProd) return (i + (size_t)rank) % 3 == 0 && rank % 2 ? 2 : 1;
    return 1 + (double)((i * 3 + (size_t)rank * 5) % (c->op == ncclNumOps ? 3 : 11));
}

static double reduced(const Case *c, int world, size_t i)
{
    double result = input(c, 0, i);
    for (int r = 1; r < world; r++) {
        double x = input(c, r, i);
        if (c->op == ncclProd)
            result *= x;
        else if (c->op == ncclMax)
            result = x > result ? x : result;
        else if (c->op == ncclMin)
            result = x < result ? x : result;
        else if (c->op == ncclNumOps)
            result += x * (r % 2 + 1);
        else
            result += x;
    }
    if (c->op != ncclAvg) return result;
    return c->type <= ncclUint64 ? floor(result / world) : result / world;
}

// Elements of the send and the receive buffer of a rank.
static size_t send_count(const Case *c, int world)
{
    return c->kind == REDUCE_SCATTER ? c->count * (size_t)world : c->count;
}

static size_t recv_count(const Case *c, int world)
{
    return c->kind == ALL_GATHER ? c->count * (size_t)world : c->count;
}

static double expected(const Case *c, const Rank *r, size_t i)
{
    switch (c->kind) {
    case ALL_GATHER: return input(c, (int)(i / c->count), i % c->count);
    case BROADCAST: return input(c, c->root, i);
    case REDUCE_SCATTER: return reduced(c, r->world, (size_t)r->rank * c->count + i);
    case ALL_REDUCE:
    case REDUCE: return reduced(c, r->world, i);
    }
    return NAN;
}

static void call(const Case *c, const Rank *r, const void *send, void *recv, ncclRedOp_t op)
{
    switch (c->kind) {
    case ALL_GATHER:
        need_nccl(ncclAllGather(send, recv, c->count, c->type, r->comm, r->stream));
        break;
    case REDUCE_SCATTER:
        need_nccl(ncclReduceScatter(send, recv, c->count, c->type, op, r->comm, r->stream));
        break;
    case ALL_REDUCE:
        need_nccl(ncclAllReduce(send, recv, c->count, c->type, op, r->comm, r->stream));
        break;
    case BROADCAST:
        need_nccl(ncclBroadcast(send, recv, c->count, c->type, c->root, r->comm, r->stream));
        break;
    case REDUCE:
        need_nccl(ncclReduce(send, recv, c->count, c->type, op, c->root, r->comm, r->stream));
        break;
    }
}

static void run_case(const Case *c, const Rank *r)
{
    size_t sends = send_count(c, r->world), recvs = recv_count(c, r->world);
    size_t width = number_size(c->type), all = (sends > recvs ? sends : recvs) * width;
    char *send, *recv, *host = malloc(all);
    need_cuda(cudaMalloc((void **)&send, all));
    recv = send;
    if (!c->in_place)
        need_cuda(cudaMalloc((void **)&recv, all));
    else if (c->kind == ALL_GATHER)
        send += (size_t)r->rank * sends * width;
    else if (c->kind == REDUCE_SCATTER)
        recv += (size_t)r->rank * recvs * width;

    for (size_t i = 0; i < sends; i++) number_put(host, c->type, i, input(c, r->rank, i));
    need_cuda(cudaMemcpyAsync(send, host, sends * width, cudaMemcpyHostToDevice, r->stream));
    ncclRedOp_t op = (ncclRedOp_t)c->op;
    if (c->op == ncclNumOps) {
        double scalar = 0;
        number_put(&scalar, c->type, 0, r->rank % 2 + 1);
        need_nccl(
            ncclRedOpCreatePreMulSum(&op, &scalar, c->type, ncclScalarHostImmediate, r->comm));
    }
    call(c, r, send, recv, op);
    if (c->op == ncclNumOps) need_nccl(ncclRedOpDestroy(op, r->comm));
    need_cuda(cudaStreamSynchronize(r->stream));
    if (c->kind != REDUCE || r->rank == c->root) {
        need_cuda(cudaMemcpy(host, recv, recvs * width, cudaMemcpyDeviceToHost));
        for (size_t i = 0; i < recvs; i++) {
            double got = number_get(host, c->type, i), want = expected(c, r, i);
            check(got == want,
                  "kind %d type %d op %d count %zu root %d in place %d: element %zu is %g, want %g",
                  c->kind, c->type, c->op, c->count, c->root, c->in_place, i, got, want);
        }
    }
    if (!c->in_place) { // the input is left alone
        need_cuda(cudaMemcpy(host, send, sends * width, cudaMemcpyDeviceToHost));
        for (size_t i = 0; i < sends; i++)
            check(number_get(host, c->type, i) == input(c, r->rank, i), "input %zu was changed", i);
        need_cuda(cudaFree(recv));
        need_cuda(cudaFree(send));
    } else {
        char *base = c->kind == ALL_GATHER ? recv : send;
        need_cuda(cudaFree(base));
    }
    free(host);
}

static bool exact(const Case *c, int world)
{
    bool power = (world & (world - 1)) == 0;
    return c->op != ncclAvg || c->type <= ncclUint64 || power;
}

static void every_kind(const Rank *r, void *arg)
{
    static const size_t counts[] = {1, 7, 1023};
    for (int kind = 0; kind < KINDS; kind++)
        for (int type = ncclInt8; type <= ncclBfloat16; type++)
            for (int op = 0; op <= ncclNumOps; op++)
                for (int k = 0; k < 3; k++) {
                    if ((kind == ALL_GATHER || kind == BROADCAST) && op != ncclSum) continue;
                    Case c = {(Kind)kind, (ncclDataType_t)type,  op,
                              counts[k],  (type + k) % r->world, (op + k + type) % 2 == 0};
                    if (exact(&c, r->world)) run_case(&c, r);
                }
}

RANK_TEST(test_large, 1, 2, 3, 4, 5, 6, 7, 8)
{
    for (int kind = 0; kind < KINDS; kind++)
        for (int in_place = 0; in_place < 2; in_place++) {
            Case c = {(Kind)kind, ncclFloat32, ncclSum, 65537, r->world - 1, in_place};
            run_case(&c, r);
            c.count = 0;
            float *x;
            need_cuda(cudaMalloc((void **)&x, 4));
            call(&c, r, x, x, ncclSum); // nothing to do, and it still matches
            need_cuda(cudaFree(x));
        }
}

// So much that copies go past the caches, in parts of an odd number of bytes.
RANK_TEST(test_past_caches, 2, 3, 8)
{
    static const Kind kinds[] = {ALL_GATHER, ALL_REDUCE, BROADCAST};
    size_t world = (size_t)r->world, all = (size_t)16 << 20;
    for (int k = 0; k < 3; k++) {
        size_t count = all / world / (kinds[k] == ALL_GATHER ? world : 1) + 77;
        Case c = {kinds[k], ncclInt8, ncclSum, count | 1, 0, k == 1};
        run_case(&c, r);
    }
}

TEST(test_every_kind)
{
    for (int world = 1; world <= 8; world++) run_ranks_limit(world, 60, every_kind, NULL);
}

// ---- Integers wrap around, and keep their signs ----

typedef struct Pair {
    ncclDataType_t type;
    ncclRedOp_t op;
    int64_t in[2], want; // of a narrower type the last bytes
} Pair;

RANK_TEST(test_integers_wrap, 2)
{
    static const Pair pairs[] = {
        {ncclInt8, ncclSum, {100, 100}, -56},
        {ncclInt8, ncclAvg, {100, 100}, -28},
        {ncclInt8, ncclProd, {100, 3}, 44},
        {ncclInt8, ncclMax, {-1, 1}, 1},
        {ncclInt8, ncclMin, {-1, 1}, -1},
        {ncclUint8, ncclSum, {200, 200}, 144},
        {ncclUint8, ncclAvg, {200, 200}, 72},
        {ncclUint8, ncclMax, {255, 1}, 255},
        {ncclInt32, ncclSum, {1 << 30, 1 << 30}, INT32_MIN},
        {ncclInt32, ncclAvg, {1 << 30, 1 << 30}, INT32_MIN / 2},
        {ncclInt32, ncclAvg, {-3, -4}, -3},
        {ncclUint32, ncclAvg, {UINT32_MAX, 3}, 1},
        {ncclUint32, ncclMin, {UINT32_MAX, 3}, 3},
        {ncclInt64, ncclSum, {INT64_MAX, 1}, INT64_MIN},
        {ncclInt64, ncclMin, {-1, 1}, -1},
        {ncclUint64, ncclMax, {-1, 1}, -1}, // 2^64 - 1
    };
    int64_t *x;
    need_cuda(cudaMalloc((void **)&x, sizeof *x));
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        const Pair *p = &pairs[i];
        int64_t got = p->in[r->rank];
        need_cuda(cudaMemcpyAsync(x, &got, sizeof got, cudaMemcpyHostToDevice, r->stream));
        need_nccl(ncclAllReduce(x, x, 1, p->type, p->op, r->comm, r->stream));
        need_cuda(cudaMemcpyAsync(&got, x, sizeof got, cudaMemcpyDeviceToHost, r->stream));
        need_cuda(cudaStreamSynchronize(r->stream));
        size_t width = p->type <= ncclUint8 ? 1 : p->type <= ncclUint32 ? 4 : 8;
        check(memcmp(&got, &p->want, width) == 0, "pair %zu: %lld, want %lld", i, (long long)got,
              (long long)p->want);
    }
    need_cuda(cudaFree(x));
}

// ---- The order of sums ----

// Split at the largest power of two below n; written again here, one element at a time.
static float tree(const float *x, int n)
{
    int p = 1;
    if (n == 1) return x[0];
    while (2 * p < n) p *= 2;
    return tree(x, p) + tree(x + p, n - p);
}

static float uneven(int rank, size_t i)
{
    uint32_t h = (uint32_t)i * 2654435761u + (uint32_t)rank * 40503u + 12345u;
    h ^= h >> 15;
    h *= 2246822519u;
    return ((float)(h >> 8) / 8388608.0f - 1.0f) * ldexpf(1, (int)(h & 15));
}

#define N 5003

RANK_TEST(test_sum_order, 1, 2, 3, 4, 5, 6, 7, 8)
{
    float *x, *y, *z, host[N], inputs[8];
    need_cuda(cudaMalloc((void **)&x, sizeof host));
    need_cuda(cudaMalloc((void **)&y, sizeof host));
    for (size_t i = 0; i < N; i++) host[i] = uneven(r->rank, i);
    send_to(x, host, N);
    for (int again = 0; again < 20; again++) {
        need_nccl(ncclAllReduce(x, y, N, ncclFloat, ncclSum, r->comm, r->stream));
        need_cuda(cudaStreamSynchronize(r->stream));
        z = fetch(y, N);
        for (size_t i = 0; i < N; i++) {
            for (int k = 0; k < r->world; k++) inputs[k] = uneven(k, i);
            float want = tree(inputs, r->world);
            check(memcmp(&z[i], &want, 4) == 0, "round %d, element %zu: %a, want %a", again, i,
                  (double)z[i], (double)want);
        }
        free(z);
    }
    // The average is a sum of inputs that were multiplied by 1/W first.
    need_nccl(ncclAllReduce(x, y, N, ncclFloat, ncclAvg, r->comm, r->stream));
    need_cuda(cudaStreamSynchronize(r->stream));
    z = fetch(y, N);
    for (size_t i = 0; i < N; i++) {
        for (int k = 0; k < r->world; k++) inputs[k] = uneven(k, i) * (1.0f / (float)r->world);
        check(z[i] == tree(inputs, r->world), "average, element %zu", i);
    }
    free(z);
    need_cuda(cudaFree(x));
    need_cuda(cudaFree(y));
}

TEST(test_tree_sum)
{
    enum { COUNT = 1500 };
    static float x[8][COUNT], sum[COUNT];
    const float *inputs[8];
    for (int n = 1; n <= 8; n++) {
        float column[8];
        for (int k = 0; k < n; k++) {
            inputs[k] = x[k];
            for (size_t i = 0; i < COUNT; i++) x[k][i] = uneven(k, i);
        }
        simgpu_tree_sum(sum, inputs, n, COUNT);
        for (size_t i = 0; i < COUNT; i++) {
            for (int k = 0; k < n; k++) column[k] = x[k][i];
            assert_true(sum[i] == tree(column, n));
        }
    }
    for (int n = 2; n <= 8; n *= 2) { // equal inputs: back come the same bits
        for (int k = 0; k < n; k++) inputs[k] = x[0];
        simgpu_tree_sum(sum, inputs, n, COUNT);
        for (size_t i = 0; i < COUNT; i++) {
            float back = sum[i] / (float)n;
            assert_memory_equal(&back, &x[0][i], sizeof back);
        }
    }
}

// ---- 8-bit floats ----

// The value of a code, by its definition (arXiv 2209.05433); NAN where it is none.
static double eight_bits(int code, ncclDataType_t type)
{
    int fraction = type == ncclFloat8e4m3 ? 3 : 2, bias = type == ncclFloat8e4m3 ? 7 : 15;
    int exponent = (code & 0x7f) >> fraction, low = code & ((1 << fraction) - 1);
    double value = exponent ? ldexp(1 + ldexp(low, -fraction), exponent - bias)
                            : ldexp(low, 1 - bias - fraction);
    if (type == ncclFloat8e4m3 && (code & 0x7f) == 0x7f) value = NAN;
    if (type == ncclFloat8e5m2 && exponent == 31) value = low ? NAN : INFINITY;
    return code & 0x80 ? -value : value;
}

// The code whose value is nearest, of two the even one; the largest where it is larger than all.
static int nearest_code(double value, ncclDataType_t type)
{
    int best = 0, sign = signbit(value) ? 0x80 : 0;
    for (int code = 0; code < 0x80; code++) {
        double x = eight_bits(code, type), off = fabs(x - fabs(value));
        double least = fabs(eight_bits(best, type) - fabs(value));
        if (!isfinite(x)) continue;
        if (off < least || (off == least && code % 2 == 0)) best = code;
        if (fabs(value) > x) best = off <= least ? code : best;
    }
    return best | sign;
}

// Every code plus every code, rank 0's in each of 256 places plus rank 1's, which is turned.
RANK_TEST(test_sums_eight_bits, 2)
{
    static const ncclDataType_t types[] = {ncclFloat8e4m3, ncclFloat8e5m2};
    enum { CODES = 256 };
    uint8_t host[CODES], *x;
    need_cuda(cudaMalloc((void **)&x, CODES));
    for (int turn = 0; turn < 2 * CODES; turn++) {
        ncclDataType_t type = types[turn % 2];
        for (int i = 0; i < CODES; i++) host[i] = (uint8_t)(r->rank ? i + turn / 2 : i);
        need_cuda(cudaMemcpyAsync(x, host, CODES, cudaMemcpyHostToDevice, r->stream));
        need_nccl(ncclAllReduce(x, x, CODES, type, ncclSum, r->comm, r->stream));
        need_cuda(cudaMemcpyAsync(host, x, CODES, cudaMemcpyDeviceToHost, r->stream));
        need_cuda(cudaStreamSynchronize(r->stream));
        for (int i = 0; i < CODES; i++) {
            double a = eight_bits(i, type), b = eight_bits((i + turn / 2) % CODES, type);
            double got = eight_bits(host[i], type), sum = a + b;
            bool right = isnan(sum)   ? isnan(got)
                         : isinf(sum) ? host[i] == ((sum < 0 ? 0x80 : 0) | 0x7b)
                                      : got == eight_bits(nearest_code(sum, type), type);
            check(right, "%g + %g is %g (code %#x)", a, b, got, host[i]);
        }
    }
    need_cuda(cudaFree(x));
}

// From Hopper on alone.
static void refuses_eight_bits(const Rank *r, void *arg)
{
    static const ncclDataType_t types[] = {ncclFloat8e4m3, ncclFloat8e5m2};
    Heard *heard = hear(calloc(1, sizeof *heard));
    uint8_t *x;
    need_cuda(cudaMalloc((void **)&x, 8));
    need_cuda(cudaMemsetAsync(x, 0, 8, r->stream));
    for (int i = 0; i < 2; i++) {
        check(ncclAllReduce(x, x, 8, types[i], ncclSum, r->comm, r->stream) == ncclInvalidArgument,
              "an A100 reduces 8-bit floats");
        heard_is(heard, "this machine's GPUs cannot reduce this type", "9.0");
        need_nccl(ncclBroadcast(x, x, 8, types[i], 0, r->comm, r->stream)); // moved, it may be
    }
    need_cuda(cudaFree(x));
    free(heard);
}
TEST(test_refuses_eight_bits_on_older_machines)
{
    setenv("SIMGPU_MACHINE", "a100x8", 1);
    run_ranks(2, refuses_eight_bits, NULL);
    unsetenv("SIMGPU_MACHINE");
}

// Sums of half and bfloat16 are taken in float and rounded once, to nearest, ties to even.
RANK_TEST(test_rounding, 2)
{
    uint16_t host[3], *x;
    need_cuda(cudaMalloc((void **)&x, sizeof host));
    double mine[3] = {r->rank ? 1 : 2048, r->rank ? 3 : 2048, r->rank ? 0x1p-24 : 0x1p-24};
    for (int i = 0; i < 2; i++) host[i] = number_code(mine[i], 10, 15);
    host[2] = 1; // the smallest subnormal half
    need_cuda(cudaMemcpyAsync(x, host, sizeof host, cudaMemcpyHostToDevice, r->stream));
    need_nccl(ncclAllReduce(x, x, 3, ncclFloat16, ncclSum, r->comm, r->stream));
    need_cuda(cudaStreamSynchronize(r->stream));
    need_cuda(cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost));
    // Halves from 2048 on have steps of 2: 2049 lies between 2048 (even) and 2050, 2051 goes to
    // 2052.
    check(number_get(host, ncclFloat16, 0) == 2048, "2048 + 1 is %g",
          number_get(host, ncclFloat16, 0));
    check(number_get(host, ncclFloat16, 1) == 2052, "2048 + 3 is %g",
          number_get(host, ncclFloat16, 1));
    check(host[2] == 2, "twice the smallest half is %#x", host[2]);
    for (int i = 0; i < 2; i++) host[i] = number_code(r->rank ? 2 * i + 1 : 256, 7, 127);
    host[2] = 0x7f80; // infinity
    need_cuda(cudaMemcpyAsync(x, host, sizeof host, cudaMemcpyHostToDevice, r->stream));
    need_nccl(ncclAllReduce(x, x, 3, ncclBfloat16, ncclSum, r->comm, r->stream));
    need_cuda(cudaStreamSynchronize(r->stream));
    need_cuda(cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost));
    check(number_get(host, ncclBfloat16, 0) == 256, "256 + 1 in bfloat16");
    check(number_get(host, ncclBfloat16, 1) == 260, "256 + 3 in bfloat16");
    check(host[2] == 0x7f80, "infinity + infinity in bfloat16 is %#x", host[2]);
    need_cuda(cudaFree(x));
}

// ---- The log ----

static void traffic(const Rank *r, void *arg)
{
    size_t w = (size_t)r->world, n = 24 * sizeof(float);
    float *x, *y;
    need_cuda(cudaMalloc((void **)&x, w * n));
    need_cuda(cudaMalloc((void **)&y, w * n));
    need_cuda(cudaMemsetAsync(x, 0, w * n, r->stream));
    gpulog_reset_traffic();
    need_nccl(ncclAllGather(x, y, 24, ncclFloat, r->comm, r->stream));
    need_nccl(ncclReduceScatter(x, y, 24, ncclFloat, ncclSum, r->comm, r->stream));
    need_nccl(ncclAllReduce(x, y, 24, ncclFloat, ncclSum, r->comm, r->stream));
    need_nccl(ncclBroadcast(x, y, 24, ncclFloat, 0, r->comm, r->stream));
    need_nccl(ncclReduce(x, y, 24, ncclFloat, ncclSum, 0, r->comm, r->stream));
    struct {
        GpuOp op;
        size_t bytes, sent;
    } want[] = {
        {GPU_ALL_GATHER, w * n, (w - 1) * n},
        {GPU_REDUCE_SCATTER, w * n, (w - 1) * n},
        {GPU_ALL_REDUCE, n, 2 * (w - 1) * n / w},
        {GPU_BROADCAST, n, r->rank == r->world - 1 ? 0 : n},
        {GPU_REDUCE, n, r->rank == 0 ? 0 : n},
    };
    _Static_assert(sizeof want / sizeof want[0] == GPU_SEND - GPU_ALL_GATHER, "each is tried");
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        GpuTraffic got = gpulog_traffic(want[i].op);
        check(got.calls == 1 && got.bytes == want[i].bytes && got.sent == want[i].sent,
              "%s: %llu calls, %llu bytes, %llu sent; want 1, %zu, %zu", gpulog_op_name(want[i].op),
              (unsigned long long)got.calls, (unsigned long long)got.bytes,
              (unsigned long long)got.sent, want[i].bytes, want[i].sent);
    }
    int64_t at = gpulog_find(GPU_ALL_GATHER, NULL, 0);
    GpuLogEntry entry;
    check(at >= 0 && gpulog_get((uint64_t)at, &entry), "the all-gather is in the log");
    check(entry.n_ranges == 2 && entry.range[0].ptr == x && entry.range[0].access == GPU_READ &&
              entry.range[0].bytes == n && entry.range[1].ptr == y &&
              entry.range[1].access == GPU_WRITE && entry.range[1].bytes == w * n,
          "its ranges are those of the call");
    need_cuda(cudaStreamSynchronize(r->stream));
    need_cuda(cudaFree(x));
    need_cuda(cudaFree(y));
}

TEST(test_traffic)
{
    for (int world = 1; world <= 8; world += world < 3 ? 1 : 5) run_ranks(world, traffic, NULL);
}

SUITE_MAIN("collective")
