/* race_bench.h: streams, events and buffers of a rank for the suites of races, race.c and
 * race_memory.c, whose mains make `heard`; and what must be reported, or not.
 */
#ifndef SHARDLAB_RACE_BENCH_H
#define SHARDLAB_RACE_BENCH_H

#include <stdlib.h>

#include "heard.h"

static Heard *heard;

enum { N = 1003 }; // bytes, odd on purpose

typedef struct Bench {
    cudaStream_t a, b, blocking; // a and b: non-blocking
    cudaEvent_t e, f;
    unsigned char *x, *pinned;               // (N) each; x holds zeros
    unsigned char *y, *y_of_b, *y_of_others; // (N) each: where x is read to, of one stream each
    Heard *heard;
} Bench;

static inline Bench set_up(const Rank *r)
{
    Bench t;
    t.a = make_stream(cudaStreamNonBlocking);
    t.b = make_stream(cudaStreamNonBlocking);
    t.blocking = make_stream(cudaStreamDefault);
    need_cuda(cudaEventCreateWithFlags(&t.e, cudaEventDisableTiming));
    need_cuda(cudaEventCreateWithFlags(&t.f, cudaEventDisableTiming));
    need_cuda(cudaMalloc((void **)&t.x, N));
    need_cuda(cudaMalloc((void **)&t.y, N));
    need_cuda(cudaMalloc((void **)&t.y_of_b, N));
    need_cuda(cudaMalloc((void **)&t.y_of_others, N));
    need_cuda(cudaMallocHost((void **)&t.pinned, N));
    need_cuda(cudaMemset(t.x, 0, N));
    need_cuda(cudaMemset(t.y, 0, N));
    memset(t.pinned, 0, N);
    need_cuda(cudaDeviceSynchronize());
    t.heard = hear(&heard[r->rank]);
    return t;
}

// Bytes [from, to) of x, on a stream.
static inline void write_x(const Bench *t, int from, int to, cudaStream_t stream)
{
    need_cuda(cudaMemsetAsync(t->x + from, 1, (size_t)(to - from), stream));
}

static inline void read_x(const Bench *t, int from, int to, cudaStream_t stream)
{
    unsigned char *y = stream == t->a ? t->y : stream == t->b ? t->y_of_b : t->y_of_others;
    need_cuda(cudaMemcpyAsync(y + from, t->x + from, (size_t)(to - from), cudaMemcpyDeviceToDevice,
                              stream));
}

#define silent(t) check((t)->heard->count == 0, "a false alarm: %s", (t)->heard->text)

static const char *const RACE =
    "two operations on the same memory, and neither waits for the other";

// One report, of a race, with these words; then all is forgotten.
static inline void race_at(int line, const Bench *t, const char *words)
{
    if (t->heard->count != 1 || strcmp(t->heard->title, RACE) || t->heard->kind != SIMGPU_RACE)
        rank_fails(__FILE__, line, "%d reports, the last: %s", t->heard->count,
                   t->heard->count ? t->heard->text : "none");
    if (!strstr(t->heard->text, words))
        rank_fails(__FILE__, line, "no \"%s\" in: %s", words, t->heard->text);
    need_cuda(cudaDeviceSynchronize());
    t->heard->count = 0;
}
#define race(t, words) race_at(__LINE__, t, words)

#endif
