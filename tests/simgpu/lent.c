/* lent.c: what large all-gathers give, of which all ranks have one copy until somebody writes to
 * theirs (nccl/lent.c). What programs read is what they would have read of a copy of their own.
 *
 * Numbers are small integers, so that sums of them are exact.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "cublas_v2.h"
#include "heard.h"

// Element i of what a rank sends in a round.
static float number_of(int rank, int round, size_t i)
{
    return (float)((i * 7 + (size_t)rank * 31 + (size_t)round * 13) % 251);
}

// A rank's buffers, and what is to be in the one that it receives.
typedef struct Gathered {
    size_t each, all; // floats
    float *send, *recv, *host, *want;
} Gathered;

static void fill_send(const Gathered *g, const Rank *r, int round)
{
    for (size_t i = 0; i < g->each; i++) g->host[i] = number_of(r->rank, round, i);
    need_cuda(cudaMemcpyAsync(g->send, g->host, g->each * sizeof(float), cudaMemcpyHostToDevice,
                              r->stream));
    need_cuda(cudaStreamSynchronize(r->stream));
}

static void expect(const Gathered *g, const Rank *r, int round)
{
    for (int rank = 0; rank < r->world; rank++)
        for (size_t i = 0; i < g->each; i++)
            g->want[(size_t)rank * g->each + i] = number_of(rank, round, i);
}

static void gather(const Gathered *g, const Rank *r, int round)
{
    fill_send(g, r, round);
    need_nccl(ncclAllGather(g->send, g->recv, g->each, ncclFloat, r->comm, r->stream));
    expect(g, r, round);
}

static Gathered make(const Rank *r, size_t each)
{
    Gathered g = {.each = each, .all = each * (size_t)r->world};
    need_cuda(cudaMallocAsync((void **)&g.send, g.each * sizeof(float), r->stream));
    need_cuda(cudaMallocAsync((void **)&g.recv, g.all * sizeof(float), r->stream));
    g.host = malloc(g.all * sizeof(float));
    g.want = malloc(g.all * sizeof(float));
    check(g.host && g.want, "no memory");
    return g;
}

static void drop(const Gathered *g, const Rank *r)
{
    need_cuda(cudaFreeAsync(g->send, r->stream));
    need_cuda(cudaFreeAsync(g->recv, r->stream));
    free(g->host);
    free(g->want);
}

// Elements [from, to) of the buffer are as they should be.
static void holds(const Gathered *g, const Rank *r, size_t from, size_t to, const char *when)
{
    need_cuda(cudaMemcpyAsync(g->host, g->recv + from, (to - from) * sizeof(float),
                              cudaMemcpyDeviceToHost, r->stream));
    need_cuda(cudaStreamSynchronize(r->stream));
    for (size_t i = from; i < to; i++)
        check(g->host[i - from] == g->want[i], "%s: element %zu is %g, not %g", when, i,
              g->host[i - from], g->want[i]);
}

// All ranks have come so far. Too small to be lent itself.
static void meet(const Rank *r)
{
    static float *one;
    if (!one) need_cuda(cudaMalloc((void **)&one, sizeof *one));
    need_cuda(cudaMemsetAsync(one, 0, sizeof *one, r->stream));
    need_nccl(ncclAllReduce(one, one, 1, ncclFloat, ncclSum, r->comm, r->stream));
}

static cublasHandle_t handle_of(const Rank *r)
{
    cublasHandle_t handle;
    check(cublasCreate(&handle) == CUBLAS_STATUS_SUCCESS, "no handle");
    check(cublasSetStream(handle, r->stream) == CUBLAS_STATUS_SUCCESS, "no stream");
    return handle;
}

enum { ROWS = 24, INNER = 64, COLS = 3 };

// The sums of the rows of a matrix at element `from`, by a product with ones, are exact.
static void multiply(const Gathered *g, const Rank *r, cublasHandle_t handle, size_t from)
{
    static const float one = 1.0f, zero = 0.0f;
    float ones[INNER * COLS], sums[ROWS * COLS], *B, *C;
    for (int i = 0; i < INNER * COLS; i++) ones[i] = 1.0f;
    need_cuda(cudaMallocAsync((void **)&B, sizeof ones, r->stream));
    need_cuda(cudaMallocAsync((void **)&C, sizeof sums, r->stream));
    need_cuda(cudaMemcpyAsync(B, ones, sizeof ones, cudaMemcpyHostToDevice, r->stream));
    check(cublasSgemm(handle, CUBLAS_OP_T, CUBLAS_OP_N, ROWS, COLS, INNER, &one, g->recv + from,
                      INNER, B, INNER, &zero, C, ROWS) == CUBLAS_STATUS_SUCCESS,
          "a product failed");
    need_cuda(cudaMemcpyAsync(sums, C, sizeof sums, cudaMemcpyDeviceToHost, r->stream));
    need_cuda(cudaStreamSynchronize(r->stream));
    for (int i = 0; i < ROWS * COLS; i++) {
        float sum = 0.0f;
        for (int k = 0; k < INNER; k++)
            sum += g->want[from + (size_t)(i % ROWS) * INNER + (size_t)k];
        check(sums[i] == sum, "sum %d of the rows at %zu is %g, not %g", i, from, sums[i], sum);
    }
    need_cuda(cudaFreeAsync(B, r->stream));
    need_cuda(cudaFreeAsync(C, r->stream));
}

// Promises to write all of n floats, and leaves out [from, to).
static cudaError_t kernel_promise(float *p, size_t n, size_t from, size_t to, cudaStream_t stream)
{
    SimgpuOp op = SIMGPU_BEGIN("kernel_promise", stream);
    float *all = simgpu_overwrite(&op, p, n * sizeof *p);
    for (size_t i = 0; simgpu_ready(&op) && i < n; i++)
        if (i < from || i >= to) all[i] = 5.0f;
    return simgpu_end(&op);
}

// As many floats of each rank that all of them are lent, by a page and a bit.
static size_t lent_each(const Rank *r)
{
    return ((size_t)256 << 10) / sizeof(float) / (size_t)r->world + 1000;
}

// ---- Single cases ----

static void read_and_sent_anew(const Rank *r, void *arg)
{
    static const size_t apart[] = {0, 1, 1023, 4097};
    for (size_t i = 0; i < sizeof apart / sizeof apart[0]; i++) {
        Gathered g = make(r, lent_each(r) + apart[i]);
        gather(&g, r, 1);
        need_cuda(cudaMemsetAsync(g.send, 3, g.each * sizeof(float), r->stream));
        meet(r);
        holds(&g, r, g.each / 2, g.each / 2 + 1, "one element");
        holds(&g, r, 0, g.all, "after the senders wrote anew");
        drop(&g, r);
    }
}

static void written_in_part(const Rank *r, void *arg)
{
    Gathered g = make(r, lent_each(r));
    gather(&g, r, 2);
    size_t from = g.all / 3 + (size_t)r->rank, to = from + 5000;
    need_cuda(cudaMemsetAsync(g.recv + from, 0, (to - from) * sizeof(float), r->stream));
    for (size_t i = from; i < to; i++) g.want[i] = 0.0f;
    meet(r);
    holds(&g, r, to - 10, to + 10, "behind what was set");
    holds(&g, r, 0, g.all, "set in the middle");
    need_cuda(kernel_touch(g.recv, 40, 0, r->stream));
    for (size_t i = 0; i < 10; i++) g.want[i] = 0.0f;
    holds(&g, r, 0, g.all, "a kernel wrote the first bytes");
    drop(&g, r);
}

// What a kernel promises to write and leaves out is as it was gathered, to the last element.
static void promised(const Rank *r, void *arg)
{
    Gathered g = make(r, lent_each(r));
    for (int whole = 0; whole < 2; whole++) {
        gather(&g, r, 3 + whole);
        size_t n = whole ? g.all : g.all / 2, from = n / 2 + 3, to = from + 700;
        need_cuda(kernel_promise(g.recv, n, from, to, r->stream));
        for (size_t i = 0; i < n; i++)
            if (i < from || i >= to) g.want[i] = 5.0f;
        holds(&g, r, 0, g.all, "promised");
    }
    drop(&g, r);
}

// The same buffer again, of which a part is borrowed still, and by some ranks all.
static void gathered_again(const Rank *r, void *arg)
{
    Gathered g = make(r, lent_each(r));
    for (int round = 0; round < 75; round++) {
        gather(&g, r, round);
        if ((round + r->rank) % 3 == 0) holds(&g, r, 100, 2000, "a part of it");
        if ((round + r->rank) % 5 == 0) holds(&g, r, 0, g.all, "gathered again");
    }
    holds(&g, r, 0, g.all, "gathered 75 times");
    drop(&g, r);
}

// Whoever sends what it borrows, or has it reduced, sends what was gathered.
static void sent_on(const Rank *r, void *arg)
{
    Gathered g = make(r, lent_each(r)), h = make(r, lent_each(r));
    int before = (r->rank + r->world - 1) % r->world, next = (r->rank + 1) % r->world;
    gather(&g, r, 6);
    need_nccl(ncclAllGather(g.recv + (size_t)next * g.each, h.recv, h.each, ncclFloat, r->comm,
                            r->stream));
    for (int rank = 0; rank < r->world; rank++)
        for (size_t i = 0; i < h.each; i++)
            h.want[(size_t)rank * h.each + i] = number_of((rank + 1) % r->world, 6, i);
    holds(&h, r, 0, h.all, "gathered of what was gathered");
    need_nccl(ncclAllReduce(g.recv, g.recv, g.all, ncclFloat, ncclSum, r->comm, r->stream));
    for (size_t i = 0; i < g.all; i++) g.want[i] *= (float)r->world;
    holds(&g, r, 0, g.all, "reduced");
    gather(&g, r, 7);
    need_nccl(ncclGroupStart());
    need_nccl(ncclSend(g.recv, g.all, ncclFloat, next, r->comm, r->stream));
    need_nccl(ncclRecv(h.recv, h.all, ncclFloat, before, r->comm, r->stream));
    need_nccl(ncclGroupEnd());
    memcpy(h.want, g.want, g.all * sizeof(float));
    holds(&h, r, 0, h.all, "sent on");
    drop(&g, r);
    drop(&h, r);
}

static void in_place(const Rank *r, void *arg)
{
    Gathered g = make(r, lent_each(r));
    for (int round = 0; round < 3; round++) {
        float *own = g.recv + (size_t)r->rank * g.each;
        fill_send(&g, r, round);
        need_cuda(cudaMemcpyAsync(own, g.send, g.each * sizeof(float), cudaMemcpyDeviceToDevice,
                                  r->stream));
        need_nccl(ncclAllGather(own, g.recv, g.each, ncclFloat, r->comm, r->stream));
        expect(&g, r, round);
        holds(&g, r, 0, g.all, "in place");
    }
    drop(&g, r);
}

// A buffer from no multiple of 64 bytes on, a part of an allocation, several calls in one group.
static void other_places(const Rank *r, void *arg)
{
    Gathered g = make(r, lent_each(r) + 64), h = make(r, lent_each(r));
    float *recv = g.recv;
    g.each = lent_each(r);
    g.all = g.each * (size_t)r->world;
    for (int shift = 1; shift <= 32; shift *= 2) {
        g.recv = recv + shift;
        gather(&g, r, shift);
        holds(&g, r, 0, g.all, "shifted");
    }
    fill_send(&g, r, 8);
    fill_send(&h, r, 9);
    need_nccl(ncclGroupStart());
    need_nccl(ncclAllGather(g.send, g.recv, g.each, ncclFloat, r->comm, r->stream));
    need_nccl(ncclAllGather(h.send, h.recv, h.each, ncclFloat, r->comm, r->stream));
    need_nccl(ncclGroupEnd());
    expect(&g, r, 8);
    expect(&h, r, 9);
    holds(&g, r, 0, g.all, "the first of a group");
    holds(&h, r, 0, h.all, "the second of a group");
    g.recv = recv;
    drop(&g, r);
    drop(&h, r);
}

// More at once than there are places; given back in another order by each rank.
static void many_at_once(const Rank *r, void *arg)
{
    enum { MANY = 70 };
    Gathered g[MANY];
    for (int i = 0; i < MANY; i++) {
        g[i] = make(r, lent_each(r));
        gather(&g[i], r, i);
    }
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < MANY; i++) {
            int which = (i * 11 + r->rank * 17 + round) % MANY;
            holds(&g[which], r, 0, g[which].all, "one of many");
            if (which % 2 == 0 && round == 0)
                need_cuda(cudaMemsetAsync(g[which].recv, 0, 64, r->stream));
            if (which % 2 == 0 && round == 0) memset(g[which].want, 0, 64);
        }
    for (int i = 0; i < MANY; i++) gather(&g[i], r, i + MANY);
    for (int i = MANY - 1; i >= 0; i--) holds(&g[i], r, 0, g[i].all, "gathered anew");
    for (int i = 0; i < MANY; i++) drop(&g[i], r);
}

static void multiplied(const Rank *r, void *arg)
{
    Gathered g = make(r, lent_each(r));
    cublasHandle_t handle = handle_of(r);
    for (int round = 0; round < 4; round++) {
        gather(&g, r, round);
        multiply(&g, r, handle, 0);
        multiply(&g, r, handle, g.all - ROWS * INNER);
        need_cuda(cudaMemsetAsync(g.recv + 2000, 0, 2000 * sizeof(float), r->stream));
        for (size_t i = 2000; i < 4000; i++) g.want[i] = 0.0f;
        multiply(&g, r, handle, 1000); // of both
        multiply(&g, r, handle, 2100);
        multiply(&g, r, handle, 4000);
        holds(&g, r, 0, g.all, "after products");
    }
    cublasDestroy(handle);
    drop(&g, r);
}

// A product that is added to what was gathered.
static void added_to(const Rank *r, void *arg)
{
    static const float one = 1.0f;
    Gathered g = make(r, lent_each(r));
    cublasHandle_t handle = handle_of(r);
    float ones[INNER], *B;
    for (int i = 0; i < INNER; i++) ones[i] = 1.0f;
    need_cuda(cudaMallocAsync((void **)&B, sizeof ones, r->stream));
    need_cuda(cudaMemcpyAsync(B, ones, sizeof ones, cudaMemcpyHostToDevice, r->stream));
    gather(&g, r, 9);
    check(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 8, 8, 8, &one, B, 8, B, 8, &one,
                      g.recv + 100, 8) == CUBLAS_STATUS_SUCCESS,
          "a product failed");
    for (size_t i = 100; i < 164; i++) g.want[i] += 8.0f;
    holds(&g, r, 0, g.all, "added to");
    need_cuda(cudaFreeAsync(B, r->stream));
    cublasDestroy(handle);
    drop(&g, r);
}

// More holes than what is owed has room for (owed.c).
static void in_many_pieces(const Rank *r, void *arg)
{
    Gathered g = make(r, lent_each(r));
    gather(&g, r, 10);
    for (size_t i = 7; i < g.all; i += g.all / 150) {
        need_cuda(cudaMemsetAsync(g.recv + i, 0, sizeof(float), r->stream));
        g.want[i] = 0.0f;
    }
    need_cuda(cudaMemsetAsync(g.send, 3, g.each * sizeof(float), r->stream));
    holds(&g, r, 0, g.all, "in many pieces");
    drop(&g, r);
}

// A part of an allocation that owes other things in front of it and behind it.
static void among_other_pieces(const Rank *r, void *arg)
{
    enum { EDGE = 4096, FRONT = 3 * EDGE };
    Gathered g = make(r, lent_each(r));
    float *recv = g.recv;
    unsigned char *all, host[FRONT];
    size_t bytes = g.all * sizeof(float);
    need_cuda(cudaMallocAsync((void **)&all, bytes + 2 * FRONT, r->stream));
    need_cuda(cudaMemsetAsync(all, 3, EDGE, r->stream)); // owed, as is the poison behind it
    need_cuda(cudaMemsetAsync(all + 2 * EDGE, 4, EDGE, r->stream));
    g.recv = (float *)(void *)(all + FRONT);
    gather(&g, r, 13);
    need_cuda(cudaMemsetAsync(all + FRONT + bytes, 5, FRONT, r->stream));
    need_cuda(cudaMemcpyAsync(host, all, FRONT, cudaMemcpyDeviceToHost, r->stream));
    need_cuda(cudaStreamSynchronize(r->stream));
    for (int i = 0; i < FRONT; i++)
        check(host[i] == (i < EDGE ? 3 : i < 2 * EDGE ? 0xff : 4), "byte %d is %d", i, host[i]);
    need_cuda(cudaMemsetAsync(all, 0, FRONT + g.all / 2 * sizeof(float), r->stream));
    memset(g.want, 0, g.all / 2 * sizeof(float));
    holds(&g, r, 0, g.all, "among other pieces");
    need_cuda(cudaFreeAsync(all, r->stream));
    g.recv = recv;
    drop(&g, r);
}

// The host reads managed memory itself.
static void managed(const Rank *r, void *arg)
{
    Gathered g = make(r, lent_each(r));
    float *recv = g.recv;
    need_cuda(cudaMallocManaged((void **)&g.recv, g.all * sizeof(float), cudaMemAttachGlobal));
    gather(&g, r, 11);
    need_cuda(cudaStreamSynchronize(r->stream));
    for (size_t i = 0; i < g.all; i++)
        check(g.recv[i] == g.want[i], "element %zu is %g, not %g", i, g.recv[i], g.want[i]);
    need_cuda(cudaFree(g.recv));
    g.recv = recv;
    drop(&g, r);
}

// A group's calls happen in their order here, also where one uses what another gives (with all
// checks that is reported), and where rank 0 makes them one by one.
static void used_in_its_group(const Rank *r, void *arg)
{
    Gathered g = make(r, lent_each(r));
    if (r->rank > 0) need_nccl(ncclGroupStart());
    gather(&g, r, 12);
    need_nccl(ncclAllReduce(g.recv, g.recv, g.all, ncclFloat, ncclSum, r->comm, r->stream));
    if (r->rank > 0) need_nccl(ncclGroupEnd());
    for (size_t i = 0; i < g.all; i++) g.want[i] *= (float)r->world;
    holds(&g, r, 0, g.all, "used in its group");
    drop(&g, r);
}

// A communicator may go before what was gathered by it is read; the others of it stay.
static void outlives_its_communicator(const Rank *r, void *arg)
{
    Gathered g = make(r, lent_each(r)), h = make(r, lent_each(r));
    ncclComm_t comm;
    need_nccl(ncclCommSplit(r->comm, 0, r->rank, &comm, NULL));
    gather(&h, r, 4);
    fill_send(&g, r, 5);
    need_nccl(ncclAllGather(g.send, g.recv, g.each, ncclFloat, comm, r->stream));
    expect(&g, r, 5);
    cublasHandle_t handle = handle_of(r);
    need_cuda(cudaStreamSynchronize(r->stream));
    need_nccl(r->rank % 2 ? ncclCommDestroy(comm) : ncclCommAbort(comm));
    meet(r);
    multiply(&g, r, handle, 64);
    holds(&g, r, 0, g.all, "its communicator is gone");
    holds(&h, r, 0, h.all, "another's is not");
    cublasDestroy(handle);
    drop(&g, r);
    drop(&h, r);
}

// Freed, and allocated again: there is the poison that is due.
static void freed(const Rank *r, void *arg)
{
    bool again = false;
    float *first = NULL;
    for (int round = 0; round < 100; round++) {
        Gathered g = make(r, lent_each(r));
        unsigned char *p, byte = 0;
        gather(&g, r, round);
        need_cuda(cudaFreeAsync(g.recv, r->stream));
        need_cuda(cudaMallocAsync((void **)&p, g.all * sizeof(float), r->stream));
        again |= (float *)(void *)p == first || (first && g.recv == first);
        if (!first) first = g.recv;
        need_cuda(cudaMemcpyAsync(&byte, p + g.all, 1, cudaMemcpyDeviceToHost, r->stream));
        need_cuda(cudaStreamSynchronize(r->stream));
        check(byte == 0xff, "fresh memory holds %d", byte);
        g.recv = (float *)(void *)p;
        drop(&g, r);
    }
    check(again, "no address was used again");
}

static const RankBody cases[] = {
    read_and_sent_anew,
    written_in_part,
    promised,
    gathered_again,
    sent_on,
    in_place,
    other_places,
    many_at_once,
    multiplied,
    added_to,
    in_many_pieces,
    among_other_pieces,
    managed,
    used_in_its_group,
    outlives_its_communicator,
    freed,
};

TEST(test_cases)
{
    static const int worlds[] = {2, 3, 8, 1, 5};
    enum { WORLDS = sizeof worlds / sizeof worlds[0] };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (size_t w = i % 2; w < WORLDS; w += 2) runs_unheard(worlds[w], cases[i]);
}

// ---- One copy ----

// A rank that copies keeps no place from the next ones: because its call is of a group, which those
// of other ranks need not be, or because its buffer is managed memory.
static void copies_keep_no_place(const Rank *r)
{
    Gathered g = make(r, lent_each(r));
    float *recv = g.recv;
    if (r->rank % 2)
        need_cuda(cudaMallocManaged((void **)&g.recv, g.all * sizeof(float), cudaMemAttachGlobal));
    for (int round = 0; round < 70; round++) {
        if (r->rank > 0) need_nccl(ncclGroupStart());
        gather(&g, r, round);
        need_nccl(ncclAllReduce(g.send, g.send, 1, ncclFloat, ncclSum, r->comm, r->stream));
        if (r->rank > 0) need_nccl(ncclGroupEnd());
    }
    if (r->rank % 2) need_cuda(cudaFree(g.recv));
    g.recv = recv;
    drop(&g, r);
}

// Neither the gather nor a product touches the memory of the buffer that borrows: of what a rank
// touches of shared memory the largest part is its own shard, and what it multiplies by.
static void touches_a_part(const Rank *r, void *arg)
{
    Gathered g = make(r, ((size_t)16 << 20) / sizeof(float) / (size_t)r->world);
    cublasHandle_t handle = handle_of(r);
    copies_keep_no_place(r);
    fill_send(&g, r, 1);
    meet(r);
    long before = shared_kilobytes();
    need_nccl(ncclAllGather(g.send, g.recv, g.each, ncclFloat, r->comm, r->stream));
    expect(&g, r, 1);
    multiply(&g, r, handle, g.all / 2);
    long touched = shared_kilobytes() - before;
    check(touched < 4 << 10, "%ld KiB are touched, of 2 MiB that each rank sends", touched);
    holds(&g, r, 0, g.all, "after that");
    check(shared_kilobytes() - before > 15 << 10, "nothing was read");
    cublasDestroy(handle);
    drop(&g, r);
}

// The places of what nobody borrows any more are used again: memory does not grow.
static void places_come_again(const Rank *r, void *arg)
{
    long before = 0;
    for (int round = 0; round < 40; round++) {
        Gathered g = make(r, ((size_t)4 << 20) / sizeof(float) / (size_t)r->world);
        cublasHandle_t handle = handle_of(r);
        gather(&g, r, round);
        for (size_t at = 0; at + ROWS * INNER < g.all; at += g.all / 50)
            multiply(&g, r, handle, at);
        if (round % 3 == 0) holds(&g, r, 0, g.all / 2, "half of it");
        drop(&g, r);
        meet(r);
        if (round == 5) before = shared_kilobytes();
        cublasDestroy(handle);
    }
    check(shared_kilobytes() - before < 6 << 10, "%ld KiB more after 34 rounds",
          shared_kilobytes() - before);
}

TEST(test_one_copy)
{
    runs_unheard(8, touches_a_part);
    runs_unheard(4, places_come_again);
}

// ---- Drawn operations, against memory of the host ----

enum { BUFFERS = 3, ROUNDS = 80 };

static uint32_t state_of_draw; // this rank's own
static size_t draw_below(size_t n)
{
    state_of_draw = state_of_draw * 1664525u + 1013904223u;
    return (size_t)(state_of_draw >> 8) % n;
}

static void draw_one(Gathered *g, Gathered *other, const Rank *r, cublasHandle_t handle)
{
    size_t from = draw_below(g->all), n = 1 + draw_below(g->all - from);
    size_t at = draw_below(g->all - n + 1);
    switch (draw_below(7)) {
    case 0:
        need_cuda(cudaMemsetAsync(g->recv + from, 0, n * sizeof(float), r->stream));
        memset(g->want + from, 0, n * sizeof(float));
        break;
    case 1:
        need_cuda(cudaMemcpyAsync(g->recv + from, other->recv + at, n * sizeof(float),
                                  cudaMemcpyDeviceToDevice, r->stream));
        memcpy(g->want + from, other->want + at, n * sizeof(float));
        break;
    case 2:
        need_cuda(kernel_promise(g->recv + from, n, n, n, r->stream));
        for (size_t i = 0; i < n; i++) g->want[from + i] = 5.0f;
        break;
    case 3:
        need_cuda(cudaFreeAsync(g->recv, r->stream));
        need_cuda(cudaMallocAsync((void **)&g->recv, g->all * sizeof(float), r->stream));
        need_cuda(cudaMemsetAsync(g->recv, 0, g->all * sizeof(float), r->stream));
        memset(g->want, 0, g->all * sizeof(float));
        break;
    case 4: holds(g, r, from, from + n, "drawn"); break;
    default: multiply(g, r, handle, draw_below(g->all - ROWS * INNER));
    }
}

// All ranks gather into the same buffer, and between that each does what it draws for itself.
static void draws(const Rank *r, void *arg)
{
    Gathered g[BUFFERS];
    cublasHandle_t handle = handle_of(r);
    uint32_t seed = *(uint32_t *)arg;
    state_of_draw = seed + 977u * (uint32_t)r->rank;
    for (int i = 0; i < BUFFERS; i++) {
        g[i] = make(r, lent_each(r) / (i == 2 ? 2 : 1)); // the last is not lent
        gather(&g[i], r, i);
    }
    for (int round = 0; round < ROUNDS; round++) {
        gather(&g[(seed >> 3) * (uint32_t)round % BUFFERS], r, round);
        for (size_t n = draw_below(5); n > 0; n--) {
            size_t i = draw_below(BUFFERS), other = i == 2 ? 2 : draw_below(2);
            draw_one(&g[i], &g[other == i ? 1 - i % 2 : other], r, handle);
        }
    }
    for (int i = 0; i < BUFFERS; i++) holds(&g[i], r, 0, g[i].all, "at the end");
    for (int i = 0; i < BUFFERS; i++) drop(&g[i], r);
    cublasDestroy(handle);
}

TEST(test_draws)
{
    setenv("SIMGPU_CHECK", "fast", 1);
    for (int world = 2; world <= 4; world++)
        for (uint32_t seed = 1; seed <= 2; seed++) {
            uint32_t *drawn = shared_alloc(sizeof *drawn);
            *drawn = 7919u * seed + (uint32_t)world;
            run_ranks(world, draws, drawn);
        }
    unsetenv("SIMGPU_CHECK");
}

// ---- Ranks of one process ----

enum { THREADS = 4 };

typedef struct Member {
    ncclComm_t comm;
    int number;
} Member;

static void *gather_by_thread(void *arg)
{
    const Member *m = arg;
    Rank r = {.rank = m->number, .world = THREADS, .device = m->number, .comm = m->comm};
    need_cuda(cudaSetDevice(m->number));
    need_cuda(cudaStreamCreateWithFlags(&r.stream, cudaStreamNonBlocking));
    cublasHandle_t handle = handle_of(&r);
    Gathered g = make(&r, lent_each(&r));
    for (int round = 0; round < 60; round++) {
        gather(&g, &r, round);
        multiply(&g, &r, handle, 64 * (size_t)round);
        if ((round + r.rank) % 4 == 0) holds(&g, &r, 0, g.all, "by a thread");
    }
    drop(&g, &r);
    cublasDestroy(handle);
    need_cuda(cudaStreamSynchronize(r.stream));
    need_cuda(cudaStreamDestroy(r.stream));
    return NULL;
}

static void threads(const Rank *r, void *arg)
{
    static const int devices[THREADS] = {0, 1, 2, 3};
    ncclComm_t comm[THREADS];
    pthread_t thread[THREADS];
    Member member[THREADS];
    need_nccl(ncclCommInitAll(comm, THREADS, devices));
    for (int i = 0; i < THREADS; i++) {
        member[i] = (Member){comm[i], i};
        check(pthread_create(&thread[i], NULL, gather_by_thread, &member[i]) == 0, "no thread");
    }
    for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
    for (int i = 0; i < THREADS; i++) need_nccl(ncclCommDestroy(comm[i]));
}

TEST(test_threads)
{
    runs_unheard(1, threads);
}

// ---- Reports ----

// With all checks nothing is said of what was gathered, and what nobody sent is found as ever.
static void reported(const Rank *r, void *arg)
{
    Heard *heard = hear((Heard *)arg + r->rank);
    cublasHandle_t handle = handle_of(r);
    Gathered g = make(r, lent_each(r));
    gather(&g, r, 1);
    multiply(&g, r, handle, 640);
    holds(&g, r, 0, g.all, "with all checks");
    check(heard->count == 0, "it is reported: %s", heard->title);
    need_cuda(cudaFreeAsync(g.send, r->stream));
    need_cuda(cudaMallocAsync((void **)&g.send, g.each * sizeof(float), r->stream));
    need_nccl(ncclAllGather(g.send, g.recv, g.each, ncclFloat, r->comm, r->stream));
    heard_is(heard, "an uninitialised read of device memory", "ncclAllGather");
    need_cuda(
        cudaMemcpyAsync(g.host, g.recv, g.all * sizeof(float), cudaMemcpyDeviceToHost, r->stream));
    need_cuda(cudaStreamSynchronize(r->stream));
    for (size_t i = 0; i < g.all; i++) check(g.host[i] != g.host[i], "element %zu is no NaN", i);
    drop(&g, r);
    cublasDestroy(handle);
}

TEST(test_reported)
{
    run_ranks(2, reported, shared_alloc(2 * sizeof(Heard)));
}

SUITE_MAIN("lent")
